//! Time slice extension: a thread that holds a lock asks to stay on its CPU for a few microseconds.
//!
//! A thread that is preempted while it holds a lock keeps all waiters waiting for a turn of the
//! scheduler. A kernel with slice extensions lets a thread avoid this. The thread sets a flag in
//! its own memory before the section, and clears the flag after it. If the thread's time slice ends
//! meanwhile, the kernel lets the thread continue for a few microseconds. In return, the thread
//! gives its CPU up immediately after the section.
//!
//! | step | Linux: fields of `struct rseq` | cost |
//! |---|---|---|
//! | [enable](SliceExtension::enable_extension) | `prctl`, and one trial yield | 2 calls |
//! | [request](SliceExtension::request_extension) | `slice_ctrl.request = 1` | a store |
//! | the slice ends | the kernel sets `request = 0`, `granted = 1` | an interrupt |
//! | [end](SliceExtension::end_extension), no grant | `request = 0` | a store and a load |
//! | [end](SliceExtension::end_extension), grant | `rseq_slice_yield()` | a system call, a switch |
//!
//! The rules of the kernel:
//!
//! * A slice is extended once, by 5 us if the administrator sets nothing else (up to 50 us).
//! * A second end of the slice, such as the end of the extension, takes the grant back. The thread
//!   is preempted.
//! * Any system call other than `rseq_slice_yield` takes the grant back. The thread gives its CPU
//!   up before the call. So a lock whose holder wakes a sleeping waiter by a system call gains
//!   little: the waiter is woken only when the holder has its CPU again.
//! * A thread that is preempted in user code, or moved to another CPU, has neither a request nor a
//!   grant when it runs again. A thread that blocks, and runs again on the same CPU, still has its
//!   request. (In Linux 7.3.4, in an emulated machine with four CPUs, 200 of 200 requests were
//!   there after a sleep.)
//! * Only an interrupt or a fault of user code leads to a grant. If the slice ends during a system
//!   call, the thread is preempted, and keeps its request.
//! * An interrupt by which another thread [fences](crate::Fences::fence_restartable) restartable
//!   operations, or [kicks](crate::Kick::kick) the CPU, takes the request or the grant away. The
//!   thread keeps its CPU.
//!
//! Sources: [Documentation/userspace-api/rseq.rst][doc], `kernel/rseq.c` and
//! `include/linux/rseq_entry.h` of Linux 7.3; Thomas Gleixner, *rseq: Implement time slice
//! extension mechanism* (2025, [cover letter][cover]). Solaris calls it preemption control, by
//! `schedctl_start(3C)`.
//!
//! [doc]: https://docs.kernel.org/userspace-api/rseq.html
//! [cover]: https://lore.kernel.org/r/20250908225709.144709889@linutronix.de

use crate::Lacking;

/// The outcome of a request for an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extended {
    /// The thread can have no extensions, so it asked for none.
    Off,
    /// The slice did not end during the section, or it ended during a system call of the section.
    Unused,
    /// The slice was extended. The thread gave its CPU up at the end of the section.
    Yielded,
    /// The thread lost its CPU during the section, with or without an extension. This is also the
    /// outcome if a system call took the grant back, or if a fence of restartable operations or a
    /// kick took the request or the grant away.
    Lost,
}

/// The capability *slice extension*: a thread can ask to keep its CPU for a few microseconds more.
///
/// A request is one flag of the thread. Only the outermost section sets and clears it. Inside
/// another section, and in a signal handler that interrupts one,
/// [`request_extension`](SliceExtension::request_extension) returns false. A section that lost its
/// request no longer counts as the outermost one, so a section inside it makes a new request.
///
/// * `Native` has the capability under three conditions. The kernel is Linux 7.0 or later, with the
///   option `CONFIG_RSEQ_SLICE_EXTENSION`. (Debian's kernels of 7.3 lack this option, and aarch64
///   cannot have it in Linux 7.3.4.) No filter refuses `prctl` or `rseq_slice_yield`. The C library
///   registered the thread with the full size of the rseq area, as glibc does from version 2.41 on.
///   The only such kernel on which it ran is Linux 7.3.4, in an emulated machine with four CPUs.
///   Elsewhere, and with `CORELINE_RSEQ=off`, `Native` lacks the capability, and a request costs a
///   few loads and branches. If a thread's first request comes before
///   [`enable_extension`](SliceExtension::enable_extension), the thread makes the system calls of
///   that function in its section. All functions may be called before and after a fork. They are
///   async-signal-safe once `enable_extension` or `request_extension` was called outside of a
///   handler. A filter that ends the process for an unknown system call ends it at the first
///   request, because the request tries `rseq_slice_yield`.
/// * `Sim` has the rules of the kernel. An extension lasts 5 us. The interrupt that leads to a
///   grant, and the timer that ends it, take `irq_entry` and `irq_exit` each. A switch at any time
///   other than the end of a slice, such as one that a schedule or a fault chooses, takes the
///   request back.
/// * The model lacks the capability.
pub trait SliceExtension {
    /// Lets the calling thread request extensions from now on. Each thread enables them once for
    /// itself. This takes two system calls, or three if a filter refuses the second one. The first
    /// request of a thread also enables them.
    ///
    /// # Errors
    ///
    /// [`Lacking`] if this thread can have no extensions. Requests then do nothing.
    fn enable_extension() -> Result<(), Lacking>;

    /// Begins a section in which the calling thread wants to keep its CPU. Returns whether this
    /// call made a request. If not, the thread can have no extensions, or it is already in such a
    /// section. In the latter case, the outer section ends the request.
    ///
    /// Call it when the thread already holds the lock or other resource that others wait for. A
    /// thread that waits gains nothing from an extension.
    #[inline]
    fn request_extension() -> bool {
        false
    }

    /// Ends the section whose request was made, and gives the CPU up if the slice was extended.
    ///
    /// Call it after the lock or other resource was passed on or freed.
    #[inline]
    fn end_extension() -> Extended {
        Extended::Off
    }
}
