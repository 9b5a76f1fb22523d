//! What a call makes of a worker that has no work.

/// What a call makes of a worker that has no work. To compare; a program wants
/// [`Notify`](Policy::Notify).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The worker runs the call and goes on waiting. It looks for tasks only if the call queued
    /// one: what the kernel's `TIF_NOTIFY_IPI` was to bring ([Nayak 2024][nayak]).
    ///
    /// [nayak]: https://lore.kernel.org/lkml/20240220171457.703-1-kprateek.nayak@amd.com
    #[default]
    Notify,
    /// A call is taken for work: after each the worker looks at the tasks of all others, as an
    /// idle CPU of the kernel does that was told of an interrupt by `TIF_NEED_RESCHED`.
    Resched,
    /// As `Notify`, and each call is a wake-up with a system call, also of a worker that polls:
    /// Nayak's "revert".
    AlwaysKick,
}
