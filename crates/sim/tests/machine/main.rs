//! What the machine promises of itself, and what accesses to its memory cost.

mod calibration;
#[path = "../common/mod.rs"]
mod common;
mod contended;
// Looks at addresses, so it is not in one process with `failures`: machines that fail keep theirs.
mod determinism;
mod distances;
mod memory;
mod overlap;
mod pages;
mod promises;
mod stores;

use std::sync::Arc;

use coreline_sim::{Allocator, Machine, PingPong, Sim};
use coreline_world::{Clock, JoinHandle};

use common::on;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// What a program sees that plays between two CPUs: the nanoseconds of 4,000 ways of a line.
fn ping_pong(machine: Machine, cpus: [u32; 2]) -> u64 {
    let run = machine.run(move || {
        let game = Arc::new(PingPong::<Sim>::new_in());
        let players = [0, 1].map(|player| {
            let game = Arc::clone(&game);
            on(cpus[player as usize], move || {
                game.play(player, 100);
                let start = Sim::now();
                game.play(player, 2000);
                (Sim::now() - start).as_nanos() as u64
            })
        });
        players.map(JoinHandle::join)[0]
    });
    run.unwrap().value
}
