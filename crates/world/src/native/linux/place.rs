//! Place: the thread's rseq area where there is one, else the kernel's `getcpu`.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::path::Path;
use std::sync::Arc;

use coreline_topology::{
    CacheId, Cid, CpuId, CpuSet, MAX_CPUS, NodeId, SysfsError, Topology, possible_cpus,
};

use crate::Place;
use crate::native::Native;
use crate::native::linux::getcpu::cpu_by_call;
use crate::native::linux::{affinity, rseq};

/// The machine's tree.
pub(super) struct Tree {
    pub(super) topology: Arc<Topology>,
    /// Why the tree is a flat one, where sysfs could not be read.
    pub(super) error: Option<SysfsError>,
    /// The CPUs that the scheduler has and sysfs does not name.
    pub(super) hidden: CpuSet,
}

/// The tree of this process; null until it was read. It goes from null to its final value in one
/// exchange.
///
/// If several threads find none at the same time, each of them reads it, and the result of the
/// first thread is kept. No thread waits for another: a child that is forked meanwhile would wait
/// for a thread that it does not have.
static TREE: AtomicPtr<Tree> = AtomicPtr::new(ptr::null_mut());

/// The machine's tree. The first call reads sysfs.
#[inline]
pub(super) fn tree() -> &'static Tree {
    // Acquire pairs with the release in `read_tree`: without it the tree could be seen unwritten.
    match NonNull::new(TREE.load(Ordering::Acquire)) {
        // SAFETY: once it is there the tree never changes and never goes.
        Some(tree) => unsafe { tree.as_ref() },
        None => read_tree(),
    }
}

#[cold]
fn read_tree() -> &'static Tree {
    let before = usable();
    let (tree, error) = match Topology::from_sysfs(Path::new("/sys")) {
        Ok(tree) => (tree, None),
        Err(error) => (Topology::flat(&before).expect("the caller runs on a CPU"), Some(error)),
    };
    // A CPU that went offline, or came, while sysfs was read is not hidden.
    let after = usable();
    let is_hidden = |cpu: &CpuId| after.contains(*cpu) && tree.cpu(*cpu).is_none();
    let hidden: CpuSet = before.iter().filter(is_hidden).collect();
    let topology = Arc::new(widened(tree.with_cpus(&hidden), limit()));
    let ours = Box::into_raw(Box::new(Tree { topology, error, hidden }));
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

/// The CPUs that the calling thread may use, and those of the process's first thread: the caller
/// may have kept itself to one. Other threads may use others, for which [`widened`] makes room.
fn usable() -> CpuSet {
    let [caller, first] =
        [affinity::allowed(), affinity::of_first()].map(|cpus| cpus.unwrap_or_default());
    let mut cpus: CpuSet = caller.iter().chain(first.iter()).collect();
    if cpus.is_empty() {
        cpus.insert(cpu_by_call());
    }
    cpus
}

/// One more than the highest number that the kernel can give to a CPU; `None` if it does not say.
fn limit() -> Option<usize> {
    let possible = possible_cpus(Path::new("/")).ok()??;
    possible.last().map(|last| last.index() + 1)
}

/// The same machine with room for as many CPUs as the kernel can have: up to `limit`, where that is
/// known.
///
/// Rather some CPU numbers too many than one too few: code that uses [`Place::cpu`] as an index
/// relies on [`Topology::cpu_limit`], and what runs on a CPU beyond it shares one slot with all
/// others. A container may have a sysfs of its own that names as many CPUs as it has shares, from
/// 0 on, whichever CPUs it may use (lxcfs), so what sysfs states is not enough.
fn widened(tree: Topology, limit: Option<usize>) -> Topology {
    match limit {
        Some(limit) => tree.with_limit_at_least(limit),
        None if tree.cpu_limit_is_stated() => tree,
        // Not the C library's count, which it may have to guess.
        None => tree.with_limit_at_least(affinity::width().unwrap_or(MAX_CPUS) as usize),
    }
}

/// One more than the highest number that a CPU of this machine can have.
pub(crate) fn cpu_limit() -> usize {
    tree().topology.cpu_limit()
}

impl Place for Native {
    /// The first call reads sysfs, and allocates. If sysfs cannot be read, one node with one cache
    /// holds the CPUs that the caller may use, and [`probe`](super::probe()) reports why. A CPU
    /// that the caller may use and sysfs does not name is there [as well](Topology::with_cpus), and
    /// the probe names it.
    fn topology() -> Arc<Topology> {
        Arc::clone(&tree().topology)
    }

    /// Async-signal-safe once it was called. If the thread is not registered for rseq, the C
    /// library is asked.
    #[inline]
    fn cpu() -> CpuId {
        rseq::cpu()
    }

    /// As [`cpu`](Native::cpu), but where the C library would have to be asked that is done at each
    /// 64th call of a thread.
    #[inline]
    fn cpu_hint() -> CpuId {
        rseq::cpu_hint()
    }

    /// `None` as well while the calling thread is not registered for rseq. Async-signal-safe once
    /// it was called.
    ///
    /// If the C library registers nothing, the first call runs the self-test of rseq, as the first
    /// per-CPU memory does.
    #[inline]
    fn kernel_cid() -> Option<Cid> {
        rseq::cid()
    }

    fn node() -> NodeId {
        tree().topology.cpu(rseq::cpu()).map_or(NodeId::new(0), |cpu| cpu.node)
    }

    fn cache() -> CacheId {
        tree().topology.cpu(rseq::cpu()).map_or(CacheId::new(0), |cpu| cpu.cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flat_tree_has_the_allowed_cpus_and_room_for_all() {
        let flat = widened(Topology::flat(&usable()).unwrap(), None);
        assert_eq!(flat.set(), usable());
        assert!(flat.cpu_limit() >= cpu_limit(), "{} below {}", flat.cpu_limit(), cpu_limit());
        assert!(flat.cpu_limit_is_stated());
        assert!(flat.cpu(rseq::cpu()).is_some());
        assert_eq!((flat.node_count(), flat.cache_count()), (1, 1));
    }

    #[test]
    fn there_is_room_for_as_many_cpus_as_the_kernel_can_have() {
        let stated = || Topology::flat(&"0-1".parse().unwrap()).unwrap().with_limit_at_least(4);
        let limit = |tree, limit| widened(tree, limit).cpu_limit();
        assert_eq!(limit(stated(), None), 4);
        assert_eq!(limit(stated(), Some(2)), 4);
        assert_eq!(limit(stated(), Some(96)), 96);
        // Of a CPU beyond what was stated follows that the statement is not this kernel's.
        let more = stated().with_cpus(&"17".parse().unwrap());
        assert!(limit(more, None) >= affinity::width().unwrap() as usize);
    }
}
