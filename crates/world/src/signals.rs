//! Signals: how to block them, and how to tell the holders of a lock apart.

use core::num::NonZeroU32;

/// The capability *signals*, for a lock that signal handlers and forks may interrupt. Only the lock
/// of `coreline`'s slots uses it.
pub trait Signals {
    /// Signals are blocked while this lives.
    type Held;

    /// Blocks the calling thread's signals until the returned value drops, on the same thread.
    ///
    /// No handler runs on the thread meanwhile, so the thread may do what a handler must not find
    /// half-done. It may be nested. The inner value must drop first, or signals come while it
    /// lives. A thread that is started meanwhile has its signals blocked for its whole life.
    ///
    /// Signals that a thread causes itself, such as by a bad access or a breakpoint, are not
    /// blocked, even if another thread sends them. So their handlers must not do what is done under
    /// this: no operation on a list, a stack or a buffer if operations run without sections or may
    /// find no slot, and no making of per-CPU memory. They would wait for the thread that they
    /// interrupt. Operations on words are also safe there.
    fn hold() -> Self::Held;

    /// The generation of the caller's memory. A child that got its own copy of the memory by a fork
    /// has another generation than all its ancestors had until then. Threads, and children that
    /// share their parent's memory, have the same generation. Two children of one parent can have
    /// the same, and so can a parent that asks for the first time after the fork. This does no
    /// harm: neither sees what the other writes.
    fn generation() -> NonZeroU32;

    /// The number of the calling thread: no two live threads of a process have the same.
    fn thread_id() -> NonZeroU32;

    /// Whether the calling thread is unwinding because it panicked.
    fn is_unwinding() -> bool;
}
