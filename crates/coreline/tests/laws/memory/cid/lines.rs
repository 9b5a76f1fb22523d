//! Which lines of a space a switch brings: none, if its ID is where it was, however often others
//! take the space's lock meanwhile.

use std::sync::Arc;

use coreline::cid::{CidLayout, CidSpace, Owned, Policy, Recent, Task};
use coreline_sim::{Machine, Sim};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::{
    JoinHandle, Line, Ordering, Place, Placement, Testbed, Threads, Time, Word, Words,
};

/// How many tasks do something elsewhere.
const OTHERS: u32 = 300;

const HERE: CpuId = CpuId::new(200);
const THERE: CpuId = CpuId::new(0);

const NOW: Time = Time::from_nanos(0);

/// A space that lies anywhere in a line: so that no two words are apart by luck.
#[repr(C)]
struct Shifted<P: Policy, const WORDS: usize> {
    _before: [u64; WORDS],
    space: CidSpace<P, Sim>,
}

fn switch<P: Policy, W: Testbed>(space: &CidSpace<P, W>, cpu: CpuId, task: &Task<P, W>) {
    space.switch_in(NOW, cpu, task).unwrap();
    space.switch_out(NOW, cpu, task);
}

/// One task is switched in and out on one CPU while another CPU does something about each of the
/// others. All came before. Far accesses are few: what the two load at first.
fn law<P: Policy, const WORDS: usize>(other: fn(&CidSpace<P, Sim>, &Task<P, Sim>)) {
    let machine = Machine::preset("epyc-9654-2s").unwrap().step_limit(4_000_000);
    let run = machine.run(move || {
        let space = CidSpace::<P, Sim>::new_in(&CidLayout::new(&Sim::topology()).unwrap());
        let all: CpuSet = "0-383".parse().unwrap();
        let others: Vec<_> = (0..OTHERS).map(|_| space.user_enter(&all).unwrap()).collect();
        let task = space.user_enter(&all).unwrap();
        let space = Arc::new(Shifted { _before: [0; WORDS], space });
        let done = Arc::new(Line(<Sim as Words>::U32::new_in(0)));
        let here = {
            let (space, done) = (Arc::clone(&space), Arc::clone(&done));
            let switches = move || {
                // Relaxed: how many switches there are is no matter.
                while done.load(Ordering::Relaxed) == 0 {
                    switch(&space.space, HERE, &task);
                }
            };
            Sim::spawn(Placement::On(HERE), switches).unwrap()
        };
        let there = move || {
            others.iter().for_each(|task| other(&space.space, task));
            // Relaxed: only the end of the switches hangs on it.
            done.store(1, Ordering::Relaxed);
        };
        Sim::spawn(Placement::On(THERE), there).unwrap().join();
        here.join();
    });
    let transfers = run.unwrap().report.transfers;
    let far = transfers.same_node + transfers.same_socket + transfers.other_socket;
    assert!(far < OTHERS.into(), "{WORDS}: {transfers:?}");
}

fn laws<P: Policy>(other: fn(&CidSpace<P, Sim>, &Task<P, Sim>)) {
    [law::<P, 0>, law::<P, 2>, law::<P, 4>, law::<P, 6>].into_iter().for_each(|law| law(other));
}

#[test]
fn a_switch_waits_for_no_line_of_threads_that_move_references() {
    laws::<Recent>(|space, task| {
        let next = CpuId::new(1);
        switch(space, THERE, task);
        space.migrate(NOW, task, THERE, next).unwrap();
        switch(space, next, task);
        space.migrate(NOW, task, next, THERE).unwrap();
    });
}

#[test]
fn a_switch_of_a_task_with_an_id_waits_for_no_line_of_tasks_that_get_one() {
    laws::<Owned>(|space, task| switch(space, THERE, task));
}
