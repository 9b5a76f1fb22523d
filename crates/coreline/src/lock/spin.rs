//! How threads wait outside of a queue: they spin before they queue and before they sleep. This
//! module also covers waits without a node, and waits for conditions that no word shows.
//!
//! | constant | why this value | test |
//! |---|---|---|
//! | `MOST` | two CPUs' time for a sleep and a wake-up | `waits.rs` in the laws of locks |
//! | `STEP` | shorter than a thread's turn on a CPU | `..tells_interrupts_from_threads` |
//! | `LOOKS` | more turns than without | `a_thread_that_comes_takes_..`, of the mutex |
//! | `BRIEF` | some turns; a sleep saves the CPU | `..does_not_yield_where_others_want_..` |
//! | `UNTIMED` | short beside each wait that uses it | none: only speed |
//! | `DOZE`, `LONGEST_DOZE` | few looks in a long wait | `..looks_some_forty_times_a_second` |
//! | `PAUSES` | not met by a wait that ends | none: it needs a holder that never runs |

use core::time::Duration;

use coreline_topology::CpuId;
use coreline_world::{Ordering, Time, Word, World};

use super::wanted::{is_wanted, learns};

/// The time for which a waiter spins at most. A sleep and the wake-up take some microseconds of two
/// CPUs, and many more if an idle CPU must be woken. A waiter may try for this long to avoid them.
pub(crate) const MOST: Duration = Duration::from_micros(100);

/// The time between two reads of the clock.
pub(crate) const STEP: Duration = Duration::from_micros(10);

/// The number of looks at a held lock before a thread queues, with 1, 2, 4 and more pauses before
/// each.
const LOOKS: u32 = 6;

/// The time for which a thread spins on a CPU that others want. It does not yield there, so it
/// would keep the thread that it waits for from running.
const BRIEF: Duration = Duration::from_micros(2);

/// The looks between two readings of the clock of a thread that does not yield: 1 us or less.
const UNTIMED: u32 = 16;

/// The number of looks of a thread that waits for a condition that no word shows, with a pause
/// between, before it sleeps between them: about 20 ms of its CPU. Threads that wait for each
/// other, and sleep between their looks, answer more slowly. So this is for waits that would not
/// end.
const PAUSES: u32 = 1 << 19;

/// How a thread without a node waits: it checks again after this time, and doubles the time with
/// each further check, up to [`LONGEST_DOZE`].
pub(super) const DOZE: Duration = Duration::from_micros(100);

/// Then it looks 39 times a second, which costs a CPU less than a thousandth of its time.
const LONGEST_DOZE: Duration = Duration::from_micros(100 << 8);

/// How spinning ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spun<V = u32> {
    /// The word holds this value, which `ready` accepted.
    Ready(V),
    /// The time is over.
    Late,
    /// Another thread wants the CPU. It may be the one that the caller waits for.
    Wanted,
}

/// Looks at a word that no other thread waits for, until `ready` accepts its value, with Acquire.
/// It looks at most this many times, with one pause between.
///
/// [`spin`] pauses for longer and longer and reads the clock in between, so it would see an answer
/// within two line transfers too late. In the model, one look is all.
#[inline]
pub(crate) fn glance<W: World, T: Word>(
    word: &T,
    looks: u32,
    ready: impl Fn(T::Value) -> bool,
) -> Option<T::Value> {
    for _ in 0..if W::RUNS { looks } else { 1 } {
        // Acquire: pairs with the Release of the thread that hands over; the caller names it.
        let value = word.load(Ordering::Acquire);
        if ready(value) {
            return Some(value);
        }
        W::relax();
    }
    None
}

/// Looks until `look` finds something, or until `end`. It never yields, so it is for a thread that
/// others wait for meanwhile, and for one whose CPU others want: a yield would cost a time slice.
/// In the model, one look is all.
pub(crate) fn looks<W: World, R>(end: Time, mut look: impl FnMut() -> Option<R>) -> Option<R> {
    loop {
        for _ in 0..if W::RUNS { UNTIMED } else { 1 } {
            let found = look();
            if found.is_some() {
                return found;
            }
            W::relax();
        }
        if !W::RUNS || W::now() >= end {
            return None;
        }
    }
}

/// Spins until `ready` accepts the word's value, with Acquire, or until `end`, or until another
/// thread wants the CPU. In the model, where no time passes, one look is all.
///
/// The time that passes shows that another thread wants the CPU: the spinning thread was not
/// running, and comes back late.
///
/// It yields between its looks, because the holder may want this CPU. On a CPU that other
/// threads [want](super::wanted), it does not yield, and spins briefly.
pub(crate) fn spin<W: World, T: Word>(
    word: &T,
    mut now: Time,
    end: Time,
    ready: impl Fn(T::Value) -> bool,
) -> Spun<T::Value> {
    let here = W::cpu_hint();
    if is_wanted::<W>(here) {
        return look_briefly::<W, _>(here, word, now, end, &ready)
            .map_or(Spun::Wanted, Spun::Ready);
    }
    loop {
        let step = end.min(now + STEP);
        // Acquire: pairs with the Release of the thread that hands over; the caller names it.
        if let Some(value) = word.wait_until_by(Ordering::Acquire, step, &ready) {
            // Reading the clock here would make each hand-off longer.
            return Spun::Ready(value);
        }
        // An `end` before `now` shows when the caller came late, and not where this thread was.
        let due = step.max(now);
        now = W::now();
        if learns::<W>(here, due, now) || W::need_resched() {
            return Spun::Wanted;
        }
        if now >= end {
            return Spun::Late;
        }
        if !W::RUNS {
            return Spun::Wanted;
        }
    }
}

/// Looks at a word on a CPU that others want, for [`BRIEF`] at most.
fn look_briefly<W: World, T: Word>(
    here: CpuId,
    word: &T,
    now: Time,
    end: Time,
    ready: impl Fn(T::Value) -> bool,
) -> Option<T::Value> {
    let end = end.min(now + BRIEF).max(now);
    let found = looks::<W, _>(end, || {
        // Acquire: pairs with the Release of the thread that hands over; the caller names it.
        let value = word.load(Ordering::Acquire);
        ready(value).then_some(value)
    });
    // Reading the clock for a value would make each hand-off longer.
    if found.is_none() {
        learns::<W>(here, end, W::now());
    }
    found
}

/// Takes a lock that is freed soon, even before waiting threads: while those wake, the lock would
/// idle.
pub(crate) fn barge<W: World>(mut try_take: impl FnMut() -> bool) -> bool {
    let looks = if W::RUNS { LOOKS } else { 0 };
    (0..looks).any(|look| {
        (0..1 << look).for_each(|_| W::relax());
        try_take()
    })
}

/// How a thread waits between two checks in a loop that [`Word::wait_until`] cannot express: it
/// pauses, and later sleeps. The thread that it waits for may want this CPU, with a lower priority.
pub(crate) struct Pauses(u32);

impl Pauses {
    pub(crate) fn new() -> Self {
        Pauses(0)
    }

    pub(crate) fn pause<W: World>(&mut self) {
        // In the model, where no time passes, there is no sleep that ends.
        if !W::RUNS || self.0 < PAUSES {
            self.0 += u32::from(W::RUNS);
            W::relax();
        } else {
            nap::<W>(W::now() + DOZE);
        }
    }
}

/// Sleeps until then.
pub(super) fn nap<W: World>(until: Time) {
    // A word of its own: on that of a lock it would take wake-ups from the first waiter.
    W::park(&W::U32::new_in(0), 0, Some(until));
}

/// Waits if all nodes are taken. Checks immediately, and then from time to time. Returns what it
/// found; `None` when the deadline has come.
pub(crate) fn doze<W: World, R>(
    deadline: Option<Time>,
    mut look: impl FnMut() -> Option<R>,
) -> Option<R> {
    let mut doze = DOZE;
    loop {
        let found = look();
        if found.is_some() || is_over::<W>(deadline) {
            return found;
        }
        let end = W::now() + doze;
        doze = (2 * doze).min(LONGEST_DOZE);
        nap::<W>(deadline.map_or(end, |deadline| deadline.min(end)));
    }
}

/// Whether the deadline has come. In the model, where no time passes, it has.
pub(super) fn is_over<W: World>(deadline: Option<Time>) -> bool {
    deadline.is_some_and(|deadline| !W::RUNS || W::now() >= deadline)
}

#[cfg(test)]
mod tests {
    use coreline_sim::{Machine, Sim, interrupts};
    use coreline_topology::CpuId;
    use coreline_world::{Clock, JoinHandle, Placement, Threads, Words, Work};

    use super::super::wanted;
    use super::*;

    /// Spins for `span` without success. Returns how that ended, and when.
    fn spins(span: Duration) -> (Spun, Duration) {
        let word = <Sim as Words>::U32::new_in(0);
        let begun = Sim::now();
        (spin::<Sim, _>(&word, begun, begun + span, |word| word != 0), Sim::now() - begun)
    }

    /// How often a thread takes an interrupt of this many microseconds for another thread. The
    /// interrupts arrive one after another, each at another time of its steps.
    fn taken_for_a_thread(micros: u64) -> usize {
        let program = move || {
            let spinner = || (0..40).filter(|_| spins(10 * STEP).0 == Spun::Wanted).count();
            let spinner = Sim::spawn(Placement::On(CpuId::new(1)), spinner).expect("a thread");
            Sim::work(2 * STEP);
            for _ in 0..30 {
                Sim::work(10 * STEP);
                let handler = move || Sim::work(Duration::from_micros(micros));
                interrupts::send(CpuId::new(1), handler).expect("a CPU");
            }
            spinner.join()
        };
        Machine::preset("host-2c").expect("a preset").run(program).expect("it ends").value
    }

    /// With a gap of 5 us a short interrupt ends spinning. With one of 20 us, or steps of 20 us,
    /// a long absence is not seen, or not always.
    #[test]
    fn a_spinning_thread_tells_interrupts_from_threads() {
        assert_eq!(taken_for_a_thread(8), 0);
        assert_eq!(taken_for_a_thread(22), 30);
    }

    /// A thread spins on a CPU which another thread wants; `masks`, with interrupts masked.
    fn shares_its_cpu(masks: bool) -> (Spun, Duration) {
        let program = move || {
            let here = Placement::On(CpuId::new(1));
            let spinner = move || {
                let _masked = masks.then(interrupts::mask);
                spins(Duration::from_millis(20))
            };
            let spinner = Sim::spawn(here, spinner).expect("a thread");
            Sim::work(5 * STEP);
            let other = || Sim::work(Duration::from_millis(1));
            Sim::spawn(here, other).expect("a thread").join();
            spinner.join()
        };
        Machine::preset("host-2c").expect("a preset").run(program).expect("it ends").value
    }

    /// A time slice has 3 ms, and the other thread needs 1 ms. A thread that masks interrupts is
    /// not preempted, so its clock shows nothing.
    #[test]
    fn a_spinning_thread_leaves_its_cpu_to_others() {
        let (spun, after) = shares_its_cpu(false);
        assert_eq!(spun, Spun::Wanted, "after {after:?}");
        assert!(after < Duration::from_millis(6), "{after:?}");
        let (spun, after) = shares_its_cpu(true);
        assert_eq!(spun, Spun::Wanted, "masked, after {after:?}");
        assert!(after < Duration::from_millis(4), "masked, {after:?}");
    }

    /// It spins for 100 us if it does not learn from a lost time slice.
    #[test]
    fn a_spinning_thread_does_not_yield_where_others_want_the_cpu() {
        let program = || {
            let here = CpuId::new(1);
            let spinner = move || {
                wanted::prepare::<Sim>();
                assert!(!is_wanted::<Sim>(here), "not yet");
                assert_eq!(spins(Duration::from_millis(20)).0, Spun::Wanted);
                assert!(is_wanted::<Sim>(here), "it has lost a time slice");
                spins(MOST)
            };
            let spinner = Sim::spawn(Placement::On(here), spinner).expect("a thread");
            Sim::work(5 * STEP);
            let other = || Sim::work(Duration::from_millis(100));
            let other = Sim::spawn(Placement::On(here), other).expect("a thread");
            let spun = spinner.join();
            other.join();
            spun
        };
        let run = Machine::preset("host-2c").expect("a preset").run(program);
        let (spun, after) = run.expect("it ends").value;
        assert_eq!(spun, Spun::Wanted);
        assert!((BRIEF..3 * BRIEF).contains(&after), "{after:?}");
    }

    /// 10,000 if each wait is as long as the first.
    #[test]
    fn a_thread_without_a_node_looks_some_forty_times_a_second() {
        let program = || {
            let mut looks = 0;
            let deadline = Sim::now() + Duration::from_secs(1);
            let found = doze::<Sim, ()>(Some(deadline), || {
                looks += 1;
                None
            });
            assert!(found.is_none() && Sim::now() >= deadline);
            looks
        };
        let run = Machine::preset("host-2c").expect("a preset").run(program);
        let looks = run.expect("it ends").value;
        assert!((36..60).contains(&looks), "{looks} looks");
    }
}
