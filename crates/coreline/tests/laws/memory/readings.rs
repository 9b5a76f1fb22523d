//! The law of cheap readings: at any time, the truth lies between [`low`] and [`high`].
//!
//! The truth cannot be known while others add; but every adder says what it is about to add, and
//! what it has added. A reader that asks for the latter before it reads, and for the former after
//! it, knows that the truth lies between.
//!
//! [`low`]: coreline::counter::Reading::low
//! [`high`]: coreline::counter::Reading::high

use std::sync::Arc;

use coreline::{IndexBy, PerCpuCounter};
use coreline_sim::{Faults, Sim};
use coreline_world::model::Model;
use coreline_world::{Integer, JoinHandle, Line, Native, Ordering, Testbed, Word};

use crate::worlds::{self, Effort, FEW, NATIVE, TORN};

/// What one adder says: magnitudes, which only grow.
struct Said<W: Testbed> {
    begun: [W::U64; 2],
    done: [W::U64; 2],
}

impl<W: Testbed> Said<W> {
    fn new_in() -> Self {
        let words = || [W::U64::new_in(0), W::U64::new_in(0)];
        Said { begun: words(), done: words() }
    }

    fn add(&self, counter: &PerCpuCounter<W>, delta: i64) {
        let way = usize::from(delta < 0);
        // Relaxed, with a fence after it that pairs with the reader's: a reader that sees the
        // addition sees that it was begun.
        self.begun[way].fetch_add(delta.unsigned_abs(), Ordering::Relaxed);
        W::fence(Ordering::Release);
        counter.add(delta);
        // Release pairs with the reader's acquire: the addition happened.
        self.done[way].fetch_add(delta.unsigned_abs(), Ordering::Release);
    }
}

/// The sum of what all adders have begun, or done, up and down.
fn sum<W: Testbed>(said: &[Line<Said<W>>], which: fn(&Said<W>) -> &[W::U64; 2]) -> [i64; 2] {
    [0, 1].map(|way| {
        // Acquire pairs with the release in `add`.
        said.iter().map(|said| which(said)[way].load(Ordering::Acquire).cast_signed()).sum()
    })
}

/// What adders add, and to what.
#[derive(Clone, Copy)]
struct Program {
    by: IndexBy,
    batch: Option<u32>,
    /// What is there when they begin.
    start: i64,
    /// Thread *n* adds the (*n* + *r*)th of them in round *r*.
    deltas: &'static [i64],
}

fn readings_hold_the_truth<W: Testbed>(effort: Effort, program: Program) {
    let Program { by, batch, start, deltas } = program;
    let counter = PerCpuCounter::<W>::new_in(by).unwrap();
    let counter = Arc::new(match batch {
        Some(batch) => counter.batched(batch),
        None => counter,
    });
    // Two CPUs, so that there are slots. Nothing in them, so that the first one is as it was.
    let place = Effort { cpus: 2, ..effort }.places::<W>();
    for number in 0..2 {
        let counter = Arc::clone(&counter);
        let add = move || counter.add(if number == 0 { start } else { 0 });
        W::spawn(place(number), add).unwrap().join();
    }
    let said: Arc<Vec<Line<Said<W>>>> =
        Arc::new((0..effort.threads).map(|_| Line(Said::new_in())).collect());
    let slots = W::topology().cpu_limit() as u64 + 1;
    let size = batch.map_or(0, |batch| u64::from(batch).next_power_of_two());
    // With no addition on its way; and with all on theirs, each with what is left of its block.
    let settled = (slots * size).div_ceil(2);
    let largest = deltas.iter().map(|delta| delta.unsigned_abs()).max().unwrap_or(0);
    let most = settled + u64::from(effort.threads) * u64::from(effort.rounds) * (largest + size);
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|number| {
            let (counter, said) = (Arc::clone(&counter), Arc::clone(&said));
            let delta = move |round| deltas[(number + round) as usize % deltas.len()];
            W::spawn(place(number), move || {
                let said = &said[number as usize];
                (0..effort.rounds).for_each(|round| said.add(&counter, delta(round)));
            })
            .unwrap()
        })
        .collect();
    for _ in 0..effort.rounds {
        let [up_done, down_done] = sum(&said, |said| &said.done);
        let (reading, exact) = (counter.read(), counter.read_exact());
        // Acquire: pairs with the adders' fence.
        W::fence(Ordering::Acquire);
        let [up_begun, down_begun] = sum(&said, |said| &said.begun);
        let (low, high) = (start + up_done - down_begun, start + up_begun - down_done);
        assert!((low..=high).contains(&exact), "{exact} is not in {low}..={high}");
        let overlaps = reading.low() <= high && low <= reading.high();
        assert!(overlaps, "{reading:?} is not in {low}..={high}");
        assert!(reading.error <= most, "{reading:?}: more than {most}");
    }
    threads.into_iter().for_each(JoinHandle::join);
    let [up, down] = sum(&said, |said| &said.done);
    let exact = start + up - down;
    assert_eq!(counter.read_exact(), exact, "additions were lost or doubled");
    let reading = counter.read();
    let off = reading.value.abs_diff(exact);
    assert!(off <= reading.error, "{reading:?} of {exact} is off by {off}");
    // Nothing is on its way any more.
    assert!(reading.error <= settled, "{reading:?}: more than {settled}, though no thread adds");
}

const DELTAS: &[i64] = &[1, 1, -1, 3, 0, -7, 100, -50, 64, -65, 1, 2];

const PLAIN: Program = Program { by: IndexBy::Cpu, batch: None, start: 0, deltas: DELTAS };

#[test]
fn readings_hold_the_truth_natively() {
    for batch in [None, Some(1), Some(2), Some(3), Some(64), Some(u32::MAX)] {
        readings_hold_the_truth::<Native>(NATIVE, Program { batch, ..PLAIN });
    }
    if PerCpuCounter::<Native>::new_in(IndexBy::KernelCid).is_ok() {
        let program = Program { by: IndexBy::KernelCid, batch: Some(8), ..PLAIN };
        readings_hold_the_truth::<Native>(NATIVE, program);
    }
}

#[test]
fn readings_hold_the_truth_under_preemption() {
    let law = || readings_hold_the_truth::<Sim>(FEW, Program { batch: Some(8), ..PLAIN });
    worlds::simulate("readings", "host-2c", TORN, law).unwrap();
    let law = || {
        let program = Program { by: IndexBy::KernelCid, batch: Some(3), ..PLAIN };
        readings_hold_the_truth::<Sim>(FEW, program);
    };
    worlds::simulate("readings::by_cid", "host-2c", TORN, law).unwrap();
}

#[test]
fn readings_hold_the_truth_on_384_simulated_cpus() {
    // Few adders: a reader looks at two lines of each.
    let effort = Effort { threads: 48, rounds: 8, cpus: 384 };
    let law = move || readings_hold_the_truth::<Sim>(effort, Program { batch: Some(8), ..PLAIN });
    worlds::simulate("readings", "epyc-9654-2s", Faults::default(), law).unwrap();
}

/// Both in one slot.
const TOGETHER: Effort = Effort { threads: 2, rounds: 1, cpus: 1 };

/// One leaves its block downwards, and before that is told, the other comes back, and tells that.
#[test]
fn a_block_that_is_left_and_entered_again_is_announced_in_every_interleaving() {
    let program = Program { batch: Some(8), deltas: &[-1, 1], ..PLAIN };
    worlds::few(move || readings_hold_the_truth::<Model>(TOGETHER, program));
}

/// One leaves its block downwards, and before that is told, the other adds to the new one, of which
/// nothing has to be told.
#[test]
fn a_block_that_is_left_and_used_is_announced_in_every_interleaving() {
    let program = Program { batch: Some(8), deltas: &[-1, -7], ..PLAIN };
    worlds::few(move || readings_hold_the_truth::<Model>(TOGETHER, program));
}
