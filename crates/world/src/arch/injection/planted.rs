//! Sections with a mistake. The checks find each of these mistakes.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::bench::{Answer, Bench, Op, STACK, WordKind, by_section};
use super::{Case, LOOKS, Outcome, Pretence, place, real_index, set_traps};
use crate::IndexBy;
use crate::arch::status::{DONE, REFUSED};
use crate::arch::{CPU_ID, Index, SlotsAt};

/// Like the production section, but a status that was set before an abort is still there
/// afterwards.
fn forgetful_store_if_equal(at: SlotsAt<Index, AtomicU64>, expected: u64, new: u64) -> Answer {
    static STALE: AtomicU32 = AtomicU32::new(0);
    // Relaxed: one thread uses it.
    STALE.store(0, Ordering::Relaxed);
    let (old, status): (u64, u64);
    // SAFETY: as for the production section.
    unsafe {
        with_traps!(text!(
            store_if_equal whole, forgetful_trap, Index, at, status,
            old = out(reg) old, expected = in(reg) expected, new = in(reg) new,
            refused = const REFUSED, stale = sym STALE,
        ));
    }
    match status {
        DONE => Some(Ok(vec![])),
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
    let case =
        Case { setup: &[], op: Op::StoreIfEqual(WordKind::Whole, 0, 7), intrusion: &[Op::Stop] };
    let defined = case.defined(&bench, 0, place(LOOKS, case.op, 5, 1));
    let production = case.trapped_alone(&bench, index, (5, 1), 1);
    assert_eq!(production.as_ref(), Some(&defined));
    assert_eq!((&defined.answer, defined.aborts), (&None, 1));

    let section = || forgetful_store_if_equal(bench.whole(index), 0, 7);
    let forgetful = case.intruded_upon(&bench, index, (5, 1), section).unwrap();
    assert!(forgetful.answer.is_some(), "the stale status was not taken for an answer");
}

/// The outcome of the operation of an undisturbed case, if this section runs it.
fn outcome(bench: &Bench, case: &Case<'_>, section: impl FnOnce() -> Answer) -> Outcome {
    bench.reset(0, case.setup);
    let answer = section();
    Outcome { answer, intruder: vec![], aborts: 0, bytes: bench.bytes() }
}

/// Asserts that of two sections, which nothing disturbs, the first does what the definition says,
/// and the second not.
fn is_found_out(
    bench: &Bench,
    case: &Case<'_>,
    production: impl FnOnce() -> Answer,
    planted: impl FnOnce() -> Answer,
) {
    let defined = case.defined(bench, 0, Err(9));
    assert_eq!(outcome(bench, case, production), defined, "{case:?}");
    assert_ne!(outcome(bench, case, planted), defined, "{case:?}");
}

/// Like the production sections of 64 bits, on a word of 32.
fn too_wide(at: SlotsAt<Index, AtomicU32>, op: Op) -> Answer {
    let (old, status): (u64, u64);
    // SAFETY: as for the production sections; what lies beside the word is the test's, too.
    unsafe {
        match op {
            Op::Add(_, delta) => {
                text!(add whole, nothing, Index, at, { return None }, delta = in(reg) delta,);
                return Some(Ok(vec![]));
            }
            Op::Load(_) => text!(load whole, nothing, Index, at, status, value = out(reg) old,),
            Op::Exchange(_, new) => text!(
                exchange whole, nothing, Index, at, status, old = out(reg) old, new = in(reg) new,
            ),
            _ => unreachable!("no case of it"),
        }
    }
    (status == DONE).then(|| Ok(vec![old]))
}

#[test]
fn an_access_that_is_wider_than_its_word_is_found_out() {
    let bench = Bench::new(1, false);
    let mut pretence = Pretence::new(0, 0);
    let index = pretence.area().index(CPU_ID);
    let most = u64::from(u32::MAX);
    for op in
        [Op::Add(WordKind::Half, most), Op::Load(WordKind::Half), Op::Exchange(WordKind::Half, 7)]
    {
        let case = Case { setup: &[Op::Add(WordKind::Half, 5)], op, intrusion: &[] };
        let production = || by_section(&bench, index, op);
        is_found_out(&bench, &case, production, || too_wide(bench.half(index), op));
    }
}

/// The check can fail for a push that does not look at the capacity, too: it does what a push does
/// to a stack with room.
#[test]
fn a_push_that_does_not_look_at_the_capacity_is_found_out() {
    let bench = Bench::new(1, false);
    let mut pretence = Pretence::new(0, 0);
    let index = pretence.area().index(CPU_ID);
    let op = Op::StackPush(9);
    let case = Case { setup: &[Op::Resize(0)], op, intrusion: &[] };
    let production = || by_section(&bench, index, op);
    let roomy_push = || {
        by_section(&bench, index, Op::Resize(STACK));
        let answer = production();
        by_section(&bench, index, Op::Resize(0));
        answer
    };
    is_found_out(&bench, &case, production, roomy_push);
}
