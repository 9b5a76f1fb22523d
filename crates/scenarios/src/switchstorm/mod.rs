//! `switchstorm`: every CPU of a process alternates between a thread of the process and idling (van
//! Riel 2013).
//!
//! Each CPU has one pinned thread, which repeats a cycle: idle, switch-in, run, switch-out. The
//! variants differ in the mask of the CPUs that a flush of the process's mappings must reach. The
//! kernel keeps such a mask for each address space (`mm`). An idle CPU keeps its bit, so at
//! switch-in the bit is usually already set. The scenario measures the cost of ensuring that the
//! bit is set.
//!
//! | variant | at switch-in | the mask | a flush clears idle CPUs' bits |
//! |---|---|---|---|
//! | `always-set` | locked set | dense | each time |
//! | `test-first` | test; locked set if clear | dense | each time |
//! | `lazy` | as `test-first` | dense | at most once per second |
//! | `refcounted` | as `lazy`, and drops a reference; switch-out takes one | dense | as `lazy` |
//! | `two-level` | as `test-first` | [`CpuMask`] | each time |
//!
//! Each variant differs from an earlier variant in one respect. The rest of the switch path is one
//! generic function, `Storm::cycle`. A dense mask is like the kernel's mask, with one bit for each
//! CPU number, and 512 bits per line.
//!
//! | wake-up | idle until | run |
//! |---|---|---|
//! | `barrier` | all threads have run, as in linpack between two steps | a period |
//! | `independent` | half a period has passed | half a period |
//!
//! We set three parameters without a measurement: the period, the time of the rest of the switch
//! path, and the rate of flushes. While a CPU idles, no other thread runs on it. Natively, its
//! thread waits.
//!
//! Thread 0 executes the flushes. A flush reads the owner-written word of each CPU in the mask, and
//! clears the bits of idle CPUs. It then reads the words again, because a CPU may have stopped
//! idling in between. In the kernel of 2013, an idle CPU is interrupted and clears its own bit. In
//! this scenario, the flush clears those bits. So no variant pays for interrupts.
//!
//! The scenario checks itself. At the end, every thread is switched in, and every bit must be set.

pub mod policy;

use core::time::Duration;
use std::sync::Arc;

use coreline::CpuMask;
use coreline_sim::{LineCost, Report, Sim, Spec};
use coreline_topology::CpuId;
use coreline_world::{Line, Native, Ordering, Testbed, Time, Word};
use rand_pcg::Pcg64;

use policy::{Dense, Mask, Policy, is_mask, is_references};

use super::figure::Figure;
use super::figure::Made::{Number, Over, Scaled, Under};
use super::metric::FigureKind::{ContendedRatio, Cycles, Gain, Nanoseconds, Percent, Rank};
use super::param::{Domain, Param, Values};
use super::point::Setup;
use super::{RunError, Scenario, Variant, draw};
use crate::crew::{Barrier, clock_ns, crew, nanos, pinned};

/// Index in a run's numbers: the time of the policy's part of a switch-in and of the next
/// switch-out, in nanoseconds.
pub const OP: usize = 0;
/// Index in a run's numbers: the share of switches in the non-idle time, in percent.
pub const PATH_SHARE: usize = 1;
/// Index in a run's numbers: the time from the first thread's wake-up to the last thread's wake-up,
/// in nanoseconds.
pub const SPREAD: usize = 2;
/// Index in a run's numbers: the throughput, in rounds per second.
pub const RATE: usize = 3;
/// Index in a run's numbers: the throughput in the fastest tenth of the run, in rounds per second.
pub const PEAK_RATE: usize = 4;
/// Index in a run's numbers: the time of the policy's part of the switch-ins that a sampling
/// profiler sees, in nanoseconds.
pub const SAMPLED: usize = 5;
/// Index in a run's numbers: the share of the policy's part in the non-idle time, in percent.
pub const OP_SHARE: usize = 6;
/// Index in a run's numbers: the rank of the policy's hottest line among all lines, by transfers
/// from other caches. Only the simulator has this number.
pub const LINE_RANK: usize = 7;
/// Index in a run's numbers: the hottest line's share of all transfers from other caches, in
/// percent. Only the simulator has this number.
pub const LINE_SHARE: usize = 8;

/// A second; more is taken for a typing mistake.
const MOST_US: u64 = 1_000_000;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("wake", "How idle CPUs wake up", Domain::Names(WAKES))
            .usual(&["barrier", "independent"])
            .quick(&["barrier"]),
        // Those of `barrier` change nothing about its operations, which meet whatever came before.
        Param::number(
            "period",
            "Microseconds of a round without its switches (with `independent`, half of it is idle, \
             and the defaults are 10 and 25)",
            [1, MOST_US],
        )
        .unit("us")
        .usual(&["25"])
        .depends(|it| if is_barrier(it.values) { Vec::new() } else { vec![10, 25] }),
        // The cost `switch` of every machine file, which is from memory.
        Param::number(
            "path",
            "Nanoseconds of a switch without the part that the variants change",
            [0, 1_000_000],
        )
        .unit("ns")
        .usual(&["1500"]),
        // A thousand a second, declared.
        Param::number(
            "flush",
            "Microseconds from one flush to the next, 0 for no flushes",
            [0, MOST_US],
        )
        .unit("us")
        .usual(&["1000"]),
        Param::effort("rounds", 100_000).usual(&["200"]).quick(&["40"]),
    ],
    variants: &[
        Variant::new("always-set", "The CPU's bit is set by a locked instruction each time"),
        Variant::new("test-first", "The same mask; the bit is tested first"),
        Variant::new("lazy", "As test-first, but flushes clear bits at most once per second"),
        Variant::new("refcounted", "As lazy, with a reference for each CPU that idles"),
        Variant::new("two-level", "As test-first, on the library's mask of two levels"),
    ],
    figures: &[
        Figure::new("op_ns", Nanoseconds, Number(OP)),
        Figure::new("op_cycles", Cycles, Scaled(OP, clock_ghz)),
        // What the published cycles are: a profiler's mean, over what was slow enough for it.
        Figure::new("sampled_cycles", Cycles, Scaled(SAMPLED, clock_ghz)),
        Figure::new("sampled_speedup", ContendedRatio, Under(SAMPLED, "always-set"))
            .when(|it| it.variant != "lazy"),
        Figure::new("op_speedup", ContendedRatio, Under(OP, "always-set")),
        Figure::new("switch_share", Percent, Number(PATH_SHARE)),
        Figure::new("op_share", Percent, Number(OP_SHARE)),
        // Threads that never meet share nothing else that a line could be set beside.
        Figure::new("line_rank", Rank, Number(LINE_RANK)).when(|it| is_barrier(it)),
        Figure::new("line_miss_share", Percent, Number(LINE_SHARE)).when(|it| is_barrier(it)),
        Figure::new("throughput", Gain, Over(RATE, "always-set")).when(|it| is_barrier(it)),
        Figure::new("peak_throughput", Gain, Over(PEAK_RATE, "always-set"))
            .when(|it| is_barrier(it)),
        Figure::new("wake_spread_ns", Nanoseconds, Number(SPREAD)).when(|it| is_barrier(it)),
    ],
    // What depends on the period and on the rest of the path, which are declared, or on what else
    // the program shares, which is not linpack.
    limited: |metric, point| {
        !is_barrier(point) || !["op_", "sampled_"].iter().any(|it| metric.starts_with(it))
    },
    not_testable: "the run has few CPUs, which share one L3: no evidence about a line that many \
                   sockets want",
    published: Some(include_str!("../../published/switchstorm.toml")),
    statistics: true,
    report: hottest,
    told: Some(|it| {
        let [op, share, rank] = [OP, PATH_SHARE, LINE_RANK].map(|number| it[number]);
        format!("{op:.2} ns per operation, {share:.2} % in switches, rank {rank:.0} of its line")
    }),
    ..Scenario::new(
        "switchstorm",
        "Threads of one domain, one on each CPU, that alternate between running and idle (van \
         Riel 2013)",
        [run::<Native>, run::<Sim>],
    )
};

const WAKES: &[(&str, &str)] = &[
    ("barrier", "All CPUs at the same time, when all threads have run"),
    ("independent", "Each CPU at times of its own"),
];

fn is_barrier(values: &Values) -> bool {
    values.is("wake", "barrier")
}

/// Rounds that are not counted: lines come from memory, bits are set for the first time.
const WARM_UP: u32 = 5;

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    match setup.variant {
        "always-set" => storm::<W, Dense<W>, false, false>(setup, Duration::ZERO),
        "test-first" => storm::<W, Dense<W>, true, false>(setup, Duration::ZERO),
        "lazy" => storm::<W, Dense<W>, true, false>(setup, TRIM_EVERY),
        "refcounted" => storm::<W, Dense<W>, true, true>(setup, TRIM_EVERY),
        // This mask tests by itself.
        _ => storm::<W, CpuMask<W>, false, false>(setup, Duration::ZERO),
    }
}

/// The latency from which a sampling profiler sees a load, in nanoseconds: 30 cycles, the usual
/// minimum of `perf c2c`, at 2.8 GHz.
const SAMPLED_FROM: u64 = 11;

/// How often bits of idle CPUs are cleared, at most, by the kernel since 6.13.
const TRIM_EVERY: Duration = Duration::from_secs(1);

/// The activity of a CPU, in its own word, which only it writes.
const IDLE: u32 = 0;
const RUNNING: u32 = 1;

struct Storm<W: Testbed, M, const TESTS: bool, const COUNTS: bool> {
    cpus: Vec<CpuId>,
    is_barrier: bool,
    period: Duration,
    /// The time of a switch without the policy's part.
    path: Duration,
    /// The time from one flush to the next; zero if there are none.
    flush: Duration,
    /// The number of counted rounds of each thread.
    rounds: u32,
    seed: u64,
    policy: Policy<W, M, TESTS, COUNTS>,
    states: Vec<Line<W::U32>>,
    barrier: Barrier<W>,
    trim_every: Duration,
}

#[derive(Default)]
struct Tally {
    op: u64,
    /// Nanoseconds and number of the switch-ins whose part of the policy took longer than
    /// [`SAMPLED_FROM`].
    sampled: (u64, u64),
    path: u64,
    run: u64,
    /// When it was woken, in each counted round, and when the last one ended.
    starts: Vec<u64>,
}

/// Runs the program with a mask. The options say whether a bit is tested before it is set, whether
/// idle CPUs are counted, and the maximum rate at which flushes clear bits. Returns the numbers of
/// a run, except the numbers about lines.
///
/// # Errors
///
/// [`RunError`] if a thread could not be started or has no bit, or if a running CPU's bit is clear.
pub fn storm<W: Testbed, M: Mask, const TESTS: bool, const COUNTS: bool>(
    setup: &Setup,
    trim_every: Duration,
) -> Result<Vec<f64>, RunError> {
    let storm = Arc::new(Storm::<W, M, TESTS, COUNTS> {
        policy: Policy::new(&setup.cpus)?,
        states: setup.cpus.iter().map(|_| Line(W::U32::new_in(IDLE))).collect(),
        barrier: Barrier::new(&setup.cpus),
        cpus: setup.cpus.clone(),
        is_barrier: is_barrier(setup),
        period: setup.duration("period"),
        path: setup.duration("path"),
        flush: setup.duration("flush"),
        rounds: setup.number("rounds") as u32,
        seed: setup.seed,
        trim_every,
    });
    storm.policy.name();
    let tallies = crew::<W, _, _>(&storm, pinned(&setup.cpus), Storm::work, |missing| {
        if missing.is_some() {
            storm.barrier.give_up();
        }
    })?;
    let clear: Vec<_> = setup.cpus.iter().filter(|&&cpu| !storm.policy.mask.test(cpu)).collect();
    if let Some(cpu) = clear.first() {
        let (clear, all) = (clear.len(), setup.cpus.len());
        let found = format!(
            "the bits of {clear} of {all} running CPUs are clear and should be set, such as that \
             of {cpu}"
        );
        return Err(RunError::Check(found));
    }
    Ok(numbers(&tallies))
}

impl<W: Testbed, M: Mask, const TESTS: bool, const COUNTS: bool> Storm<W, M, TESTS, COUNTS> {
    fn work(&self, number: usize) -> Tally {
        let mut tally = Tally::default();
        let clock = clock_ns::<W>();
        if !self.barrier.wait(number) {
            return tally;
        }
        if !self.is_barrier {
            let mut dice = Pcg64::new(u128::from(self.seed), PHASE + number as u128);
            let phase = draw(&mut dice, self.period.as_nanos() as usize);
            W::work(Duration::from_nanos(phase as u64));
        }
        let mut flushed = W::now();
        let mut trimmed = flushed;
        for round in 0..WARM_UP + self.rounds {
            if round == WARM_UP {
                tally = Tally::default();
            }
            self.cycle(number, clock, &mut tally, || {
                let due = self.flush;
                if number == 0 && !due.is_zero() && W::now() - flushed >= due {
                    flushed = W::now();
                    self.flush(&mut trimmed);
                }
            });
        }
        tally.starts.push(W::now().as_nanos());
        self.switch_in(number);
        tally
    }

    fn cycle(&self, number: usize, clock: u64, tally: &mut Tally, then: impl FnOnce()) {
        let run = if self.is_barrier { self.period } else { self.period / 2 };
        if self.is_barrier {
            self.barrier.wait(number);
        } else {
            W::work(run);
        }
        let woken = W::now();
        W::work(self.path);
        let op = self.switch_in(number);
        let running = W::now();
        W::work(run);
        then();
        let done = W::now();
        self.policy.switch_out();
        let left = W::now();
        // Release: the partner is the Acquire load in `flush`.
        self.states[number].store(IDLE, Ordering::Release);
        W::work(self.path);
        let idle = W::now();
        // Two looks at the clock lie around each part; the time of one is in what it shows.
        let op = op.saturating_sub(clock);
        if op >= SAMPLED_FROM {
            tally.sampled = (tally.sampled.0 + op, tally.sampled.1 + 1);
        }
        tally.op += op + nanos(done, left).saturating_sub(clock);
        tally.path += nanos(woken, running) + nanos(done, idle);
        tally.run += nanos(running, done);
        tally.starts.push(woken.as_nanos());
    }

    /// The policy's part of a switch. Returns its nanoseconds, including one look at the clock.
    fn switch_in(&self, number: usize) -> u64 {
        // Release: the partner is the Acquire load in `flush`.
        self.states[number].store(RUNNING, Ordering::Release);
        // Pairs with the heavy fence in `flush`. Without it the flush could miss that this CPU
        // runs, while this CPU finds the bit that the flush is about to clear.
        W::fence_light();
        let start = W::now();
        self.policy.switch_in(self.cpus[number]);
        nanos(start, W::now())
    }

    /// Reaches the CPUs that the mask names, and clears the bits of those that idle.
    fn flush(&self, trimmed: &mut Time) {
        let now = W::now();
        let trims = now - *trimmed >= self.trim_every;
        if trims {
            *trimmed = now;
        }
        // Acquire: the partners are the Release stores in `switch_in` and `cycle`.
        let idles = |number: &usize| self.states[*number].load(Ordering::Acquire) == IDLE;
        let present =
            (0..self.states.len()).filter(|&number| self.policy.mask.test(self.cpus[number]));
        let idle: Vec<usize> = present.filter(idles).collect();
        if trims {
            idle.iter().for_each(|&number| self.policy.mask.clear(self.cpus[number]));
        }
        // Natively this interrupts every CPU that runs a thread of this process, as a flush does.
        // Pairs with the light fence in `switch_in`: a CPU that runs from here on, and is not seen
        // to below, finds its bit clear.
        W::fence_all();
        if trims {
            let back = idle.iter().filter(|number| !idles(number));
            back.for_each(|&number| self.policy.mask.set(self.cpus[number]));
        }
    }
}

/// The stream of the generator that draws where threads begin; one for each.
const PHASE: u128 = 0x5707;

/// In this order: the policy's part of a switch-in and the switch-out after it, mean; the share of
/// both switches in the time that is not idle; from the first thread's wake-up to the last one's,
/// mean over the rounds; rounds in a second, mean, and of the fastest tenth of the run, as thread 0
/// sees it; the mean of the policy's part of those switch-ins that a profiler sees; the share of
/// the policy's part in the time that is not idle.
fn numbers(tallies: &[Tally]) -> Vec<f64> {
    let sum = |part: fn(&Tally) -> u64| tallies.iter().map(part).sum::<u64>() as f64;
    let rounds = tallies[0].starts.len() - 1;
    let of_round = |round: usize| tallies.iter().map(move |tally| tally.starts[round]);
    let spread = |round| of_round(round).max().unwrap_or(0) - of_round(round).min().unwrap_or(0);
    let spreads: u64 = (0..rounds).map(spread).sum();
    let (path, run) = (sum(|tally| tally.path), sum(|tally| tally.run));
    let elapsed = sum(|tally| tally.starts[tally.starts.len() - 1] - tally.starts[0]);
    // That many rounds, from any round on.
    let tenth = rounds.div_ceil(10);
    let spans = tallies[0].starts.windows(tenth + 1).map(|starts| starts[tenth] - starts[0]);
    let threads = tallies.len() as f64;
    vec![
        sum(|tally| tally.op) / (threads * rounds as f64),
        100.0 * path / (path + run),
        spreads as f64 / rounds as f64,
        1e9 * rounds as f64 * threads / elapsed,
        1e9 * tenth as f64 / spans.min().unwrap_or(1).max(1) as f64,
        sum(|tally| tally.sampled.0) / sum(|tally| tally.sampled.1).max(1.0),
        100.0 * sum(|tally| tally.op) / (path + run),
    ]
}

/// The rank of the policy's hottest line among all lines by misses that other caches served, and
/// its share of all such misses in percent. That of the references, where there are any.
fn hottest(report: &Report, numbers: &mut Vec<f64>) {
    let lines = report.details.iter().flat_map(|details| &details.lines);
    let misses = |line: &LineCost| {
        let transfers = &line.cost.transfers;
        transfers.misses() - transfers.memory
    };
    let own = |line: &&LineCost| is_mask(line) || is_references(line);
    let hottest = lines.clone().filter(own).map(misses).max().unwrap_or(0);
    let hotter = lines.clone().filter(|line| misses(line) > hottest).count();
    let all: u64 = lines.map(misses).sum();
    numbers.extend([(hotter + 1) as f64, 100.0 * hottest as f64 / all.max(1) as f64]);
}

/// The clock that a machine's file says with the source of its fastest cost, as `at 2.8 GHz`.
fn clock_ghz(spec: &Spec) -> Option<f64> {
    let (_, cost) = spec.sources().find(|(name, _)| *name == "private_hit")?;
    let (before, _) = cost.source.split_once(" GHz")?;
    before.rsplit(' ').next()?.parse().ok().filter(|&ghz: &f64| ghz > 0.0)
}
