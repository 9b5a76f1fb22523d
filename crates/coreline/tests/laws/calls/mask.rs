//! The law of masks: a bit that was set before a look, and was not cleared, is found.
//!
//! "Before" by way of fences: a CPU that sets its bit, passes a fence and then does not see what
//! the looker published before its own fence, is found.

use std::sync::Arc;

use coreline::CpuMask;
use coreline::mask::{MaskError, MaskLayout};
use coreline_sim::{Faults, Machine, Sim, Transfers};
use coreline_topology::{CpuId, MAX_CPUS, Shape, Topology};
use coreline_world::model::{Model, Plant};
use coreline_world::{
    Cell, JoinHandle, Native, Ordering, Place, Placement, Testbed, Threads, Word,
};

use crate::worlds::{self, Effort, FEW, NATIVE, PREEMPTED, crew, is_caught};

/// An empty mask. Not with the world's layout: where loom makes that, it takes a lock, and then
/// loom does not try what comes of it if a thread that is spawned after that goes first.
fn empty<W: Testbed>() -> CpuMask<W> {
    CpuMask::with_layout_in(&MaskLayout::new(&W::topology()))
}

/// What setters and the looker share.
struct Round<W: Testbed> {
    mask: CpuMask<W>,
    published: W::U32,
}

/// One round: every setter sets its CPU's bit and then looks for what is published; the looker
/// publishes, and then looks for bits. A leaf that has lost its last bit is trimmed meanwhile.
fn found<W: Testbed>(effort: Effort, trims: bool) {
    let cpus: Vec<CpuId> =
        W::topology().cpus().map(|cpu| cpu.id).take(effort.cpus as usize).collect();
    for _ in 0..effort.rounds {
        let round = Arc::new(Round::<W> { mask: empty(), published: W::U32::new_in(0) });
        // The summary names the leaf although it is empty: there is something to trim.
        round.mask.set(cpus[0]).unwrap();
        round.mask.clear(cpus[0]).unwrap();
        let setters = crew::<W, _, _>(effort.threads, |number| {
            let round = Arc::clone(&round);
            let cpu = cpus[number as usize % cpus.len()];
            move || {
                round.mask.set(cpu).unwrap();
                W::fence_light();
                // Relaxed: the fences order it, and that is what is tested.
                (round.published.load(Ordering::Relaxed) == 0).then_some(cpu)
            }
        });
        let trimmer = trims.then(|| {
            let round = Arc::clone(&round);
            W::spawn(Placement::Anywhere, move || round.mask.trim()).unwrap()
        });
        round.published.store(1, Ordering::Relaxed);
        W::fence_all();
        let found = round.mask.snapshot();
        let missed: Vec<_> = setters
            .into_iter()
            .filter_map(JoinHandle::join)
            .filter(|&cpu| !found.contains(cpu))
            .collect();
        assert!(missed.is_empty(), "{missed:?} did not see the looker, which did not see them");
        if let Some(trimmer) = trimmer {
            trimmer.join();
        }
    }
}

#[test]
fn a_set_bit_is_found_natively() {
    found::<Native>(Effort { rounds: 500, ..NATIVE }, true);
}

#[test]
fn a_set_bit_is_found_on_384_simulated_cpus() {
    let law = || found::<Sim>(Effort { threads: 384, rounds: 1, cpus: 384 }, true);
    worlds::simulate("mask::found", "epyc-9654-2s", Faults::default(), law).unwrap();
}

#[test]
fn a_set_bit_is_found_with_two_simulated_threads_to_a_cpu() {
    let law = || found::<Sim>(Effort { rounds: 5, ..FEW }, true);
    worlds::simulate("mask::found", "host-2c", PREEMPTED, law).unwrap();
}

/// Two threads that set one bit, and a looker.
const SETTERS: Effort = Effort { threads: 2, rounds: 1, cpus: 1 };

/// One thread that sets a bit, one that trims, and a looker.
const TRIMMED: Effort = Effort { threads: 1, rounds: 1, cpus: 1 };

#[test]
fn a_set_bit_is_found_in_every_interleaving() {
    worlds::check(|| found::<Model>(SETTERS, false));
    worlds::check(|| found::<Model>(TRIMMED, true));
    worlds::few(|| found::<Model>(SETTERS, true));
}

/// Two set a bit that is cleared in between, and its leaf is trimmed. The one that sets it after
/// the clear is found, though the other may be half way with the same bit.
fn found_after_a_clear<W: Testbed>() {
    let mask = Arc::new(empty::<W>());
    let cpu = mask.cpus().next().unwrap();
    let setter = || {
        let mask = Arc::clone(&mask);
        W::spawn(Placement::Anywhere, move || mask.set(cpu).unwrap()).unwrap()
    };
    let (first, _second) = (setter(), setter());
    let set = mask.set(cpu).unwrap();
    let cleared = mask.clear(cpu).unwrap();
    mask.trim();
    // As there is one clear, a second set of the bit came after it.
    if first.join() && set && cleared {
        assert!(mask.snapshot().contains(cpu), "it was set, and not cleared");
    }
}

#[test]
fn a_bit_that_is_set_again_is_found_in_every_interleaving() {
    worlds::check(found_after_a_clear::<Model>);
}

/// A mask with two words, in its only leaf or in two, and a CPU of each. Both were set and cleared,
/// so that both words say that the summary names their leaf.
fn two_words<W: Testbed>(leaves: u32) -> (Arc<CpuMask<W>>, CpuId, CpuId) {
    let topology = Topology::uniform(Shape {
        caches_per_node: leaves,
        cores_per_cache: 34 - leaves,
        ..Shape::default()
    });
    let mask = CpuMask::<W>::with_layout_in(&MaskLayout::new(&topology.unwrap()));
    let (first, second) = (CpuId::new(0), CpuId::new(32));
    for cpu in [first, second] {
        mask.set(cpu).unwrap();
        mask.clear(cpu).unwrap();
    }
    (Arc::new(mask), first, second)
}

/// What a thread of these laws does with the mask.
type Step = fn(&CpuMask<Model>, CpuId, CpuId);

/// Runs these steps side by side on a mask of two words. What none of them clears and one sets is
/// `kept`: it is found when all are done, also after one more trim.
fn beside(leaves: u32, steps: [Step; 3], kept: fn(CpuId, CpuId) -> [CpuId; 2]) {
    let (mask, first, second) = two_words::<Model>(leaves);
    let [mine, others @ ..] = steps;
    let others = others.map(|step| {
        let mask = Arc::clone(&mask);
        Model::spawn(Placement::Anywhere, move || step(&mask, first, second)).unwrap()
    });
    mine(&mask, first, second);
    others.into_iter().for_each(JoinHandle::join);
    for _ in 0..2 {
        let found = mask.snapshot();
        assert!(kept(first, second).iter().all(|&cpu| found.contains(cpu)), "for ever: {found}");
        mask.trim();
    }
}

/// Sets the bit, and looks for it.
fn set_and_find<W: Testbed>(mask: &CpuMask<W>, cpu: CpuId) {
    mask.set(cpu).unwrap();
    assert!(mask.test(cpu) && mask.snapshot().contains(cpu), "{cpu}, which is set");
}

/// Two threads set bits of one word, or one bit. One that finds the bit set, or the word
/// named, by the other has acquired that the summary names the leaf, and looks without a fence.
fn set_side_by_side<W: Testbed>(mine: usize) {
    let mask = Arc::new(empty::<W>());
    let cpus: Vec<_> = mask.cpus().collect();
    let (theirs, cpu) = (Arc::clone(&mask), cpus[0]);
    let set = move || theirs.set(cpu).map(drop).unwrap();
    let other = W::spawn(Placement::Anywhere, set).unwrap();
    set_and_find(&mask, cpus[mine]);
    other.join();
}

#[test]
fn a_bit_that_another_set_is_found() {
    worlds::check(|| set_side_by_side::<Model>(0));
    worlds::check(|| set_side_by_side::<Model>(1));
    assert!(is_caught(Plant::RELAXED_LOADS, || set_side_by_side::<Model>(0)), "found set");
    assert!(is_caught(Plant::RELAXED_RMWS, || set_side_by_side::<Model>(1)), "found named");
}

/// A way to learn that a bit is set.
type Find<W> = fn(&CpuMask<W>, CpuId) -> bool;

/// All of them.
fn finds<W: Testbed>() -> [Find<W>; 4] {
    [
        |mask, cpu| mask.test(cpu),
        |mask, cpu| mask.snapshot().contains(cpu),
        |mask, cpu| !mask.set(cpu).unwrap(),
        |mask, cpu| mask.clear(cpu).unwrap(),
    ]
}

/// What a thread wrote before it set a bit is visible to one that finds the bit, without a fence;
/// in a word that says already that its leaf is named, or not yet.
fn published_by_a_set<W: Testbed>(named: bool, find: Find<W>) {
    let shared = Arc::new((empty::<W>(), Cell::<u64, W>::new_in(0), W::U32::new_in(0)));
    let (mask, data, done) = &*shared;
    let cpu = mask.cpus().next().unwrap();
    if named {
        mask.set(cpu).unwrap();
        mask.clear(cpu).unwrap();
    }
    let theirs = Arc::clone(&shared);
    let setter = move || {
        let (mask, data, done) = &*theirs;
        // SAFETY: no thread reads it before the bit is set: that is what is tested.
        data.with_mut(|at| unsafe { *at = 1 });
        mask.set(cpu).unwrap();
        done.store(1, Ordering::Relaxed);
    };
    let setter = W::spawn(Placement::Anywhere, setter).unwrap();
    // Relaxed, on both sides: it orders nothing. It makes loom try the setter first, which
    // loads before it writes, so that loom would forget an earlier look.
    done.wait_until(Ordering::Relaxed, |done| done == 1);
    if find(mask, cpu) {
        // SAFETY: the bit was set after the last write: that is what is tested.
        assert_eq!(data.with(|at| unsafe { *at }), 1);
    }
    setter.join();
}

#[test]
fn what_was_written_before_a_set_is_seen_by_who_finds_the_bit() {
    for named in [false, true] {
        for find in finds() {
            worlds::check(move || published_by_a_set::<Model>(named, find));
        }
        for find in finds() {
            let set = move || published_by_a_set::<Model>(named, find);
            assert!(is_caught(Plant::RELAXED_RMWS, set), "of the set, or of the name");
        }
    }
    let [test, snapshot, set, _] = finds();
    for find in [test, snapshot, set] {
        let found = move || published_by_a_set::<Model>(true, find);
        assert!(is_caught(Plant::RELAXED_LOADS, found), "of the look");
    }
}

/// Of two threads that clear a bit one is told that it did.
fn cleared_once<W: Testbed>() {
    let mask = Arc::new(empty::<W>());
    let cpu = mask.cpus().next().unwrap();
    mask.set(cpu).unwrap();
    let theirs = Arc::clone(&mask);
    let other = W::spawn(Placement::Anywhere, move || theirs.clear(cpu).unwrap()).unwrap();
    let mine = mask.clear(cpu).unwrap();
    assert!(mine != other.join(), "both cleared the bit, or neither did");
}

#[test]
fn one_thread_clears_a_bit_in_every_interleaving() {
    worlds::check(cleared_once::<Model>);
}

/// A bit is a lock that is only tried: what its holders do stays in order.
fn held_in_turn<W: Testbed>() {
    let shared = Arc::new((empty::<W>(), Cell::<u64, W>::new_in(0)));
    let cpu = shared.0.cpus().next().unwrap();
    let hold = move |(mask, data): &(CpuMask<W>, Cell<u64, W>)| {
        if mask.set(cpu).unwrap() {
            // SAFETY: one holder at a time: that is what is tested.
            data.with_mut(|at| unsafe { *at += 1 });
            assert!(mask.clear(cpu).unwrap());
        }
    };
    let theirs = Arc::clone(&shared);
    let other = W::spawn(Placement::Anywhere, move || hold(&theirs)).unwrap();
    hold(&shared);
    other.join();
}

#[test]
fn holders_of_a_bit_take_turns() {
    worlds::check(held_in_turn::<Model>);
    assert!(is_caught(Plant::RELAXED_RMWS, held_in_turn::<Model>));
}

/// A look after a set that does not find the bit sees what was done before it was cleared, also if
/// its leaf was trimmed meanwhile, by the looker or by the thread that cleared it.
fn gone<W: Testbed>(own_trim: bool, is_gone: Find<W>) {
    let shared = Arc::new((empty::<W>(), Cell::<u64, W>::new_in(0), W::U32::new_in(0)));
    let (mask, data, done) = &*shared;
    let cpu = mask.cpus().next().unwrap();
    mask.set(cpu).unwrap();
    let theirs = Arc::clone(&shared);
    let clearer = move || {
        let (mask, data, done) = &*theirs;
        // SAFETY: no thread reads it while the bit is set: that is what is tested.
        data.with_mut(|at| unsafe { *at = 1 });
        mask.clear(cpu).unwrap();
        if !own_trim {
            mask.trim();
        }
        done.store(1, Ordering::Relaxed);
    };
    let clearer = W::spawn(Placement::Anywhere, clearer).unwrap();
    // Relaxed, on both sides: as in `published_by_a_set`.
    done.wait_until(Ordering::Relaxed, |done| done == 1);
    if own_trim {
        mask.trim();
    }
    if is_gone(mask, cpu) {
        // SAFETY: the bit was cleared after the last write: that is what is tested.
        assert_eq!(data.with(|at| unsafe { *at }), 1);
    }
    clearer.join();
}

#[test]
fn what_was_done_before_a_clear_is_seen_by_who_misses_the_bit() {
    fn is_empty<W: Testbed>(mask: &CpuMask<W>, _: CpuId) -> bool {
        mask.is_empty()
    }
    for own_trim in [true, false] {
        worlds::check(move || gone::<Model>(own_trim, is_empty));
        worlds::check(move || gone::<Model>(own_trim, |mask, cpu| !mask.test(cpu)));
        let clear = move || gone::<Model>(own_trim, is_empty);
        assert!(is_caught(Plant::RELAXED_RMWS, clear), "of the clear, or of the trim");
    }
    assert!(is_caught(Plant::RELAXED_LOADS, || gone::<Model>(false, is_empty)), "of the look");
}

/// Each word of a leaf says for itself that the leaf is named, and the trim puts back the leaf.
#[test]
fn bits_of_two_words_of_a_trimmed_leaf_are_found_in_every_interleaving() {
    let first: Step = |mask, first, _| set_and_find(mask, first);
    let second: Step = |mask, _, second| set_and_find(mask, second);
    worlds::check(move || beside(1, [first, second, |mask, _, _| mask.trim()], |a, b| [a, b]));
}

/// Two leaves of one word of the summary: the trim puts back each that has a bit.
#[test]
fn bits_of_two_trimmed_leaves_are_found() {
    let first: Step = |mask, first, _| set_and_find(mask, first);
    let second: Step = |mask, _, second| set_and_find(mask, second);
    worlds::few(move || beside(2, [first, second, |mask, _, _| mask.trim()], |a, b| [a, b]));
}

#[test]
fn a_bit_is_found_beside_two_trims_in_every_interleaving() {
    let trim: Step = |mask, _, _| mask.trim();
    let set: Step = |mask, first, _| set_and_find(mask, first);
    worlds::fewest_planted(Plant::NONE, move || beside(1, [trim, trim, set], |a, _| [a, a]));
}

#[test]
fn a_missing_fence_is_caught() {
    assert!(is_caught(Plant::NO_LIGHT_FENCES, || found::<Model>(SETTERS, false)));
    assert!(is_caught(Plant::NO_HEAVY_FENCES, || found::<Model>(TRIMMED, false)));
    assert!(is_caught(Plant::RELAXED_RMWS, || found::<Model>(TRIMMED, true)), "of the trim");
}

/// What a mask says, in the order of a program's life.
fn says<W: Testbed>() {
    let mask = empty::<W>();
    let cpus: Vec<_> = mask.cpus().collect();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    assert!(mask.is_empty() && !mask.test(first));
    assert_eq!(mask.first_zero(), Some(first));
    assert_eq!((mask.set(first), mask.set(first)), (Ok(true), Ok(false)));
    assert_eq!(mask.test_and_set(last), Ok(first == last));
    assert_eq!(
        mask.iter().collect::<Vec<_>>(),
        if first == last { vec![first] } else { vec![first, last] }
    );
    let other = empty::<W>();
    assert_eq!(mask.union(&other), mask.snapshot());
    assert_eq!((mask.clear(first), mask.clear(first)), (Ok(true), Ok(false)));
    mask.trim();
    assert_eq!(mask.weight(), usize::from(first != last));
    for cpu in &cpus {
        mask.set(*cpu).unwrap();
    }
    assert_eq!((mask.weight(), mask.first_zero()), (cpus.len(), None));
    assert_eq!(mask.snapshot(), W::topology().set());
    let error = mask.set(CpuId::new(1 << 15)).unwrap_err().to_string();
    assert!(error.contains("cpu 32768"), "{error}");
    assert!(error.contains(&format!("lists the {} CPUs", cpus.len())), "{error}");
    assert!(mask.clear(CpuId::new(u32::MAX)).is_err());
    assert!(!mask.test(CpuId::new(1 << 15)));
}

#[test]
fn a_mask_says_what_was_set_in_every_world() {
    says::<Native>();
    for machine in ["host-2c", "epyc-9654-2s"] {
        worlds::simulate("mask::says", machine, Faults::default(), says::<Sim>).unwrap();
    }
    worlds::check(says::<Model>);
}

#[test]
fn masks_are_as_wide_as_the_tree() {
    let most = MAX_CPUS;
    for (caches, cores) in
        [(1, 1), (1, 63), (1, 64), (1, 65), (1, 257), (48, 8), (512, 8), (1, most), (most, 1)]
    {
        let topology = Topology::uniform(Shape {
            caches_per_node: caches,
            cores_per_cache: cores,
            ..Shape::default()
        })
        .unwrap();
        let layout = MaskLayout::new(&topology);
        assert!(layout.cpus().eq(topology.cpus().map(|cpu| cpu.id)));
        let mask = CpuMask::with_layout(&layout);
        // Each third, so that what is a line, a word or a bit off is seen.
        let some: coreline_topology::CpuSet =
            topology.cpus().map(|cpu| cpu.id).filter(|cpu| cpu.get() % 3 == 0).collect();
        for cpu in some.iter() {
            assert_eq!(mask.set(cpu), Ok(true));
        }
        assert_eq!(mask.snapshot(), some, "{caches} x {cores}");
        some.iter().for_each(|cpu| assert_eq!(mask.clear(cpu), Ok(true)));
        mask.trim();
        assert!(mask.is_empty());
    }
}

/// Neither a number of the tree without a CPU nor one beyond it reaches a bit of another CPU.
#[test]
fn a_cpu_that_is_not_there_has_no_bit() {
    let shape = Shape { caches_per_node: 2, cores_per_cache: 2, ..Shape::default() };
    let topology = Topology::uniform(shape).unwrap().with_limit_at_least(8);
    let mask = CpuMask::with_layout(&MaskLayout::new(&topology));
    for again in [false, true] {
        for absent in (4..=9).chain([u32::MAX]).map(CpuId::new) {
            let none = Err(MaskError::NoSuchCpu { cpu: absent, has: 4 });
            assert_eq!((mask.set(absent), mask.clear(absent)), (none, none), "{absent}");
            assert_eq!((mask.test_and_set(absent), mask.test(absent)), (none, false), "{absent}");
        }
        assert_eq!(mask.weight(), if again { 4 } else { 0 });
        mask.cpus().for_each(|cpu| assert_eq!(mask.set(cpu), Ok(!again)));
    }
}

/// Does this a hundred times on each CPU, with its own bit, which lies on the line of its cache.
/// Returns how often it was true, and how often a line came from another cache.
fn moved(step: fn(&CpuMask<Sim>, CpuId) -> Result<bool, MaskError>) -> (usize, u64) {
    let run = Machine::preset("epyc-9654-2s").unwrap().run(move || {
        let mask = Arc::new(empty::<Sim>());
        let threads: Vec<_> = Sim::topology()
            .cpus()
            .map(|cpu| {
                let (mask, cpu) = (Arc::clone(&mask), cpu.id);
                let again = move || (0..100).filter(|_| step(&mask, cpu).unwrap()).count();
                <Sim as Threads>::spawn(Placement::On(cpu), again).unwrap()
            })
            .collect();
        threads.into_iter().map(JoinHandle::join).sum::<usize>()
    });
    let run = run.unwrap();
    let Transfers { same_cache, same_node, same_socket, other_socket, .. } = run.report.transfers;
    (run.value, same_cache + same_node + same_socket + other_socket)
}

#[test]
fn setting_a_set_bit_or_clearing_a_clear_one_moves_no_line() {
    // Of 38,400 calls each CPU's first may move the line of its cache, and the summary's.
    let (set, moved_by_sets) = moved(CpuMask::set);
    assert!(set == 384 && moved_by_sets < 10_000, "{set} set, {moved_by_sets} moved");
    let (cleared, moved_by_clears) = moved(CpuMask::clear);
    assert!(cleared == 0 && moved_by_clears < 10_000, "{cleared} cleared, {moved_by_clears} moved");
}
