//! The laws where one step follows the other: any steps, on small machines.

use coreline::cid::Policy;

use super::process::{Dice, ForEach, Process, machine};

const SEEDS: u64 = 300;
const STEPS: usize = 300;

/// A process after steps that a seed says.
fn any_steps<P: Policy>(dice: &mut Dice, leave: bool, roam: bool) -> Process<P> {
    let (caches, cores) = (1 + dice.below(3) as u32, 1 + dice.below(4) as u32);
    let mut process = Process::<P>::on(&machine(caches, cores));
    (0..STEPS).for_each(|_| process.step(dice, leave, roam));
    process
}

/// The process checks at each step that holders are alone and that IDs are in their bounds.
struct AnySteps;

impl ForEach for AnySteps {
    fn run<P: Policy>(&mut self) {
        for seed in 0..SEEDS {
            any_steps::<P>(&mut Dice(seed), true, true);
        }
    }
}

#[test]
fn holders_are_alone_and_ids_in_their_bounds() {
    AnySteps.each();
}

/// After all but a few have left and the expiry has passed, they have the few IDs.
struct Shrinks;

impl ForEach for Shrinks {
    fn run<P: Policy>(&mut self) {
        for seed in 0..SEEDS {
            let mut dice = Dice(seed);
            let mut process = any_steps::<P>(&mut dice, true, true);
            let left = 1 + dice.below(3) as usize;
            let left = left.min(process.cpus());
            process.shrink_to(left);
            assert_eq!(process.users(), left);
            let taken = process.taken();
            assert!(taken <= left, "{} of seed {seed}: {taken} IDs, {left} users", P::NAME);
        }
    }
}

#[test]
fn ids_shrink_back_when_users_leave() {
    Shrinks.each();
}
