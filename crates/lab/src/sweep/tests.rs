//! Tests of cells, plans and rows.

use core::time::Duration;
use std::collections::BTreeSet;

use coreline_scenarios::ALL;

use super::cell::{Machines, columns};
use super::*;

const FAILS: &str = "coreline-sim/1 machine=host-2c seed=3 request=30 faults=none steps=100 \
                     program=shootdown config=2-core/1-L3 present=1 variant=lazy updates=6";

fn sweep(variants: &str, threads: &str) -> Sweep {
    let spec = format!(
        "{{\"scenario\": \"lockscale\", \"machine\": \"epyc-9654-2s\", \"variant\": {variants}, \
         \"seed\": \"0..100\", \"quick\": true, \"params\": {{\"threads\": {threads}}}}}"
    );
    Sweep::from_json(&spec).unwrap()
}

#[test]
fn the_columns_of_a_scenario_have_different_names() {
    for scenario in ALL {
        let columns = columns(scenario);
        let names: BTreeSet<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), columns.len(), "{}: {columns:?}", scenario.name);
    }
}

/// A run that fails is a row: the sweep goes on, and the row says how to repeat the failure.
#[test]
fn a_failed_cell_is_a_row_with_its_error_and_no_figures() {
    let keys = vec![FAILS.to_owned(), FAILS.replace(" steps=100", "")];
    let task = Task::new(keys, Vec::new(), 1);
    let done = task.run(|| false).unwrap();
    let [failed, good] = &done.rows[..] else { panic!("{done:?}") };
    assert!(failed.error().unwrap().contains("100 steps"), "{failed:?}");
    assert_eq!(failed.key(), Some(FAILS));
    assert_eq!((failed.steps(), failed.value("update_ns").is_null()), (None, true));
    assert!(good.error().is_none() && good.steps() > Some(100), "{good:?}");
    let names = |row: &Row| row.json().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(failed), names(good));
    let recorded = Row::failed(FAILS, "its process ended", &Machines::default()).unwrap();
    assert_eq!(recorded.error(), Some("its process ended"));
}

#[test]
fn a_task_of_another_engine_or_without_its_machine_is_refused() {
    let keys = vec![FAILS.replace("host-2c", "mine@0123456789abcdef")];
    let task = Task::new(keys, Vec::new(), 1);
    let told = task.run(|| false).unwrap_err().to_string();
    assert!(told.contains("pass the machine file"), "{told}");
    let told = Task { engine: "0.0.1".to_owned(), ..task }.run(|| false).unwrap_err().to_string();
    assert!(told.contains("for the engine 0.0.1") && told.contains(ENGINE), "{told}");
}

#[test]
fn a_stopped_task_returns_the_rows_that_it_has() {
    let keys = vec![FAILS.to_owned(); 3];
    let task = Task::new(keys, Vec::new(), 1);
    let asked = core::cell::Cell::new(0);
    let stop = || asked.replace(asked.get() + 1) == 2;
    assert_eq!(task.run(stop).unwrap().rows.len(), 2);
}

/// Until a cell has run, a task is one cell; then as many as take half a second together, or
/// longer if there are so many workers that their driver could not follow.
#[test]
fn tasks_are_packed_by_what_cells_took() {
    let sweep = sweep("[\"fifo\", \"near\"]", "[1, 64, 384]");
    let mut plan = Plan::new(&sweep, |_| false).unwrap();
    assert!(plan.estimate().is_rough);
    let first = plan.next_keys(1).unwrap();
    assert!(first.len() == 1 && first[0].contains("threads=384"), "{first:?}");
    let (steps, rate) = (80_000, Duration::from_nanos(500));
    plan.learn_steps(&first[0], steps);
    plan.learn_time(steps, rate * steps as u32);
    // 40 ms each.
    let next = plan.next_keys(1).unwrap();
    assert_eq!(next.len(), 13);
    assert!(next.iter().all(|key| key.contains("threads=384")), "{next:?}");
    // 40 workers have tasks of a second.
    assert_eq!(plan.next_keys(40).unwrap().len(), 25);
    // No cell of 64 threads has run: each is taken for one of 384 threads, which are the nearest.
    let mut small = Vec::new();
    while let Some(keys) = plan.next_keys(1) {
        if keys.iter().all(|key| key.contains("threads=64 ")) {
            small.push(keys.len());
        }
    }
    assert_eq!(small.first(), Some(&13), "{small:?}");
}

/// Fewer threads may take longer, so that an estimate is far too low: a task ends early, and its
/// other cells run in later tasks.
#[test]
fn cells_of_a_task_that_took_too_long_run_later() {
    let sweep = sweep("[\"fifo\"]", "1");
    let mut plan = Plan::new(&sweep, |_| false).unwrap();
    let first = plan.next_keys(1).unwrap();
    plan.learn_steps(&first[0], 1);
    plan.learn_time(1, Duration::from_micros(1));
    let keys = plan.next_keys(1).unwrap();
    assert_eq!((keys.len(), plan.estimate().cells), (99, 0));
    let done = sweep.task(keys[..2].to_vec(), 1).run(|| false).unwrap();
    plan.learn(keys.clone(), &done.steps(), done.time);
    assert_eq!(plan.estimate().cells, 97);
    assert_eq!(plan.next_keys(1).unwrap()[0], keys[2]);
}

/// A row is found by the text of its key.
#[test]
fn a_key_that_is_written_otherwise_is_refused_with_the_right_form() {
    let told = Cell::parse(&FAILS.replace(" seed=3", "  seed=3")).unwrap_err().to_string();
    assert!(told.contains(&format!("write it as {FAILS}")), "{told}");
}

#[test]
fn an_estimate_is_the_sum_of_its_cells_and_leaves_out_what_is_finished() {
    let sweep = sweep("\"fifo\"", "[1, 64]");
    let key = sweep.keys()[0].clone();
    let plan = Plan::new(&sweep, |finished| finished == key).unwrap();
    let estimate = plan.estimate();
    assert_eq!(estimate.cells, 199);
    let sum: Duration = plan.cells().map(|(_, cell)| cell.time).sum();
    assert_eq!(estimate.time, sum);
    assert!(plan.cells().all(|(cell, _)| cell != key));
}

/// A task may run on two workers, and one of them ends first.
#[test]
fn what_two_workers_wrote_of_one_task_is_in_the_store_once() {
    let sweep = sweep("\"fifo\"", "1");
    let dir = std::env::temp_dir().join(format!("coreline-twice-{}", std::process::id()));
    let mut store = Store::open(&dir, &sweep).unwrap();
    let keys = sweep.keys()[..4].to_vec();
    let workers = store.for_workers().unwrap();
    let write = |count: usize| {
        workers.write(&sweep.task(keys[..count].to_vec(), 1).run(|| false).unwrap()).unwrap()
    };
    let unfinished = || {
        let names = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with(".unfinished-")).count()
    };
    for (count, has) in [(2, 2), (3, 3), (1, 3), (0, 3), (4, 4)] {
        let written = write(count);
        // Another worker wrote it, too, and its answer is lost.
        write(count);
        store.accept(&keys, &written).unwrap();
        assert_eq!(store.rows(&sweep).unwrap().len(), has);
    }
    assert_eq!(unfinished(), 5);
    drop(store);
    // It would refuse a key that is there twice.
    assert_eq!(Store::open(&dir, &sweep).unwrap().rows(&sweep).unwrap().len(), 4);
    assert_eq!(unfinished(), 0);
    let told = workers.write(&TaskRows { rows: Vec::new(), time: Duration::ZERO }).unwrap_err();
    assert!(matches!(told, SweepError::NotShared { .. }), "{told}");
    std::fs::remove_dir_all(&dir).unwrap();
}
