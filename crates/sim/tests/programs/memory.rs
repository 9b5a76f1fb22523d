//! Mistakes with memory: each is a failure with its places, its line brings it back, and the
//! process goes on. The same programs without the mistake run to their end.

use std::hint::black_box;
use std::rc::Rc;

use coreline_sim::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use coreline_sim::sync::Arc;
use coreline_sim::{
    Explore, Failure, FailureKind, Machine, MemoryChecks, MemoryMistake, MemoryUse, Misuse,
    Schedule, search, thread,
};

use crate::replays;

fn host(seed: u64) -> Machine {
    Machine::preset("host-2c").unwrap().seed(seed).step_limit(1_000_000)
}

fn checked() -> Machine {
    host(1).memory(MemoryChecks::On)
}

fn mistake(failure: &Failure) -> &MemoryMistake {
    match &failure.kind {
        FailureKind::Memory(mistake) => mistake,
        _ => panic!("{failure}"),
    }
}

fn mistake_of(machine: Machine, program: impl FnOnce() + 'static) -> MemoryMistake {
    mistake(&machine.run(program).unwrap_err()).clone()
}

/// A box, also where the compiler would do without.
fn made<T>(value: T) -> *mut T {
    black_box(Box::into_raw(Box::new(value)))
}

/// Whether a use of memory has a place in this file.
fn is_here(place: &MemoryUse) -> bool {
    place.site.as_ref().is_some_and(|site| site.file.ends_with("memory.rs"))
}

/// Two owners of a value count down, and then the last one is to free it. One looks at the count
/// again, so both may be the last.
fn both_free(takes_what_it_subtracted: bool) {
    struct Shared {
        owners: AtomicUsize,
        value: AtomicPtr<u64>,
    }

    fn give_up(shared: &Shared, takes_what_it_subtracted: bool) {
        let before = shared.owners.fetch_sub(1, AcqRel);
        let is_last = match takes_what_it_subtracted {
            true => before == 1,
            false => shared.owners.load(Acquire) == 0,
        };
        if is_last {
            // SAFETY: from `into_raw`, if this is the last owner. That is the mistake.
            drop(unsafe { Box::from_raw(shared.value.load(Relaxed)) });
        }
    }

    let value = AtomicPtr::new(made(7));
    let shared = Arc::new(Shared { owners: AtomicUsize::new(2), value });
    let theirs = Arc::clone(&shared);
    let other = thread::spawn(move || give_up(&theirs, takes_what_it_subtracted));
    give_up(&shared, takes_what_it_subtracted);
    other.join().unwrap();
}

#[test]
fn a_double_free_of_two_threads_is_found_with_both_places() {
    let wrong = || both_free(false);
    let machines = || (0..1000).map(|seed| host(seed).schedule(Schedule::Random));
    for failure in
        [search(machines(), wrong).unwrap_err(), Explore::new().run(|| host(1), wrong).unwrap_err()]
    {
        let MemoryMistake { misuse, by, block } = mistake(&failure);
        assert_eq!(*misuse, Misuse::DoubleFree, "{failure}");
        let (by, block) = (by.as_ref().unwrap(), block.as_ref().unwrap());
        let freed = block.freed.as_ref().unwrap();
        assert!(by.thread != freed.thread && block.size == 8, "{failure}");
        for place in [by, &block.allocated, freed] {
            assert!(place.is_exact && is_here(place), "{failure}");
        }
        assert!(failure.to_string().contains("replay: "), "{failure}");
        replays(&failure, wrong);
    }
    let right = || both_free(true);
    assert_eq!(search(machines().take(200), right), Ok(200));
}

#[test]
fn what_is_freed_twice_or_is_no_block_fails_also_by_time() {
    let twice = || {
        let value = made(7_u64);
        // SAFETY: from `into_raw`, the first time.
        unsafe { drop(Box::from_raw(value)) };
        // SAFETY: none: this is the mistake.
        unsafe { drop(Box::from_raw(value)) };
        assert_ne!(made(1_u64), made(2_u64), "two live boxes at one address");
    };
    let inside = || {
        let values = made([7_u64; 8]);
        // SAFETY: none: no block begins in the middle of one.
        unsafe { drop(Box::from_raw(&raw mut (*values)[2])) };
    };
    let on_stack = || {
        let mut value = 7_u64;
        // SAFETY: none: it is no box.
        unsafe { drop(Box::from_raw(black_box(&raw mut value))) };
    };
    for machine in [host, |seed| host(seed).schedule(Schedule::Random)] {
        let misuse = |program: fn()| {
            let mistake = mistake_of(machine(1), program);
            assert!(is_here(mistake.by.as_ref().unwrap()), "{mistake}");
            mistake.misuse
        };
        assert_eq!(misuse(twice), Misuse::DoubleFree);
        assert_eq!(misuse(inside), Misuse::InvalidFree { on_stack: false });
        assert_eq!(misuse(on_stack), Misuse::InvalidFree { on_stack: true });
        // The next machine runs.
        assert_eq!(machine(1).run(|| 7).unwrap().value, 7);
    }
}

#[test]
fn a_use_after_a_free_is_found_at_its_place() {
    let program = || {
        let words = made([const { AtomicU64::new(0) }; 4]);
        // SAFETY: from `into_raw`, and used no more but by mistake.
        let word = unsafe { &(*words)[1] };
        word.store(1, Relaxed);
        // SAFETY: from `into_raw`.
        drop(unsafe { Box::from_raw(words) });
        word.load(Relaxed);
    };
    let found = mistake_of(checked(), program);
    assert_eq!(found.misuse, Misuse::UseAfterFree { offset: 8 });
    let (by, block) = (found.by.unwrap(), found.block.unwrap());
    assert!(by.is_exact && is_here(&by), "{by}");
    assert_eq!(block.size, 32);
    let freed = block.freed.unwrap();
    assert!(is_here(&freed) && !freed.is_exact && freed.to_string().contains("after its access"));
    let traced = mistake_of(host(1).memory(MemoryChecks::Traced), program).block.unwrap();
    let places = [&traced.allocated, traced.freed.as_ref().unwrap()];
    assert!(places.iter().all(|place| place.is_exact && is_here(place)), "{traced}");
}

#[test]
fn an_access_behind_a_block_and_a_wrong_size_are_found() {
    let behind = |distance: usize| {
        move || {
            let words: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
            // SAFETY: none, if the distance is three words or more.
            unsafe { &*words.as_ptr().add(distance) }.store(1, Relaxed);
        }
    };
    checked().run(behind(2)).unwrap();
    for distance in [3, 4] {
        let found = mistake_of(checked(), behind(distance));
        assert_eq!(found.misuse, Misuse::OutOfBounds { offset: 8 * distance });
        assert_eq!(found.block.unwrap().size, 24);
    }
    let found = mistake_of(checked(), || {
        let value = made([0_u64; 4]);
        // SAFETY: none: the box was of four words.
        drop(unsafe { Box::from_raw(value.cast::<u64>()) });
    });
    assert_eq!(found.misuse, Misuse::WrongSize { freed: 8 });
}

#[test]
fn a_plain_write_after_a_free_is_found_later() {
    let found = mistake_of(checked(), || {
        let value = made([0_u64; 4]);
        // SAFETY: from `into_raw`.
        drop(unsafe { Box::from_raw(value) });
        // SAFETY: none: this is the mistake. It is the machine's memory, which is mapped.
        unsafe { (&raw mut (*value)[3]).write_volatile(1) };
        AtomicU64::new(0).load(Relaxed);
    });
    assert_eq!(found.misuse, Misuse::WrittenAfterFree { offset: 24 });
    assert_eq!(found.block.unwrap().size, 32);
}

#[test]
fn a_pointer_from_freed_memory_fails_the_run_and_not_the_process() {
    struct Node {
        next: *const Node,
        value: u64,
    }

    let program = || {
        let last = made(Node { next: std::ptr::null(), value: 7 });
        let first = made(Node { next: last, value: 0 });
        AtomicU64::new(0).load(Relaxed);
        // SAFETY: from `into_raw`.
        drop(unsafe { Box::from_raw(first) });
        // SAFETY: none: what it has for the address of the last one is what freed memory has.
        let next = unsafe { (&raw const (*first).next).read_volatile() };
        // SAFETY: none, for the same reason.
        let value = unsafe { (&raw const (*next).value).read_volatile() };
        assert_eq!(value, 7);
    };
    for _ in 0..2 {
        let found = mistake_of(checked(), program);
        assert_eq!(found.misuse, Misuse::Fault { address: 0 });
        assert!(is_here(found.by.as_ref().unwrap()), "{found}");
    }
    let null = mistake_of(host(1), || {
        // SAFETY: none: there is no memory at such an address.
        unsafe { std::ptr::without_provenance::<u64>(4096).read_volatile() };
    });
    assert_eq!(null.misuse, Misuse::Fault { address: 4096 });
}

#[test]
fn leaks_are_found_if_the_machine_looks_for_them() {
    let leaky = || _ = [made(1_u64), made(2)];
    checked().run(leaky).unwrap();
    let failure = checked().find_leaks().run(leaky).unwrap_err();
    let found = mistake(&failure);
    assert_eq!(found.misuse, Misuse::Leak { blocks: 2, bytes: 16 }, "{failure}");
    let line = failure.replay.to_string();
    assert!(line.contains(" memory=on leaks=found "), "{line}");
    replays(&failure, leaky);
    // A cycle of references.
    let failure = host(1).find_leaks().run(|| {
        struct Cycle(std::cell::RefCell<Option<Rc<Cycle>>>);
        let cycle = Rc::new(Cycle(Default::default()));
        *cycle.0.borrow_mut() = Some(Rc::clone(&cycle));
    });
    assert!(matches!(mistake(&failure.unwrap_err()).misuse, Misuse::Leak { blocks: 1, .. }));
    // The run's value is no leak, nor what it leads to.
    let run = host(1).find_leaks().run(|| vec![Box::new(String::from("not lost")), Box::default()]);
    assert_eq!(*run.unwrap().value[0], "not lost");
    host(1).find_leaks().run(|| thread::spawn(|| vec![1]).join().unwrap()).unwrap();
}

#[test]
fn freed_memory_comes_back_at_once_in_some_runs_and_late_in_most() {
    let is_same = |seed| {
        let program = || {
            let first = made(1_u64);
            // SAFETY: from `into_raw`.
            drop(unsafe { Box::from_raw(first) });
            made(2_u64).addr() == first.addr()
        };
        host(seed).memory(MemoryChecks::On).run(program).unwrap().value
    };
    let same = (0..100).filter(|&seed| is_same(seed)).count();
    assert!((10..40).contains(&same), "{same}");
}
