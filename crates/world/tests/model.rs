//! The model sees what it should: it finds planted mistakes, and its own parts keep what they
//! promise.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use coreline_topology::CpuId;
use coreline_world::conformance::order;
use coreline_world::model::{Checker, Failure, Model, Plant, check};
use coreline_world::{
    Cell, Clock, Fences, IndexBy, Integer, JoinHandle, Ordering, Parked, Place, Placement,
    Restartable, Sleep, SpawnError, Threads, Word, Words, WorldLocal, WorldStatic,
};

type U32 = <Model as Words>::U32;

/// What the model finds in `program`, which has a mistake, or gets one. The same at every run.
fn found(plant: Plant, program: fn()) -> Failure {
    let checker = Checker::new().plant(plant);
    let failure = checker.try_check(program).expect_err("a mistake was planted");
    assert_eq!(checker.try_check(program), Err(failure.clone()));
    failure
}

#[track_caller]
fn assert_race(plant: Plant, program: fn()) {
    let failure = found(plant, program);
    assert!(failure.message.contains("Causality violation"), "{failure}");
}

/// Runs `other` in a thread beside `this`, on one word.
fn beside(other: fn(&U32), this: fn(&U32)) {
    let word = Arc::new(U32::new_in(0));
    let theirs = Arc::clone(&word);
    let other = Model::spawn(Placement::Anywhere, move || other(&theirs));
    this(&word);
    other.expect("there is room for two threads").join();
}

#[test]
fn missing_releases_are_races() {
    assert_race(Plant::RELAXED_STORES, order::published_data_is_seen::<Model>);
    assert_race(Plant::RELAXED_STORES, order::a_wait_sees_what_was_published::<Model>);
    assert_race(Plant::RELAXED_STORES, order::a_bounded_wait_sees_what_was_published::<Model>);
}

#[test]
fn missing_acquires_are_races() {
    assert_race(Plant::RELAXED_LOADS, order::published_data_is_seen::<Model>);
    assert_race(Plant::RELAXED_LOADS, order::a_wait_sees_what_was_published::<Model>);
    assert_race(Plant::RELAXED_LOADS, order::a_bounded_wait_sees_what_was_published::<Model>);
}

/// A lock whose two sides are swaps.
fn swap_lock() {
    struct Lock(U32, Cell<u64, Model>);

    fn increment(Lock(locked, count): &Lock) {
        // Acquire, partner: the release below. Without it the count could be read before the lock
        // is held.
        while locked.swap(1, Ordering::Acquire) == 1 {
            Model::relax();
        }
        // SAFETY: the lock is held. Where it was planted not to order, the model stops before this.
        count.with_mut(|count| unsafe { *count += 1 });
        // Release, partner: the acquire above. Without it the next holder could miss the increment.
        locked.swap(0, Ordering::Release);
    }

    let lock = Arc::new(Lock(Word::new_in(0), Cell::new_in(0)));
    let theirs = Arc::clone(&lock);
    let thread = Model::spawn(Placement::Anywhere, move || increment(&theirs));
    increment(&lock);
    thread.expect("there is room for two threads").join();
}

#[test]
fn missing_orderings_of_read_modify_writes_are_races() {
    check(swap_lock);
    assert_race(Plant::RELAXED_RMWS, swap_lock);
    // The plant is gone with the check that failed.
    check(swap_lock);
}

#[test]
fn missing_fences_are_found() {
    assert_race(Plant::NO_FENCES, order::fences_publish::<Model>);
    let failure = found(Plant::NO_FENCES, order::full_fences_forbid_store_buffering::<Model>);
    assert!(failure.message.contains("neither side saw"), "{failure}");
}

#[test]
fn a_lost_wakeup_is_a_deadlock() {
    let failure = found(Plant::NONE, || {
        beside(
            |word| {
                Model::wake(word, 1);
                word.store(1, Ordering::Release);
            },
            |word| {
                while word.load(Ordering::Acquire) == 0 {
                    Model::park(word, 0, None);
                }
            },
        );
    });
    assert!(failure.message.contains("deadlock"), "{failure}");
}

/// The waiter gives up and says nothing to the writer, which may have written by then.
#[test]
fn a_waiter_that_gives_up_without_an_exchange_is_found() {
    let failure = found(Plant::NONE, || {
        beside(
            |word| word.store(1, Ordering::Relaxed),
            |word| {
                // Relaxed: the word carries nothing but itself.
                let taken = word.wait_until_by(Ordering::Relaxed, Model::now(), |it| it == 1);
                let granted = word.load(Ordering::Relaxed) == 1;
                assert_eq!(taken.is_some(), granted, "granted and not taken");
            },
        );
    });
    assert!(failure.message.contains("granted and not taken"), "{failure}");
}

/// In some executions the write comes first, in others the wait gives up, and a loop around such
/// waits ends.
#[test]
fn a_bounded_wait_has_both_ends() {
    static TRIES: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
    check(|| {
        beside(
            |word| word.store(1, Ordering::Relaxed),
            |word| {
                let wait = || word.wait_until_by(Ordering::Relaxed, Model::now(), |it| it == 1);
                let mut tries = 0;
                while wait().is_none() {
                    tries = 1;
                }
                // Relaxed: executions come one after the other.
                TRIES[tries].store(1, Ordering::Relaxed);
            },
        );
    });
    assert_eq!(TRIES.each_ref().map(|tries| tries.load(Ordering::Relaxed)), [1, 1]);
}

#[test]
fn a_sleeper_that_does_not_look_again_is_found() {
    let failure = found(Plant::NONE, || {
        beside(
            |word| {
                word.store(1, Ordering::Release);
                Model::wake(word, 1);
            },
            |word| {
                Model::park(word, 0, None);
                assert_eq!(word.load(Ordering::Acquire), 1, "woken for no reason");
            },
        );
    });
    assert!(failure.message.contains("woken for no reason"), "{failure}");
}

#[test]
fn bounds_hold() {
    let all = Checker::new().try_check(order::additions_are_never_lost::<Model>);
    let bounded =
        Checker::new().preemption_bound(0).try_check(order::additions_are_never_lost::<Model>);
    assert!(bounded.expect("the law holds") < all.expect("the law holds"));

    let endless =
        || beside(|_| {}, |word| assert_eq!(word.wait_until(Ordering::Relaxed, |_| false), 0));
    let failure = Checker::new().max_branches(50).try_check(endless).expect_err("it never ends");
    assert!(failure.message.contains("maximum number of branches"), "{failure}");
    assert!(failure.to_string().contains("LOOM_MAX_BRANCHES=50"), "{failure}");
}

#[test]
fn statics_are_fresh_in_every_execution() {
    static COUNTER: WorldStatic = WorldStatic::new("model test counter");
    let add = |value| {
        COUNTER.with::<Model, U32, _>(
            || U32::new_in(0),
            |counter| counter.fetch_add(value, Ordering::Relaxed),
        )
    };
    let executions = Checker::new().try_check(move || {
        let other = Model::spawn(Placement::Anywhere, move || add(1));
        add(1);
        other.expect("there is room for two threads").join();
        assert_eq!(add(0), 2);
    });
    assert!(executions.expect("each execution counts for itself") > 1);
}

#[test]
fn threads_start_on_their_spawners_cpu_and_migrate() {
    check(|| {
        let cpu = CpuId::new(2);
        Model::migrate(cpu);
        let thread = Model::spawn(Placement::Anywhere, Model::cpu);
        assert_eq!(thread.expect("there is room for two threads").join(), cpu);

        let (section, indexes) = Model::section(IndexBy::Cpu).expect("the model has CPUs");
        assert_eq!((Model::index(&section), indexes), (2, 4));
        Model::migrate(CpuId::new(3));
        assert_eq!(Model::index(&section), 3);
    });
}

#[test]
fn a_thread_too_many_is_refused() {
    check(|| {
        let spawn = || Model::spawn(Placement::Anywhere, || ());
        let threads: Vec<_> = (0..4).map(|_| spawn().expect("four fit beside the first")).collect();
        assert!(matches!(spawn(), Err(SpawnError::Exhausted(_))));
        threads.into_iter().for_each(JoinHandle::join);
    });
}

/// loom's limit that `model` names: it remembers of a word whose access was the last, and so does
/// not try what came before a load if the same thread exchanges the word behind it.
#[test]
fn a_load_before_an_exchange_hides_interleavings() {
    fn executions(change: fn(&U32)) -> u64 {
        let program = move || {
            let word = Arc::new(U32::new_in(0));
            let theirs = Arc::clone(&word);
            let thread = Model::spawn(Placement::Anywhere, move || change(&theirs)).unwrap();
            // Relaxed, here and below: which values are seen is the question.
            word.load(Ordering::Relaxed);
            thread.join();
        };
        Checker::new().try_check(program).expect("nothing is asserted")
    }
    let added = executions(|word| {
        word.fetch_add(1, Ordering::Relaxed);
    });
    let exchanged = executions(|word| {
        let seen = word.load(Ordering::Relaxed);
        let _ = word.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed);
    });
    assert!(added > 1 && exchanged < added, "{exchanged} executions, and {added} with one access");
}

/// What uses words when it is dropped.
struct User(U32, Cell<u32, Model>);

impl User {
    fn new() -> Self {
        User(U32::new_in(0), Cell::new_in(0))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        Model::fence(Ordering::SeqCst);
        // SAFETY: no other thread has it.
        self.1.with_mut(|count| unsafe { *count += 1 });
        self.0.swap(1, Ordering::AcqRel);
        assert_eq!(self.0.load(Ordering::Acquire), 1);
    }
}

/// What wakes others when it is dropped.
struct Waker(User);

impl Drop for Waker {
    fn drop(&mut self) {
        Model::wake(&self.0.0, 1);
    }
}

#[test]
fn destructors_of_a_failed_execution_do_not_abort_the_process() {
    static SHARED: WorldStatic = WorldStatic::new("what is shared");
    static OWN: WorldLocal = WorldLocal::new("what is a thread's own");
    fn live(word: &U32) {
        let _user = User::new();
        SHARED.with::<Model, User, _>(User::new, |_| ());
        OWN.with::<Model, User, _>(User::new, |_| ());
        word.fetch_add(1, Ordering::Relaxed);
    }
    let failure = found(Plant::NONE, || {
        beside(live, |word| {
            live(word);
            assert_eq!(word.load(Ordering::Relaxed), 1, "planted");
        });
    });
    assert!(failure.message.contains("planted"), "{failure}");
    let failure = found(Plant::NONE, || {
        beside(live, |word| {
            let _waker = Waker(User::new());
            live(word);
            let seen = word.load(Ordering::Relaxed);
            // It wakes by itself once.
            while Model::park(word, seen, None) == Parked::Woken {}
        });
    });
    assert!(failure.message.contains("deadlock"), "{failure}");
}
