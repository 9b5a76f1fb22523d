//! How threads that wait for calls poll, and how they learn on which CPUs they should not.
//!
//! A thread that polls on a CPU which others want is worse off than one that sleeps. It uses up its
//! share of the CPU, or yields it, and comes back a time slice of the others later. A sleeping
//! thread has its share left, so the kernel runs it as soon as it is woken. A thread that polls
//! notices by the clock that it was away. Then no thread that waits on that CPU polls for a while.
//! That while is long compared with the absence, so polling loses only a small part of the time.
//! Then one thread polls again, in case nothing else wants the CPU any more.
//!
//! But polling may still pay. Two threads on two CPUs that both run for a part of the time have
//! thousands of calls in that part, and would have fewer if each call took a wake-up. So the time
//! that polling lost is compared with the time that messages met by polling saved, over about the
//! last eight losses: in one of them the other thread may not have run at all.
//!
//! The module keeps this for each CPU, so all threads and all workers of the process share it. It
//! has four words for each:
//!
//! | word | value | means | written by |
//! |---|---|---|---|
//! | `until` | 0 | no thread that polled there was away | threads that find the time over |
//! | | a time | until then others want the CPU | threads that were away or call their own CPU |
//! | `met` | a count | messages that polling met since the last loss | threads that poll there |
//! | `saved`, `lost` | ns | the sums, older losses counting less | threads that were away |
//!
//! | constant | why this value | test here |
//! |---|---|---|
//! | `PART`, `LONGEST` | bound what polling loses | `what_polling_loses_is_a_small_part_..` |
//! | `AWAY` | between a yield and a time slice | that, and `a_thread_that_was_away_..` |
//! | `SAVED`, `FADES` | a wake-up; some losses | `polling_that_met_more_than_it_lost_goes_on` |
//! | `SHARED`, `FIRST_LOOKS`, `NEXT_LOOKS` | answers come sooner | none: only speed |
//!
//! These words say how to wait, and nothing about what a thread waits for. So they need no order,
//! and a lost update costs only some polling.

use core::mem;
use core::time::Duration;

use coreline_topology::CpuId;
use coreline_world::{Line, Ordering, Time, Word, World, WorldStatic};

use crate::lock::spin::{GAP, STEP, glance};

/// A thread that was away for this long lost a time slice. Threads that wait for each other's calls
/// are away for less when they yield to each other.
const AWAY: Duration = Duration::from_micros(250);

/// No thread polls there for this many times as long as a thread was away, so polling loses less
/// than two parts in a hundred.
const PART: u32 = 64;

/// This is the upper limit of that time.
const LONGEST: Duration = Duration::from_secs(1);

/// The time that a message saves if it is met by polling: a wake-up, and the wait that a wake-up
/// causes to others. If the CPU is lost for less than that for each message, polling goes on.
const SAVED: Duration = Duration::from_micros(5);

/// A worker does not poll for this long after a call from its own CPU.
const SHARED: Duration = Duration::from_micros(200);

/// The looks before a thread asks whether others want its CPU: an answer that comes immediately
/// does not wait for that.
const FIRST_LOOKS: u32 = 4;

/// The looks after that, before it reads the clock. Both together take two microseconds or less.
const NEXT_LOOKS: u32 = 60;

static KNOWN: WorldStatic = WorldStatic::new("CPUs that others want");

/// The four words of a CPU. They are on a line of their own, because threads of that CPU write them
/// with each message.
struct Known<W: World> {
    until: W::U64,
    met: W::U64,
    saved: W::U64,
    lost: W::U64,
}

/// Each loss makes older losses count less by this part.
const FADES: u64 = 8;

fn with_known<W: World, R>(cpu: CpuId, f: impl FnOnce(&Known<W>) -> R) -> Option<R> {
    let zero = || W::U64::new_in(0);
    let nothing = |_| Line(Known { until: zero(), met: zero(), saved: zero(), lost: zero() });
    let none = || (0..W::topology().cpu_limit()).map(nothing).collect();
    KNOWN.with::<W, Box<[Line<Known<W>>]>, _>(none, |cpus| {
        cpus.get(cpu.get() as usize).map(|it| f(it))
    })
}

/// Polling met a message. The model learns nothing and does not count this. Nor is it counted while
/// others want the CPU, when a thread makes only the first few looks.
#[inline]
fn meets<W: World>(cpu: CpuId) {
    if W::RUNS {
        let _ = with_known::<W, _>(cpu, |known| {
            // Relaxed: a time, which the thread compares with zero only.
            if known.until.load(Ordering::Relaxed) == 0 {
                // Relaxed, both: a count that may miss a few looks.
                known.met.store(known.met.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        });
    }
}

/// Whether others want the CPU. In the model, where no time passes, no others do.
fn is_wanted<W: World>(cpu: CpuId) -> bool {
    let is_wanted = |known: &Known<W>| {
        // Relaxed: says nothing of what is waited for.
        let until = known.until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let left = Time::from_nanos(until) - W::now();
        // A clock that was set back is no reason to sleep for days.
        let is_wanted = !left.is_zero() && left <= LONGEST;
        if !is_wanted {
            // Relaxed: as for the load.
            known.until.store(0, Ordering::Relaxed);
        }
        is_wanted
    };
    W::RUNS && with_known::<W, _>(cpu, is_wanted).unwrap_or(false)
}

/// Others want the CPU for at least this long from now on.
fn wants<W: World>(cpu: CpuId, now: Time, span: Duration) {
    let until = (now + span).as_nanos();
    let _ = with_known::<W, _>(cpu, |known| {
        // Relaxed: says nothing of what is waited for.
        if known.until.load(Ordering::Relaxed) < until {
            // Relaxed: as for the load.
            known.until.store(until, Ordering::Relaxed);
        }
    });
}

/// Records that a thread of this CPU looks now, although its look was due earlier. The loss counts
/// if the thread was away for [`AWAY`] or longer. Returns whether it was away for [`GAP`] or
/// longer, which is less: then it stops polling for now.
fn learns<W: World>(cpu: CpuId, due: Time, now: Time) -> bool {
    let away = now - due;
    if away >= AWAY && !pays::<W>(cpu, away) {
        wants::<W>(cpu, now, away.saturating_mul(PART).min(LONGEST));
    }
    away >= GAP
}

/// Whether the messages that polling lately met there have saved more than was lost, now and
/// lately.
fn pays<W: World>(cpu: CpuId, lost: Duration) -> bool {
    let adds = |word: &W::U64, more: u64| {
        // Relaxed: says nothing of what is waited for.
        let before = word.load(Ordering::Relaxed);
        let sum = (before - before / FADES).saturating_add(more);
        // Relaxed: as for the load.
        word.store(sum, Ordering::Relaxed);
        sum
    };
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let pays = |known: &Known<W>| {
        let lost = nanos(lost.min(LONGEST));
        // Relaxed: as in `meets`.
        let saved = known.met.swap(0, Ordering::Relaxed).saturating_mul(nanos(SAVED));
        // A quiet day before it counts no more than the losses that are remembered, and a stopped
        // process no more than a second.
        let saved = saved.min(FADES * lost);
        let lost = adds(&known.lost, lost);
        adds(&known.saved, saved) > lost
    };
    with_known::<W, _>(cpu, pays).unwrap_or(false)
}

/// Looks at a word until `ready` accepts its value, with Acquire, or for this long, or until others
/// want this CPU. In the model, where no time passes, a few looks are all.
///
/// If `callee` is this CPU, the thread waits for the worker there. So it does not poll, and keeps
/// that worker from polling, too.
#[inline]
pub(super) fn poll<W: World, T: Word>(
    word: &T,
    span: Duration,
    callee: Option<CpuId>,
    ready: impl Fn(T::Value) -> bool,
) -> Option<T::Value> {
    let here = W::cpu_hint();
    // Acquire, in `glance` and below: the callers name the partner.
    if let Some(value) = glance::<W, _>(word, FIRST_LOOKS, &ready) {
        if callee != Some(here) {
            meets::<W>(here);
        }
        return Some(value);
    }
    if callee == Some(here) {
        if W::RUNS {
            wants::<W>(here, W::now(), SHARED);
        }
        return None;
    }
    poll_here::<W, _>(here, word, span, ready).ok()
}

/// Like [`poll`], but for a thread of this CPU that has looked before. If it finds nothing, it
/// returns since when it has waited.
#[inline]
fn poll_here<W: World, T: Word>(
    here: CpuId,
    word: &T,
    span: Duration,
    ready: impl Fn(T::Value) -> bool,
) -> Result<T::Value, Time> {
    if let Some(value) = glance::<W, _>(word, NEXT_LOOKS, &ready) {
        meets::<W>(here);
        return Ok(value);
    }
    let since = W::now();
    if is_wanted::<W>(here) {
        return Err(since);
    }
    let (mut now, end) = (since, since + span);
    loop {
        let step = end.min(now + STEP);
        // Acquire: pairs with the Release of the thread that hands over; the caller names it.
        let value = word.wait_until_by(Ordering::Acquire, step, &ready);
        now = W::now();
        // Also where there is a value: it may have come when the thread was away.
        if value.is_some() {
            meets::<W>(here);
        }
        let is_over = learns::<W>(here, step, now) || now >= end || W::need_resched() || !W::RUNS;
        if value.is_some() || is_over {
            return value.ok_or(since);
        }
    }
}

/// Like [`poll`], but for the worker of this CPU. If it finds nothing, it returns since when it has
/// waited.
#[inline]
pub(super) fn poll_at_home<W: World, T: Word>(
    home: CpuId,
    word: &T,
    span: Duration,
    ready: impl Fn(T::Value) -> bool,
) -> Result<T::Value, Time> {
    // Acquire: the caller names the partner.
    match glance::<W, _>(word, FIRST_LOOKS, &ready) {
        Some(value) => {
            meets::<W>(home);
            Ok(value)
        }
        // The kernel runs it as soon as it is woken, so it spares what it has left of its share.
        None if span.is_zero() || is_wanted::<W>(home) => Err(W::now()),
        None => poll_here::<W, _>(home, word, span, ready),
    }
}

/// How a worker polls if it does something between its looks.
pub(super) struct Polling {
    home: CpuId,
    span: Duration,
    looked: Time,
    end: Time,
    /// Whether it has polled since it last slept.
    polled: bool,
}

impl Polling {
    /// The time for which it polls at most, on the worker's CPU.
    pub(super) fn new<W: World>(home: CpuId, span: Duration) -> Self {
        let now = W::now();
        let mut polling = Polling { home, span, looked: now, end: now, polled: false };
        polling.again::<W>();
        polling
    }

    /// The worker has served calls, so it polls for the whole span from now on.
    pub(super) fn again<W: World>(&mut self) {
        self.met::<W>();
        self.looked = W::now();
        let span = if is_wanted::<W>(self.home) { Duration::ZERO } else { self.span };
        self.end = self.looked + span;
    }

    /// Whether the worker keeps polling after a look that found nothing.
    pub(super) fn goes_on<W: World>(&mut self) -> bool {
        let now = W::now();
        if learns::<W>(self.home, self.looked, now) {
            self.end = now;
        }
        self.looked = now;
        self.polled = W::RUNS && now < self.end && !W::need_resched();
        self.polled
    }

    /// The worker found what it waited for, or a call to serve.
    pub(super) fn met<W: World>(&mut self) {
        if mem::take(&mut self.polled) {
            meets::<W>(self.home);
        }
    }

    /// The worker has slept, and was not away.
    pub(super) fn slept<W: World>(&mut self) {
        self.looked = W::now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_world::{Clock, JoinHandle, Placement, Threads, Words, Work};

    use super::super::{Builder, Workers};
    use super::*;

    type Word32 = <Sim as Words>::U32;

    fn simulated(program: impl FnOnce() + 'static) {
        Machine::preset("host-2c").expect("a preset").run(program).unwrap();
    }

    /// Polls for `span` without success on a thread of CPU 1. Returns how long that took.
    fn polls(span: Duration) -> Duration {
        let look = move || {
            let word = Word32::new_in(0);
            let begun = Sim::now();
            assert!(poll_at_home::<Sim, _>(CpuId::new(1), &word, span, |word| word == 1).is_err());
            Sim::now() - begun
        };
        Sim::spawn(Placement::On(CpuId::new(1)), look).unwrap().join()
    }

    const SPAN: Duration = Duration::from_micros(100);

    #[test]
    fn a_thread_that_was_away_has_others_sleep_until_it_may_try_again() {
        simulated(|| {
            assert!(polls(SPAN) >= SPAN, "no other thread wants the CPU");
            let over = Arc::new(Word32::new_in(0));
            let ends = Arc::clone(&over);
            let busy = move || {
                // Relaxed: a sign to stop.
                while ends.load(Ordering::Relaxed) == 0 {
                    Sim::work(Duration::from_micros(20));
                }
            };
            let busy = Sim::spawn(Placement::On(CpuId::new(1)), busy).unwrap();
            // Longer than a time slice: it loses the CPU, and stops when it is back.
            let long = Duration::from_millis(200);
            assert!(polls(long) < long);
            assert!(is_wanted::<Sim>(CpuId::new(1)), "it was away");
            assert!(!is_wanted::<Sim>(CpuId::new(0)), "that is another CPU");
            // Relaxed: as for the load.
            over.store(1, Ordering::Relaxed);
            busy.join();
            assert!(polls(SPAN) < SPAN / 4, "it does not know yet that the others are gone");
            Sim::sleep(LONGEST);
            assert!(polls(SPAN) >= SPAN, "it tries again");
        });
    }

    #[test]
    fn what_polling_loses_is_a_small_part_of_the_time() {
        simulated(|| {
            let cpu = CpuId::new(0);
            for (away, quiet) in [(2, 2 * PART), (1_000_000, 1000)] {
                Sim::sleep(2 * LONGEST);
                let now = Sim::now();
                assert!(learns::<Sim>(cpu, now, now + Duration::from_millis(away)));
                let quiet = Duration::from_millis(away + u64::from(quiet));
                let until = |known: &Known<Sim>| known.until.load(Ordering::Relaxed);
                let until = with_known::<Sim, _>(cpu, until);
                assert_eq!(until, Some((now + quiet).as_nanos()), "{away} ms");
            }
            // What threads lose that yield to each other says nothing.
            let other = CpuId::new(1);
            let now = Sim::now();
            assert!(learns::<Sim>(other, now, now + AWAY / 2));
            assert!(!is_wanted::<Sim>(other));
        });
    }

    #[test]
    fn polling_that_met_more_than_it_lost_goes_on() {
        simulated(|| {
            let cpu = CpuId::new(0);
            let away = Duration::from_millis(8);
            let loses = |met: u64| {
                Sim::sleep(LONGEST);
                assert!(!is_wanted::<Sim>(cpu), "it may try again");
                (0..met).for_each(|_| meets::<Sim>(cpu));
                let now = Sim::now();
                assert!(learns::<Sim>(cpu, now, now + away), "it stops for now in any case");
                is_wanted::<Sim>(cpu)
            };
            assert!(loses(1600), "5 us for each");
            assert!(!loses(1601));
            assert!(!loses(20_000));
            assert!(!loses(0), "the other thread did not run this time");
            assert!((0..4).any(|_| loses(0)), "it is gone");
            assert!(!loses(1_000_000), "a quiet day");
            assert!((0..9).any(|_| loses(0)), "the day is over");
        });
    }

    /// A worker does not poll on a CPU where its caller waits.
    #[test]
    fn a_worker_sleeps_between_calls_from_its_own_cpu() {
        const CALLS: u64 = 100;
        let sleeps = |from: u32| {
            let cpu = CpuId::new(0);
            let builder: Builder<Sim> = Workers::builder_in().cpus([cpu].into_iter().collect());
            let workers = Arc::new(builder.start().unwrap());
            let theirs = Arc::clone(&workers);
            let call = move || {
                for round in 0..CALLS {
                    if round % 2 == 0 {
                        theirs.call_on(cpu, || ()).unwrap();
                    } else {
                        theirs.call_async(cpu, || ()).unwrap().wait();
                    }
                }
            };
            Sim::spawn(Placement::On(CpuId::new(from)), call).unwrap().join();
            workers.stats().map(|(_, stats)| stats.sleeps).sum::<u64>()
        };
        simulated(move || {
            let (here, elsewhere) = (sleeps(0), sleeps(1));
            assert!(here > CALLS * 8 / 10, "it slept {here} times");
            assert!(elsewhere < CALLS / 10, "it slept {elsewhere} times");
        });
    }
}
