use core::time::Duration;
use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::{Clock, IndexBy, JoinHandle, Placement, Sleep, Threads};

use super::ReadMostly;
use super::raw::SLEEPS;

/// No writer waits for sleeping readers: all of these are woken at each opening, and find the
/// lock closed by the next writer up to eight times before one queues.
#[test]
fn a_reader_queues_with_writers_when_it_has_slept_in_vain_eight_times() {
    let program = || {
        let lock = Arc::new(ReadMostly::<u32, Sim>::new_in(IndexBy::Cpu, 0).expect("memory"));
        let mut written = lock.write().expect("a fence");
        let theirs = Arc::clone(&lock);
        let reader = Sim::spawn(Placement::On(CpuId::new(1)), move || *theirs.read());
        // Each wake is to the reader what one more writer is that was faster.
        let (mut slept, end) = (0, Sim::now() + Duration::from_millis(50));
        while Sim::now() < end {
            slept += Sim::wake(&raw const lock.raw.closed, 1);
            Sim::sleep(Duration::from_micros(50));
        }
        *written = 7;
        drop(written);
        assert_eq!(reader.expect("a thread").join(), 7);
        slept
    };
    let run = Machine::preset("host-2c").expect("a preset").run(program).expect("it ends");
    assert_eq!(run.value, SLEEPS);
}

#[test]
fn a_reader_that_sees_the_lock_closed_is_not_counted() {
    let lock = ReadMostly::new(0).unwrap();
    let written = lock.write().unwrap();
    assert!(lock.try_read().is_none());
    assert_eq!(lock.raw.counts.field(|slot| &slot.came).sum(), 0);
    drop(written);
    assert_eq!(lock.try_read().map(|data| *data), Some(0));
}
