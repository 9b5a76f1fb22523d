//! The laws of pools: items do not overlap, come back, and what is done to them afterwards is
//! found.

use std::alloc::Layout;
use std::ptr::NonNull;

use coreline::cid::Recent;
use coreline::domain::{DomainOptions, Domains, DomainsOptions};
use coreline::percpu::{Fault, Faults, PerCpuPool, PoolError, PoolOptions, Slot, Word64};
use coreline::{IndexBy, PerCpu, PerCpuCounter};
use coreline_sim::{Faults as Disturbances, Machine, Sim};
use coreline_world::model::Model;
use coreline_world::{JoinHandle, Native, Restartable, Testbed, Word};

use crate::worlds::{self, Effort, FEW, MODEL, NATIVE, Numbers, TORN};

/// Items of any layout come and go. None lies where another does, or leaves its slot.
fn items_do_not_overlap<W: Testbed>(options: PoolOptions, rounds: usize, seed: u64) {
    let pool = PerCpuPool::<W>::new_in(options).unwrap();
    let mut numbers = Numbers(seed);
    let mut number = |below| numbers.below(below);
    let mut items: Vec<(NonNull<u8>, Layout)> = Vec::new();
    for _ in 0..rounds {
        if !items.is_empty() && number(3) == 0 {
            let (at, layout) = items.swap_remove(number(items.len()));
            // SAFETY: allocated below, and used by no other thread.
            assert_eq!(unsafe { pool.free(at, layout, 0) }, Ok(()));
            continue;
        }
        let size = match number(4) {
            0 => number(W::STRIDE + 1),
            1 => number(200),
            _ => number(17),
        };
        let layout = Layout::from_size_align(size, 1 << number(13)).unwrap();
        let at = pool.allocate(layout).unwrap();
        assert!(at.addr().get().is_multiple_of(layout.align()), "{layout:?} at {at:?}");
        let slot = |at: usize| at & !(W::STRIDE - 1);
        let end = |at: NonNull<u8>, layout: Layout| at.addr().get() + layout.size().max(1);
        assert_eq!(slot(at.addr().get()), slot(end(at, layout) - 1), "{layout:?} leaves its slot");
        for (other, theirs) in &items {
            let apart =
                end(at, layout) <= other.addr().get() || end(*other, *theirs) <= at.addr().get();
            assert!(apart, "{layout:?} at {at:?} overlaps {theirs:?} at {other:?}");
        }
        items.push((at, layout));
        assert_eq!(pool.live(), items.len());
    }
    let mapped = pool.mapped();
    for (at, layout) in items {
        // SAFETY: allocated above, and used by nothing.
        assert_eq!(unsafe { pool.free(at, layout, 0) }, Ok(()));
    }
    assert_eq!((pool.live(), pool.mapped()), (0, mapped));
    assert_eq!(pool.close(), Ok(()), "nothing was wrong");
}

#[test]
fn items_do_not_overlap_in_every_world() {
    for (seed, options) in
        [PoolOptions::new(), PoolOptions::new().huge_pages(true), PoolOptions::new().checked(true)]
            .into_iter()
            .enumerate()
    {
        items_do_not_overlap::<Native>(options, 1000, seed as u64);
        let law = move || items_do_not_overlap::<Sim>(options, 100, seed as u64);
        worlds::simulate("pool::overlap", "host-2c", Disturbances::default(), law).unwrap();
        worlds::check(move || items_do_not_overlap::<Model>(options, 10, seed as u64));
    }
}

/// Room that came back is found again, before more is mapped: holes, and what they grow into.
fn room_is_found_again<W: Testbed>(chunks: usize) {
    let pool = PerCpuPool::<W>::new_in(PoolOptions::new()).unwrap();
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let take = |size: usize, many: usize| -> Vec<NonNull<u8>> {
        (0..many).map(|_| pool.allocate(layout(size)).unwrap()).collect()
    };
    // SAFETY: allocated here with this layout, and used by nothing.
    let free = |size, at| unsafe { pool.free(at, layout(size), 0).unwrap() };
    let lines = chunks * (W::STRIDE / 64);
    let mut taken = take(64, lines);
    let mapped = pool.mapped();
    for part in 2..5 {
        let (holes, rest): (Vec<_>, Vec<_>) =
            taken.into_iter().enumerate().partition(|(number, _)| number % part == 0);
        let many = holes.len();
        holes.into_iter().for_each(|(_, at)| free(64, at));
        taken = rest.into_iter().map(|(_, at)| at).chain(take(64, many)).collect();
        assert_eq!(pool.mapped(), mapped, "{many} holes of {lines}");
    }
    taken.into_iter().for_each(|at| free(64, at));
    // Holes that are too short for one item of their class are there for the others.
    let mut all = take(W::STRIDE / 32, chunks * 32);
    all.sort_unstable();
    let (holes, mut taken): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(number, _)| number % 2 == 0);
    let holes: Vec<_> = holes.into_iter().map(|(_, at)| at).collect();
    let many = holes.len();
    holes.into_iter().for_each(|at| free(W::STRIDE / 32, at));
    let longer = take(W::STRIDE / 32 * 9 / 8, 1);
    let with_one_more = pool.mapped();
    taken.extend(take(W::STRIDE / 32, many).into_iter().map(|at| (0, at)));
    assert_eq!(pool.mapped(), with_one_more, "{many} holes");
    taken.into_iter().for_each(|(_, at)| free(W::STRIDE / 32, at));
    longer.into_iter().for_each(|at| free(W::STRIDE / 32 * 9 / 8, at));
    let mapped = pool.mapped();
    for size in [W::STRIDE, W::STRIDE / 2, 192, 8, W::STRIDE] {
        let whole = take(size, chunks * (W::STRIDE / size));
        assert_eq!(pool.mapped(), mapped, "items of {size} bytes");
        whole.into_iter().for_each(|at| free(size, at));
    }
}

#[test]
fn room_is_found_again_in_every_world() {
    room_is_found_again::<Native>(8);
    let law = || room_is_found_again::<Sim>(3);
    worlds::simulate("pool::room", "host-2c", Disturbances::default(), law).unwrap();
}

/// Threads make words, use them and drop them, all from one pool, and trim it in between.
fn items_come_and_go<W: Testbed>(effort: Effort, options: PoolOptions) {
    let pool = PerCpuPool::<W>::new_in(options).unwrap();
    let threads = effort.crew::<W, _, _>(|_| {
        let pool = pool.clone();
        let visit = move |round: u32| {
            let words = pool.per_cpu(|| W::U64::new_in(0)).unwrap();
            let word = words.field(|word| word);
            (0..=round % 3).for_each(|_| word.add(5));
            assert_eq!(word.sum(), 5 * u64::from(round % 3 + 1), "somebody else's additions");
            drop(words);
            if round.is_multiple_of(2) {
                pool.trim();
            }
        };
        move || (0..effort.rounds).for_each(visit)
    });
    threads.into_iter().for_each(JoinHandle::join);
    let faults = pool.faults();
    pool.trim();
    assert_eq!((pool.live(), pool.mapped(), faults), (0, 0, vec![]));
    assert_eq!(pool.close(), Ok(()), "nothing was wrong");
}

#[test]
fn items_come_and_go_natively() {
    let effort = Effort { rounds: NATIVE.rounds / 10, ..NATIVE };
    items_come_and_go::<Native>(effort, PoolOptions::new());
    items_come_and_go::<Native>(effort, PoolOptions::new().huge_pages(true));
    items_come_and_go::<Native>(effort, PoolOptions::new().checked(true));
}

#[test]
fn items_come_and_go_when_simulated() {
    let law = || items_come_and_go::<Sim>(FEW, PoolOptions::new());
    worlds::simulate("pool::come_and_go", "host-2c", TORN, law).unwrap();
    let law = || {
        let options = PoolOptions::new().checked(true).index_by(IndexBy::KernelCid);
        items_come_and_go::<Sim>(FEW, options);
    };
    worlds::simulate("pool::come_and_go_checked", "host-2c", TORN, law).unwrap();
}

#[test]
fn items_come_and_go_in_every_interleaving() {
    let effort = Effort { threads: 1, ..MODEL };
    worlds::check(move || items_come_and_go::<Model>(effort, PoolOptions::new()));
}

/// Many small items share a chunk, and what was freed is handed out again.
fn memory_is_used_again<W: Testbed>() {
    let pool = PerCpuPool::<W>::new_in(PoolOptions::new()).unwrap();
    let words = || PerCpu::<W::U64, W>::words_of(&pool);
    let first: Vec<_> = (0..W::STRIDE / 8).map(|_| words()).collect();
    let mapped = pool.mapped();
    let more = words();
    assert_eq!(pool.live(), first.len() + 1);
    assert!(pool.mapped() > mapped, "one stride holds no more words than that");
    let mapped = pool.mapped();
    drop(first);
    assert_eq!(pool.live(), 1);
    let again: Vec<_> = (0..W::STRIDE / 8).map(|_| words()).collect();
    assert_eq!(pool.mapped(), mapped, "more was mapped though there is room");
    // A value keeps its pool alive.
    assert_eq!(pool.clone().close(), Err(Faults(vec![Fault::Leaked { count: again.len() + 1 }])));
    drop((pool, again));
    more.field(|word| word).add(3);
    assert_eq!(more.field(|word| word).sum(), 3);
}

/// Words from a pool.
trait WordsOf<W: Testbed> {
    fn words_of(pool: &PerCpuPool<W>) -> PerCpu<W::U64, W>;
}

impl<W: Testbed> WordsOf<W> for PerCpu<W::U64, W> {
    fn words_of(pool: &PerCpuPool<W>) -> PerCpu<W::U64, W> {
        pool.per_cpu(|| W::U64::new_in(0)).unwrap()
    }
}

#[test]
fn memory_is_used_again_in_every_world() {
    memory_is_used_again::<Native>();
    let law = memory_is_used_again::<Sim>;
    worlds::simulate("pool::used_again", "host-2c", Disturbances::default(), law).unwrap();
}

/// Chunks without a value are unmapped, and others stay as they are.
fn memory_goes_back<W: Testbed>(checked: bool) {
    let pool = PerCpuPool::<W>::new_in(PoolOptions::new().checked(checked)).unwrap();
    assert_eq!(pool.trim(), 0, "nothing is mapped");
    let half = Layout::from_size_align(W::STRIDE / 2, 8).unwrap();
    let take = || pool.allocate(half).unwrap();
    let first: Vec<_> = [(); 8].map(|()| take()).into();
    let mapped = pool.mapped();
    assert_eq!(pool.trim(), 0, "all of it is in use");
    let words = PerCpu::<W::U64, W>::words_of(&pool);
    words.add(1);
    assert!(pool.mapped() > mapped);
    // One half of the second chunk stays.
    // SAFETY: allocated above, and used by nothing.
    let free = |at| unsafe { pool.free(at, half, 0) };
    let kept = first[3];
    first.iter().filter(|at| **at != kept).for_each(|at| free(*at).unwrap());
    if checked {
        assert_eq!(pool.trim(), 0, "what is watched is not free");
        assert_eq!(pool.faults(), []);
    }
    let before = pool.mapped();
    assert_eq!(pool.trim(), before / 5 * 3);
    assert_eq!((pool.mapped(), pool.live()), (before / 5 * 2, 2));
    assert_eq!(pool.trim(), 0);
    words.add(1);
    assert_eq!(words.sum(), 2, "a value of a chunk that stays");
    if checked {
        let freed = first[7].addr().get();
        let twice = Fault::FreedTwice { at: freed, size: half.size() };
        assert_eq!(free(first[7]), Err(twice.clone()), "its chunk is gone");
        assert_eq!(pool.faults(), [twice]);
    }
    // The room beside what stayed is found before more is mapped.
    let again = [take(), take()];
    assert_eq!(pool.mapped(), before / 5 * 2);
    again.into_iter().chain([kept]).for_each(|at| free(at).unwrap());
    drop(words);
    assert_eq!(pool.faults(), []);
    let mapped = pool.mapped();
    assert_eq!((pool.trim(), pool.mapped()), (mapped, 0));
    let again = take();
    assert_eq!(pool.mapped(), before / 5);
    free(again).unwrap();
    assert_eq!(pool.close(), Ok(()));
}

#[test]
fn memory_goes_back_in_every_world() {
    for checked in [false, true] {
        memory_goes_back::<Native>(checked);
        let law = move || memory_goes_back::<Sim>(checked);
        worlds::simulate("pool::goes_back", "host-2c", Disturbances::default(), law).unwrap();
        worlds::check(move || memory_goes_back::<Model>(checked));
    }
}

/// As many as a server has, in rounds: what is mapped does not grow, and goes back.
#[test]
fn a_hundred_thousand_domains_leave_nothing_mapped_natively() {
    let domains = Domains::<Recent>::new_in(DomainsOptions::new()).unwrap();
    let pool = domains.pool();
    let mut most = Vec::new();
    for _ in 0..10 {
        let all: Vec<_> = (0..10_000u64)
            .map(|number| {
                let domain = domains.domain(DomainOptions::new());
                let words = domain.local(|| Words([0; 3].map(Word64::new))).unwrap();
                words.field(|words| &words.0[2]).add(number);
                drop(domain.lease().unwrap());
                (domain, words)
            })
            .collect();
        for (number, (_, words)) in all.iter().enumerate() {
            assert_eq!(words.field(|words| &words.0[2]).sum(), number as u64);
        }
        assert_eq!(pool.live(), 20_000);
        most.push(pool.mapped());
        drop(all);
        assert_eq!((pool.live(), pool.trim()), (0, *most.last().unwrap()));
        assert_eq!(pool.mapped(), 0);
    }
    assert!(most.iter().all(|mapped| *mapped == most[0]), "{most:?}");
}

/// Three words: no power of two.
struct Words([Word64; 3]);

// SAFETY: words, each in the same place in every value.
unsafe impl Slot for Words {}

/// More than fits into a slot, and nothing at all.
struct Sized<const N: usize>([u8; N]);

// SAFETY: it lends no reference to anything inside of itself.
unsafe impl<const N: usize> Slot for Sized<N> {}

#[repr(align(131072))]
struct Aligned;

// SAFETY: it lends no reference to anything inside of itself.
unsafe impl Slot for Aligned {}

#[test]
fn what_does_not_fit_is_refused_with_its_size_natively() {
    const STRIDE: usize = <Native as Restartable>::STRIDE;
    let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
    let error = pool.per_cpu(|| Sized([0; STRIDE + 1])).unwrap_err();
    assert_eq!(error, PoolError::TooLarge { size: STRIDE + 1, align: 1, stride: STRIDE });
    assert!(error.to_string().contains("keep a pointer there"), "{error}");
    assert!(matches!(pool.per_cpu(|| Aligned), Err(PoolError::TooLarge { align: 131_072, .. })));
    assert_eq!((pool.live(), pool.mapped()), (0, 0), "nothing was done");

    let whole = pool.per_cpu(|| Sized([7; STRIDE])).unwrap();
    assert!(whole.shared().0.iter().all(|byte| *byte == 7));
    let nothing = pool.per_cpu(|| Sized([])).unwrap();
    assert_eq!((nothing.shared().0.len(), pool.live()), (0, 2));
    drop((whole, nothing));
    assert_eq!(pool.close(), Ok(()));
}

/// The global pool is one for the world, and the next machine has another.
fn global_pool_is_fresh<W: Testbed>() {
    let pool = PerCpuPool::<W>::global_in(IndexBy::Cpu).unwrap();
    assert_eq!((pool.live(), pool.mapped()), (0, 0), "another machine's");
    let words = PerCpu::<W::U64, W>::new_in(IndexBy::Cpu, || W::U64::new_in(0)).unwrap();
    let counter = PerCpuCounter::<W>::new_in(IndexBy::Cpu).unwrap();
    assert_eq!(pool.live(), 1, "a counter is compact at first");
    (0..256).for_each(|_| counter.add(1));
    assert_eq!((pool.live(), counter.is_spread()), (2, true));
    drop((words, counter));
    assert_eq!(PerCpuPool::<W>::global_in(IndexBy::Cpu).unwrap().live(), 0);
}

#[test]
fn the_global_pool_is_fresh_on_each_machine() {
    let law = global_pool_is_fresh::<Sim>;
    worlds::simulate("pool::global", "host-2c", Disturbances::default(), law).unwrap();
}

/// Everything that the checked mode is for, each in a pool of its own; `populated` slots are used.
fn mistakes_are_found<W: Testbed>() {
    let checked = || PerCpuPool::<W>::new_in(PoolOptions::new().checked(true)).unwrap();
    let layout = Layout::new::<[u64; 3]>();

    // Written after free: in slot 0, and in the shared slot; reported once.
    let indexes = PerCpu::<W::U64, W>::words_of(&checked()).indexes();
    for slot in [0, indexes] {
        let pool = checked();
        let _before = pool.allocate(Layout::new::<u64>()).unwrap();
        let at = pool.allocate(layout).unwrap();
        // SAFETY: in the slot's 24 bytes, which are this function's, and no other's when freed.
        unsafe {
            pool.free(at, layout, 1).unwrap();
            at.byte_add(slot * W::STRIDE + 17).write(0xaa);
        }
        let begin = at.addr().get() & (W::STRIDE - 1);
        let fault = Fault::WrittenAfterFree { slot, offset: begin + 17, found: 0xaa };
        assert_eq!(pool.faults(), [fault]);
        assert_eq!(pool.faults(), []);
        assert_eq!(pool.close(), Err(Faults(vec![Fault::Leaked { count: 1 }])));
    }

    // Found, too, when it would be handed out again.
    let pool = checked();
    let at = pool.allocate(layout).unwrap();
    // SAFETY: writes to the 24 bytes in slot 0, which no other item has while they are watched.
    unsafe {
        pool.free(at, layout, 1).unwrap();
        at.write(1);
    }
    for _ in 0..1024 {
        let at = pool.allocate(layout).unwrap();
        // SAFETY: just allocated, and used by nothing.
        unsafe { pool.free(at, layout, 1).unwrap() };
    }
    // The first of a chunk, and no longer watched. (The simulator's slots are smaller than all that
    // is watched, so that there are more chunks.)
    let again = pool.allocate(layout).unwrap();
    assert!(again == at || W::STRIDE < 1024 * layout.size(), "{again:?} is not {at:?}");
    // SAFETY: just allocated, and used by nothing else.
    unsafe { pool.free(again, layout, 1).unwrap() };
    let fault = Fault::WrittenAfterFree { slot: 0, offset: 0, found: 1 };
    assert_eq!(pool.close(), Err(Faults(vec![fault])));

    // Freed twice: at once, with nothing done; also what was never allocated.
    for pool in [checked(), PerCpuPool::<W>::new_in(PoolOptions::new()).unwrap()] {
        let at = pool.allocate(layout).unwrap();
        let twice = Fault::FreedTwice { at: at.addr().get(), size: layout.size() };
        // SAFETY: no thread uses the bytes.
        unsafe {
            assert_eq!(pool.free(at, layout, 1), Ok(()));
            assert_eq!(pool.free(at, layout, 1), Err(twice.clone()));
            assert!(pool.free(at.byte_add(8), layout, 1).is_err());
        }
        assert_eq!(pool.live(), 0);
        let found = pool.close().map_err(|faults| faults.0.len());
        assert!(found == Err(2) || found == Ok(()), "{found:?}");
    }

    // Leaked.
    let pool = checked();
    std::mem::forget(PerCpu::<W::U64, W>::words_of(&pool));
    let faults = pool.close().unwrap_err();
    assert_eq!(faults.0, [Fault::Leaked { count: 1 }]);
    assert!(faults.to_string().contains("not dropped before the pool was closed"), "{faults}");
}

#[test]
fn mistakes_are_found_natively_and_on_a_machine() {
    mistakes_are_found::<Native>();
    let law = mistakes_are_found::<Sim>;
    worlds::simulate("pool::mistakes", "host-2c", Disturbances::default(), law).unwrap();
}

/// Where memory lies, and in what pages, changes no result; what could not be had is said.
#[test]
fn what_cannot_be_placed_is_said() {
    let huge = || {
        let pool = PerCpuPool::<Sim>::new_in(PoolOptions::new().huge_pages(true)).unwrap();
        assert_eq!(pool.lacking(), None, "nothing is mapped");
        let words = PerCpu::<<Sim as coreline_world::Words>::U64, Sim>::words_of(&pool);
        words.add(4);
        assert_eq!(words.sum(), 4);
        pool.lacking().unwrap().capability
    };
    let placed = || {
        let pool = PerCpuPool::<Sim>::new_in(PoolOptions::new()).unwrap();
        let _words = PerCpu::<<Sim as coreline_world::Words>::U64, Sim>::words_of(&pool);
        pool.lacking()
    };
    let machine = || Machine::preset("epyc-9654-2s").unwrap();
    assert_eq!(machine().run(huge).unwrap().value, "huge pages");
    assert_eq!(machine().run(placed).unwrap().value, None);
}
