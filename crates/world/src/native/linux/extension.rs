//! Slice extension: two bytes of the thread's rseq area, and a system call if the kernel granted
//! one.
//!
//! | `flags` | the thread |
//! |---|---|
//! | neither bit | has none: the kernel has none, or the registration is a legacy one |
//! | [`AVAILABLE`] | can enable them, by `prctl` |
//! | [`AVAILABLE`], [`ENABLED`] | has them |
//!
//! `prctl` switches them on for the thread. Then the thread calls `rseq_slice_yield` once, without
//! a grant, because a filter may refuse this call. If the filter does, the thread switches them off
//! again: the kernel takes the CPU of a thread with a grant before it asks the filter, so no
//! section could tell that it gave way. If the filter ends the process for the call, it does so
//! then, and not at the first grant, at a random time. A thread whose extensions another part of
//! the program enabled is not tried. One whose extensions another part switched off switches them
//! on again at its next request.
//!
//! | `slice_ctrl` | meaning | written by |
//! |---|---|---|
//! | 0 | no section asked, or the thread was preempted, fenced or kicked since | both |
//! | [`REQUEST`] | a section asked | the thread |
//! | [`GRANTED`] | its slice was extended, and ends at the next system call | the kernel |
//!
//! The thread sets a request only over 0, so the two bits are never set together. (A kernel with
//! `rseq_debug=1` kills a thread that has both when it makes a system call. Such a kernel also
//! kills a thread that makes another system call in a section, after it lost the extension of an
//! earlier one: it then takes the request for a damaged grant. The return of a signal handler is
//! such a call.)
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
//! grant that it found. A handler that leaves a section by `longjmp` leaves its request behind, and
//! so does a panic: the thread's next grant, or its next preemption, ends it. A thread that only
//! blocks can keep it.
//!
//! A forked child has the area, the permission and the marks of the thread that forked it. Its
//! parent has no grant: `fork` is a system call. The child of a `vfork` has no registration, so its
//! requests are stores that no kernel reads, and its ends clear them. If it leaves by `exec` or
//! `_exit` in a section, its parent finds the request in its own area, as after a `longjmp`. It
//! cannot enable extensions: `prctl` says `ENXIO`, and this refusal is not remembered, because its
//! marks are its parent's. The refusal of a filter that such a child installs is remembered. (Not
//! run: the child of a `vfork` on a kernel with extensions.)
//!
//! Sources: `kernel/rseq.c` and `include/linux/rseq_entry.h` of Linux 7.3.

use core::sync::atomic::{AtomicU8, Ordering, compiler_fence};
use std::io;

use crate::arch::{self, Area};
use crate::native::host::keeping_errno;
use crate::native::linux::{auxv, machine, marks, rseq};
use crate::native::{Native, Registration};
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
    has(area, AVAILABLE)
}

/// Whether the calling thread is registered with this area, and the kernel set this flag. A thread
/// that the C library did not register may have the area of one that has ended, with its flags.
fn has(area: Area, flag: u32) -> bool {
    area.flags() & flag != 0 && rseq::is_id(area.cpu_id())
}

impl SliceExtension for Native {
    fn enable_extension() -> Result<(), Lacking> {
        rseq::find_published();
        let area = Area::of_cpu();
        let (why, remedy) = if has(area, ENABLED) {
            return Ok(());
        } else if is_available(area) {
            let Err(why) = switch_on(area) else { return Ok(()) };
            (why, "let prctl and rseq_slice_yield through the system-call filter")
        } else {
            unavailable(area)
        };
        Err(Lacking { world: Native::NAME, capability: "slice extension", why, remedy })
    }

    #[inline]
    fn request_extension() -> bool {
        let area = Area::of_cpu();
        let flags = area.flags();
        if flags & ENABLED != 0 {
            return request(area);
        }
        // A registered thread without either bit will never have extensions.
        let is_settled = flags & AVAILABLE == 0 && rseq::is_id(area.cpu_id());
        !is_settled && request_first()
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
            return give_way();
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
fn give_way() -> Extended {
    match yield_slice() {
        Ok(true) => Extended::Yielded,
        _ => Extended::Lost,
    }
}

/// Ends a grant. Whether there was one.
fn yield_slice() -> io::Result<bool> {
    /// `__NR_rseq_slice_yield`, of every processor whose areas are read here.
    const SLICE_YIELD: libc::c_long = 471;
    // SAFETY: the call has no arguments, and no effect but the one that it is named for.
    keeping_errno(|| match unsafe { libc::syscall(SLICE_YIELD) } {
        -1 => Err(io::Error::last_os_error()),
        yielded => Ok(yielded == 1),
    })
}

/// The request of a thread that did not enable extensions, as far as this thread knows.
#[cold]
#[inline(never)]
fn request_first() -> bool {
    rseq::find_published();
    // The area may only now be known.
    let area = Area::of_cpu();
    let was_refused = marks::get() & marks::NO_EXTENSION != 0;
    is_available(area) && !was_refused && switch_on(area).is_ok() && request(area)
}

/// Lets the calling thread ask, if both calls that it needs pass the filters. This area is that of
/// the thread.
fn switch_on(area: Area) -> Result<(), Why> {
    let refused = |why| {
        marks::set(marks::NO_EXTENSION);
        Err(why)
    };
    let answer = machine::switch_slice_extension(true);
    // Not what the call answers: a filter may answer in the kernel's place.
    if area.flags() & ENABLED == 0 {
        const WHY: Why = Why::new("prctl refused them");
        return match answer {
            // The child of a `vfork`: it has no registration, and the mark is its parent's.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Err(WHY.because(&error)),
            Err(error) => refused(WHY.because(&error)),
            Ok(()) => refused(WHY),
        };
    }
    let Err(error) = yield_slice() else {
        // A refusal that came earlier holds no longer.
        marks::clear(marks::NO_EXTENSION);
        return Ok(());
    };
    // Nothing is left to do if this fails.
    let _ = machine::switch_slice_extension(false);
    refused(Why::new("rseq_slice_yield is refused").because(&error))
}

/// Why the kernel does not offer the calling thread any, and what helps. Asks without a call of
/// `rseq`, which would register the child of a `vfork` with its parent's area.
fn unavailable(area: Area) -> (Why, &'static str) {
    let is_v2 = |area: Registration| area.size > 32 && auxv::rseq_feature_size() > 32;
    let (why, remedy) = if rseq::is_switched_off() {
        ("CORELINE_RSEQ=off in the environment", "unset CORELINE_RSEQ")
    } else if !arch::HAS_SECTIONS {
        ("this crate reads no rseq areas on this processor", "use a processor with x86-64")
    } else if !machine::has_slice_extension() {
        (
            "the kernel has none, or a system-call filter refuses prctl",
            "use Linux 7.0 or later for x86-64 with CONFIG_RSEQ_SLICE_EXTENSION, and let prctl \
             through the filter",
        )
    } else if rseq::is_id(area.cpu_id()) && rseq::published().is_some_and(is_v2) {
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
    (Why::new(why), remedy)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::{JoinHandle, Place, Placement, Threads, Work};

    /// An area of the calling thread that the kernel does not know, with these flags.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    fn with_made_up<R>(flags: u32, test: impl FnOnce(Area) -> R) -> R {
        with_made_up_of(0, flags, test)
    }

    /// The same, with this number of a CPU.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    fn with_made_up_of<R>(cpu: i32, flags: u32, test: impl FnOnce(Area) -> R) -> R {
        #[repr(align(64))]
        struct MadeUp([u32; 16]);

        let mut made_up = MadeUp([0; 16]);
        made_up.0[1] = cpu.cast_unsigned();
        made_up.0[4] = flags;
        let distance = made_up.0.as_ptr().expose_provenance() as isize;
        let here = Area::own().address() as isize - Area::own().offset();
        // SAFETY: the fields are there while this thread, the only one to use it, runs the test.
        test(unsafe { Area::at(distance.wrapping_sub(here)) })
    }

    #[test]
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    fn the_flags_of_the_area_say_whether_there_are_extensions() {
        // As the kernel wrote them: nothing; offered; enabled, too; bits of 2018 that never did
        // anything.
        for (flags, available) in [(0, false), (0x10, true), (0x30, true), (0b111, false)] {
            assert_eq!(with_made_up(flags, is_available), available, "{flags:#x}");
        }
        assert!(!is_available(Area::blank()));
        // Flags that a thread left behind whose area the next thread has, without a registration.
        assert!(!with_made_up_of(-2, 0x10, is_available));
    }

    /// From here on, `prctl` and `rseq_slice_yield` do nothing in the calling thread. They fail
    /// with these errors, or, with 0, succeed.
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    fn filter(prctl: libc::c_int, slice_yield: libc::c_int) -> bool {
        let statement =
            |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let is_call = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let verdict = libc::BPF_RET | libc::BPF_K;
        let errno = |error: libc::c_int| libc::SECCOMP_RET_ERRNO | error.cast_unsigned();
        let mut filter = [
            // What a filter is shown begins with the call's number.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            statement(is_call, 1, libc::SYS_prctl as u32),
            statement(verdict, 0, errno(prctl)),
            statement(is_call, 1, 471),
            statement(verdict, 0, errno(slice_yield)),
            statement(verdict, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its statements are live, and the kernel copies them.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) == 0
        }
    }

    /// Both calls are tried, and a refusal is remembered, but not that of a `vfork`'s child.
    #[test]
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    fn a_thread_whose_calls_are_refused_has_no_extensions() {
        const OFF: u32 = AVAILABLE;
        const ON: u32 = AVAILABLE | ENABLED;
        let cases = [
            // The errors of `prctl` and of `rseq_slice_yield`, and what the area says after both.
            (0, 0, ON, [true, false]),
            (0, libc::ENOSYS, ON, [false, true]),
            (0, 0, OFF, [false, true]),
            (libc::EPERM, 0, OFF, [false, true]),
            (libc::ENXIO, 0, OFF, [false, false]),
        ];
        for (prctl, slice_yield, flags, expected) in cases {
            // In a child, whose marks and filters are its own.
            let answer = crate::native::linux::signals::tests::in_a_child(|| {
                assert!(filter(prctl, slice_yield));
                let is_on = with_made_up(flags, switch_on).is_ok();
                let is_marked = marks::get() & marks::NO_EXTENSION != 0;
                u8::from(is_on) + 2 * u8::from(is_marked)
            });
            let [is_on, is_marked] = expected;
            let expected = u8::from(is_on) + 2 * u8::from(is_marked);
            assert_eq!(answer, expected, "prctl {prctl}, yield {slice_yield}, flags {flags:#x}");
        }
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
        let yields = Arc::new(AtomicU64::new(0));
        let part = || {
            let yields = Arc::clone(&yields);
            move || {
                let mut outcomes = [0; 4];
                // Sections, not time: a slow machine has fewer, and longer ones, in each slice. The
                // threads end together, because the slice of a thread alone never ends.
                for _ in 0..10_000_000 {
                    Native::request_extension();
                    Native::work(Duration::from_micros(1));
                    let outcome = Native::end_extension();
                    outcomes[outcome as usize] += 1;
                    // Relaxed: a count.
                    let more = u64::from(outcome == Extended::Yielded);
                    if yields.fetch_add(more, Ordering::Relaxed) + more >= 3 {
                        break;
                    }
                }
                outcomes
            }
        };
        let cpu = Native::cpu();
        let threads =
            [(); 2].map(|()| Native::spawn(Placement::On(cpu), part()).expect("a thread"));
        let [one, other] = threads.map(JoinHandle::join);
        let [off, _, ours, lost] = core::array::from_fn(|outcome| one[outcome] + other[outcome]);
        assert!(off == 0 && ours >= 3, "{one:?}, {other:?}");
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
