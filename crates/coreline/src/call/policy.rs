//! The ways to reach a worker that has no work.

/// The effect of a call on a worker that has no work. A program should use
/// [`Notify`](Policy::Notify). The other policies are for comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The worker runs the call and continues to wait. It looks for tasks only if the call queued a
    /// task. The flag `TIF_NOTIFY_IPI` is proposed for the same purpose in the kernel ([Nayak
    /// 2024][nayak]).
    ///
    /// [nayak]: https://lore.kernel.org/lkml/20240220171457.703-1-kprateek.nayak@amd.com
    #[default]
    Notify,
    /// A call counts as work. After each call, the worker checks the tasks of all other workers, as
    /// an idle CPU of the kernel does after an interrupt announced by `TIF_NEED_RESCHED`.
    Resched,
    /// Like `Notify`, but each call wakes the worker with a system call, even if the worker polls.
    /// This is Nayak's "revert".
    AlwaysKick,
}
