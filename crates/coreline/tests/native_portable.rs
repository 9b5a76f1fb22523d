//! The table "Where there is no Linux" of the front page: what it says is missing is missing, and
//! nothing else is in it.
#![cfg(feature = "portable")]

use std::alloc::Layout;
use std::any::TypeId;
use std::num::NonZero;
use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Barrier};
use std::thread::available_parallelism;

use coreline::percpu::{PerCpu, PoolError, Word64};
use coreline::{CpuId, IndexBy, Workers};
use coreline_topology::NodeId;
use coreline_world::{
    Fences, JoinHandle, Kick, Memory, Native, Parked, Place, Placement, Restartable, Signals,
    Sleep, Threads,
};

/// Each row of the table, by its first column, and a test of what it says.
const ROWS: [(&str, fn()); 11] = [
    ("restartable sections", sections),
    ("the CPU that a thread runs on", numbers),
    ("threads kept on a CPU", placed),
    ("the machine's tree", tree),
    ("the kernel's concurrency IDs", concurrency_ids),
    ("the futex", sleep),
    ("asymmetric fences, kicks", fences),
    ("memory on a node, huge pages", memory),
    ("signals held off", signals),
    ("memory wiped at a fork", forks),
    ("what the machine has, as `doctor` shows it", probe::is_not_there),
];

#[test]
fn the_table_of_what_is_missing_is_true() {
    let page = include_str!("../src/lib.rs");
    let (_, section) = page.split_once("//! # Where there is no Linux\n").expect("its heading");
    let lines = section.lines().take_while(|line| !line.starts_with("//! # "));
    let rows = lines.filter_map(|line| line.strip_prefix("//! | ")?.split(" | ").next());
    let rows: Vec<_> = rows.filter(|first| *first != "missing").collect();
    assert_eq!(rows, ROWS.map(|(row, _)| row));
    ROWS.iter().for_each(|(_, is_so)| is_so());
}

fn cpus() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

fn sections() {
    let (section, _) = Native::section(IndexBy::Cpu).unwrap();
    assert!(!Native::runs_sections(&section) && !section.is_rseq());
}

fn numbers() {
    let both = Arc::new(Barrier::new(2));
    let numbers = [(); 2].map(|()| {
        let both = Arc::clone(&both);
        let number = move || {
            let first = Native::cpu();
            // Neither gets here before both run.
            both.wait();
            (first, Native::cpu())
        };
        Native::spawn(Placement::On(CpuId::new(0)), number).unwrap()
    });
    assert_eq!(numbers.map(JoinHandle::join), [(CpuId::new(0), CpuId::new(0)); 2]);
    let anywhere = Native::spawn(Placement::Anywhere, Native::cpu).unwrap();
    assert!(anywhere.join().index() < cpus());
}

fn placed() {
    let last = CpuId::new(u32::try_from(cpus()).unwrap() - 1);
    let placed = Native::spawn(Placement::On(last), || (Native::cpu(), cpus())).unwrap().join();
    assert_eq!(placed, (last, cpus()), "it has the number, and the CPUs that all threads have");
    let workers = Workers::new().unwrap();
    assert_eq!(workers.cpus().count(), cpus());
    assert_eq!(workers.call_on(last, cpus).unwrap(), cpus());
}

fn tree() {
    let tree = Native::topology();
    assert_eq!((tree.node_count(), tree.cache_count(), tree.cpu_limit()), (1, 1, cpus()));
}

fn concurrency_ids() {
    assert_eq!(Native::kernel_cid(), None);
    let Err(error) = PerCpu::<Word64>::words(IndexBy::KernelCid) else {
        panic!("there are concurrency IDs");
    };
    let PoolError::Lacking(lacking) = error else { panic!("{error}") };
    assert_eq!(lacking.capability, "kernel concurrency ID");
}

fn sleep() {
    let word = AtomicU32::new(0);
    assert_eq!(Native::park(&word, 1, None), Parked::Changed);
    assert_eq!(Native::wake(&raw const word, 1), 0);
}

fn fences() {
    Native::fence_light();
    assert_eq!(Native::try_fence_all(), Ok(()));
    assert_eq!(Native::fence_restartable(), Ok(()));
    assert_eq!(Native::kick(CpuId::new(u32::MAX)), Ok(()), "nothing runs there to interrupt");
}

fn memory() {
    let layout = Layout::new::<[u8; 4096]>();
    let at = Native::map(layout).unwrap();
    // SAFETY: mapped just now, of this length, and given back once.
    let [placed, huge] = unsafe {
        let placed = Native::place(at, layout.size(), NodeId::new(0));
        let huge = Native::advise_huge(at, layout.size());
        Native::unmap(at, layout);
        [placed, huge].map(|it| it.unwrap_err().capability)
    };
    assert_eq!([placed, huge], ["placement of memory on a node", "huge pages"]);
}

fn signals() {
    assert_eq!(TypeId::of::<<Native as Signals>::Held>(), TypeId::of::<()>());
}

fn forks() {
    assert_eq!(Native::generation().get(), process::id());
}

mod probe {
    /// Has the name of what is not there.
    mod stand_in {
        pub(super) fn probe() {}
    }

    #[allow(
        clippy::wildcard_imports,
        reason = "of two such imports neither goes before the other"
    )]
    use self::stand_in::*;
    #[allow(clippy::wildcard_imports, unused_imports, reason = "and this one has no `probe`")]
    use coreline_world::native::*;

    /// Compiles, as only one of the two has the function.
    pub(super) fn is_not_there() {
        probe();
    }
}
