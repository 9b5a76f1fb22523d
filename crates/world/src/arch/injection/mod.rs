//! Aborts at every numbered point of every section.
//!
//! The text of the production sections is instantiated once more, with a trap at each point that is
//! armed by the point's number and by how many times the point is to be passed before. The trap is
//! a signal, so the kernel aborts the section exactly there; the signal's handler, the *intruder*,
//! works on the same slot, as a preempting thread would. What comes out must be what the executable
//! definition gives if it is aborted before the corresponding step and intruded upon likewise: all
//! bytes of the slot, all answers, the number of aborts. librseq's tests call this injection.
//!
//! Where the kernel has no sections for us, areas that the kernel does not know of still show that
//! sections compute what they should, and that they must be announced.

mod bench;
mod interpreter;
mod programs;

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::bench::{Answer, Bench, Op, by_section, by_trapped_section};
use self::interpreter::{Before, Interpreter};
use self::programs::{FAMILIES, Family};
use crate::arch::{Area, CPU_ID, Index, MM_CID, SlotsAt, processor};
use crate::native::rseq;
use crate::{IndexBy, Native, Restartable};

/// The point at which the next trap is sprung; [`NOWHERE`] if none is.
pub(super) static ARMED: AtomicU32 = AtomicU32::new(NOWHERE);
/// At which visit of the point, counted from 1.
pub(super) static VISITS: AtomicU32 = AtomicU32::new(0);
/// How often an abort handler of a section with traps ran.
pub(super) static ABORTS: AtomicU32 = AtomicU32::new(0);
/// What the trap's handler does.
static INTRUDER: AtomicPtr<Intruder<'_>> = AtomicPtr::new(ptr::null_mut());
/// One test at a time sets traps.
static TRAPS: Mutex<()> = Mutex::new(());

const NOWHERE: u32 = u32::MAX;
const POINTS: u32 = 10;

mod trapped {
    use crate::arch::SlotsAt;
    use crate::arch::status::{DONE, NO_SLOT, REFUSED};
    use core::ptr;

    with_traps!(operations!(trap));
}

struct Intruder<'a> {
    bench: &'a Bench,
    program: &'a [Op],
    execute: &'a dyn Fn(Op) -> Answer,
    answers: Cell<Option<Vec<Answer>>>,
}

/// Traps are sprung by the code of a section, never inside of an allocator or a lock, so the
/// handler is free to do what it likes.
extern "C" fn on_trap(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    processor::traps::skip_trap(context);
    // Relaxed, as all here: the handler runs on the thread that it interrupts.
    // SAFETY: `trap` keeps the intruder live while its trap is armed.
    let intruder = unsafe { &*INTRUDER.load(Ordering::Relaxed) };
    let answers = intruder.bench.run(intruder.program, intruder.execute);
    intruder.answers.set(Some(answers));
}

fn set_traps() -> MutexGuard<'static, ()> {
    let guard = TRAPS.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: see the handler.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()), 0);
    }
    guard
}

/// What an operation and its intruder did.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    answer: Answer,
    intruder: Vec<Answer>,
    aborts: u32,
    bytes: Vec<u8>,
}

/// One operation, in a state of the slot, with what an intruder does to it.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    setup: &'a [Op],
    op: Op,
    intrusion: &'a [Op],
}

impl Case<'_> {
    /// By definition, undisturbed but for the intrusion, which comes at `abort`, or before the
    /// operation (`Err(0)`), or after it.
    fn defined(&self, bench: &Bench, index: usize, abort: Result<Before, u32>) -> Outcome {
        let intrude =
            || bench.run(self.intrusion, |op| Interpreter::undisturbed(index).complete(bench, op));
        bench.reset(index, self.setup);
        let (mut intruder, mut aborts) = (vec![], 0);
        if abort == Err(0) {
            intruder = intrude();
        }
        let mut steps = Interpreter::new(index, abort.ok());
        let answer = loop {
            match steps.attempt(bench, self.op) {
                Some(answer) => break answer,
                None => {
                    intruder = intrude();
                    aborts += 1;
                }
            }
        };
        if matches!(abort, Err(point) if point != 0) {
            intruder = intrude();
        }
        Outcome { answer, intruder, aborts, bytes: bench.bytes(index) }
    }

    /// By a section with this index, intruded upon at a visit of a point, if it comes by. Sections
    /// of the intruder use the same index.
    fn trapped(&self, bench: &Bench, index: Index, at: (u32, u32)) -> Option<Outcome> {
        bench.reset(0, self.setup);
        let intruder = Intruder {
            bench,
            program: self.intrusion,
            execute: &|op| by_section(bench, index, op),
            answers: Cell::new(None),
        };
        INTRUDER.store((&raw const intruder).cast_mut().cast(), Ordering::Relaxed);
        ABORTS.store(0, Ordering::Relaxed);
        VISITS.store(at.1, Ordering::Relaxed);
        ARMED.store(at.0, Ordering::Relaxed);
        let answer = by_trapped_section(bench, index, self.op);
        ARMED.store(NOWHERE, Ordering::Relaxed);
        let aborts = ABORTS.load(Ordering::Relaxed);
        let intruder = intruder.answers.take()?;
        Some(Outcome { answer, intruder, aborts, bytes: bench.bytes(0) })
    }

    /// As [`trapped`](Case::trapped), on a thread that nothing but the trap disturbs: a try in
    /// which the thread was preempted inside of the section as well does not count.
    fn trapped_alone(
        &self,
        bench: &Bench,
        index: Index,
        at: (u32, u32),
        aborts: u32,
    ) -> Option<Outcome> {
        let mut tries = (0..100).map(|_| self.trapped(bench, index, at));
        tries.find(|outcome| outcome.as_ref().is_none_or(|outcome| outcome.aborts <= aborts))?
    }
}

/// Before which step of its definition a section stands at the `visit`th visit of a point;
/// otherwise the point, which stands before or behind the section.
fn place(op: Op, point: u32, visit: u32) -> Result<Before, u32> {
    let visit = visit as usize;
    Ok(match (op, point) {
        (_, 0 | 9) => return Err(point),
        (_, 1..=3) => Before::Step(point as usize - 1),
        (Op::Add(_) | Op::StoreIfEqual(..) | Op::AddIf(..), _) => Before::Last,
        (_, 4) | (Op::ListPop, 5) => Before::Step(3),
        (Op::StackPushBatch(_) | Op::StackPopBatch(_), 5) => Before::Step(2 + visit),
        (Op::Append(_), 5) => Before::Step(3 + 8 * (visit - 1)),
        (Op::Append(count), 6) => Before::Step(3 + count / 8 * 8 + visit - 1),
        _ => Before::Last,
    })
}

/// The points that some case must come by.
fn points(op: Op) -> impl Iterator<Item = u32> {
    let last = match op {
        // One instruction does it all on x86-64.
        Op::Add(_) if cfg!(target_arch = "x86_64") => 3,
        Op::Add(_) => 4,
        Op::Load => 3,
        Op::StoreIfEqual(..) | Op::AddIf(..) | Op::ListPush(_) => 5,
        Op::StackPush(_) | Op::StackPop => 5,
        Op::ListPop | Op::StackPushBatch(_) | Op::StackPopBatch(_) => 6,
        Op::Append(_) => 7,
        Op::ListPushPopped | Op::Stop => unreachable!("not an operation of its own"),
    };
    (0..=last).chain([9])
}

/// The operation without its arguments.
fn name(op: Op) -> String {
    format!("{op:?}").split('(').next().unwrap().to_owned()
}

/// Calls `check` with every case of all families.
fn each_case(mut check: impl FnMut(&Case<'_>)) {
    for Family { setups, ops, intrusions } in FAMILIES {
        for (setup, op) in setups.iter().flat_map(|setup| ops.iter().map(move |op| (setup, *op))) {
            intrusions.iter().for_each(|intrusion| check(&Case { setup, op, intrusion }));
        }
    }
}

/// Compares every case with its definition, with an abort at every visit of every point.
fn abort_everywhere(index: Index, indexes: usize) {
    let _traps = set_traps();
    let bench = Bench::new(indexes, true);
    let (mut expected, mut seen) = (BTreeSet::new(), BTreeSet::new());
    each_case(|case| {
        expected.extend(points(case.op).map(|point| (name(case.op), point)));
        for point in 0..POINTS {
            for visit in 1.. {
                let at = place(case.op, point, visit);
                let aborts = u32::from(at.is_ok());
                let found = case.trapped_alone(&bench, index, (point, visit), aborts);
                let Some(found) = found else { break };
                seen.insert((name(case.op), point));
                let defined = case.defined(&bench, 0, at);
                assert_eq!(found.aborts, aborts, "point {point}, visit {visit}: {case:?}");
                assert_eq!(found, defined, "point {point}, visit {visit}: {case:?}");
            }
        }
    });
    assert_eq!(seen, expected, "points that no case came by, or that nobody knows");
}

/// The index of the calling thread, where the kernel aborts sections; and how many slots there are.
fn real_index(by: IndexBy) -> Option<(Index, usize)> {
    let area = rseq::sections().ok()?;
    let (section, indexes) = Native::section(by).ok()?;
    // Registers the thread where nobody did yet.
    assert!(Native::index(&section) < indexes);
    let field = if by == IndexBy::Cpu { CPU_ID } else { MM_CID };
    Some((area.index(field), indexes))
}

#[test]
fn an_abort_at_every_point_does_what_the_definition_says_by_cpu() {
    if let Some((index, indexes)) = real_index(IndexBy::Cpu) {
        abort_everywhere(index, indexes);
    }
}

#[test]
fn an_abort_at_every_point_does_what_the_definition_says_by_cid() {
    if let Some((index, indexes)) = real_index(IndexBy::KernelCid) {
        abort_everywhere(index, indexes);
    }
}

/// An area that no kernel knows of.
#[repr(C, align(32))]
struct Pretence([u32; 8]);

impl Pretence {
    fn new(cpu_id: u32, mm_cid: u32) -> Pretence {
        Pretence([0, cpu_id, 0, 0, 0, 0, mm_cid, 0])
    }

    /// Where the calling thread has it.
    fn area(&mut self) -> Area {
        let address = (&raw mut self.0).expose_provenance();
        Area { offset: address.wrapping_sub(processor::thread_pointer()) as isize }
    }

    fn indexes(&mut self) -> [Index; 2] {
        [CPU_ID, MM_CID].map(|field| self.area().index(field))
    }
}

#[test]
fn every_way_through_a_section_gives_what_the_definition_gives() {
    let bench = Bench::new(4, false);
    let (by_cpu, by_cid) = (&mut Pretence::new(2, 0), &mut Pretence::new(0, 2));
    let (by_cpu, by_cid) = (by_cpu.area().index(CPU_ID), by_cid.area().index(MM_CID));
    each_case(|case| {
        let defined = case.defined(&bench, 2, Err(9));
        let run = |execute: &dyn Fn(Op) -> Answer| {
            bench.reset(2, case.setup);
            let answer = execute(case.op);
            let intruder = bench.run(case.intrusion, execute);
            Outcome { answer, intruder, aborts: 0, bytes: bench.bytes(2) }
        };
        assert_eq!(run(&|op| by_section(&bench, by_cpu, op)), defined, "{case:?}");
        assert_eq!(run(&|op| by_section(&bench, by_cid, op)), defined, "{case:?}");
    });
    assert!([0, 1, 3].iter().all(|&index| bench.is_blank(index)), "another slot was written to");
}

/// Runs every operation of the families on a slot that is there, in an area that says so.
fn found_no_slot(cpu_id: u32, mm_cid: u32) -> (bool, bool) {
    let bench = Bench::new(2, false);
    let mut pretence = Pretence::new(cpu_id, mm_cid);
    let [cpu, cid] = pretence.indexes();
    let (mut by_cpu, mut by_cid) = (BTreeSet::new(), BTreeSet::new());
    each_case(|case| {
        bench.reset(0, case.setup);
        let before = [0, 1].map(|index| bench.bytes(index));
        let none = |index| {
            let none = by_section(&bench, index, case.op).is_none();
            assert!(!none || before == [0, 1].map(|index| bench.bytes(index)), "{case:?}");
            bench.reset(0, case.setup);
            none
        };
        by_cpu.insert(none(cpu));
        by_cid.insert(none(cid));
    });
    assert_eq!((by_cpu.len(), by_cid.len()), (1, 1), "not all operations agree");
    (by_cpu.contains(&true), by_cid.contains(&true))
}

#[test]
fn an_index_at_the_limit_or_of_nobody_finds_no_slot_and_does_nothing() {
    assert_eq!(found_no_slot(1, 1), (false, false));
    assert_eq!(found_no_slot(2, 1), (true, false));
    assert_eq!(found_no_slot(1, 2), (false, true));
    assert_eq!(found_no_slot(i32::MAX as u32, u32::MAX), (true, true));
    // What a kernel and a C library write there for threads that are not registered.
    for unregistered in [-1_i32, -2] {
        assert_eq!(found_no_slot(unregistered.cast_unsigned(), 0), (true, true));
    }
}

/// Without an abort: it is another thread that lowers the limit.
#[test]
fn a_limit_lowered_after_the_index_was_read_is_obeyed() {
    let _traps = set_traps();
    let bench = Bench::new(1, false);
    let mut pretence = Pretence::new(0, 0);
    let [cpu, cid] = pretence.indexes();
    each_case(|case| {
        let case = Case { intrusion: &[Op::Stop], ..*case };
        bench.reset(0, case.setup);
        let before = bench.bytes(0);
        let by_cpu = case.trapped(&bench, cpu, (2, 1));
        let by_cid = case.trapped(&bench, cid, (2, 1));
        let stopped =
            Outcome { answer: None, intruder: vec![None], aborts: 0, bytes: before.clone() };
        assert_eq!(by_cpu.as_ref(), Some(&stopped), "{case:?}");
        assert_eq!(by_cid.as_ref(), Some(&stopped), "{case:?}");
    });
}

/// The checks above can fail, for every operation that takes more than one instruction: a section
/// that the kernel is not told of does not start over, and loses what the intruder did, or does it
/// twice.
#[test]
fn a_section_that_is_not_announced_is_found_out() {
    let _traps = set_traps();
    let bench = Bench::new(1, false);
    let mut pretence = Pretence::new(0, 0);
    let [index, _] = pretence.indexes();
    let (mut longer, mut found_out) = (BTreeSet::new(), BTreeSet::new());
    each_case(|case| {
        if points(case.op).count() > 5 {
            longer.insert(name(case.op));
        }
        for point in 3..9 {
            for visit in 1.. {
                let Some(found) = case.trapped(&bench, index, (point, visit)) else {
                    break;
                };
                let defined = case.defined(&bench, 0, place(case.op, point, visit));
                let differs = (&found.answer, &found.bytes) != (&defined.answer, &defined.bytes);
                if differs && !case.intrusion.contains(&Op::Stop) {
                    found_out.insert(name(case.op));
                }
            }
        }
    });
    assert_eq!(found_out, longer);
}

/// As the production section, but a status that was set before an abort is still there afterwards.
fn forgetful_store_if_equal(at: SlotsAt, expected: u64, new: u64) -> Option<Result<(), u64>> {
    use crate::arch::status::{DONE, REFUSED};

    static STALE: AtomicU32 = AtomicU32::new(0);
    // Relaxed: one thread uses it.
    STALE.store(0, Ordering::Relaxed);
    let (old, status): (u64, u64);
    // SAFETY: as for the production section.
    unsafe {
        with_traps!(store_if_equal!(
            forgetful_trap,
            at,
            expected,
            new,
            old,
            status,
            stale = sym STALE
        ));
    }
    match status {
        DONE => Some(Ok(())),
        REFUSED => Some(Err(old)),
        _ => None,
    }
}

/// The check can fail here, too: point 5 lies behind the place where the status is set, and the
/// slot is gone when the section starts over.
#[test]
fn a_section_that_does_not_reset_its_status_is_found_out() {
    let Some((index, indexes)) = real_index(IndexBy::Cpu) else { return };
    let _traps = set_traps();
    let bench = Bench::new(indexes, true);
    let case = Case { setup: &[], op: Op::StoreIfEqual(0, 7), intrusion: &[Op::Stop] };
    let defined = case.defined(&bench, 0, place(case.op, 5, 1));
    let production = case.trapped_alone(&bench, index, (5, 1), 1);
    assert_eq!(production.as_ref(), Some(&defined));
    assert_eq!((&defined.answer, defined.aborts), (&None, 1));

    let intruder = Intruder {
        bench: &bench,
        program: case.intrusion,
        execute: &|op| by_section(&bench, index, op),
        answers: Cell::new(None),
    };
    bench.reset(0, case.setup);
    INTRUDER.store((&raw const intruder).cast_mut().cast(), Ordering::Relaxed);
    VISITS.store(1, Ordering::Relaxed);
    ARMED.store(5, Ordering::Relaxed);
    let forgetful = forgetful_store_if_equal(bench.word(index), 0, 7);
    ARMED.store(NOWHERE, Ordering::Relaxed);
    assert!(forgetful.is_some(), "the stale status was not taken for an answer: {forgetful:?}");
}
