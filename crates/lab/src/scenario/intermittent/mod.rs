//! `intermittent`: bursts on per-CPU memory, far apart in time (seed 000).
//!
//! One thread for each CPU of a configuration, pinned to it. The threads run one at a time, in an
//! order that is drawn anew for each *sequence*, in which every thread runs once; a coordinator
//! wakes them, and sleeps for the *delay* between a burst and the next wake-up. A burst increments
//! each byte of a 16 KiB area, and its time is taken. Which area is the question. If an index comes
//! to a CPU that did not have it before, its area's lines come from the CPU that did.
//!
//! | variant | the area is that of | native | simulated |
//! |---|---|---|---|
//! | `cpu-id` | the CPU's number | yes | yes |
//! | `kernel-cid` | the kernel's concurrency ID, whatever this kernel's policy is | yes | no |
//! | `first-fit` | a concurrency ID: the seed's "before" | no | yes |
//! | `recent` | a concurrency ID: the policy of the seed | no | yes |
//! | `owned` | a concurrency ID: the ownership of Linux 6.19 | no | yes |
//! | `clustered` | a concurrency ID: `recent` for each last-level cache | no | yes |
//!
//! All alternatives have the same threads, areas and coordinator, and differ in the one number that
//! picks the area. Where fewer threads than CPUs run at a time, concurrency IDs need fewer areas
//! than there are CPUs; `first-fit` needs the fewest.
//!
//! Where the seed says nothing:
//!
//! * the first sequence warms up (the areas' lines come from memory) and is not counted; the result
//!   of a run is the mean over all bursts of those that follow, [`SEQUENCES`] if nothing is said;
//! * the areas are page-aligned, as those of librseq's mempool, and one allocation each;
//! * a coordinator wakes the threads. It is a thread of the process like the others, and so has a
//!   concurrency ID itself. It is not pinned; simulated, it stays on CPU 0.
//!
//! The scenario checks itself: after `n` bursts the bytes at each position, over all areas, have
//! been incremented `n` times.

mod program;
mod reasons;

use core::hint::black_box;
use core::time::Duration;
use std::ptr;
use std::sync::Arc;

use coreline_topology::{Cid, CpuId};
use coreline_world::{Cell, JoinHandle, Line, Ordering, Placement, SpawnError, Testbed, Word};
use rand_pcg::Pcg64;

use crate::scenario::{Variant, shuffle};

pub(crate) use program::IntermittentProgram;
pub(crate) use reasons::{ASLEEP_MS, Quantity, why_off, why_reached};

/// Bytes of an area, all of which a burst increments.
pub(crate) const AREA: usize = 16 << 10;

/// How often each thread runs and is counted. The longest delay of the seed is past any expiry at
/// once; the shortest needs more than one, with references of different ages.
pub(crate) const SEQUENCES: u32 = 6;

/// What one run depends on.
#[derive(Debug, Clone)]
pub(crate) struct IntermittentParams {
    /// One thread is pinned to each.
    pub(crate) cpus: Vec<CpuId>,
    /// Between a burst and the next wake-up.
    pub(crate) delay: Duration,
    /// What picks the area.
    pub(crate) variant: Variant,
    /// How often each thread runs and is counted.
    pub(crate) sequences: u32,
    /// Seeds the order of the threads.
    pub(crate) seed: u64,
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IntermittentError {
    /// The world cannot do this.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The world cannot do this.
    #[error("{variant} is not available: a thread has no such index here; see `coreline doctor`")]
    NoIndex { variant: Variant },
    /// The run's own check failed.
    #[error("byte {position} of the areas has {found} increments (mod 256) after {bursts} bursts")]
    Increments { position: usize, found: u8, bursts: u64 },
}

impl IntermittentError {
    /// Whether the world lacks something, rather than went wrong.
    pub(crate) fn is_lack(&self) -> bool {
        matches!(self, IntermittentError::Spawn(_) | IntermittentError::NoIndex { .. })
    }
}

/// Runs the scenario. The caller is the coordinator.
///
/// Returns the nanoseconds of each counted burst, by thread and in the order of the thread's
/// bursts.
///
/// # Errors
///
/// [`IntermittentError`] if a thread cannot be started or has no index of the variant's kind, or if
/// increments were lost.
pub(crate) fn intermittent<W: Testbed>(
    params: &IntermittentParams,
) -> Result<Vec<u64>, IntermittentError> {
    let bench = Arc::new(Bench::<W>::new(params));
    let mut threads = Vec::with_capacity(params.cpus.len());
    let mut spawned = Ok(());
    for (number, &cpu) in params.cpus.iter().enumerate() {
        let theirs = Arc::clone(&bench);
        match W::spawn(Placement::On(cpu), move || theirs.work(number)) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                spawned = Err(error);
                break;
            }
        }
    }
    if spawned.is_ok() {
        bench.coordinate(params);
    }
    // Threads that did start must end, whatever happened.
    bench.turns[..threads.len()].iter().for_each(Bench::<W>::end);
    let bursts: Vec<Option<u64>> = threads.into_iter().flat_map(JoinHandle::join).collect();
    spawned?;
    let total = bursts.len();
    let bursts: Option<Vec<u64>> = bursts.into_iter().collect();
    let bursts = bursts.ok_or(IntermittentError::NoIndex { variant: params.variant })?;
    bench.check((total + params.cpus.len()) as u64)?;
    Ok(bursts)
}

/// One area. Alone on its pages.
#[repr(C, align(4096))]
struct Area<W: Testbed>(Cell<[u8; AREA], W>);

/// Whose turn it is: one word for each thread.
///
/// | value | name | meaning | written by |
/// |---|---|---|---|
/// | 0 | `WAIT` | the thread's burst is over, the coordinator's turn | the thread |
/// | 1 | `BURST` | the thread's turn: one burst | the coordinator |
/// | 2 | `END` | the thread ends | the coordinator, once, at `WAIT` |
///
/// The side that does not have the turn parks on the word.
type Turn<W> = Line<<W as coreline_world::Words>::U32>;

const WAIT: u32 = 0;
const BURST: u32 = 1;
const END: u32 = 2;

struct Bench<W: Testbed> {
    areas: Vec<Box<Area<W>>>,
    turns: Vec<Turn<W>>,
    variant: Variant,
}

impl<W: Testbed> Bench<W> {
    fn new(params: &IntermittentParams) -> Self {
        // Every CPU number and every concurrency ID is below the limit.
        let areas = (0..W::topology().cpu_limit())
            .map(|_| Box::new(Area(Cell::new_in([0; AREA]))))
            .collect();
        let turns = params.cpus.iter().map(|_| Line(W::U32::new_in(WAIT))).collect();
        Bench { areas, turns, variant: params.variant }
    }

    /// The coordinator's part.
    fn coordinate(&self, params: &IntermittentParams) {
        let mut dice = Pcg64::new(u128::from(params.seed), ORDER);
        let mut order: Vec<usize> = (0..self.turns.len()).collect();
        for _ in 0..=params.sequences {
            shuffle(&mut order, &mut dice);
            for &number in &order {
                Self::give(&self.turns[number]);
                W::sleep(params.delay);
            }
        }
    }

    /// Gives a thread its turn, and waits until its burst is over.
    fn give(turn: &Turn<W>) {
        // Release: the partner is the thread's Acquire load in `work`. Without the pair the thread
        // could miss what earlier bursts, of other threads, did to the area that it gets.
        turn.store(BURST, Ordering::Release);
        W::wake(ptr::from_ref(&turn.0), 1);
        // Acquire: the partner is the thread's Release store in `work`. Without the pair the next
        // turn would not carry this burst's increments along.
        while turn.load(Ordering::Acquire) == BURST {
            W::park(turn, BURST, None);
        }
    }

    fn end(turn: &Turn<W>) {
        // Relaxed would do: nothing follows that the thread reads. Release, as in `give`, costs
        // nothing.
        turn.store(END, Ordering::Release);
        W::wake(ptr::from_ref(&turn.0), 1);
    }

    /// A thread's part: returns the times of its bursts but the first; `None` for each without an
    /// index.
    fn work(&self, number: usize) -> Vec<Option<u64>> {
        let turn = &self.turns[number];
        let mut bursts = Vec::new();
        loop {
            // Acquire: see `give`.
            match turn.load(Ordering::Acquire) {
                WAIT => {
                    W::park(turn, WAIT, None);
                }
                BURST => {
                    bursts.push(self.burst());
                    // Release: see `give`.
                    turn.store(WAIT, Ordering::Release);
                    W::wake(ptr::from_ref(&turn.0), 1);
                }
                _ => break,
            }
        }
        bursts.into_iter().skip(1).collect()
    }

    /// One burst, and its nanoseconds.
    fn burst(&self) -> Option<u64> {
        let start = W::now();
        let index = match self.variant {
            Variant::CpuId => W::cpu().index(),
            Variant::KernelCid
            | Variant::FirstFit
            | Variant::Recent
            | Variant::Owned
            | Variant::Clustered => W::kernel_cid().map(Cid::index)?,
            // The alternatives of other scenarios pick no area.
            _ => return None,
        };
        self.areas.get(index)?.0.with_mut(|bytes| {
            // SAFETY: the pointer is valid while this runs. Turns are given one at a time, so no
            // other thread touches any area, whatever the index.
            let bytes = unsafe { &mut *bytes };
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            // The optimiser must take the bytes as read.
            black_box(bytes);
        });
        u64::try_from((W::now() - start).as_nanos()).ok()
    }

    /// Whether every byte position was incremented as often as there were bursts. After all threads
    /// ended.
    fn check(&self, bursts: u64) -> Result<(), IntermittentError> {
        let mut sums = vec![0u8; AREA];
        for area in &self.areas {
            area.0.with(|bytes| {
                // SAFETY: the pointer is valid while this runs, and all writers have been joined.
                let bytes = unsafe { &*bytes };
                sums.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
            });
        }
        let expected = bursts as u8;
        match sums.iter().position(|&sum| sum != expected) {
            Some(position) => {
                Err(IntermittentError::Increments { position, found: sums[position], bursts })
            }
            None => Ok(()),
        }
    }
}

/// The stream of the generator that draws orders; simulated machines draw from others.
const ORDER: u128 = 0x0d0e;

/// Ten seconds between two bursts; more is taken for a typing mistake.
pub(crate) const MOST_DELAY_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use coreline_sim::{Machine, Sim};
    use coreline_world::Native;

    use super::*;

    fn params(variant: Variant) -> IntermittentParams {
        let delay = Duration::from_millis(1);
        IntermittentParams {
            cpus: vec![CpuId::new(0)],
            delay,
            variant,
            sequences: SEQUENCES,
            seed: 1,
        }
    }

    #[test]
    fn every_thread_bursts_once_in_each_counted_sequence() {
        let cpus: Vec<_> = [0, 1].map(CpuId::new).into();
        let params = IntermittentParams { cpus, ..params(Variant::CpuId) };
        let run = Machine::preset("host-2c").unwrap().run(move || intermittent::<Sim>(&params));
        assert_eq!(run.unwrap().value.unwrap().len(), 2 * SEQUENCES as usize);
    }

    #[test]
    fn it_runs_natively_with_the_same_code() {
        let bursts = intermittent::<Native>(&params(Variant::CpuId)).unwrap();
        assert_eq!(bursts.len(), SEQUENCES as usize);
        assert!(bursts.iter().all(|&ns| ns > 0));
    }

    #[test]
    fn a_missing_index_is_a_lack_and_every_thread_ends() {
        // No kernel is installed, so there are no concurrency IDs.
        let run = Machine::preset("host-2c")
            .unwrap()
            .run(|| intermittent::<Sim>(&params(Variant::KernelCid)));
        let error = run.unwrap().value.unwrap_err();
        assert!(error.is_lack() && error.to_string().contains("kernel-cid"), "{error}");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_a_lack_and_every_thread_ends() {
        let cpus = [0, 1, 2].map(CpuId::new).into();
        let params = IntermittentParams { cpus, ..params(Variant::CpuId) };
        let run = Machine::preset("host-2c").unwrap().run(move || intermittent::<Sim>(&params));
        let error = run.unwrap().value.unwrap_err();
        assert!(matches!(error, IntermittentError::Spawn(_)) && error.is_lack(), "{error}");
    }

    #[test]
    fn the_check_finds_a_lost_increment() {
        let run = Machine::preset("host-2c").unwrap().run(|| {
            let bench = Bench::<Sim>::new(&params(Variant::CpuId));
            bench.burst();
            bench.burst();
            bench.check(2).unwrap();
            // SAFETY: one thread, and the pointer is valid while this runs.
            bench.areas[1].0.with_mut(|bytes| unsafe { (*bytes)[77] = 255 });
            bench.check(2).unwrap_err().to_string()
        });
        let error = run.unwrap().value;
        assert!(error.contains("byte 77") && error.contains("has 1 increments"), "{error}");
    }

    #[test]
    fn an_order_is_a_permutation_and_depends_on_the_seed() {
        let draw = |seed: u128| {
            let mut order: Vec<usize> = (0..384).collect();
            shuffle(&mut order, &mut Pcg64::new(seed, ORDER));
            order
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut sorted = draw(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..384).collect::<Vec<_>>());
    }
}
