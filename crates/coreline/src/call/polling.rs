//! How threads that wait for calls poll.
//!
//! A thread that polls yields its CPU between its checks ([`Word::wait_until_by`]), except on CPUs
//! that [others want](crate::lock::wanted).
//!
//! On a CPU that others want, threads poll without yielding, and not for long: a worker for 64
//! looks, a few microseconds; a caller as long as a sleep and a wake-up take, 100 us. A caller does
//! not know for what its CPU is wanted. So it also polls for so long if the thread that must run
//! before the answer comes, such as the worker of that CPU, wants it: a task whose worker is not
//! known, and a call whose worker waits for another call. Two threads whose CPUs others want run at
//! the same time for a part of the time. Then a call takes no wake-up, so they have thousands of
//! calls in that part. If one of them is preempted, the other one soon sleeps. A thread that sleeps
//! keeps what is left of its share of the CPU, so the kernel runs it as soon as it is woken: both
//! run at the same time again.
//!
//! A caller on its worker's CPU does not poll, and the worker then does not poll for a while. They
//! want the same CPU, so neither can see the other one answer.
//!
//! The module keeps the latter for each CPU, so all threads and all workers of the process share
//! it: a time until which callers there call the worker there, written by these callers.
//!
//! | constant | why this value | test here |
//! |---|---|---|
//! | `NEXT_LOOKS` | a caller that runs calls again | `calls_on_cpus_that_others_want_..` |
//! | `SHARED` | a call, and what follows it | `a_worker_sleeps_between_calls_from_its_own_cpu` |
//! | `FIRST_LOOKS` | answers come sooner | none: only speed |
//! | `GROW_START`, `POLLING` | a worker polls if messages come soon | `a_worker_polls_longer_..` |
//! | `BETWEEN_CALLS` | calls wait for no other set's end | `a_worker_that_closes_a_set_..` |

use core::time::Duration;

use coreline_topology::CpuId;
use coreline_world::{Ordering, Time, Word, World};

use crate::lock::spin::{STEP, glance, looks};
use crate::lock::wanted::{self, Until, is_wanted, learns};

/// A worker does not poll for this long after a call from its own CPU.
const SHARED: Duration = Duration::from_micros(200);

/// The looks before a thread asks whether others want its CPU: an answer that comes immediately
/// does not wait for that.
const FIRST_LOOKS: u32 = 4;

/// The looks after that, before it reads the clock. Both together take a few microseconds. On a CPU
/// that others want, a worker makes no more. A caller that polls calls again sooner. While it does
/// not run, or sleeps until its reply wakes it, polling would use up the worker's share.
const NEXT_LOOKS: u32 = 60;

/// The first polling window of a worker that was soon woken.
const GROW_START: Duration = Duration::from_micros(10);

/// On these CPUs, callers recently called the worker of the same CPU.
static SHARED_CPUS: Until = Until::new("CPUs that callers and workers share");

/// Creates what callers and workers learn of CPUs.
pub(super) fn prepare<W: World>() {
    wanted::prepare::<W>();
    SHARED_CPUS.prepare::<W>();
}

/// Whether callers on the CPU recently called the worker of this CPU.
fn is_shared<W: World>(cpu: CpuId) -> bool {
    SHARED_CPUS.lasts::<W>(cpu)
}

/// Looks at a word until `ready` accepts its value, with Acquire, or for this long, or until the
/// thread has lost its CPU. In the model, where no time passes, a few looks are all.
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
        return Some(value);
    }
    if callee == Some(here) {
        if W::RUNS {
            SHARED_CPUS.extend::<W>(here, W::now() + SHARED);
        }
        return None;
    }
    poll_here::<W, _>(here, word, (span, span), ready).ok()
}

/// Like [`poll`], but for a thread of this CPU that has looked before, and for the second time if
/// others want the CPU. If it finds nothing, it returns since when it has waited.
#[inline]
fn poll_here<W: World, T: Word>(
    here: CpuId,
    word: &T,
    (span, span_if_wanted): (Duration, Duration),
    ready: impl Fn(T::Value) -> bool,
) -> Result<T::Value, Time> {
    if let Some(value) = glance::<W, _>(word, NEXT_LOOKS, &ready) {
        return Ok(value);
    }
    let since = W::now();
    let is_wanted = is_wanted::<W>(here);
    let span = if is_wanted { span_if_wanted } else { span };
    let (mut now, end) = (since, since + span);
    let look = || {
        // Acquire: pairs as the wait below.
        let value = word.load(Ordering::Acquire);
        ready(value).then_some(value)
    };
    while now < end {
        let step = end.min(now + STEP);
        // Acquire: pairs with the Release of the thread that hands over; the caller names it.
        let value = match is_wanted {
            true => looks::<W, _>(step, look),
            false => word.wait_until_by(Ordering::Acquire, step, &ready),
        };
        now = W::now();
        // Also where there is a value: it may have come when the thread was away.
        let is_over = learns::<W>(here, step, now) || W::need_resched() || !W::RUNS;
        if value.is_some() || is_over {
            return value.ok_or(since);
        }
    }
    Err(since)
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
        Some(value) => Ok(value),
        // The kernel runs it as soon as it is woken, so it spares what it has left of its share.
        None if span.is_zero() || is_shared::<W>(home) => Err(W::now()),
        None => poll_here::<W, _>(home, word, (span, Duration::ZERO), ready),
    }
}

/// The next polling window of a worker that a message has woken, this long after it began to poll.
/// The window is longer if polling for `most` would have met the message, as in the kernel's
/// haltpoll.
pub(super) fn next_window(window: Duration, waited: Duration, most: Duration) -> Duration {
    if waited <= most {
        return window.saturating_mul(2).max(GROW_START).min(most);
    }
    let half = window / 2;
    if half < GROW_START { Duration::ZERO } else { half }
}

/// How a worker polls if it does something between its checks.
pub(super) struct Polling {
    home: CpuId,
    span: Duration,
    looked: Time,
    end: Time,
}

impl Polling {
    /// The time for which it polls at most, on the worker's CPU.
    pub(super) fn new<W: World>(home: CpuId, span: Duration) -> Self {
        let now = W::now();
        let mut polling = Polling { home, span, looked: now, end: now };
        polling.again::<W>();
        polling
    }

    /// The worker has served calls, so it polls for the whole span from now on.
    pub(super) fn again<W: World>(&mut self) {
        self.looked = W::now();
        let span = if is_shared::<W>(self.home) { Duration::ZERO } else { self.span };
        self.end = self.looked + span;
    }

    /// Whether the worker keeps polling after a look that found nothing.
    pub(super) fn goes_on<W: World>(&mut self) -> bool {
        let now = W::now();
        if learns::<W>(self.home, self.looked, now) {
            self.end = now;
        }
        self.looked = now;
        W::RUNS && now < self.end && !W::need_resched()
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
    use crate::lock::wanted::{AWAY, LONGEST, PART};

    type Word32 = <Sim as Words>::U32;

    fn simulated(program: impl FnOnce() + 'static) {
        let program = || {
            prepare::<Sim>();
            program();
        };
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
            let others = busy(2, &over);
            // Longer than a time slice: it loses the CPU, and stops when it is back.
            let long = Duration::from_millis(200);
            assert!(polls(long) < long);
            assert!(is_wanted::<Sim>(CpuId::new(1)), "it was away");
            assert!(!is_wanted::<Sim>(CpuId::new(0)), "that is another CPU");
            // Relaxed: a sign to stop.
            over.store(1, Ordering::Relaxed);
            others.into_iter().for_each(|thread| thread.join());
            assert!(polls(SPAN) < SPAN / 4, "it does not know yet that the others are gone");
            Sim::sleep(LONGEST);
            assert!(polls(SPAN) >= SPAN, "it tries again");
        });
    }

    /// Threads that compute without end on both CPUs, until `over` is set.
    fn busy(count: u32, over: &Arc<Word32>) -> Vec<<Sim as Threads>::JoinHandle<()>> {
        let busy = |number| {
            let over = Arc::clone(over);
            let computes = move || {
                // Relaxed: a sign to stop.
                while over.load(Ordering::Relaxed) == 0 {
                    Sim::work(Duration::from_micros(20));
                }
            };
            Sim::spawn(Placement::On(CpuId::new(number % 2)), computes).unwrap()
        };
        (0..count).map(busy).collect()
    }

    /// A caller and its worker run at the same time on CPUs that others want.
    #[test]
    fn calls_on_cpus_that_others_want_take_few_wake_ups() {
        const CALLS: u64 = 1000;
        let sleeps = |replies: bool| {
            let cpu = CpuId::new(1);
            let builder: Builder<Sim> = Workers::builder_in().cpus([cpu].into_iter().collect());
            let workers = Arc::new(builder.start().unwrap());
            let theirs = Arc::clone(&workers);
            let call = move || {
                let now = Sim::now();
                for cpu in [0, 1] {
                    learns::<Sim>(CpuId::new(cpu), now, now + LONGEST / (2 * PART));
                }
                for _ in 0..CALLS {
                    match replies {
                        true => theirs.call_async(cpu, || ()).unwrap().wait(),
                        false => theirs.call_on(cpu, || ()).unwrap(),
                    }
                }
                assert!(is_wanted::<Sim>(cpu), "the whole time");
            };
            Sim::spawn(Placement::On(CpuId::new(0)), call).unwrap().join();
            workers.stats().map(|(_, stats)| stats.sleeps).sum::<u64>()
        };
        simulated(move || {
            let (calls, replies) = (sleeps(false), sleeps(true));
            assert!(calls < CALLS / 50, "the worker slept {calls} times");
            assert!(replies < CALLS / 50, "the worker slept {replies} times before replies");
        });
    }

    /// A caller looks on, and does not lose its CPU by a yield.
    #[test]
    fn a_caller_whose_cpu_others_want_polls_without_yielding() {
        simulated(|| {
            let cpu = CpuId::new(1);
            let over = Arc::new(Word32::new_in(0));
            let others = busy(2, &over);
            let look = move || {
                let now = Sim::now();
                learns::<Sim>(cpu, now, now + AWAY);
                let word = Word32::new_in(0);
                let mut late = 0;
                for _ in 0..20 {
                    let begun = Sim::now();
                    assert!(poll::<Sim, _>(&word, SPAN, None, |word| word == 1).is_none());
                    let took = Sim::now() - begun;
                    assert!(took >= SPAN * 9 / 10, "{took:?}");
                    late += u32::from(took > 2 * SPAN);
                }
                late
            };
            let late = Sim::spawn(Placement::On(cpu), look).unwrap().join();
            assert!(late <= 2, "it lost its CPU {late} times in 2 ms");
            // Relaxed: a sign to stop.
            over.store(1, Ordering::Relaxed);
            others.into_iter().for_each(|thread| thread.join());
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

    /// A worker whose messages come seldom does not poll. If they come soon again, it polls for
    /// 10 us first, and then for twice as long each time.
    #[test]
    fn a_worker_polls_longer_while_messages_come_soon() {
        simulated(|| {
            let cpu = CpuId::new(0);
            let builder: Builder<Sim> = Workers::builder_in().cpus([cpu].into_iter().collect());
            let workers = Arc::new(builder.start().unwrap());
            let call = move || {
                let slept = || workers.stats().map(|(_, stats)| stats.sleeps).sum::<u64>();
                [1_000, 60].map(|gap| {
                    let before = slept();
                    for _ in 0..50 {
                        workers.call_on(cpu, || ()).unwrap();
                        Sim::sleep(Duration::from_micros(gap));
                    }
                    slept() - before
                })
            };
            let [seldom, soon] = Sim::spawn(Placement::On(CpuId::new(1)), call).unwrap().join();
            assert!(seldom >= 48, "seldom: it slept {seldom} times");
            assert!((4..=7).contains(&soon), "soon: it slept {soon} times");
        });
    }

    /// Looks too soon take the line away from a caller, and looks too late let it wait.
    #[test]
    fn a_worker_that_has_answered_lets_its_caller_send_the_next_call() {
        simulated(|| {
            let cpu = CpuId::new(0);
            let builder: Builder<Sim> = Workers::builder_in().cpus([cpu].into_iter().collect());
            let workers = Arc::new(builder.start().unwrap());
            let theirs = Arc::clone(&workers);
            let call = move || {
                (0..100).for_each(|_| theirs.call_on(cpu, || ()).unwrap());
                let begun = Sim::now();
                (0..1000).for_each(|_| theirs.call_on(cpu, || ()).unwrap());
                (Sim::now() - begun) / 1000
            };
            let took = Sim::spawn(Placement::On(CpuId::new(1)), call).unwrap().join();
            // 130 ns, but 145 ns without a pause.
            assert!(took < Duration::from_nanos(140), "{took:?}");
        });
    }

    /// A worker that waits for the end of another set serves the calls of its own.
    #[test]
    fn a_worker_that_closes_a_set_serves_calls_meanwhile() {
        simulated(|| {
            let one = |cpu| {
                let builder: Builder<Sim> =
                    Workers::builder_in().cpus([CpuId::new(cpu)].into_iter().collect());
                builder.start().unwrap()
            };
            let (own, other) = (Arc::new(one(0)), one(1));
            other
                .call_async(CpuId::new(1), || Sim::work(Duration::from_millis(20)))
                .unwrap()
                .detach();
            let closes = own.call_async(CpuId::new(0), move || drop(other)).unwrap();
            Sim::sleep(Duration::from_millis(1));
            let begun = Sim::now();
            own.call_on(CpuId::new(0), || ()).unwrap();
            let took = Sim::now() - begun;
            closes.wait();
            assert!(took < Duration::from_micros(500), "{took:?}");
        });
    }
}
