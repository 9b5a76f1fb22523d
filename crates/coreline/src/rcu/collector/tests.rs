//! What happens while another thread holds the lock of the grace periods.

use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Placement, Threads, Word, Words};

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
