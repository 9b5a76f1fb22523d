//! Which lines of a space a switch brings: none, if its ID is where it was, however often others
//! take the space's lock.

use std::sync::Arc;

use coreline::cid::{CidLayout, CidSpace, Owned, Policy, Recent, Task};
use coreline_sim::{Machine, Sim, Transfers};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::{JoinHandle, Place, Placement, Threads, Time};

const ROUNDS: usize = 300;

const NOW: Time = Time::from_nanos(0);

/// A task is switched in and out where it is; on another CPU, `other` happens in each round. All
/// tasks came before.
fn transfers<P: Policy>(
    other: impl Fn(&CidSpace<P, Sim>, &Task<P, Sim>) + Send + 'static,
) -> Transfers {
    let machine = Machine::preset("epyc-9654-2s").unwrap().step_limit(1_000_000);
    let run = machine.run(|| {
        let space = CidSpace::<P, Sim>::new_in(&CidLayout::new(&Sim::topology()).unwrap());
        let all: CpuSet = "0-383".parse().unwrap();
        let others: Vec<_> = (0..ROUNDS).map(|_| space.user_enter(&all).unwrap()).collect();
        let task = space.user_enter(&all).unwrap();
        let space = Arc::new(space);
        let here = CpuId::new(200);
        let switches = {
            let space = Arc::clone(&space);
            move || {
                for _ in 0..ROUNDS {
                    space.switch_in(NOW, here, &task).unwrap();
                    space.switch_out(NOW, here, &task);
                }
            }
        };
        let switches = Sim::spawn(Placement::On(here), switches).unwrap();
        let others = move || others.iter().for_each(|task| other(&space, task));
        let others = Sim::spawn(Placement::On(FROM), others).unwrap();
        switches.join();
        others.join();
    });
    run.unwrap().report.transfers
}

const FROM: CpuId = CpuId::new(0);

/// A hundred for what each CPU loads at first, of 300 rounds.
fn few(transfers: Transfers) {
    let Transfers { private, same_node, same_socket, other_socket, .. } = transfers;
    let far = same_node + same_socket + other_socket;
    assert!(far < 100 && private > 10 * far, "{transfers:?}");
}

#[test]
fn a_switch_waits_for_no_line_of_those_who_move_references() {
    few(transfers::<Recent>(|space, task| {
        space.switch_in(NOW, FROM, task).unwrap();
        space.switch_out(NOW, FROM, task);
        // Twice the lock.
        space.migrate(NOW, task, FROM, CpuId::new(1)).unwrap();
        space.migrate(NOW, task, CpuId::new(1), FROM).unwrap();
    }));
}

#[test]
fn a_switch_of_a_task_with_an_id_waits_for_no_line_of_those_who_get_one() {
    few(transfers::<Owned>(|space, task| {
        space.switch_in(NOW, FROM, task).unwrap();
        space.switch_out(NOW, FROM, task);
    }));
}
