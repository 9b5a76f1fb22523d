//! Signals: holding them off, and what tells the holders of a lock apart.

use core::num::NonZeroU32;

/// The capability *signals*: what a lock needs that is taken where signal handlers and forks come
/// in between. Its one user is the lock of `coreline`'s slots.
pub trait Signals {
    /// Signals are held off while this lives.
    type Held;

    /// Holds off the calling thread's signals until the returned value drops, on the same thread.
    ///
    /// A handler never runs on the thread meanwhile, so the thread may do what a handler must not
    /// meet half-done. May be nested; the inner one must drop first, or signals come while it
    /// lives. A thread that is started meanwhile has its signals held off for good.
    ///
    /// Signals that a thread causes itself, as by a bad access or a breakpoint, are not held off,
    /// even if another thread sends them. So their handlers must not do what is done under this: no
    /// operation on a list, a stack or a buffer where operations run without sections, or may find
    /// no slot, and no making of per-CPU memory. They would wait for the thread that they
    /// interrupt. Operations on words are safe there, too.
    fn hold() -> Self::Held;

    /// The generation of the caller's memory: a child that got its own copy of it by a fork has
    /// another one than each that it descends from had until then. Threads, and children that share
    /// their parent's memory, have the same. Two children of one parent can have the same, and so
    /// can a parent that asks for the first time after the fork: what one of them writes the other
    /// never sees.
    fn generation() -> NonZeroU32;

    /// The number of the calling thread: no two live threads of a process have the same.
    fn thread_id() -> NonZeroU32;

    /// Whether the calling thread is unwinding because it panicked.
    fn is_unwinding() -> bool;
}
