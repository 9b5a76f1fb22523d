//! The forms of the class `counters` that take permits of a rate limiter, beside governor: with a
//! rate that is never reached, and with one that refuses nearly all.
//!
//! Where all permits pass, ours takes most of them from its CPU's stock. If nearly all are refused,
//! there are no stocks: both read the clock and one word.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coreline::Lacking;
use coreline::limit::RateLimiter;
use governor::{DefaultDirectRateLimiter, Quota};

use super::{Candidate, Form, Goal, Most, Params, Role, Subject, rounds};

/// The goal, set in advance: times governor, with two threads.
const MOST: f64 = 0.5;

/// Permits per second and in a burst: more than threads ask for, and few.
const HIGH: [u32; 2] = [1_000_000_000, 1_000_000_000];
const LOW: [u32; 2] = [1_000, 10];

pub(super) fn forms() -> Vec<Form> {
    let passing = form(
        "limiter",
        ["coreline RateLimiter", "governor direct"],
        [
            || Ok(Arc::new(Passing { limiter: ours(HIGH), passed: AtomicU64::new(0) })),
            || Ok(Arc::new(Passing { limiter: governor(HIGH), passed: AtomicU64::new(0) })),
        ],
    );
    let refusing = form(
        "limiter-refuses",
        ["coreline RateLimiter, refuses", "governor direct, refuses"],
        [
            || Ok(Arc::new(Refusing { limiter: ours(LOW), asked: AtomicU64::new(0) })),
            || Ok(Arc::new(Refusing { limiter: governor(LOW), asked: AtomicU64::new(0) })),
        ],
    );
    let most = Most::Times(MOST, "governor direct".to_owned());
    let goal = Goal { threads: Some(2), ..Goal::everywhere("coreline RateLimiter", most) };
    vec![Form { goals: vec![goal], ..passing }, refusing]
}

type Make = fn() -> Result<Arc<dyn Subject>, Lacking>;

fn form(title: &'static str, names: [&str; 2], make: [Make; 2]) -> Form {
    let made = names.into_iter().zip(make).zip([Role::Ours, Role::Rival]);
    let candidate = |((name, make), role)| Candidate { name: String::from(name), role, make };
    Form {
        title,
        threads: vec![1, 2, 8],
        window: None,
        params: Params::default(),
        candidates: made.map(candidate).collect(),
        reference: names[1].to_owned(),
        goals: Vec::new(),
    }
}

trait Limiter: Send + Sync + 'static {
    fn acquire(&self) -> bool;
}

impl Limiter for RateLimiter {
    #[inline(always)]
    fn acquire(&self) -> bool {
        self.try_acquire().is_ok()
    }
}

impl Limiter for DefaultDirectRateLimiter {
    #[inline(always)]
    fn acquire(&self) -> bool {
        self.check().is_ok()
    }
}

fn ours([rate, burst]: [u32; 2]) -> RateLimiter {
    RateLimiter::new(rate.into(), Duration::from_secs(1), burst.into()).expect("it can be kept")
}

fn governor(limit: [u32; 2]) -> DefaultDirectRateLimiter {
    let [rate, burst] = limit.map(|it| NonZeroU32::new(it).expect("more than none"));
    DefaultDirectRateLimiter::direct(Quota::per_second(rate).allow_burst(burst))
}

/// Counts the permits that pass: each must.
struct Passing<L> {
    limiter: L,
    passed: AtomicU64,
}

impl<L: Limiter> Subject for Passing<L> {
    fn run(&self, _: usize, ops: u64) {
        let mut passed = 0;
        rounds(ops, |_| passed += u64::from(self.limiter.acquire()));
        // Relaxed: read when the threads have reported through a channel.
        self.passed.fetch_add(passed, Ordering::Relaxed);
    }

    fn total(&self) -> Option<u64> {
        Some(self.passed.load(Ordering::Relaxed))
    }
}

/// Counts what was asked for, whatever the answer.
struct Refusing<L> {
    limiter: L,
    asked: AtomicU64,
}

impl<L: Limiter> Subject for Refusing<L> {
    fn run(&self, _: usize, ops: u64) {
        let mut asked = 0;
        rounds(ops, |_| {
            std::hint::black_box(self.limiter.acquire());
            asked += 1;
        });
        // Relaxed: as permits that pass.
        self.asked.fetch_add(asked, Ordering::Relaxed);
    }

    fn total(&self) -> Option<u64> {
        Some(self.asked.load(Ordering::Relaxed))
    }
}
