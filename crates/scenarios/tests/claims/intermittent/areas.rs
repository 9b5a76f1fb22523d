//! That the check of the areas can fail.

use coreline_scenarios::intermittent::areas::Areas;
use coreline_sim::Sim;

use super::simulated;

#[test]
fn the_check_finds_a_lost_increment() {
    let error = simulated(|| {
        let areas = Areas::<Sim>::new(2).unwrap();
        (0..2).for_each(|_| areas.take(0, |increment| increment()).unwrap());
        areas.check(2).unwrap();
        // SAFETY: one thread, and inside of the mapping.
        unsafe { areas.area(1).byte_add(77).write(255) };
        areas.check(2).unwrap_err().to_string()
    });
    assert!(error.contains("byte 77") && error.contains("has 1 increments"), "{error}");
}

#[test]
fn two_threads_at_one_area_are_found() {
    let error = simulated(|| {
        let areas = Areas::<Sim>::new(1).unwrap();
        areas.take(0, |_| assert!(areas.take(0, |_| ()).is_none())).unwrap();
        areas.check(0).unwrap_err().to_string()
    });
    assert!(error.contains("two threads"), "{error}");
}
