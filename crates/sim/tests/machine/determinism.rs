//! One run, one result: whatever process it is in, and whatever else that does.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::process::Command;

use coreline_sim::atomic::{AtomicU64, Ordering};
use coreline_sim::collections::{HashMap, HashSet};
use coreline_sim::sync::Arc;
use coreline_sim::{Machine, thread};

use crate::common::machine;

fn hash(values: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    values.hash(&mut hasher);
    hasher.finish()
}

/// The stripe of an object, by its address, as lock tables choose it.
fn stripe<T>(object: &T) -> usize {
    let hash = (&raw const *object).addr().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash >> (usize::BITS - 6)
}

/// A program whose result depends on the addresses that it sees, of the heap and of stacks, and on
/// the order of its maps. What it returns has no memory of the machine's, which would keep the
/// place from the next machine until it is dropped.
fn looks_at_addresses() -> (u64, u64) {
    let stripes: Arc<Vec<AtomicU64>> = Arc::new((0..64).map(AtomicU64::new).collect());
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let stripes = Arc::clone(&stripes);
            thread::spawn(move || {
                let (local, heap) = (number, Box::new(number));
                stripes[stripe(&local)].fetch_add(1, Ordering::Relaxed);
                stripes[stripe(&*heap)].fetch_add(1, Ordering::Relaxed);
                let names: HashMap<String, u64> = (0..20).map(|n| (format!("{n}"), n)).collect();
                let order = names.values().map(|&n| stripes[n as usize].load(Ordering::Relaxed));
                let order = hash(order.collect::<Vec<_>>());
                stripes[(order % 64) as usize].fetch_add(1, Ordering::Relaxed);
                (&raw const *heap).addr()
            })
        })
        .collect();
    let boxes: HashSet<usize> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let counts: Vec<u64> = stripes.iter().map(|stripe| stripe.load(Ordering::Relaxed)).collect();
    (hash(counts), hash(boxes.into_iter().collect::<Vec<_>>()))
}

/// All that can be seen of a run.
fn observed(name: &str) -> String {
    let run = machine("epyc-9654-2s", 1).program(name).run(looks_at_addresses).unwrap();
    format!("{:?} {:?}", run.value, run.report)
}

/// Set for a process that only says what it observed.
const CHILD: &str = "CORELINE_TEST_CHILD";

#[test]
fn two_processes_of_other_layouts_give_the_same_bytes() {
    if std::env::var_os(CHILD).is_some() {
        let mut out = std::io::stdout();
        for name in ["one", "two"] {
            writeln!(out, "\nobserved {}", observed(name)).unwrap();
        }
        return;
    }
    let child = |padding: usize| {
        let name = "determinism::two_processes_of_other_layouts_give_the_same_bytes";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .env("PADDING", "x".repeat(padding))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("observed "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = child(0);
    assert_eq!(first.len(), 2, "{first:?}");
    assert_ne!(first[0], first[1], "programs of other names have other addresses");
    for padding in [1, 5_000, 100_000] {
        assert_eq!(child(padding), first);
    }
}

#[test]
fn machines_side_by_side_see_the_addresses_that_each_sees_alone() {
    let names: Vec<String> = (0..8).map(|n| format!("program {}", n / 2)).collect();
    let alone: Vec<String> = names.iter().map(|name| observed(name)).collect();
    let together: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(|| observed(name))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
}

#[test]
fn a_machine_whose_place_is_taken_runs_in_another() {
    let address = || Box::into_raw(Box::new(7)).addr();
    let run = || machine("host-2c", 1).program("leaves a block").run(address).unwrap().value;
    let (first, second) = (run(), run());
    assert_ne!(first, second, "the first block still lives");
    let other: Machine = machine("host-2c", 2).program("leaves a block");
    assert_ne!(other.run(address).unwrap().value, first);
}

#[test]
fn the_check_says_at_which_access_two_runs_part() {
    let machine = || machine("host-2c", 1).program("stores in an order");
    Machine::check_determinism(machine, looks_at_addresses).unwrap();
    let program = |keys: fn() -> Vec<usize>| {
        move || {
            let words: Vec<AtomicU64> = (0..64).map(AtomicU64::new).collect();
            words[7].store(1, Ordering::Relaxed);
            keys().iter().for_each(|&key| _ = words[key].swap(1, Ordering::Relaxed));
        }
    };
    let by_seed = program(|| (0..64).collect::<HashSet<_>>().into_iter().collect());
    Machine::check_determinism(machine, by_seed).unwrap();
    let by_chance =
        program(|| (0..64).collect::<std::collections::HashSet<_>>().into_iter().collect());
    let parted = Machine::check_determinism(machine, by_chance).unwrap_err();
    assert!((1..64).contains(&parted.access), "{parted}");
    let [first, second] = [&parted.first, &parted.second].map(|next| next.clone().unwrap());
    assert_eq!(first.site, second.site);
    assert!(first.address != second.address && first.site.file.ends_with("determinism.rs"));
    assert!(parted.to_string().contains(&format!("{:#x}", first.address)), "{parted}");
    // The same failure twice is no difference.
    Machine::check_determinism(machine, || panic!("always")).unwrap();
}
