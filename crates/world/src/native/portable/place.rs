//! Place: a CPU is a number that a thread has, and keeps.
//!
//! std does not tell a thread where it runs, and does not keep a thread on a CPU. So the machine
//! has as many CPUs as [`available_parallelism`] first returned, in one cache of one node. A thread
//! that is [placed](crate::Placement::On) has the number that it was placed on. Any other thread
//! has its own [number](crate::Signals::thread_id) modulo the CPUs. Threads with one number can run
//! at the same time, which no two threads of a real CPU do. Operations on per-CPU memory are atomic
//! here, so this costs time, but loses no update.

use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;
use std::thread::available_parallelism;

use coreline_topology::{Cid, CpuId, CpuSet, MAX_CPUS, Topology};

use crate::native::Native;
use crate::{Place, Signals, SpawnError};

/// The content of [`CPU`] while the thread has no number. No CPU is that high.
const NONE: u32 = u32::MAX;

std::thread_local! {
    /// The number of the calling thread's CPU.
    static CPU: Cell<u32> = const { Cell::new(NONE) };
}

/// The tree of this process; null until it was made. It goes from null to its final value in one
/// exchange.
///
/// Threads that find none at the same time each make one, and the first one's counts. No thread
/// waits for another, nor for itself: making a tree allocates, and the program's allocator may ask
/// for its CPU.
static TREE: AtomicPtr<Arc<Topology>> = AtomicPtr::new(ptr::null_mut());

fn tree() -> &'static Arc<Topology> {
    // Acquire pairs with the release in `make_tree`: without it the tree could be seen unwritten.
    match NonNull::new(TREE.load(Ordering::Acquire)) {
        // SAFETY: once it is there the tree never changes and never goes.
        Some(tree) => unsafe { tree.as_ref() },
        None => make_tree(),
    }
}

#[cold]
fn make_tree() -> &'static Arc<Topology> {
    let cpus = available_parallelism().map_or(1, usize::from);
    let cpus = u32::try_from(cpus).map_or(MAX_CPUS, |cpus| cpus.min(MAX_CPUS));
    let set = (0..cpus).map(CpuId::new).collect();
    let tree = Arc::new(Topology::flat(&set).expect("there is a CPU"));
    let ours = Box::into_raw(Box::new(tree));
    // Release pairs with the acquire in `tree`. Acquire, where another thread was faster.
    match TREE.compare_exchange(ptr::null_mut(), ours, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: made above, and kept for good.
        Ok(_) => unsafe { &*ours },
        Err(theirs) => {
            // SAFETY: made above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(ours) });
            // SAFETY: once it is there the tree never changes and never goes.
            unsafe { &*theirs }
        }
    }
}

/// std knows a number of CPUs, which are all that there are here.
pub(in crate::native) fn allowed_here() -> Option<CpuSet> {
    None
}

/// Gives the calling thread the number of this CPU, if there is such a one.
pub(in crate::native) fn settle(cpu: CpuId) -> Result<(), SpawnError> {
    if tree().cpu(cpu).is_none() {
        return Err(SpawnError::Cpu {
            cpu,
            why: "this machine has only CPUs with lower numbers".to_owned(),
            allowed: format!("CPUs {}", tree().set()),
        });
    }
    CPU.set(cpu.get());
    Ok(())
}

/// Gives the calling thread a number, as it has none.
#[cold]
fn settle_anywhere() -> CpuId {
    // Every machine has it: for the program's allocator, if the tree is yet to be made.
    CPU.set(0);
    let cpus = u32::try_from(tree().cpu_limit()).unwrap_or(NONE);
    // The first thread has number 1, and CPU 0.
    let cpu = (Native::thread_id().get() - 1) % cpus;
    CPU.set(cpu);
    CpuId::new(cpu)
}

impl Place for Native {
    fn topology() -> Arc<Topology> {
        Arc::clone(tree())
    }

    /// The same for all of a thread's life, from the end of the first call on.
    #[inline]
    fn cpu() -> CpuId {
        match CPU.get() {
            NONE => settle_anywhere(),
            cpu => CpuId::new(cpu),
        }
    }

    /// There is none.
    fn kernel_cid() -> Option<Cid> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_share_the_cpus_evenly_and_keep_theirs() {
        let cpus = Native::topology().cpu_limit();
        assert_eq!(cpus, available_parallelism().unwrap().get());
        let ask = || (Native::thread_id().get() as usize, Native::cpu(), Native::cpu());
        for _ in 0..2 * cpus {
            let (number, first, again) = thread::spawn(ask).join().unwrap();
            assert_eq!((first.index(), again), ((number - 1) % cpus, first));
        }
    }
}
