//! Signals: blocking signals, and the identity of the holders of a lock.

use core::num::NonZeroU32;

/// The capability *signals*, for a lock whose holder a signal handler or a fork may interrupt. The
/// lock of `coreline`'s slots uses it. `BiasedRwLock` uses [`thread_id`](Signals::thread_id).
pub trait Signals {
    /// A guard that blocks signals until it drops.
    type Held;

    /// Blocks the calling thread's signals until the returned value drops, on the same thread.
    ///
    /// No handler runs on the thread in this time, so the thread may make changes that no handler
    /// may see half-done. Calls may be nested. The inner guard must drop first, or signals arrive
    /// while it is alive. A thread that is started in this time has its signals blocked for its
    /// whole life.
    ///
    /// Signals that a thread causes itself, such as by a bad access or a breakpoint, are not
    /// blocked, even if another thread sends them. So handlers of such signals must not execute
    /// operations that need this block. If operations run without sections or may find no slot,
    /// these handlers must not push to or pop from a per-CPU stack. Nor may they create per-CPU
    /// memory. Such a handler would wait for the thread that it interrupts. Operations on words are
    /// also safe in these handlers.
    fn hold() -> Self::Held;

    /// Returns the generation of the caller's memory. A child that got its own copy of the memory
    /// by a fork has a new generation, different from the generations of all its ancestors until
    /// then. Threads, and children that share their parent's memory, have the same generation. Two
    /// children of one parent can have the same generation. A parent that asks for the first time
    /// after the fork can also have this generation. This is harmless, because neither process sees
    /// the other's writes.
    fn generation() -> NonZeroU32;

    /// Returns the number of the calling thread. No two live threads of a process have the same
    /// number.
    fn thread_id() -> NonZeroU32;

    /// Returns whether the calling thread is unwinding from a panic.
    fn is_unwinding() -> bool;
}
