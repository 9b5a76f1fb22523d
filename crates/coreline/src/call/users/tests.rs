//! The law of shootdowns, of one worker that enters, in every interleaving.

use coreline_sim::{Machine, Sim};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Testbed, Threads};

use super::super::policy::Policy;
use super::super::{Builder, Workers};
use super::*;

/// A worker caches something while a thread changes it.
fn enters<W: Testbed>() {
    let cpu = CpuId::new(0);
    let builder: Builder<W> = Workers::builder_in().cpus(CpuSet::from_iter([cpu]));
    let workers = builder.polling(Duration::ZERO).start().unwrap();
    let users = Arc::new(workers.users());
    let words = Arc::new((W::U32::new_in(0), W::U32::new_in(0)));
    let (theirs, seen) = (Arc::clone(&users), Arc::clone(&words));
    let works = move || {
        let (current, told) = &*seen;
        let (using, entry) = theirs.enter().unwrap();
        assert_eq!(entry, Entry::MustRefresh);
        // Relaxed: the entry orders it.
        let cached = current.load(Ordering::Relaxed);
        // Acquire: pairs with the Release below.
        let is_good = cached >= told.load(Ordering::Acquire);
        drop(using);
        is_good
    };
    let works = workers.spawn_on(cpu, works).unwrap();
    let (current, told) = &*words;
    // Relaxed: the shootdown orders it.
    current.store(1, Ordering::Relaxed);
    users.shootdown(|| ()).unwrap();
    // Release: pairs with the Acquire above.
    told.store(1, Ordering::Release);
    assert!(works.wait(), "worked with what is gone");
}

fn checker(plant: Plant) -> Checker {
    Checker::new().preemption_bound(2).plant(plant)
}

#[test]
fn a_worker_that_enters_is_told_or_sees_in_every_interleaving() {
    checker(Plant::EXCHANGES).check(enters::<Model>);
}

/// As [`Plant::EXCHANGES`], without fences.
const UNFENCED: Plant = Plant { fence: Plant::NO_FENCES.fence, ..Plant::EXCHANGES };

#[test]
fn a_missing_fence_is_caught() {
    assert!(checker(UNFENCED).try_check(enters::<Model>).is_err());
}

/// A forked child is refused, also where another thread of its parent was about to clear bits.
#[test]
fn a_child_of_a_fork_does_not_wait_for_a_lock() {
    let program = || {
        let mut shared =
            Shared::<Sim>::new_in(&[CpuId::new(0)], Policy::Notify, Duration::ZERO, usize::MAX);
        shared.generation = shared.generation.checked_add(1).unwrap();
        let users = Users::new(Arc::new(shared));
        let _held = users.trimmed.lock();
        assert_eq!(users.shootdown(|| ()), Err(CallError::Forked));
    };
    Machine::preset("host-2c").unwrap().run(program).unwrap();
}

#[test]
fn a_shootdown_a_second_after_the_last_one_clears_what_workers_left() {
    let law = || {
        let cpu = CpuId::new(0);
        let builder: Builder<Sim> = Workers::builder_in().cpus(CpuSet::from_iter([cpu]));
        let workers = builder.start().unwrap();
        let users = Arc::new(workers.users());
        let shot = || {
            let theirs = Arc::clone(&users);
            workers.call_on(cpu, move || drop(theirs.enter().unwrap())).unwrap();
            users.shootdown(|| ()).unwrap()
        };
        assert_eq!([shot().away, shot().away], [1, 0], "the second one comes too soon");
        Sim::sleep(Users::<Sim>::TRIM_EVERY);
        assert_eq!(shot().away, 1);
    };
    Machine::preset("host-2c").expect("a preset").run(law).expect("it ends");
}
