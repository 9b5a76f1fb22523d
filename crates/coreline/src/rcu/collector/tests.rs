//! What happens while another thread holds the lock of the grace periods.

use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Clock, JoinHandle, Placement, Threads, Word, Words};

use super::*;

fn collector<W: World>(batch: usize) -> Arc<Collector<W>> {
    Arc::new(Collector::new_in(CollectorOptions::new().batch(batch)).expect("memory"))
}

/// With batches of one value, the first of a list is also the last.
#[test]
fn a_reclaimer_is_asked_although_another_thread_holds_the_lock() {
    for batch in [0, 1] {
        let collector = collector::<Native>(batch);
        let reclaimer = collector.reclaimer().unwrap();
        let told = Arc::new(<Native as Words>::U32::new_in(0));
        let tell = Arc::clone(&told);
        let asked = || collector.asked.load(Ordering::Relaxed);
        let held = collector.periods.0.lock();
        let before = asked();
        collector.defer(move || tell.store(1, Ordering::Release));
        assert_ne!(asked(), before, "the reclaimer sleeps, and the value waits");
        drop(held);
        told.wait_until(Ordering::Acquire, |told| told == 1);
        drop(reclaimer);
    }
}

#[test]
fn a_list_has_at_most_two_batches_while_another_thread_holds_the_lock() {
    let law = || {
        let collector = collector::<Sim>(8);
        let held = collector.periods.0.lock();
        let theirs = Arc::clone(&collector);
        let retires = move || (0..100).for_each(|_| theirs.defer(|| ()));
        let writer = Sim::spawn(Placement::On(CpuId::new(1)), retires).expect("a thread");
        Sim::sleep(Duration::from_millis(5));
        assert_eq!(collector.lists.len(), 16);
        drop(held);
        writer.join();
        assert!(collector.pending() < 16, "{} wait", collector.pending());
    };
    Machine::preset("host-2c").expect("a preset").run(law).expect("it ends");
}

/// So that a call takes a bounded time, and the backlog shrinks.
#[test]
fn a_call_frees_two_batches_at_most_and_more_than_it_adds() {
    let law = || {
        let collector = collector::<Sim>(10);
        let section = collector.enter();
        (0..1_000).for_each(|_| collector.defer(|| ()));
        assert_eq!(collector.pending(), 1_000);
        drop(section);
        let mut calls = 0;
        while collector.pending() >= 20 {
            let before = collector.pending();
            collector.defer(|| ());
            let freed = before + 1 - collector.pending();
            assert!(freed <= 20, "{freed} values in one call");
            calls += 1;
            assert!(calls <= 1_100, "{before} values wait");
        }
    };
    Machine::preset("host-2c").expect("a preset").run(law).expect("it ends");
}

/// How long after a section of this length ends what waits for it is freed, by a reclaimer.
fn late(section: Duration) -> Duration {
    let law = move || {
        let collector = collector::<Sim>(1);
        let reclaimer = collector.reclaimer().unwrap();
        let guard = collector.enter();
        collector.defer(|| ());
        Sim::sleep(section);
        drop(guard);
        let begun = Sim::now();
        while collector.pending() > 0 {
            Sim::sleep(Duration::from_micros(10));
        }
        let late = Sim::now() - begun;
        drop(reclaimer);
        late
    };
    Machine::preset("host-2c").expect("a preset").run(law).expect("it ends").value
}

#[test]
fn a_reclaimer_frees_soon_after_short_sections_and_10_ms_after_long_ones() {
    let [short, long] = [Duration::from_micros(200), Duration::from_secs(1)].map(late);
    assert!(short < Duration::from_micros(300), "{short:?} after a short section");
    assert!(long < Duration::from_millis(25), "{long:?} after a long section");
}
