//! Laws of slots and of the operations on them, in every world.
//!
//! A law is a program, generic over the world, that panics if it is broken. Laws are small enough
//! for the model, which runs them in every interleaving, and repeat themselves where time runs, so
//! that they are a stress test natively.

mod conservation;
mod in_rows;
mod landing;
mod operations;
mod rows;
mod torn;

use coreline::{IndexBy, PerCpu};
use coreline_sim::{Faults, Sim};
use coreline_world::{Placement, Testbed, Word};

use crate::worlds;

/// A test of each law in each world, and `LAWS`, all of them in the simulator.
macro_rules! laws {
    ($($module:ident::$law:ident,)*) => {
        const LAWS: &[(&str, fn())] =
            &[$((stringify!($law), $module::$law::<Sim>),)*];

        laws!(@world natively, coreline_world::Native, |_, law| law(); $($module::$law,)*);
        laws!(@world simulated_on_two_cpus, coreline_sim::Sim, |name, law| {
            super::simulate("host-2c", name, law);
        }; $($module::$law,)*);
        laws!(@world simulated_on_384_cpus, coreline_sim::Sim, |name, law| {
            super::simulate("epyc-9654-2s", name, law);
        }; $($module::$law,)*);
        laws!(@world in_every_interleaving, coreline_world::model::Model, |name, law| {
            match name {
                // Four threads.
                "no_addition_is_lost" => crate::worlds::few(law),
                _ => crate::worlds::check(law),
            }
        }; $($module::$law,)*);
    };
    (@world $name:ident, $world:ty, $run:expr; $($module:ident::$law:ident,)*) => {
        mod $name {
            $(
                #[test]
                fn $law() {
                    let run: fn(&str, fn()) = $run;
                    run(stringify!($law), super::$module::$law::<$world>);
                }
            )*
        }
    };
}

laws! {
    landing::no_addition_is_lost,
    landing::an_addition_lands_in_the_slot_of_its_cpu,
    landing::a_pointer_shows_what_was_written_before,
    landing::indexes_are_in_bounds,
    rows::no_addition_is_lost_when_indexes_move,
    rows::no_addition_is_lost_when_kicked_cpus_exchange_indexes,
    rows::an_addition_lands_in_the_slot_that_the_row_shows,
    operations::words_compute,
    operations::words_of_32_bits_compute,
    operations::words_of_a_size_compute,
    operations::words_side_by_side_are_apart,
    operations::pointers_are_exchanged,
    operations::stacks_are_bounded_and_last_in_first_out,
    operations::a_condition_on_a_sum_is_never_broken,
    operations::a_store_if_equal_is_never_lost,
    conservation::no_value_is_lost_or_doubled,
    conservation::no_value_is_lost_or_doubled_by_a_resize,
    conservation::no_pointer_is_lost_or_doubled,
    conservation::a_stopped_word_is_its_stoppers,
    conservation::a_stopped_stack_is_its_stoppers,
    conservation::a_stopped_resizable_stack_is_its_stoppers,
    conservation::a_stopped_pointer_is_its_stoppers,
    conservation::a_stopped_slot_of_several_is_its_stoppers,
    conservation::a_stopped_slot_by_cid_is_its_stoppers,
    conservation::a_stop_that_cannot_be_is_refused,
    conservation::a_slot_is_made_once_and_dropped_once,
}

fn simulate(machine: &str, name: &str, law: fn()) {
    let simulated = worlds::simulate_seeds(name, machine, Faults::NONE, 4, law);
    simulated.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn slots_are_conserved_among_96_threads_on_384_simulated_cpus() {
    let law = conservation::a_slot_of_several_is_the_stoppers_of_many::<Sim>;
    worlds::simulate("slots::many", "epyc-9654-2s", Faults::NONE, law).unwrap();
}

#[test]
fn slots_are_made_once_by_384_simulated_threads() {
    let law = conservation::a_slot_is_made_once_by_many::<Sim>;
    worlds::simulate("slots::made_once", "epyc-9654-2s", Faults::NONE, law).unwrap();
}

/// How often a law repeats a race: once where every interleaving is explored anyway.
fn rounds<W: Testbed>() -> u32 {
    if W::RUNS { 2000 } else { 1 }
}

/// A word for each CPU.
fn words<W: Testbed>() -> PerCpu<W::U64, W> {
    PerCpu::new_in(IndexBy::Cpu, || Word::new_in(0))
        .expect("CPUs have numbers, and there is memory")
}

fn spawn<W: Testbed, T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> W::JoinHandle<T> {
    W::spawn(Placement::Anywhere, f).expect("a world has room for a few threads")
}

/// Starts so many threads: by turns on this CPU, on another where there is one, and anywhere.
fn crew<W: Testbed, T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
    size: usize,
    member: impl Fn(usize) -> F,
) -> Vec<W::JoinHandle<T>> {
    let here = W::cpu();
    let machine = W::topology();
    let others: Vec<_> = machine.cpus().map(|cpu| cpu.id).filter(|&cpu| cpu != here).collect();
    let start = |number| {
        let on = |cpu| W::spawn(Placement::On(cpu), member(number)).ok();
        let nth = |nth: usize| others[(number / 3 + nth) % others.len()];
        let placed = match number % 3 {
            0 => on(here),
            1 => (0..others.len()).map(nth).find_map(on),
            _ => None,
        };
        placed.unwrap_or_else(|| spawn::<W, _>(member(number)))
    };
    (0..size).map(start).collect()
}

/// Numbers without a pattern that matters, the same in every run (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % sides
    }
}
