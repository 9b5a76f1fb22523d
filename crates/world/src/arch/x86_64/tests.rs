//! Aborts at every numbered point of a section.
//!
//! The text of the production section is instantiated once more, with a trap at each point that is
//! armed by a number. The trap is a signal, so the kernel aborts the section exactly there; its
//! handler adds to the same slot, as a preempting thread would. librseq's tests call this
//! injection.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::*;
use crate::native::{Native, rseq};
use crate::restartable::{self, Aborted, Steps};
use crate::{IndexBy, PerCpuWords, Place};

/// The point at which the next trap is sprung, once; [`NOWHERE`] if none is.
static ARMED: AtomicU32 = AtomicU32::new(NOWHERE);
/// How often an abort handler of this file ran.
static ABORTS: AtomicU32 = AtomicU32::new(0);
/// The slots to which the trap's handler adds [`INTRUSION`].
static INTRUDED: AtomicPtr<Line<AtomicU64>> = AtomicPtr::new(core::ptr::null_mut());
/// One test at a time sets traps.
static TRAPS: Mutex<()> = Mutex::new(());

const NOWHERE: u32 = u32::MAX;
const DELTA: u64 = 3;
const INTRUSION: u64 = 1 << 32;
const LIMIT: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// An interruption point: a trap, if its number is armed. At the abort handler, a count.
macro_rules! trap {
    ("abort") => {
        "inc dword ptr [rip + {aborts}]"
    };
    ($point:literal) => {
        concat!("cmp dword ptr [rip + {armed}], ", $point, "\n jne 7f\n int3\n 7:")
    };
}

unsafe fn trapped_by_cpu(area: Area, slots: *const Line<AtomicU64>, delta: u64) -> bool {
    // SAFETY: as for `add_by_cpu`; the traps change flags only where none are in use.
    unsafe {
        load_add_store!(
            index = "4",
            registered = "",
            point = trap,
            area,
            LIMIT,
            slots,
            delta,
            { return false },
            armed = sym ARMED,
            aborts = sym ABORTS
        );
    }
    true
}

unsafe fn trapped_by_cid(area: Area, slots: *const Line<AtomicU64>, delta: u64) -> bool {
    // SAFETY: as for `add_by_cid`.
    unsafe {
        load_add_store!(
            index = "24",
            registered = "cmp dword ptr fs:[{area} + 4], 0
                          js {no_index}",
            point = trap,
            area,
            LIMIT,
            slots,
            delta,
            { return false },
            armed = sym ARMED,
            aborts = sym ABORTS
        );
    }
    true
}

/// An addition in three instructions, with a trap between load and store; protected only if it is
/// armed with its descriptor.
macro_rules! split_add {
    ($arm:literal, $area:expr, $slot:expr) => {
        // SAFETY: as for `add_by_cpu`, with the slot given.
        unsafe {
            asm!(
                "2:",
                "lea {scratch}, [rip + 5f]",
                $arm,
                "3:",
                "mov {scratch}, qword ptr [{slot}]",
                trap!("2"),
                "add {scratch}, {delta}",
                "mov qword ptr [{slot}], {scratch}",
                "4:",
                descriptor_and_abort!(),
                trap!("abort"),
                "jmp 2b",
                ".popsection",
                scratch = out(reg) _,
                area = in(reg) $area.offset,
                slot = in(reg) $slot,
                delta = in(reg) DELTA,
                signature = const SIGNATURE,
                armed = sym ARMED,
                aborts = sym ABORTS,
                options(nostack),
            );
        }
    };
}

extern "C" fn on_trap(_signal: c_int) {
    // Relaxed, all: the handler runs on the thread that it interrupts.
    ARMED.store(NOWHERE, Ordering::Relaxed);
    let slots = INTRUDED.load(Ordering::Relaxed);
    if let Ok(area) = rseq::area() {
        // SAFETY: as for the test that set the trap.
        unsafe { add_by_cpu(area, LIMIT, slots, INTRUSION) };
    }
}

/// What one trapped operation did.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sum: u64,
    aborts: u32,
}

/// Runs `operation` on zeroed slots, with a trap at `point`, on a thread that stays on one CPU (so
/// that the handler meets the same slot). `None` where rseq sections cannot be had.
fn at_point(point: u32, operation: fn(Area, *const Line<AtomicU64>)) -> Option<Outcome> {
    let area = rseq::sections().ok()?;
    let _guard = TRAPS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the handler is async-signal-safe: it does relaxed stores and one restartable
    // operation.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, core::ptr::null_mut()), 0);
    }
    let run = || {
        crate::native::affinity::pin(Native::cpu()).unwrap();
        let slots: Vec<Line<AtomicU64>> =
            (0..LIMIT.get()).map(|_| Line(AtomicU64::new(0))).collect();
        INTRUDED.store(slots.as_ptr().cast_mut(), Ordering::Relaxed);
        ABORTS.store(0, Ordering::Relaxed);
        ARMED.store(point, Ordering::Relaxed);
        operation(area, slots.as_ptr());
        assert_eq!(ARMED.load(Ordering::Relaxed), NOWHERE, "point {point} was not reached");
        let sum = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
        Outcome { sum, aborts: ABORTS.load(Ordering::Relaxed) }
    };
    // The other end of the scope waits for the thread, which orders its stores before what follows.
    Some(thread::scope(|scope| scope.spawn(run).join().unwrap()))
}

/// The executable definition, with an abort before one of its steps, once, and an intrusion then.
struct Interpreter {
    slot: u64,
    steps_to_abort: usize,
    aborts: u32,
}

impl Interpreter {
    fn step(&mut self) -> Result<(), Aborted> {
        let here = self.steps_to_abort == 0;
        self.steps_to_abort = self.steps_to_abort.wrapping_sub(1);
        if here {
            self.slot += INTRUSION;
            self.aborts += 1;
            return Err(Aborted);
        }
        Ok(())
    }
}

impl Steps for Interpreter {
    fn load_index(&mut self) -> Result<usize, Aborted> {
        self.step().map(|()| 0)
    }

    fn load(&mut self, _slot: usize) -> Result<u64, Aborted> {
        self.step().map(|()| self.slot)
    }

    fn commit(&mut self, _slot: usize, value: u64) -> Result<(), Aborted> {
        self.step().map(|()| self.slot = value)
    }
}

fn defined(steps_to_abort: usize) -> Outcome {
    let mut steps = Interpreter { slot: 0, steps_to_abort, aborts: 0 };
    while restartable::add(&mut steps, DELTA) == Err(Aborted) {}
    Outcome { sum: steps.slot, aborts: steps.aborts }
}

#[test]
fn an_abort_at_every_point_does_what_the_definition_says() {
    // Points 1 to 3 lie before the steps 0 to 2. The processor loads and commits in one
    // instruction, so nothing lies between the last two.
    for (point, step) in [(1, 0), (2, 1), (3, 2)] {
        let defined = defined(step);
        assert_eq!(defined, Outcome { sum: DELTA + INTRUSION, aborts: 1 });
        let by_cpu = at_point(point, |area, slots| {
            // SAFETY: `slots` has `LIMIT` slots, and only operations of this file write to them.
            assert!(unsafe { trapped_by_cpu(area, slots, DELTA) });
        });
        assert!(by_cpu.is_none_or(|outcome| outcome == defined), "by cpu, point {point}");
        if Native::kernel_cid().is_some() {
            let by_cid = at_point(point, |area, slots| {
                // SAFETY: as above.
                assert!(unsafe { trapped_by_cid(area, slots, DELTA) });
            });
            assert!(by_cid.is_none_or(|outcome| outcome == defined), "by cid, point {point}");
        }
    }
}

#[test]
fn a_signal_outside_the_section_restarts_nothing() {
    for point in [0, 4] {
        let outcome = at_point(point, |area, slots| {
            // SAFETY: as above.
            assert!(unsafe { trapped_by_cpu(area, slots, DELTA) });
        });
        let expected = Outcome { sum: DELTA + INTRUSION, aborts: 0 };
        assert!(outcome.is_none_or(|outcome| outcome == expected), "point {point}");
    }
}

/// The check above can fail: a section that forgot to announce itself loses the intruder's update.
#[test]
fn a_section_that_is_not_armed_loses_an_update() {
    let armed = at_point(2, |area, slots| {
        let slot = slots.wrapping_add(area.cpu_id() as usize);
        split_add!("mov qword ptr fs:[{area} + 8], {scratch}", area, slot);
    });
    let expected = Outcome { sum: DELTA + INTRUSION, aborts: 1 };
    assert!(armed.is_none_or(|outcome| outcome == expected));

    let broken = at_point(2, |area, slots| {
        let slot = slots.wrapping_add(area.cpu_id() as usize);
        split_add!("/* {area} is not told */", area, slot);
    });
    assert!(broken.is_none_or(|outcome| outcome == Outcome { sum: DELTA, aborts: 0 }));
}

#[test]
fn an_index_at_the_limit_is_refused() {
    let Ok(area) = rseq::sections() else { return };
    let one = NonZeroU32::new(1).unwrap();
    let slots = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let last = crate::native::affinity::allowed().unwrap().last().unwrap();
    let added = thread::scope(|scope| {
        let run = || {
            crate::native::affinity::pin(last).unwrap();
            // SAFETY: there is one slot and more.
            unsafe { add_by_cpu(area, one, slots.as_ptr(), DELTA) }
        };
        scope.spawn(run).join().unwrap()
    });
    assert_eq!(added, last.get() < 1);
    let sums = slots.map(|slot| slot.load(Ordering::Relaxed));
    assert_eq!(sums, [if added { DELTA } else { 0 }, 0]);
}

/// What a thread is whose registration was given up, or never made.
#[test]
fn a_thread_that_is_not_registered_adds_to_the_shared_slot() {
    let Ok(area) = rseq::sections() else { return };
    let by_cpu = PerCpuWords::<Native>::new_in(IndexBy::Cpu).unwrap();
    let by_cid = PerCpuWords::<Native>::new_in(IndexBy::KernelCid).ok();
    let run = || {
        crate::native::affinity::pin(Native::cpu()).unwrap();
        let cpu = Native::cpu();
        // SAFETY: asks for a number: the thread pointer, in every C library for this processor.
        let thread_pointer = unsafe { libc::pthread_self() } as usize;
        let at = thread_pointer.wrapping_add_signed(area.offset);
        // SAFETY: the area is this thread's own. The C library looks at its `cpu_id` only, and is
        // given back what it had before the thread ends.
        let rseq = |length: u64, flags: c_int| unsafe {
            libc::syscall(libc::SYS_rseq, at, length, flags, SIGNATURE) == 0
        };
        const UNREGISTER: c_int = 1;
        let length = (32..512).find(|&length| rseq(length, UNREGISTER)).expect("was registered");
        by_cpu.add(DELTA);
        if let Some(words) = &by_cid {
            words.add(DELTA);
        }
        assert_eq!((Native::kernel_cid(), Native::cpu()), (None, cpu));
        assert!(PerCpuWords::<Native>::new_in(IndexBy::KernelCid).is_err());
        assert!(rseq(length, 0), "registers again");
        by_cpu.add(DELTA);
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap());
    assert_eq!(by_cpu.shared().load(Ordering::Relaxed), DELTA);
    assert_eq!(by_cpu.sum(), 2 * DELTA);
    if let Some(words) = by_cid {
        assert_eq!(words.shared().load(Ordering::Relaxed), DELTA);
    }
}
