//! Signals: holding them off, and telling address spaces apart after a fork.

use core::num::NonZeroU32;

/// The capability *signals*.
pub trait Signals {
    /// Signals are held off while this lives.
    type Held;

    /// Holds off the calling thread's signals until the returned value drops, on the same thread.
    ///
    /// A handler never runs on the thread meanwhile, so the thread may do what a handler must not
    /// meet half-done. (Signals that the thread causes itself, as by a bad access, are not held
    /// off.) May be nested; the inner one must drop first, or signals stay held off. A thread that
    /// is started meanwhile has its signals held off for good.
    fn hold() -> Self::Held;

    /// The generation of the caller's memory: a child that got its own copy of it by a fork has
    /// another one than all that it descends from. Threads, and children that share their parent's
    /// memory, have the same.
    fn generation() -> NonZeroU32;
}
