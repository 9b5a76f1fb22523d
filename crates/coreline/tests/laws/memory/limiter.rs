//! The laws of rate limiters: in no interval does more pass than the limit says, and threads that
//! ask without a pause get the whole rate, wherever the permits are.

use std::sync::Arc;
use std::time::Duration;

use coreline::limit::{LimitError, NotYet, RateLimiter, Refused};
use coreline_sim::{Faults, Sim};
use coreline_world::model::Model;
use coreline_world::{JoinHandle, Native, Ordering, Placement, Testbed, Threads, Word};

use crate::worlds::{self, Effort, FEW, MANY, MODEL, NATIVE, TORN};

/// So many permits a second, and so many at once.
#[derive(Debug, Clone, Copy)]
struct Limit {
    rate: u64,
    burst: u64,
}

impl Limit {
    /// A limit whose stocks have two permits or more for each CPU.
    fn stocked<W: Testbed>(rate: u64) -> Limit {
        Limit { rate, burst: 32 * W::topology().cpu_limit() as u64 }
    }

    /// How many permits may pass in so many nanoseconds.
    fn most(self, nanos: u64) -> u64 {
        let earned = u128::from(nanos) * u128::from(self.rate) / 1_000_000_000;
        self.burst + u64::try_from(earned).unwrap()
    }
}

/// A limiter, or a mistaken one.
trait Limiter<W: Testbed>: Send + Sync + 'static {
    fn make(limit: Limit) -> Self;
    fn acquire(&self, permits: u64) -> bool;
}

impl<W: Testbed> Limiter<W> for RateLimiter<W> {
    fn make(limit: Limit) -> Self {
        RateLimiter::new_in(limit.rate, Duration::from_secs(1), limit.burst).unwrap()
    }

    fn acquire(&self, permits: u64) -> bool {
        self.try_acquire_n(permits).is_ok()
    }
}

/// What one writes first: each CPU has its part of the rate and of the burst, and no more.
struct Divided<W: Testbed>(Vec<RateLimiter<W>>);

impl<W: Testbed> Limiter<W> for Divided<W> {
    fn make(limit: Limit) -> Self {
        let cpus = W::topology().cpu_limit() as u64;
        let part = Limit { rate: limit.rate / cpus, burst: (limit.burst / cpus).max(1) };
        Divided((0..cpus).map(|_| RateLimiter::make(part)).collect())
    }

    fn acquire(&self, permits: u64) -> bool {
        self.0[W::cpu().get() as usize].acquire(permits)
    }
}

/// A bucket that is not changed in one step.
struct Torn<W: Testbed>(W::U64);

impl<W: Testbed> Limiter<W> for Torn<W> {
    fn make(limit: Limit) -> Self {
        Torn(W::U64::new_in(limit.burst))
    }

    fn acquire(&self, permits: u64) -> bool {
        // Relaxed: it is wrong in any order.
        let left = self.0.load(Ordering::Relaxed).checked_sub(permits);
        left.is_some_and(|left| {
            // Relaxed: see the load.
            self.0.store(left, Ordering::Relaxed);
            true
        })
    }
}

/// Permits that passed: when the call began and ended, and how many.
type Passed = (u64, u64, u64);

/// Checks every interval that begins with a call and ends with one.
fn check_intervals(limit: Limit, passed: &[Passed]) {
    let mut by_end = passed.to_vec();
    by_end.sort_unstable_by_key(|(_, end, _)| *end);
    for (begin, ..) in passed {
        let mut sum = 0;
        for (_, end, permits) in by_end.iter().filter(|(began, ..)| began >= begin) {
            sum += permits;
            let (span, most) = (end - begin, limit.most(end - begin));
            assert!(sum <= most, "{sum} permits passed in {span} ns, and not {most}: {limit:?}");
        }
    }
}

/// Asks for permits so often; says what passed.
fn ask<W: Testbed, L: Limiter<W>>(limiter: &L, permits: u64, times: u32) -> Vec<Passed> {
    let once = |_| {
        let begin = W::now().as_nanos();
        let acquired = limiter.acquire(permits);
        acquired.then(|| (begin, W::now().as_nanos(), permits))
    };
    (0..times).filter_map(once).collect()
}

/// Threads ask for one permit or several, and again after pauses in which the limiter fills.
fn never_more<W: Testbed, L: Limiter<W>>(effort: Effort, limit: Limit) {
    let limiter = Arc::new(L::make(limit));
    let place = effort.places::<W>();
    // Most of the burst, so that the rest is fought for.
    let mut passed = ask::<W, _>(&*limiter, limit.burst * 7 / 8, 1);
    // Once, so that permits stay in stocks; and again when the limiter is full, and half full.
    let full = limit.burst * 1_000_000_000 / limit.rate;
    for (pause, rounds) in [(0, 1), (full, effort.rounds), (full / 2, effort.rounds)] {
        W::sleep(Duration::from_nanos(pause));
        let rounds = if W::RUNS { rounds } else { effort.rounds };
        let threads: Vec<_> = (0..effort.threads)
            .map(|number| {
                let limiter = Arc::clone(&limiter);
                let permits = if number % 4 == 3 { 5 } else { 1 };
                let ask = move || ask::<W, _>(&*limiter, permits, rounds);
                W::spawn(place(number), ask).unwrap()
            })
            .collect();
        passed.extend(threads.into_iter().flat_map(JoinHandle::join));
        if !W::RUNS {
            break;
        }
    }
    check_intervals(limit, &passed);
    // Time passes in no model: what is left can be had by one thread.
    let left = ask::<W, _>(&*limiter, 1, if W::RUNS { 0 } else { 9 });
    passed.extend(left);
    check_intervals(limit, &passed);
    let sum: u64 = passed.iter().map(|(.., permits)| permits).sum();
    assert!(W::RUNS || sum >= limit.burst * 15 / 16, "{sum} of {limit:?}");
}

#[test]
fn limiters_never_let_more_through_natively() {
    let effort = Effort { rounds: 300, ..NATIVE };
    for rate in [1_000, 100_000, 5_000_000, 1_000_000_000] {
        never_more::<Native, RateLimiter>(effort, Limit { rate, burst: 10 });
        never_more::<Native, RateLimiter>(effort, Limit::stocked::<Native>(rate));
    }
}

#[test]
fn limiters_never_let_more_through_when_simulated() {
    let law = || never_more::<Sim, RateLimiter<Sim>>(MANY, Limit::stocked::<Sim>(1_000_000));
    worlds::simulate_seeds("limiter::many", "epyc-9654-2s", Faults::default(), 3, law).unwrap();
    let law = || {
        for rate in [10_000, 200_000, 10_000_000] {
            never_more::<Sim, RateLimiter<Sim>>(FEW, Limit { rate, burst: 8 });
            never_more::<Sim, RateLimiter<Sim>>(FEW, Limit::stocked::<Sim>(rate));
        }
    };
    worlds::simulate("limiter", "host-2c", TORN, law).unwrap();
    let faults = Faults { preempt_access: 20, migrate: 20, ..Faults::NONE };
    worlds::simulate("limiter::preempted", "host-2c", faults, law).unwrap();
}

#[test]
fn limiters_never_let_more_through_in_every_interleaving() {
    let two = Effort { rounds: 2, ..MODEL };
    worlds::few(move || {
        never_more::<Model, RateLimiter<Model>>(two, Limit::stocked::<Model>(100_000))
    });
}

/// Where no time passes, just so many permits pass as there were. Some are in the bucket and some
/// in a stock when threads begin to fight for them, so they also take each other's.
fn permits_pass_once(threads: u32, rounds: u32) {
    let limiter = Arc::new(RateLimiter::<Model>::make(Limit::stocked::<Model>(100_000)));
    let all = limiter.capacity();
    assert!(limiter.acquire(1) && limiter.acquire(all - 5));
    let place = Effort { threads, rounds, cpus: 2 }.places::<Model>();
    let threads: Vec<_> = (1..=threads)
        .map(|number| {
            let limiter = Arc::clone(&limiter);
            let ask = move || ask::<Model, _>(&*limiter, 1, rounds).len() as u64;
            Model::spawn(place(number), ask).unwrap()
        })
        .collect();
    let mine = ask::<Model, _>(&*limiter, 1, rounds).len() as u64;
    let theirs: u64 = threads.into_iter().map(JoinHandle::join).sum();
    let left = ask::<Model, _>(&*limiter, 1, 9).len() as u64;
    let passed = all - 4 + mine + theirs + left;
    assert_eq!(passed, all, "permits were lost or doubled");
}

#[test]
fn permits_pass_once_in_every_interleaving() {
    worlds::few(|| permits_pass_once(1, 3));
    worlds::few(|| permits_pass_once(2, 2));
}

#[test]
fn a_limiter_that_is_not_changed_in_one_step_is_caught() {
    let two = Effort { rounds: 2, ..MODEL };
    let law = move || never_more::<Model, Torn<Model>>(two, Limit { rate: 100_000, burst: 8 });
    let message = worlds::panic_of(|| worlds::few(law));
    assert!(message.contains("permits passed"), "{message}");
}

/// One CPU takes a permit and, unseen, a batch. Another one gets all that is left.
fn idle_cpus_keep_no_permits<W: Testbed, L: Limiter<W>>(effort: Effort) {
    let place = effort.places::<W>();
    let limit = Limit::stocked::<W>(100_000);
    let limiter = Arc::new(L::make(limit));
    let on = |number, times| {
        let limiter = Arc::clone(&limiter);
        let ask = move || ask::<W, _>(&*limiter, 1, times);
        W::spawn(place(number), ask).unwrap().join().len() as u64
    };
    let first = on(1, 1);
    let second = on(0, limit.burst as u32);
    assert_eq!(first, 1);
    let least = limit.burst * 15 / 16;
    assert!(first + second >= least, "{second} and {first} of {least} passed");
}

#[test]
fn idle_cpus_keep_no_permits_in_every_world() {
    idle_cpus_keep_no_permits::<Native, RateLimiter>(NATIVE);
    let law = || idle_cpus_keep_no_permits::<Sim, RateLimiter<Sim>>(FEW);
    worlds::simulate("limiter::idle", "host-2c", Faults::default(), law).unwrap();
    worlds::few(|| idle_cpus_keep_no_permits::<Model, RateLimiter<Model>>(MODEL));
}

#[test]
fn a_limiter_of_parts_keeps_permits_and_is_caught() {
    let law = || idle_cpus_keep_no_permits::<Sim, Divided<Sim>>(FEW);
    let failure = worlds::simulate("limiter::parts", "host-2c", Faults::default(), law);
    let failure = failure.unwrap_err();
    assert!(failure.to_string().contains("passed"), "{failure}");
}

/// Threads ask without a pause for so long.
fn the_whole_rate_passes<W: Testbed, L: Limiter<W>>(threads: u32, limit: Limit, span: Duration) {
    let limiter = Arc::new(L::make(limit));
    let span = u64::try_from(span.as_nanos()).unwrap();
    let begin = W::now().as_nanos();
    let poll = || {
        let limiter = Arc::clone(&limiter);
        move || {
            let mut passed = 0;
            while W::now().as_nanos() - begin < span {
                match limiter.acquire(1) {
                    true => passed += 1,
                    false => W::work(Duration::from_nanos(100_000_000 / limit.rate)),
                }
            }
            passed
        }
    };
    let all: Vec<_> =
        (0..threads).map(|_| W::spawn(Placement::Anywhere, poll()).unwrap()).collect();
    let passed: u64 = all.into_iter().map(JoinHandle::join).sum();
    let most = limit.most(W::now().as_nanos() - begin);
    let least = (limit.most(span) - limit.burst) * 95 / 100;
    assert!((least..=most).contains(&passed), "{passed} of {least} to {most}: {limit:?}");
}

#[test]
fn the_whole_rate_passes_when_simulated() {
    let law = || {
        for (rate, burst, span) in
            [(1_000, 1, 200), (1_000, 10, 200), (100_000, 64, 10), (1_000_000, 1_000, 3)]
        {
            for threads in [1, 6] {
                let (limit, span) = (Limit { rate, burst }, Duration::from_millis(span));
                the_whole_rate_passes::<Sim, RateLimiter<Sim>>(threads, limit, span);
            }
        }
    };
    worlds::simulate_seeds("limiter::rate", "host-2c", Faults::default(), 3, law).unwrap();
}

#[test]
fn a_limiter_of_parts_lets_a_lone_thread_have_too_little_and_is_caught() {
    let law = || {
        let limit = Limit { rate: 1_000, burst: 10 };
        the_whole_rate_passes::<Sim, Divided<Sim>>(1, limit, Duration::from_millis(200));
    };
    let failure = worlds::simulate("limiter::lone", "host-2c", Faults::default(), law);
    let failure = failure.unwrap_err();
    assert!(failure.to_string().contains("of 190 to 210"), "{failure}");
}

/// A thread that waits as long as it is told gets its permits then.
fn refusals_say_when<W: Testbed>() {
    for (limit, permits) in
        [(Limit { rate: 1_000, burst: 4 }, 3), (Limit::stocked::<W>(200_000), 9)]
    {
        let limiter = RateLimiter::<W>::make(limit);
        for _ in 0..5 {
            while limiter.try_acquire_n(permits).is_ok() {}
            let Err(Refused::NotYet(NotYet { after })) = limiter.try_acquire_n(permits) else {
                continue;
            };
            let one = Duration::from_nanos(1_000_000_000 / limit.rate);
            assert!(after <= one * permits as u32, "{after:?}: {limit:?}");
            W::sleep(after);
            assert_eq!(limiter.try_acquire_n(permits), Ok(()), "{after:?} later: {limit:?}");
        }
    }
}

#[test]
fn refusals_say_when_in_every_world() {
    refusals_say_when::<Native>();
    worlds::simulate("limiter::when", "host-2c", TORN, refusals_say_when::<Sim>).unwrap();
}

#[test]
fn limits_that_cannot_be_kept_are_refused_natively() {
    let (second, burst) = (Duration::from_secs(1), u64::MAX);
    let error = RateLimiter::new(0, second, 1).unwrap_err();
    assert_eq!(error, LimitError::Nothing);
    let error = RateLimiter::new(1, second, burst).unwrap_err();
    assert_eq!(error, LimitError::BurstTooLong { burst, most: 4_611_686_018 });
    let limiter = RateLimiter::new(1, second, 4_611_686_018).unwrap();
    assert_eq!(limiter.try_acquire_n(4_611_686_018), Ok(()));
    assert!(matches!(limiter.try_acquire_n(1), Err(Refused::NotYet(_)) | Ok(())));
    let never = limiter.try_acquire_n(u64::MAX).unwrap_err();
    assert_eq!(never, Refused::Never { asked: u64::MAX, most: 4_611_686_018 });
    assert_eq!(limiter.try_acquire_n(0), Ok(()));
}
