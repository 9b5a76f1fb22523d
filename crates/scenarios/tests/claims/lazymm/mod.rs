//! What the model says whatever it costs.

use coreline_scenarios::figures;
use coreline_scenarios::lazymm::{LAZY, RATE};
use coreline_sim::claim::Band;

fn run(tasks: u64) -> [Vec<coreline_sim::claim::Figures>; 3] {
    let program =
        format!("lazymm config=120-thread/4-L3 tasks={tasks} rest=100 variant={{}} window=600");
    let variants = ["refcounted", "slots", "shootdown"];
    figures(Band::quick, "ivybridge-ex-4s", &program, "", variants)
}

#[test]
fn a_core_with_one_pair_idles_in_each_iteration_and_one_with_two_hardly_ever() {
    for (tasks, idles) in [(1, 0.9..=1.1), (30, 0.9..=1.1), (120, 0.0..=0.1), (240, 0.0..=0.1)] {
        for mut numbers in run(tasks) {
            numbers.remove(LAZY).within(idles.clone()).unwrap();
        }
    }
}

#[test]
fn what_each_cpu_has_for_itself_is_as_good_as_nothing_and_a_count_is_not() {
    let [refcounted, slots, shootdown] = run(60).map(|mut numbers| numbers.remove(RATE));
    refcounted.at_most(0.5, &slots).unwrap();
    slots.at_least(0.99, &shootdown).unwrap();
    let [refcounted, slots, _] = run(120).map(|mut numbers| numbers.remove(RATE));
    refcounted.at_least(0.98, &slots).unwrap();
}
