//! On which CPUs a thread that waits should not yield.
//!
//! A thread that waits yields its CPU between its looks ([`Word::wait_until_by`]), because the
//! thread that it waits for may want that CPU. If a thread that computes without end wants the CPU,
//! a yield costs a time slice, and the kernel may count the slice as used. So a thread that yields
//! beside others gets much less of the CPU than they do. A thread that sleeps keeps what is left of
//! its share of the CPU, and the kernel runs it as soon as it is woken.
//!
//! A thread that waits notices by the clock that it was away. From then on, others *want* that CPU
//! for a while. The while is so much longer than the absence that yielding loses only a small part
//! of the time. Then one thread yields again, in case nothing else wants the CPU any more.
//!
//! All threads of the process share what they learn of a CPU. A thread that finds the time of a
//! word over writes 0:
//!
//! | word | value | means | written by |
//! |---|---|---|---|
//! | of each CPU | a time, or 0 | until then others want the CPU | threads that were away |
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `PART`, `LONGEST` | bound what yielding loses | `what_yielding_loses_is_a_small_part_..` |
//! | `GAP` | shorter than a thread's turn on a CPU | `..tells_interrupts_from_threads` of `spin` |
//! | `AWAY` | between a yield and a time slice | that, and `a_thread_that_was_away_..` of calls |
//!
//! These words say how to wait, and nothing about what a thread waits for. So they need no order,
//! and a lost update costs only time.

use core::time::Duration;

use coreline_topology::CpuId;
use coreline_world::{Line, Ordering, Time, Word, World, WorldStatic};

/// A step that takes this much longer was interrupted: another thread had the CPU.
const GAP: Duration = Duration::from_micros(10);

/// A thread that was away for this long lost a time slice. Threads that wait for each other are
/// away for less when they yield to each other.
pub(crate) const AWAY: Duration = Duration::from_micros(250);

/// Others want the CPU for this many times as long as a thread was away, so yielding loses less
/// than two parts in a hundred.
pub(crate) const PART: u32 = 64;

/// This is the upper limit of that time.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// Something that holds of a CPU until some time: a word for each CPU, on a line of its own,
/// because threads of that CPU write it.
pub(crate) struct Until(WorldStatic);

impl Until {
    pub(crate) const fn new(name: &'static str) -> Self {
        Until(WorldStatic::new(name))
    }

    /// Creates the words, unless they exist.
    pub(crate) fn prepare<W: World>(&'static self) {
        let none = || (0..W::topology().cpu_limit()).map(|_| Line(W::U64::new_in(0))).collect();
        if W::RUNS {
            self.0.with::<W, Box<[Line<W::U64>]>, _>(none, |_| ());
        }
    }

    /// `None` also before [`prepare`](Until::prepare). A thread that waits must not create the
    /// words:
    ///
    ///   Thread: waits in the queue of the lock of the global allocator, and creates the words
    ///   Thread: allocates for this, and waits for that lock behind itself      <- for ever
    fn with<W: World, R>(&'static self, cpu: CpuId, f: impl FnOnce(&W::U64) -> R) -> Option<R> {
        self.0
            .find::<W, Box<[Line<W::U64>]>, _>(|cpus| cpus.get(cpu.index()).map(|word| f(word)))
            .flatten()
    }

    /// Whether that time has not come yet. In the model, where no time passes, it has.
    pub(crate) fn lasts<W: World>(&'static self, cpu: CpuId) -> bool {
        let lasts = |word: &W::U64| {
            // Relaxed: says nothing of what is waited for.
            let until = word.load(Ordering::Relaxed);
            if until == 0 {
                return false;
            }
            let left = Time::from_nanos(until) - W::now();
            // A clock that was set back is no reason to wait otherwise for days.
            let lasts = !left.is_zero() && left <= LONGEST;
            if !lasts {
                // Relaxed: as for the load. From here on no thread reads the clock for it.
                word.store(0, Ordering::Relaxed);
            }
            lasts
        };
        W::RUNS && self.with::<W, _>(cpu, lasts).unwrap_or(false)
    }

    /// From now on it holds until this time, if it did not hold for longer.
    pub(crate) fn extend<W: World>(&'static self, cpu: CpuId, until: Time) {
        let until = until.as_nanos();
        let _ = self.with::<W, _>(cpu, |word| {
            // Relaxed: says nothing of what is waited for.
            if word.load(Ordering::Relaxed) < until {
                // Relaxed: as for the load.
                word.store(until, Ordering::Relaxed);
            }
        });
    }
}

static WANTED: Until = Until::new("CPUs that others want");

/// Creates what threads learn of CPUs. Until then, they learn nothing. For code that may allocate,
/// before a thread waits: the tables of locks, and workers.
pub(crate) fn prepare<W: World>() {
    WANTED.prepare::<W>();
}

/// Whether threads of other programs, or others of this one, want the CPU.
pub(crate) fn is_wanted<W: World>(cpu: CpuId) -> bool {
    WANTED.lasts::<W>(cpu)
}

/// Records that a thread of this CPU checks now, although its check was due at an earlier time. If
/// the thread was away for [`AWAY`] or longer, others want the CPU. Returns whether it was away for
/// [`GAP`] or longer, which is a shorter time. In this case it stops polling for now.
pub(crate) fn learns<W: World>(cpu: CpuId, due: Time, now: Time) -> bool {
    let away = now - due;
    if away >= AWAY {
        WANTED.extend::<W>(cpu, now + away.saturating_mul(PART).min(LONGEST));
    }
    away >= GAP
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_sim::{Machine, Sim};
    use coreline_world::{Clock, JoinHandle, Placement, Threads};

    use super::*;
    use crate::lock::{Fifo, Mutex, Near, RwLock, SpinningReaders};

    fn simulated(law: fn()) {
        Machine::preset("host-2c").expect("a preset").run(law).unwrap();
    }

    /// Neither has lost its CPU: a waiter that slept for long, and one whose deadline was over when
    /// it came.
    #[test]
    fn a_thread_that_waits_on_an_idle_cpu_was_not_away() {
        simulated(|| {
            let long = Duration::from_millis(20);
            let lock = Arc::new(Mutex::<(), Fifo, Sim>::new_in(()));
            let shared = Arc::new(RwLock::<(), Near, SpinningReaders, Sim>::new_in(()));
            let (held, read) = (lock.lock(), shared.read());
            let (lock, shared) = (Arc::clone(&lock), Arc::clone(&shared));
            let cpu = CpuId::new(1);
            let wait = move || {
                let come = Sim::now();
                drop(lock.lock());
                assert!(Sim::now() - come > long / 2 && !is_wanted::<Sim>(cpu));
                assert!(shared.write_by(come).is_none() && !is_wanted::<Sim>(cpu));
                drop(shared.write());
                assert!(Sim::now() - come > long && !is_wanted::<Sim>(cpu));
                learns::<Sim>(cpu, Sim::now(), Sim::now() + AWAY);
                assert!(is_wanted::<Sim>(cpu), "it could have learned");
            };
            let waiter = Sim::spawn(Placement::On(cpu), wait).unwrap();
            Sim::sleep(long);
            drop(held);
            Sim::sleep(long);
            drop(read);
            waiter.join();
        });
    }

    #[test]
    fn what_yielding_loses_is_a_small_part_of_the_time() {
        simulated(|| {
            prepare::<Sim>();
            let cpu = CpuId::new(0);
            for (away, quiet) in [(2, 2 * PART), (1_000_000, 1000)] {
                Sim::sleep(2 * LONGEST);
                let now = Sim::now();
                assert!(learns::<Sim>(cpu, now, now + Duration::from_millis(away)));
                let quiet = Duration::from_millis(away + u64::from(quiet));
                let until = WANTED.with::<Sim, _>(cpu, |word| word.load(Ordering::Relaxed));
                assert_eq!(until, Some((now + quiet).as_nanos()), "{away} ms");
            }
            // What threads lose that yield to each other says nothing.
            let other = CpuId::new(1);
            let now = Sim::now();
            assert!(learns::<Sim>(other, now, now + AWAY / 2));
            assert!(!is_wanted::<Sim>(other));
        });
    }
}
