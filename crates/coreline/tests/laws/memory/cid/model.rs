//! The law of holders in every interleaving of two threads: one race each.

use std::time::Duration;

use coreline::cid::{Clustered, FirstFit, Owned, Policy, Recent, Task};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{JoinHandle, Placement, Testbed, Time};

use super::concurrent::{Crowd, Scene};
use crate::worlds::RACE;

/// Two CPUs.
const CROWD: Crowd = Crowd { caches: 1, cores_per_cache: 2, threads: 2, rounds: 1, ms: 0 };

const CPUS: [CpuId; 2] = [CpuId::new(0), CpuId::new(1)];

/// Two tasks are there, and the first has run on CPU 0; then one thread does this with the first
/// task, while the other does that with the second.
fn race<P: Policy, W: Testbed>(
    this: impl FnOnce(&Scene<P, W>, &Task<P, W>) + Send + 'static,
    that: impl FnOnce(&Scene<P, W>, &Task<P, W>),
) {
    // Never dropped: an execution that fails would fail again there, and abort the process.
    let scene: &Scene<P, W> = Box::leak(Box::new(Scene::new_in(CROWD)));
    let all = CpuSet::from_iter(CPUS);
    let [first, second] = [(); 2].map(|()| scene.space.user_enter(&all).unwrap());
    scene.hold(CPUS[0], &first);
    let other = W::spawn(Placement::Anywhere, move || {
        this(scene, &first);
        first
    });
    that(scene, &second);
    for task in [other.unwrap().join(), second] {
        scene.space.user_leave(task).unwrap();
    }
    assert_eq!(scene.space.users(), 0);
    scene.space.expire(Time::from_nanos(0) + Duration::from_secs(1));
    assert_eq!(scene.space.taken().count(), 0);
}

/// Both CPUs look for an ID.
fn looks<P: Policy, W: Testbed>() {
    race::<P, W>(
        |scene, first| {
            scene.space.migrate(scene.now(), first, CPUS[0], CPUS[1]).unwrap();
            scene.hold(CPUS[1], first);
        },
        |scene, second| scene.hold(CPUS[0], second),
    );
}

/// The first task's reference expires while it comes back, and the second gets an ID.
fn expiry<P: Policy, W: Testbed>() {
    race::<P, W>(
        |scene, first| scene.hold(CPUS[0], first),
        |scene, second| {
            scene.space.expire(scene.now() + Duration::from_secs(1));
            scene.hold(CPUS[1], second);
        },
    );
}

/// The first task's reference expires after it has run, and the second, which asks for no lock,
/// gets the ID: only the space's set of IDs says that it is free.
fn expiry_elsewhere<P: Policy, W: Testbed>() {
    race::<P, W>(
        |scene, first| {
            scene.hold(CPUS[0], first);
            scene.space.expire(scene.now() + Duration::from_secs(1));
        },
        |scene, second| scene.hold(CPUS[1], second),
    );
}

/// A third task comes, which is one more than there are IDs: CPUs own them from then on.
fn change_of_mode<W: Testbed>() {
    race::<Owned, W>(
        |scene, first| scene.hold(CPUS[0], first),
        |scene, second| {
            let third = scene.space.user_enter(&CpuSet::from_iter(CPUS)).unwrap();
            scene.hold(CPUS[1], second);
            scene.space.user_leave(third).unwrap();
        },
    );
}

fn checker() -> Checker {
    Checker::new().preemption_bound(3).max_branches(20_000)
}

#[test]
fn ids_have_one_holder_when_two_look_for_one() {
    checker().check(looks::<FirstFit, Model>);
    checker().check(looks::<Recent, Model>);
    checker().check(looks::<Owned, Model>);
    checker().check(looks::<Clustered, Model>);
}

#[test]
fn ids_have_one_holder_when_they_expire() {
    checker().check(expiry::<FirstFit, Model>);
    checker().check(expiry::<Recent, Model>);
    checker().check(expiry::<Owned, Model>);
    checker().check(expiry::<Clustered, Model>);
}

#[test]
fn ids_have_one_holder_when_another_makes_them_expire() {
    checker().check(expiry_elsewhere::<FirstFit, Model>);
    checker().check(expiry_elsewhere::<Recent, Model>);
    checker().check(expiry_elsewhere::<Clustered, Model>);
}

#[test]
fn ids_have_one_holder_when_the_mode_changes() {
    checker().check(change_of_mode::<Model>);
}

#[test]
fn missing_orderings_are_caught() {
    let checker = checker().plant(Plant::RELAXED_RMWS);
    for law in [expiry::<FirstFit, Model>, change_of_mode::<Model>] {
        let failure = checker.try_check(law).unwrap_err();
        assert!(failure.message.contains(RACE), "{failure}");
    }
}
