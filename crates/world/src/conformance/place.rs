//! Laws of place.

use core::alloc::Layout;
use std::sync::Arc;

use coreline_topology::CpuId;

use super::spawn;
use crate::{Integer, JoinHandle, Ordering, Placement, SpawnError, Testbed, Word};

/// Checks that a thread that was placed on a CPU runs on that CPU, and that its node and cache
/// agree with the topology. Every thread must run on a CPU below the limit.
pub fn a_placed_thread_runs_on_its_cpu<W: Testbed>() {
    let machine = W::topology();
    assert!(W::cpu().index() < machine.cpu_limit());
    let anywhere = spawn::<W, _>(W::cpu).join();
    assert!(anywhere.index() < machine.cpu_limit());

    // The process need not be allowed on every CPU of the machine, but on at least one. Three show
    // that the answer is not a constant, and fit the model.
    let placed: Vec<_> = machine
        .cpus()
        .filter_map(|&cpu| {
            let look = || (W::cpu(), W::node(), W::cache());
            match W::spawn(Placement::On(cpu.id), look) {
                Ok(thread) => Some((thread.join(), (cpu.id, cpu.node, cpu.cache))),
                Err(SpawnError::Cpu { cpu: refused, .. }) => {
                    assert_eq!(refused, cpu.id);
                    None
                }
                Err(other) => panic!("{other}"),
            }
        })
        .take(3)
        .collect();
    assert!(!placed.is_empty(), "no CPU of {machine:?} can be had");
    for (found, asked) in placed {
        assert_eq!(found, asked);
    }
}

/// Checks that a CPU that does not exist is refused. The closure must be dropped without running.
pub fn an_impossible_cpu_is_refused<W: Testbed>() {
    let nowhere = CpuId::new(u32::MAX);
    let ran = Arc::new(W::U32::new_in(0));
    let witness = Arc::clone(&ran);
    let spawned = W::spawn(Placement::On(nowhere), move || witness.fetch_add(1, Ordering::Relaxed));
    match spawned.map(JoinHandle::join) {
        Err(SpawnError::Cpu { cpu, allowed, .. }) => {
            assert_eq!(cpu, nowhere);
            assert!(!allowed.is_empty(), "the caller runs somewhere");
        }
        other => panic!("{nowhere} gave {other:?}"),
    }
    assert_eq!(Arc::strong_count(&ran), 1, "the closure was kept");
    assert_eq!(ran.load(Ordering::Relaxed), 0, "the closure ran");
}

/// Checks memory after a part of it was discarded. The discarded part must hold its old content or
/// zeros, and the rest must hold its old content. The memory must be writable again.
pub fn discarded_bytes_are_as_they_were_or_zero<W: Testbed>() {
    const SIZE: usize = 1 << 14;
    let layout = Layout::from_size_align(SIZE, SIZE).expect("a power of two");
    let at = W::map(layout).expect("a test has memory");
    for (begin, len) in [(0, SIZE), (1, SIZE - 2), (SIZE / 2, SIZE / 2), (5, 0)] {
        // SAFETY: mapped above, and no other thread knows it.
        let bytes = unsafe {
            at.write_bytes(7, SIZE);
            W::discard(at.byte_add(begin), len);
            core::slice::from_raw_parts(at.as_ptr(), SIZE)
        };
        for (offset, byte) in bytes.iter().enumerate() {
            let discarded = (begin..begin + len).contains(&offset);
            assert!(*byte == 7 || *byte == 0 && discarded, "byte {offset} is {byte}");
        }
    }
    // SAFETY: mapped above, and not used any more.
    unsafe { W::unmap(at, layout) };
}
