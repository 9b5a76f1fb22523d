//! What a call does to a worker that has no work.

/// What a call does to a worker that has no work. The other policies are for comparison. A program
/// should use [`Notify`](Policy::Notify).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The worker runs the call and goes on waiting. It looks for tasks only if the call queued
    /// one. The kernel's `TIF_NOTIFY_IPI` was proposed for this ([Nayak 2024][nayak]).
    ///
    /// [nayak]: https://lore.kernel.org/lkml/20240220171457.703-1-kprateek.nayak@amd.com
    #[default]
    Notify,
    /// A call counts as work. After each call the worker looks at the tasks of all others, as an
    /// idle CPU of the kernel does after an interrupt announced by `TIF_NEED_RESCHED`.
    Resched,
    /// As `Notify`, but each call is a wake-up with a system call, even of a polling worker:
    /// Nayak's "revert".
    AlwaysKick,
}
