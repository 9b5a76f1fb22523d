//! That tasks move as it is declared.

use coreline_scenarios::tenants::schedule::{Schedule, others};
use coreline_sim::Spec;
use coreline_topology::CpuId;

#[test]
fn every_task_is_polled_once_in_a_round_and_moves_as_declared() {
    const TASKS: usize = 5000;
    let spec = Spec::preset("epyc-9654-2s").unwrap();
    let topology = spec.topology();
    let cpus: Vec<CpuId> = topology.cpus().map(|cpu| cpu.id).collect();
    let schedule = Schedule::new(topology, &cpus, TASKS, 20, 1);
    let places = |round| {
        let mut places = vec![usize::MAX; TASKS];
        for worker in 0..cpus.len() {
            for &task in schedule.tasks(round, worker) {
                assert_eq!(places[task], usize::MAX, "task {task} twice");
                places[task] = worker;
            }
        }
        places
    };
    let mut moves = [0; 3];
    for round in 1..20 {
        for (from, to) in places(round - 1).into_iter().zip(places(round)) {
            assert!(to < cpus.len(), "a task is polled by no worker");
            if from != to {
                let others = others(topology, &cpus, from);
                moves[others.iter().position(|at| at.contains(&to)).unwrap()] += 1;
            }
        }
    }
    let all = moves.iter().sum::<usize>() as f64;
    let share = |part: usize, whole: f64| 100.0 * part as f64 / whole;
    assert!((1.8..2.2).contains(&share(all as usize, 19.0 * TASKS as f64)), "{moves:?}");
    for (moves, declared) in moves.into_iter().zip([75.0, 19.0, 6.0]) {
        assert!((share(moves, all) - declared).abs() < 3.0, "{moves:?} of {all}");
    }
}

#[test]
fn a_worker_without_others_keeps_its_tasks() {
    let spec = Spec::preset("host-2c").unwrap();
    let schedule = Schedule::new(spec.topology(), &[CpuId::new(0)], 300, 5, 1);
    assert!((0..5).all(|round| schedule.tasks(round, 0).len() == 300));
}
