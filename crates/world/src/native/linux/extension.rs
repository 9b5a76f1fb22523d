//! Slice extension: two bytes of the thread's rseq area, and a system call if the kernel granted
//! one.
//!
//! | `flags` | the thread |
//! |---|---|
//! | neither bit | has none: the kernel has none, or the registration is a legacy one |
//! | [`AVAILABLE`] | can enable them, by `prctl` |
//! | [`AVAILABLE`], [`ENABLED`] | has them |
//!
//! | `slice_ctrl` | meaning | written by |
//! |---|---|---|
//! | 0 | no section asked, or the thread was preempted since | both |
//! | [`REQUEST`] | a section asked | the thread |
//! | [`GRANTED`] | its slice was extended, and ends at the next system call | the kernel |
//!
//! The thread sets a request only over 0, so the two bits are never set together. (A kernel with
//! `rseq_debug=1` kills a thread that has both when it makes a system call. Such a kernel also
//! kills a thread that makes another system call in a section, after it lost the extension of an
//! earlier one: it then takes the request for a damaged grant.)
//!
//! # Order
//!
//! The kernel looks at the bits only when it interrupts this very thread, so only the order of the
//! program counts, and compiler fences keep that. The end clears the request *before* it looks for
//! a grant. In the other order:
//!
//! ```text
//! Thread:    looks: no grant
//! Kernel:                       its slice ends; it asks: grants
//! Thread:    clears the request
//! ```
//!
//! The thread would keep a grant that it does not know of. It would not give way, the timer of the
//! grant would take its CPU away in a later section, and that section could not ask.
//!
//! If the slice ends between the look and the call, the kernel takes the grant back, and
//! `rseq_slice_yield` finds none and does nothing.
//!
//! # Signals, forks
//!
//! A handler that interrupts a section finds a request or a grant, so it asks for nothing and ends
//! nothing. One that comes before the request, or after it is cleared, leaves 0 behind, or the
//! grant that it found. A handler that leaves a section by `longjmp` leaves its request behind: the
//! thread's next grant, or its next preemption, ends it.
//!
//! A forked child has the area, the permission and the marks of the thread that forked it. Its
//! parent has no grant: `fork` is a system call. The child of a `vfork` has no registration, so its
//! requests are stores that no kernel reads, and its ends clear them.
//!
//! Sources: `kernel/rseq.c` and `include/linux/rseq_entry.h` of Linux 7.3.

use core::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use crate::arch::Area;
use crate::native::Native;
use crate::native::host::keeping_errno;
use crate::native::linux::{machine, marks, rseq};
use crate::{Extended, Lacking, SliceExtension, Why, World};

/// `RSEQ_CS_FLAG_SLICE_EXT_AVAILABLE`.
const AVAILABLE: u32 = 1 << 4;
/// `RSEQ_CS_FLAG_SLICE_EXT_ENABLED`.
const ENABLED: u32 = 1 << 5;

/// The bytes of `slice_ctrl`, in a load of the whole.
const REQUEST: u32 = u32::from_ne_bytes([1, 0, 0, 0]);
const GRANTED: u32 = u32::from_ne_bytes([0, 1, 0, 0]);

/// Whether the calling thread, whose area this is, could have extensions. `prctl` does not say so:
/// `PR_RSEQ_SLICE_EXTENSION_GET` answers 0 also where `rseq_slice_ext=0` on the kernel's command
/// line switched them off.
pub(crate) fn is_available(area: Area) -> bool {
    area.flags() & AVAILABLE != 0
}

impl SliceExtension for Native {
    fn enable_extension() -> Result<(), Lacking> {
        if enable() { Ok(()) } else { Err(lacking()) }
    }

    #[inline]
    fn request_extension() -> bool {
        let area = Area::of_cpu();
        let flags = area.flags();
        if flags & ENABLED == 0 {
            // A registered thread without either bit will never have extensions.
            let is_settled = flags & AVAILABLE == 0 && rseq::is_id(area.cpu_id());
            if is_settled || !enable() {
                return false;
            }
            // The area may only now be known.
            return request(Area::of_cpu());
        }
        request(area)
    }

    #[inline]
    fn end_extension() -> Extended {
        let area = Area::of_cpu();
        // What others were waiting for was given to them before the request ends, or the extension
        // would end too early.
        compiler_fence(Ordering::SeqCst);
        let before = area.slice_control();
        if before & REQUEST != 0 {
            // Relaxed: only this thread and its kernel use the byte, in the order of the program.
            control(area).store(0, Ordering::Relaxed);
        }
        // The load below stays behind the store: see the module.
        compiler_fence(Ordering::SeqCst);
        if area.slice_control() & GRANTED != 0 {
            return yield_slice();
        }
        if before & REQUEST != 0 { Extended::Unused } else { lost(area) }
    }
}

/// Asks, unless this thread's section asked already, or has a grant.
#[inline]
fn request(area: Area) -> bool {
    if area.slice_control() != 0 {
        return false;
    }
    // Relaxed: only this thread and its kernel use the byte, in the order of the program.
    control(area).store(1, Ordering::Relaxed);
    // Nothing of the section is done before its request.
    compiler_fence(Ordering::SeqCst);
    true
}

#[inline]
fn control<'a>(area: Area) -> &'a AtomicU8 {
    // SAFETY: a byte of the calling thread's area, or of the blank area, for the thread's whole
    // life: an area has 32 bytes. The reference does not leave the functions here.
    unsafe { &*area.slice_request() }
}

/// Without permission, the section asked for nothing.
#[cold]
fn lost(area: Area) -> Extended {
    if area.flags() & ENABLED == 0 { Extended::Off } else { Extended::Lost }
}

/// Gives the CPU up. The kernel says whether the grant was still there.
#[cold]
fn yield_slice() -> Extended {
    /// The same number on every processor.
    const SLICE_YIELD: libc::c_long = 471;
    // SAFETY: the call has no arguments, and no effect but the one that it is named for.
    match keeping_errno(|| unsafe { libc::syscall(SLICE_YIELD) }) {
        1 => Extended::Yielded,
        _ => Extended::Lost,
    }
}

/// Lets the calling thread ask, if it can. One system call in its life.
#[cold]
#[inline(never)]
fn enable() -> bool {
    rseq::find_published();
    let area = Area::of_cpu();
    let flags = area.flags();
    if flags & ENABLED != 0 {
        return true;
    }
    if flags & AVAILABLE == 0 || marks::get() & marks::NO_EXTENSION != 0 {
        return false;
    }
    machine::enable_slice_extension();
    // Not what the call answers: a filter may answer in the kernel's place.
    let is_enabled = area.flags() & ENABLED != 0;
    if !is_enabled {
        marks::set(marks::NO_EXTENSION);
    }
    is_enabled
}

/// Why the calling thread has none.
fn lacking() -> Lacking {
    let (why, remedy) = if rseq::is_switched_off() {
        ("CORELINE_RSEQ=off in the environment", "unset CORELINE_RSEQ")
    } else if !machine::has_slice_extension() {
        (
            "the kernel has none",
            "use Linux 7.0 or later with CONFIG_RSEQ_SLICE_EXTENSION, and let prctl through the \
             system-call filter",
        )
    } else if is_available(Area::of_cpu()) {
        ("prctl refused them", "let prctl through the system-call filter")
    } else if rseq::registered_bytes().is_some_and(|bytes| bytes > 32) {
        (
            "they are switched off in the kernel",
            "start the kernel without rseq_slice_ext=0 on its command line",
        )
    } else {
        (
            "the thread is not registered for the second rseq ABI",
            "use glibc 2.41 or later, without glibc.pthread.rseq=0 in GLIBC_TUNABLES, and start \
             threads by the C library",
        )
    };
    Lacking { world: Native::NAME, capability: "slice extension", why: Why::new(why), remedy }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{JoinHandle, Place, Placement, Threads, Work};

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn the_flags_of_the_area_say_whether_there_are_extensions() {
        #[repr(align(64))]
        struct MadeUp([u32; 16]);

        // As the kernel wrote them: nothing; offered; enabled, too; bits of 2018 that never did
        // anything.
        for (flags, available) in [(0, false), (0x10, true), (0x30, true), (0b111, false)] {
            let mut words = [0; 16];
            words[4] = flags;
            let made_up = Box::new(MadeUp(words));
            let distance = made_up.0.as_ptr().expose_provenance() as isize;
            let here = Area::own().address() as isize - Area::own().offset();
            // SAFETY: the fields are there while this thread, the only one to use it, does.
            let area = unsafe { Area::at(distance.wrapping_sub(here)) };
            assert_eq!(is_available(area), available, "{flags:#x}");
        }
        assert!(!is_available(Area::blank()));
    }

    /// The thread's bits and its answers agree, whatever this machine has.
    #[test]
    fn a_request_is_in_the_area_until_it_ends() {
        let enabled = Native::enable_extension();
        let area = Area::of_cpu();
        assert_eq!(enabled.is_ok(), area.flags() & ENABLED != 0, "{enabled:?}");
        if let Err(lacking) = enabled {
            assert!(!Native::request_extension(), "{lacking}");
            assert_eq!(Native::end_extension(), Extended::Off);
            return;
        }
        // A slice that ends in these few instructions takes the request along.
        let asks = || {
            let asked = Native::request_extension();
            (asked, area.slice_control(), Native::request_extension(), Native::end_extension())
        };
        let was_left_alone = (true, REQUEST, false, Extended::Unused);
        assert!((0..1000).filter(|_| asks() == was_left_alone).count() > 900);
        assert_eq!(area.slice_control(), 0);
        assert_eq!(Native::end_extension(), Extended::Lost);
    }

    #[test]
    fn a_refused_thread_asks_the_kernel_once() {
        // In a child, whose marks are its own.
        let answer = crate::native::linux::signals::tests::in_a_child(|| {
            marks::set(marks::NO_EXTENSION);
            let asked = Area::of_cpu().flags() & ENABLED == 0 && Native::request_extension();
            asked.into()
        });
        assert_eq!(answer, 0);
    }

    /// A count of the kernel, of all processes, if it can be read.
    fn kernel_counts(name: &str) -> Option<u64> {
        let text = std::fs::read_to_string("/sys/kernel/debug/rseq/stats").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    }

    /// Where there are extensions, two threads of one CPU give way at the ends of their sections,
    /// and the kernel counted that.
    #[test]
    fn a_granted_section_yields() {
        if Native::enable_extension().is_err() {
            return;
        }
        let [granted, yielded] = ["sgrant", "syield"].map(kernel_counts);
        let start = Instant::now();
        let part = move || {
            let mut outcomes = [0; 4];
            while outcomes[Extended::Yielded as usize] < 3 {
                assert!(start.elapsed() < Duration::from_secs(60), "{outcomes:?}");
                for _ in 0..100 {
                    Native::request_extension();
                    Native::work(Duration::from_micros(1));
                    outcomes[Native::end_extension() as usize] += 1;
                }
            }
            outcomes
        };
        let cpu = Native::cpu();
        let threads = [(); 2].map(|()| Native::spawn(Placement::On(cpu), part).expect("a thread"));
        let [one, other] = threads.map(JoinHandle::join);
        let [off, _, ours, lost] = core::array::from_fn(|outcome| one[outcome] + other[outcome]);
        assert_eq!(off, 0);
        if let (Some(granted), Some(yielded)) = (granted, yielded) {
            let counts = ["sgrant", "syield"].map(kernel_counts);
            // Other processes may have some, too.
            assert!(
                counts[0] >= Some(granted + ours) && counts[1] >= Some(yielded + ours),
                "{ours} yielded, {lost} lost; {granted} granted, {yielded} yielded, then {counts:?}"
            );
        }
    }
}
