//! [`RateLimiter`]: a limit on the rate of an event, for many CPUs.
//!
//! The limiter is a bucket of permits. It holds at most `burst` permits, is full at first, and
//! earns `rate` permits per second. One word represents the bucket: the time at which it is full
//! again. Each permit moves this time ahead by 1 / `rate`. This is the generic cell rate algorithm
//! (GCRA).
//!
//! If all CPUs change that word for each permit, each permit costs a cache-line transfer. So with a
//! high rate, each CPU takes a *batch* of permits at a time and keeps them in a *stock* of its own.
//! A thread that finds permits neither in its CPU's stock nor in the bucket takes permits from the
//! stocks of other CPUs. So a CPU that goes idle withholds no permits from other CPUs.
//!
//! | rate and burst | batch |
//! |---|---|
//! | below 100,000 per second, or a burst below 32 for each CPU | none: permits are taken singly |
//! | higher | the permits of 20 us, and for all CPUs at most one sixteenth of the burst |
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `full_at` | when the bucket is full, in the units of `Pace` (in `pace.rs`) | exchanges |
//! | a stock | permits of one CPU: see `stocks.rs` | exchanges; the thread that locked it |
//!
//! # The law
//!
//! In any interval of length t, at most `burst + rate * t` permits pass. Each permit passes at some
//! moment between the beginning and the end of its call.
//!
//! Proof: the *supply* is the sum of the permits in the bucket, in all stocks, and in the hands of
//! threads that fill a stock. A stock and the hand of the thread that fills it together hold at
//! most a batch. The bucket holds at most `burst` less a batch for each CPU, so the supply is at
//! most `burst`. A permit that passes leaves the supply. Taking a batch moves permits within the
//! supply. A thread that takes permits from another CPU's stock also moves them within the supply,
//! because it holds the lock of its own stock, which has room for them. A thread without this lock
//! takes a single permit, which passes at that moment. Only time adds to the supply. It adds at
//! most `rate * t`, in the bucket. Without stocks, this is the law of GCRA.
//!
//! Conversely, while threads ask without a pause, permits pass at the whole rate. The bucket earns
//! as long as it is not full, and it is not full for a thread that is refused.
//!
//! In the repository, `tests/laws/memory/limiter.rs` checks both directions in all three worlds.
//!
//! Sources: ITU-T Recommendation [I.371][i371], annex A (the generic cell rate algorithm, 1993);
//! Turner, ["New directions in communications (or which way to the information
//! age?)"](https://doi.org/10.1109/MCOM.1986.1092946) (1986; the leaky bucket).
//!
//! [i371]: https://www.itu.int/rec/T-REC-I.371

mod pace;
mod stocks;

use core::time::Duration;

use coreline_world::{Line, Native, Ordering, Word, World};

use pace::Pace;
use stocks::Stocks;

/// The reason why a limiter with this limit cannot exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The rate, its period or the burst is zero.
    #[error(
        "a limiter with zero permits, a zero period or a zero burst admits nothing: make each of \
         them at least one"
    )]
    Nothing,
    /// The rate is above 10^10 permits per second.
    #[error("{permits} permits in {per:?} are more than ten per nanosecond: count in larger units")]
    TooFast {
        /// The number of permits.
        permits: u64,
        /// Their period.
        per: Duration,
    },
    /// One permit takes more than 146 years.
    #[error("{permits} permits in {per:?} are fewer than one in 146 years: give a higher rate")]
    TooSlow {
        /// The number of permits.
        permits: u64,
        /// Their period.
        per: Duration,
    },
    /// The limiter would take too long to earn the burst.
    #[error(
        "the limiter would take too long to earn a burst of {burst}: give a burst of at most \
             {most}"
    )]
    BurstTooLong {
        /// The requested burst.
        burst: u64,
        /// The largest possible burst at this rate.
        most: u64,
    },
}

/// The error if there are not enough permits now. No permit was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are not enough permits yet: try again in {after:?}")]
pub struct NotYet {
    /// The time from the call until there are enough permits, unless other threads take them.
    pub after: Duration,
}

/// The error if several permits were refused. No permit was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There are not enough permits now.
    #[error(transparent)]
    NotYet(#[from] NotYet),
    /// The limiter never holds this many permits at the same time.
    #[error("{asked} permits are never available together: ask for at most {most}")]
    Never {
        /// The requested number of permits.
        asked: u64,
        /// The [capacity](RateLimiter::capacity) of the limiter.
        most: u64,
    },
}

/// A limit on the rate of permits that all threads together take.
///
/// ```
/// use std::time::Duration;
///
/// use coreline::limit::RateLimiter;
///
/// // 50 requests an hour, in bursts of up to 3.
/// let limiter = RateLimiter::new(50, Duration::from_secs(3600), 3)?;
/// for _ in 0..3 {
///     limiter.try_acquire()?;
/// }
/// let refused = limiter.try_acquire().unwrap_err();
/// assert!(refused.after <= Duration::from_secs(72));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Law**: in any interval of length t, at most `burst + rate * t` permits pass, on however many
/// CPUs. One thread or several threads that ask without a pause get the whole rate. The rate is
/// rounded down. Up to 10^9 permits per second, the rounding is at most 0.1 %. At higher rates, it
/// is at most 1 %.
///
/// **Cost**: a permit from the CPU's stock costs one atomic exchange on a line of that CPU. For any
/// other permit, the call reads the clock and changes a line that all CPUs share. A refused call
/// reads the clock, and one line per CPU if there are stocks. If threads ask for more than the
/// rate, the stocks are usually empty, and most calls use the shared line. So wait as long as a
/// refusal says before you ask again. No call waits.
///
/// **Memory**: a limiter uses two cache lines. With stocks, it uses one more line for each CPU that
/// the machine can have. If there is no memory for them, [the process ends](crate#without-memory).
///
/// **Time**: the clock is `CLOCK_MONOTONIC`. The clock stands still while the machine is suspended.
/// The times of a limiter for at least a million permits per second wrap after 208 days or more. If
/// no thread uses such a limiter for that long, it may seem empty, and then fills at its rate.
///
/// **Order**: the limiter is not fair. Threads that ask for single permits can starve a thread that
/// asks for many. A permit orders no other memory accesses.
///
/// **Signals**: taking permits is async-signal-safe.
///
/// **Fork**: the child has its own limiter, with the same permits. Together, parent and child let
/// twice as many permits through. If another thread was filling a CPU's stock at the fork, the
/// child never uses that stock again. Its threads on that CPU then take permits singly. If a thread
/// is killed while it fills a stock, the process never uses that stock again either.
pub struct RateLimiter<W: World = Native> {
    pace: Pace,
    stocks: Stocks<W>,
    full_at: Line<W::U64>,
}

impl RateLimiter {
    /// Creates a full limiter that earns `permits` in each period `per`, and holds at most `burst`.
    ///
    /// # Errors
    ///
    /// [`LimitError`] if an argument is zero, if the rate is above 10^10 permits per second, or if
    /// one permit or the whole burst takes more than 146 years to earn. At rates above a million
    /// permits per second, the limit for the burst is shorter, but at least 52 days.
    pub fn new(permits: u64, per: Duration, burst: u64) -> Result<Self, LimitError> {
        Self::new_in(permits, per, burst)
    }
}

impl<W: World> RateLimiter<W> {
    /// Creates a full limiter in world `W`, like [`new`](RateLimiter::new).
    ///
    /// # Errors
    ///
    /// The same errors as for [`new`](RateLimiter::new).
    pub fn new_in(permits: u64, per: Duration, burst: u64) -> Result<Self, LimitError> {
        let cpus = W::topology().cpu_limit().max(1);
        Ok(Self::at_pace(Pace::new(permits, per, burst, cpus as u64)?, cpus))
    }

    fn at_pace(pace: Pace, cpus: usize) -> Self {
        RateLimiter {
            pace,
            stocks: Stocks::new_in(if pace.batch > 0 { cpus } else { 0 }),
            full_at: Line(W::U64::new_in(pace.units(W::now().as_nanos()))),
        }
    }

    /// Takes a permit.
    ///
    /// # Errors
    ///
    /// [`NotYet`] if there is no permit now.
    #[inline]
    pub fn try_acquire(&self) -> Result<(), NotYet> {
        if self.stocks.take(1) { Ok(()) } else { self.acquire_slowly(1) }
    }

    /// Takes `n` permits, or no permit.
    ///
    /// # Errors
    ///
    /// [`Refused::NotYet`] if there are fewer than `n` permits now, and [`Refused::Never`] if `n`
    /// is above the [capacity](RateLimiter::capacity).
    #[inline]
    pub fn try_acquire_n(&self, n: u64) -> Result<(), Refused> {
        if n > self.pace.capacity {
            return Err(Refused::Never { asked: n, most: self.pace.capacity });
        }
        if n == 0 || self.stocks.take(n) {
            return Ok(());
        }
        Ok(self.acquire_slowly(n)?)
    }

    /// Returns the largest number of permits that one call can take, after a time without calls. It
    /// is the burst, less the permits that the CPUs may have in their stocks. It is at least
    /// fifteen sixteenths of the burst, and the whole burst if there are no stocks.
    pub fn capacity(&self) -> u64 {
        self.pace.capacity
    }

    #[cold]
    #[inline(never)]
    fn acquire_slowly(&self, n: u64) -> Result<(), NotYet> {
        let locked = self.stocks.lock();
        let batch = if locked.is_some() { self.pace.batch } else { 0 };
        let hand = locked.as_ref().map_or(0, |locked| locked.hand);
        let (taken, left) = self.acquire_with(hand, batch, n);
        if let Some(locked) = locked {
            locked.unlock(left);
        }
        taken
    }

    /// Takes `n` permits. The caller already has some of them. Returns what is left for the calling
    /// CPU's stock, at most `batch`: 0 if another thread has locked that.
    fn acquire_with(&self, mut hand: u64, batch: u64, n: u64) -> (Result<(), NotYet>, u64) {
        if hand >= n {
            // Another thread of this CPU has filled the stock.
            return (Ok(()), hand - n);
        }
        if batch > 0 && self.take(n - hand + batch).is_ok() {
            return (Ok(()), batch);
        }
        let Err(mut short) = self.take(n - hand) else {
            return (Ok(()), 0);
        };
        let missing = self.pace.permits(short);
        // What is taken from other stocks must fit into this one, because another thread may take
        // the rest meanwhile. A single permit passes as soon as it is taken.
        let fits = n == 1 || hand + missing <= batch;
        let elsewhere = || if fits { self.stocks.sum() } else { 0 };
        let mut reachable = elsewhere();
        if reachable > 0 && missing <= reachable {
            hand += self.stocks.steal(missing.min(n - hand));
            if hand == n {
                return (Ok(()), 0);
            }
            match self.take(n - hand) {
                Ok(()) => return (Ok(()), 0),
                Err(still) => short = still,
            }
            reachable = elsewhere();
        }
        let short = short.saturating_sub(self.pace.earned(reachable)).max(1);
        (Err(NotYet { after: self.pace.wait(short) }), hand)
    }

    /// Takes permits from the bucket; or returns how long it takes until there are this many.
    fn take(&self, permits: u64) -> Result<(), u64> {
        // Acquire pairs with the release below: the clock is not before what it was there.
        let mut seen = self.full_at.load(Ordering::Acquire);
        loop {
            // Behind the load of the word: a thread that is preempted here and comes back with an
            // old time finds the word changed, or does not set it back.
            let now = self.pace.units(W::now().as_nanos());
            let next = self.pace.take(seen, now, permits)?;
            // Release and acquire: see the load.
            let (done, failed) = (Ordering::Release, Ordering::Acquire);
            match self.full_at.compare_exchange_weak(seen, next, done, failed) {
                Ok(_) => return Ok(()),
                Err(changed) => seen = changed,
            }
        }
    }
}

impl_debug!([W: World] RateLimiter<W> as it { pace: it.pace, in_stocks: it.stocks.sum(), .. });

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Failure, Machine, Sim};
    use coreline_topology::CpuId;
    use coreline_world::model::{Checker, Model};
    use coreline_world::{Clock, Integer, JoinHandle, Placement, Threads};

    use super::*;

    /// A permit is taken, and a batch with it. When the limiter is full again, all there is passes
    /// immediately.
    fn stocks_are_a_part_of_the_burst(capacity: fn(&Pace) -> u64) {
        let (rate, burst, second) = (100_000, 64, Duration::from_secs(1));
        let mut pace = Pace::new(rate, second, burst, 2).unwrap();
        assert_eq!((pace.batch, pace.capacity), (2, 60));
        pace.capacity = capacity(&pace);
        let limiter = RateLimiter::<Sim>::at_pace(pace, 2);
        limiter.try_acquire().unwrap();
        Sim::sleep(Duration::from_millis(1));
        assert_eq!(limiter.stocks.sum(), 2);
        let begin = Sim::now();
        let passed = (0..).take_while(|_| limiter.try_acquire().is_ok()).count() as u64;
        let earned = (Sim::now() - begin).as_nanos() as u64 * rate / 1_000_000_000;
        assert!(passed <= burst + earned, "{passed} passed, of {burst} and {earned}");
        assert!(passed >= 62, "{passed} passed");
    }

    fn run(capacity: fn(&Pace) -> u64) -> Result<(), Box<Failure>> {
        let law = move || stocks_are_a_part_of_the_burst(capacity);
        Machine::preset("host-2c").unwrap().run(law).map(|_| ())
    }

    #[test]
    fn stocks_are_a_part_of_the_burst_in_simulation() {
        run(|pace| pace.capacity).unwrap();
    }

    /// Only what fits into the own stock is taken from others: the rest could be lost.
    #[test]
    fn stocks_are_left_alone_by_those_that_ask_for_more_in_simulation() {
        let law = || {
            let pace = Pace::new(100_000, Duration::from_secs(1), 64, 2).unwrap();
            let limiter = RateLimiter::<Sim>::at_pace(pace, 2);
            limiter.take(pace.capacity).unwrap();
            limiter.stocks.lock().unwrap().unlock(pace.batch);
            let (refused, left) = limiter.acquire_with(0, pace.batch, 3);
            assert_eq!((limiter.stocks.sum(), left), (2, 0));
            // The bucket alone: three permits less what it has earned meanwhile.
            let after = refused.unwrap_err().after;
            assert!((25..=30).contains(&after.as_micros()), "{after:?}");
            assert_eq!(limiter.acquire_with(0, pace.batch, 2), (Ok(()), 0));
            assert_eq!(limiter.stocks.sum(), 0);
        };
        Machine::preset("host-2c").unwrap().run(law).unwrap();
    }

    /// Two threads of a CPU find its stock empty. Each may have a batch in hand, and the stock then
    /// holds at most one.
    fn a_stock_holds_one_batch(acquire: fn(&RateLimiter<Model>) -> bool) {
        let pace = Pace::new(100_000, Duration::from_secs(1), 64, 2).unwrap();
        let limiter = Arc::new(RateLimiter::<Model>::at_pace(pace, 2));
        let threads = [(); 2].map(|()| {
            let limiter = Arc::clone(&limiter);
            let acquire = move || acquire(&limiter);
            Model::spawn(Placement::On(CpuId::new(0)), acquire).unwrap()
        });
        assert_eq!(threads.map(JoinHandle::join), [true; 2]);
        let stock = limiter.stocks.sum();
        assert!(stock <= pace.batch, "{stock} permits are in stock");
    }

    /// As [`try_acquire`](RateLimiter::try_acquire), without the lock of the stock.
    fn acquire_without_lock(limiter: &RateLimiter<Model>) -> bool {
        let own = limiter.stocks.own().expect("each CPU has a stock");
        if limiter.stocks.take(1) {
            return true;
        }
        // Relaxed: a permit publishes nothing.
        let hand = own.swap(0, Ordering::Relaxed);
        let (taken, left) = limiter.acquire_with(hand, limiter.pace.batch, 1);
        // Relaxed: a permit publishes nothing.
        own.fetch_add(left, Ordering::Relaxed);
        taken.is_ok()
    }

    #[test]
    fn a_stock_holds_one_batch_in_every_interleaving() {
        let checker = || Checker::new().preemption_bound(2);
        checker().check(|| a_stock_holds_one_batch(|limiter| limiter.try_acquire().is_ok()));
        let law = || a_stock_holds_one_batch(acquire_without_lock);
        let failure = checker().try_check(law).expect_err("a stock without a lock");
        assert!(failure.message.contains("4 permits are in stock"), "{failure}");
    }

    #[test]
    fn stocks_beside_the_burst_are_caught() {
        let failure = run(|pace| pace.capacity + 2 * pace.batch).unwrap_err();
        assert!(failure.to_string().contains("passed, of 64"), "{failure}");
    }
}
