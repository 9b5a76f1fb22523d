//! Aborts at every numbered point of every section.
//!
//! The text of the production sections is instantiated once more, with a trap at each point that is
//! armed by the point's number and by how many times the point is to be passed before. The trap is
//! a signal, so the kernel aborts the section exactly there; the signal's handler, the *intruder*,
//! works on the same slot, as a preempting thread would. What comes out must be what the executable
//! definition gives if it is aborted before the corresponding step and intruded upon likewise: all
//! bytes of the slot, all answers, the number of aborts. librseq's tests call this injection.
//!
//! Both ways to an index are tested. Where indexes are in rows, each CPU's row shows the same one,
//! so that it does not matter where the kernel runs the thread; the intruder changes all of them.
//!
//! Where the kernel has no sections for us, areas that the kernel does not know of still show that
//! sections compute what they should, and that they must be announced.

mod bench;
mod interpreter;
mod planted;
mod programs;
mod stacks;

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::bench::{Answer, Bench, NO_INDEX, Op, by_section, by_trapped_section};
use self::interpreter::{Before, Interpreter};
use self::programs::{CHANGES, FAMILIES, Family, HALF, HOME, OTHER, SLOTS};
use crate::arch::{Area, CPU_ID, Index, MM_CID, processor};
use crate::native::linux::rseq;
use crate::{IndexBy, Native, Restartable};

/// The point at which the next trap triggers, or [`NOWHERE`] if there is none.
pub(super) static ARMED: AtomicU32 = AtomicU32::new(NOWHERE);
/// At which visit of the point, counted from 1.
pub(super) static VISITS: AtomicU32 = AtomicU32::new(0);
/// How often an abort handler of a section with traps ran.
pub(super) static ABORTS: AtomicU32 = AtomicU32::new(0);
/// The action of the trap's handler.
static INTRUDER: AtomicPtr<Intruder<'_>> = AtomicPtr::new(ptr::null_mut());
/// One test at a time sets traps.
static TRAPS: Mutex<()> = Mutex::new(());

const NOWHERE: u32 = u32::MAX;
const POINTS: u32 = 12;
/// The points at which a section looks for its slot, in order.
const LOOKS: &[u32] = &[1, 2];
/// The same where the index is in a row.
const LOOKS_IN_ROWS: &[u32] = &[1, 10, 11, 2];

/// The sections once more, with traps.
mod trapped {
    use core::ptr::NonNull;

    use crate::arch::operations::ended;
    use crate::arch::status::{DONE, REFUSED};
    use crate::arch::{Gated, InRow, Index, SlotsAt};
    use crate::restartable::definition::{
        Add, AddIf, Exchange, Load, StackPop, StackPopBatch, StackPush, StackPushBatch,
        StackResize, StoreIfEqual,
    };
    use crate::restartable::{Full, ResizableStack};
    use crate::{Integer, Word, Words};

    /// Like [`Section`](crate::arch::Section).
    pub(super) trait Trapped<I, F, R>: Sized {
        /// # Safety
        ///
        /// The same as for [`Section::run`](crate::arch::Section::run).
        unsafe fn run(self, at: SlotsAt<I, F>) -> Option<R>;
    }

    with_traps!(operations!(Trapped, trap, Index,));
    with_traps!(operations!(Trapped, trap, InRow,));
    with_traps!(operations!(Trapped, trap, Gated,));
}

struct Intruder<'a> {
    bench: &'a Bench,
    program: &'a [Op],
    execute: &'a dyn Fn(Op) -> Answer,
    answers: Cell<Option<Vec<Answer>>>,
}

/// The code of a section triggers traps, never inside an allocator or a lock, so the handler may do
/// anything.
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
    // SAFETY: the handler interrupts only sections, so it may do anything.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()), 0);
    }
    guard
}

/// The effects of an operation and its intruder.
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
    /// By definition, undisturbed except for the intrusion, which comes at `abort`, or before the
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
        Outcome { answer, intruder, aborts, bytes: bench.bytes() }
    }

    /// By a section with this index, intruded upon at a visit of a point, if it comes by. Sections
    /// of the intruder use the same index.
    fn trapped(&self, bench: &Bench, index: Index, at: (u32, u32)) -> Option<Outcome> {
        let section = || by_trapped_section(bench, index, self.op);
        self.intruded_upon(bench, index, at, section)
    }

    /// The same, of this section.
    fn intruded_upon(
        &self,
        bench: &Bench,
        index: Index,
        at: (u32, u32),
        section: impl FnOnce() -> Answer,
    ) -> Option<Outcome> {
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
        let answer = section();
        ARMED.store(NOWHERE, Ordering::Relaxed);
        let aborts = ABORTS.load(Ordering::Relaxed);
        let intruder = intruder.answers.take()?;
        Some(Outcome { answer, intruder, aborts, bytes: bench.bytes() })
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
fn place(looks: &[u32], op: Op, point: u32, visit: u32) -> Result<Before, u32> {
    if let Some(step) = looks.iter().position(|&look| look == point) {
        return Ok(Before::Step(step));
    }
    let (found, visit) = (looks.len(), visit as usize);
    Ok(match (op, point) {
        (_, 0 | 9) => return Err(point),
        (_, 3) => Before::Step(found),
        (Op::Add(..) | Op::Exchange(..) | Op::StoreIfEqual(..) | Op::AddIf(..), _)
        | (Op::Resize(_), _) => Before::Last,
        (_, 4) => Before::Step(found + 1),
        // The capacity is read in between.
        (Op::StackPush(_) | Op::StackPushBatch(_), 5) => Before::Step(found + 2),
        (Op::StackPop, 5) => Before::Step(found + 2),
        (Op::StackPush(_) | Op::StackPushBatch(_) | Op::StackPop, 6) => Before::Store(0),
        (Op::StackPush(_), 7) => Before::Store(1),
        (Op::StackPushBatch(_), 7) => Before::Store(visit),
        _ => Before::Last,
    })
}

fn looks(bench: &Bench) -> &'static [u32] {
    if bench.has_rows() { LOOKS_IN_ROWS } else { LOOKS }
}

/// The points that some case must come by, beside those at which it looks for its slot.
fn points(op: Op) -> impl Iterator<Item = u32> {
    let last = match op {
        // One instruction does it all on x86-64.
        Op::Add(..) if cfg!(target_arch = "x86_64") => 3,
        Op::Load(_) => 3,
        Op::Add(..) | Op::Exchange(..) | Op::Resize(_) => 4,
        Op::StoreIfEqual(..) | Op::AddIf(..) => 5,
        Op::StackPopBatch(_) => 6,
        Op::StackPop => 7,
        Op::StackPush(_) | Op::StackPushBatch(_) => 8,
        Op::Stop | Op::Show(_) => unreachable!("not an operation of its own"),
    };
    (3..=last).chain([0, 9])
}

/// The operation and what kind of thing it is on, without its arguments.
fn name(op: Op) -> String {
    format!("{op:?}").split(|c: char| !c.is_alphabetic() && c != '(').next().unwrap().to_owned()
}

/// Calls `check` with every case of all families.
fn each_case(bench: &Bench, mut check: impl FnMut(&Case<'_>)) {
    let changes = if bench.has_rows() { CHANGES } else { &[] };
    for Family { setups, ops, intrusions } in FAMILIES {
        for (setup, op) in setups.iter().flat_map(|setup| ops.iter().map(move |op| (setup, *op))) {
            let intrusions = intrusions.iter().chain(changes);
            intrusions.for_each(|intrusion| check(&Case { setup, op, intrusion }));
        }
    }
}

/// Compares every case with its definition, with an abort at every visit of every point.
fn abort_everywhere(bench: &Bench, index: Index) {
    let _traps = set_traps();
    let (mut expected, mut seen) = (BTreeSet::new(), BTreeSet::new());
    each_case(bench, |case| {
        let points = points(case.op).chain(looks(bench).iter().copied());
        expected.extend(points.map(|point| (name(case.op), point)));
        for point in 0..POINTS {
            for visit in 1.. {
                let at = place(looks(bench), case.op, point, visit);
                let aborts = u32::from(at.is_ok());
                let found = case.trapped_alone(bench, index, (point, visit), aborts);
                let Some(found) = found else { break };
                seen.insert((name(case.op), point));
                let defined = case.defined(bench, 0, at);
                assert_eq!(found.aborts, aborts, "point {point}, visit {visit}: {case:?}");
                assert_eq!(found, defined, "point {point}, visit {visit}: {case:?}");
            }
        }
    });
    assert_eq!(seen, expected, "points that no case came by, or that are not listed");
}

/// The index of the calling thread, where the kernel aborts sections; and how many slots there are.
fn real_index(by: IndexBy) -> Option<(Index, usize)> {
    let area = rseq::sections().ok()?;
    let (section, indexes) = Native::section(by).ok()?;
    // Registers the thread if it is not registered yet.
    assert!(Native::index(&section) < indexes);
    let field = if by == IndexBy::Cpu { CPU_ID } else { MM_CID };
    Some((area.index(field), indexes))
}

#[test]
fn an_abort_at_every_point_does_what_the_definition_says_by_cpu() {
    if let Some((index, indexes)) = real_index(IndexBy::Cpu) {
        abort_everywhere(&Bench::new(indexes, true), index);
    }
}

#[test]
fn an_abort_at_every_point_does_what_the_definition_says_by_cid() {
    if let Some((index, indexes)) = real_index(IndexBy::KernelCid) {
        abort_everywhere(&Bench::new(indexes, true), index);
    }
}

#[test]
fn an_abort_at_every_point_does_what_the_definition_says_behind_a_gate() {
    for by in [IndexBy::Cpu, IndexBy::KernelCid] {
        if let Some((index, indexes)) = real_index(by) {
            abort_everywhere(&Bench::gated(indexes, true), index);
        }
    }
}

#[test]
fn an_abort_at_every_point_does_what_the_definition_says_by_rows() {
    if let Some((index, cpus)) = real_index(IndexBy::Cpu) {
        abort_everywhere(&Bench::with_rows(SLOTS, vec![Some(HOME); cpus]), index);
    }
}

/// An area that no kernel knows of.
#[repr(C, align(32))]
pub(crate) struct Pretence([u32; 8]);

impl Pretence {
    pub(crate) fn new(cpu_id: u32, mm_cid: u32) -> Pretence {
        Pretence([0, cpu_id, 0, 0, 0, 0, mm_cid, 0])
    }

    /// Whether a section was ever armed on it.
    pub(crate) fn was_armed(&self) -> bool {
        // SAFETY: a live variable. Assembly wrote it.
        unsafe { (&raw const self.0[2]).read_volatile() != 0 }
    }

    /// Where the calling thread has it.
    pub(crate) fn area(&mut self) -> Area {
        let address = (&raw mut self.0).expose_provenance();
        Area { offset: address.wrapping_sub(processor::thread_pointer()) as isize }
    }

    fn indexes(&mut self) -> [Index; 2] {
        [CPU_ID, MM_CID].map(|field| self.area().index(field))
    }
}

/// Rows of three lines without the second line. One in each half of a line shows [`HOME`], and its
/// neighbours other indexes.
const SHOWN: [Option<u32>; 45] = {
    let mut shown = [None; 45];
    (shown[0], shown[2], shown[3], shown[4]) = (Some(OTHER), Some(3), Some(HOME), Some(0));
    (shown[5], shown[6], shown[11]) = (Some(SLOTS as u32), Some(HALF), Some(OTHER));
    (shown[14], shown[32], shown[44]) = (Some(HOME), Some(3), Some(HOME));
    shown
};
/// The CPUs whose rows show `HOME`.
const AT_HOME: [u32; 3] = [3, 14, 44];

#[test]
fn every_way_through_a_section_gives_what_the_definition_gives() {
    let compare = |bench: &Bench, place: usize, index: Index| {
        each_case(bench, |case| {
            let defined = case.defined(bench, place, Err(9));
            let execute = |op| by_section(bench, index, op);
            bench.reset(place, case.setup);
            let answer = execute(case.op);
            let intruder = bench.run(case.intrusion, execute);
            let found = Outcome { answer, intruder, aborts: 0, bytes: bench.bytes() };
            assert_eq!(found, defined, "{case:?}");
        });
    };
    for own in [Bench::new(4, false), Bench::gated(4, false)] {
        compare(&own, 2, Pretence::new(2, 0).area().index(CPU_ID));
        compare(&own, 2, Pretence::new(0, 2).area().index(MM_CID));
    }
    let in_rows = Bench::with_rows(SLOTS, SHOWN.to_vec());
    for cpu in AT_HOME {
        compare(&in_rows, cpu as usize, Pretence::new(cpu, 0).area().index(CPU_ID));
    }
}

/// Whether every operation of the families finds no slot. Those that find none do nothing.
fn finds_no_slot(bench: &Bench, index: Index) -> bool {
    let mut found = BTreeSet::new();
    each_case(bench, |case| {
        bench.reset(0, case.setup);
        let before = bench.bytes();
        let none = by_section(bench, index, case.op).is_none();
        assert!(!none || before == bench.bytes(), "{case:?}");
        found.insert(none);
    });
    assert_eq!(found.len(), 1, "not all operations agree");
    found.contains(&true)
}

#[test]
fn an_index_at_the_limit_or_of_nobody_finds_no_slot_and_does_nothing() {
    let benches = [Bench::new(2, false), Bench::gated(2, false)];
    let found_no_slot = |cpu_id, mm_cid| {
        let mut pretence = Pretence::new(cpu_id, mm_cid);
        let [plain, gated] = benches.each_ref().map(|bench| {
            let [by_cpu, by_cid] = pretence.indexes().map(|index| finds_no_slot(bench, index));
            (by_cpu, by_cid)
        });
        assert_eq!(plain, gated);
        plain
    };
    assert_eq!(found_no_slot(1, 1), (false, false));
    assert_eq!(found_no_slot(2, 1), (true, false));
    assert_eq!(found_no_slot(1, 2), (false, true));
    assert_eq!(found_no_slot(i32::MAX as u32, u32::MAX), (true, true));
    // What a kernel and a C library write there for threads that are not registered.
    for unregistered in [-1_i32, -2] {
        assert_eq!(found_no_slot(unregistered.cast_unsigned(), 0), (true, true));
    }
}

#[test]
fn a_cpu_without_a_row_or_a_row_without_an_index_finds_no_slot_and_does_nothing() {
    let bench = Bench::with_rows(SLOTS, SHOWN.to_vec());
    let finds_none = |cpu: u32| finds_no_slot(&bench, Pretence::new(cpu, 0).area().index(CPU_ID));
    for (cpu, shown) in (0..).zip(SHOWN) {
        // No line, no index, or one at the limit.
        let none = shown.is_none_or(|row| row >= SLOTS as u32);
        assert_eq!(finds_none(cpu), none, "CPU {cpu}: {shown:?}");
    }
    let beyond = SHOWN.len() as u32;
    let unregistered = [-1_i32, -2].map(i32::cast_unsigned);
    for cpu in [beyond, beyond + 1, 1 << 16, i32::MAX as u32].into_iter().chain(unregistered) {
        assert!(finds_none(cpu), "CPU {cpu} of {beyond}");
    }
}

/// The result of each case if another thread does this at this point, without an abort.
fn unannounced(bench: &Bench, index: Index, point: u32, change: &[Op]) -> Vec<bool> {
    let mut ended = Vec::new();
    each_case(bench, |case| {
        let case = Case { intrusion: change, ..*case };
        bench.reset(0, case.setup);
        let before = bench.bytes();
        let found = case.trapped(bench, index, (point, 1)).expect("every section comes by");
        let nothing = Outcome { answer: None, intruder: vec![None], aborts: 0, bytes: before };
        ended.push(found == nothing);
    });
    ended
}

#[test]
fn a_limit_lowered_after_the_index_was_read_is_obeyed() {
    let _traps = set_traps();
    let mut pretence = Pretence::new(0, 0);
    let [cpu, cid] = pretence.indexes();
    let (own, gated) = (Bench::new(1, false), Bench::gated(1, false));
    let in_rows = Bench::with_rows(SLOTS, vec![Some(HOME)]);
    let benches = [(&own, cpu), (&own, cid), (&gated, cpu), (&gated, cid), (&in_rows, cpu)];
    for (bench, index) in benches {
        let stopped = unannounced(bench, index, 2, &[Op::Stop]);
        assert!(stopped.into_iter().all(|stopped| stopped));
    }
}

/// And one that changes afterwards is not: that takes a fence.
#[test]
fn a_row_that_changes_before_it_is_read_is_obeyed() {
    let _traps = set_traps();
    let mut pretence = Pretence::new(0, 0);
    let [cpu, _] = pretence.indexes();
    let bench = Bench::with_rows(SLOTS, vec![Some(HOME)]);
    for (point, obeyed) in [(1, true), (10, true), (11, true), (2, false), (3, false)] {
        let stopped = unannounced(&bench, cpu, point, &[Op::Show(NO_INDEX)]);
        assert!(stopped.into_iter().all(|stopped| stopped == obeyed), "point {point}");
    }
}

/// The operations that are found to differ from their definition where the kernel is not told of
/// sections, by intrusions of one kind.
fn found_out(bench: &Bench, index: Index, is_relevant: fn(&Op) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    each_case(bench, |case| {
        if !case.intrusion.iter().all(is_relevant) {
            return;
        }
        for point in 3..9 {
            for visit in 1.. {
                let Some(found) = case.trapped(bench, index, (point, visit)) else {
                    break;
                };
                let place = place(looks(bench), case.op, point, visit);
                let defined = case.defined(bench, 0, place);
                if (&found.answer, &found.bytes) != (&defined.answer, &defined.bytes) {
                    names.insert(name(case.op));
                }
            }
        }
    });
    names
}

/// The checks above can fail, for every operation that takes more than one instruction: a section
/// that the kernel is not told of does not start over, and loses what the intruder did, or does it
/// twice. And for every operation where a row changes: the slot that it works on is not its CPU's
/// any more.
#[test]
fn a_section_that_is_not_announced_is_found_out() {
    let _traps = set_traps();
    let mut pretence = Pretence::new(0, 0);
    let [index, _] = pretence.indexes();
    let (own, in_rows) = (Bench::new(1, false), Bench::with_rows(SLOTS, vec![Some(HOME)]));
    let (mut all, mut longer) = (BTreeSet::new(), BTreeSet::new());
    each_case(&own, |case| {
        all.insert(name(case.op));
        if points(case.op).count() > 3 {
            longer.insert(name(case.op));
        }
    });
    for bench in [&own, &in_rows] {
        let works = |op: &Op| !matches!(op, Op::Stop | Op::Show(_));
        assert_eq!(found_out(bench, index, works), longer);
    }
    assert_eq!(found_out(&in_rows, index, |op| matches!(op, Op::Show(_))), all);
}
