use std::cell::Cell;
use std::sync::Arc;

use coreline_sim::{Faults, Machine, Sim};
use coreline_topology::Shape;
use coreline_world::{Fences, JoinHandle, Native, Place, Placement, Threads, Words};

use super::*;

type Tell = fn(&Roll<Sim>, Change) -> Result<Told, Lacking>;

/// A version of `tell` without its second look: a bit is cleared because its owner was away,
/// without asking whether it still is.
fn clear_before_verify(roll: &Roll<Sim>, change: Change) -> Result<Told, Lacking> {
    Sim::fence_all();
    let mut told = Told::default();
    roll.present.each(|at| {
        let words = roll.seat(at);
        if words.state.load(Ordering::Acquire) & PRESENT == 0 {
            roll.present.clear(at);
            told.away += 1;
        } else {
            words.wanted.store(change.number << 1 | REFRESH, Ordering::Release);
            told.pending.push(at);
        }
    });
    Sim::fence_all();
    Ok(told)
}

/// Whether an owner, in any of several runs, still worked with what was replaced after all
/// owners were told and had acknowledged or left.
fn is_broken(tell: Tell) -> bool {
    let faults = Faults { delay: 4, ..Faults::NONE };
    (0..500).any(|seed| {
        let machine = Machine::preset("host-2c").unwrap().seed(seed).faults(faults);
        machine.run(move || works_with_what_is_gone(tell)).unwrap().value
    })
}

fn works_with_what_is_gone(tell: Tell) -> bool {
    const CHANGES: u64 = 60;
    type Word = <Sim as Words>::U64;
    let roll = Roll::<Sim>::new_in(&Sim::topology(), 1);
    let word = || <Word as coreline_world::Word>::new_in(0);
    // The current value, and the newest that is gone for good.
    let shared = Arc::new((roll, word(), word()));
    let theirs = Arc::clone(&shared);
    let owner = move || {
        let (roll, current, gone) = &*theirs;
        // SAFETY: the roll is shared with this thread.
        let seat = unsafe { roll.take() }.unwrap();
        let (cached, broken) = (Cell::new(0), Cell::new(false));
        while current.load(Ordering::Acquire) < CHANGES {
            if seat.enter()
                && let Some(news) = seat.look_closer()
            {
                assert_eq!(roll.entered(&seat, news), Entered::Stale);
                cached.set(current.load(Ordering::Acquire));
            }
            if let Some(news) = seat.news() {
                roll.set_bit(&seat);
                cached.set(current.load(Ordering::Acquire));
                seat.acknowledge(news);
            }
            broken.set(broken.get() || cached.get() < gone.load(Ordering::Acquire));
            seat.leave();
        }
        broken.get()
    };
    let owner = Sim::spawn(Placement::Anywhere, owner).unwrap();
    let (roll, current, gone) = &*shared;
    for number in FIRST + 1..=CHANGES {
        current.store(number, Ordering::Release);
        let told = tell(roll, Change { number, call: false, trim: true, but: None }).unwrap();
        for at in told.pending {
            roll.wait_until_done(at, number, None);
        }
        gone.store(number, Ordering::Release);
    }
    owner.join()
}

fn tell<W: World>(roll: &Roll<W>, change: Change) -> Result<Told, Lacking> {
    let told = super::tell([roll], change)?.pop();
    Ok(told.map_or_else(Told::default, |(_, told)| told))
}

#[test]
fn a_clear_without_a_second_look_is_caught() {
    assert!(is_broken(clear_before_verify));
    assert!(!is_broken(tell));
}

/// Seats for a machine of two caches with four CPUs each.
fn roll(least: usize) -> Roll<Native> {
    let shape = Shape { caches_per_node: 2, cores_per_cache: 4, ..Shape::default() };
    Roll::new_in(&Topology::uniform(shape).unwrap(), least)
}

#[test]
fn seats_are_two_to_a_cpu_and_as_many_as_are_asked_for() {
    for (least, each) in [(0, 8), (16, 8), (17, 9), (100, 50), (usize::MAX, 256)] {
        let roll = roll(least);
        assert!(roll.seats.iter().all(|leaf| leaf.len() == each), "{least}");
        assert_eq!(roll.capacity(), 2 * each);
        // A line for each seat, and for two bits of each three lines.
        let lines = (2 * each + 2 * 3) * size_of::<Line<u8>>();
        assert_eq!(roll.bytes(), lines + 2 * size_of::<Seats<Native>>());
    }
}

#[test]
fn an_owner_that_comes_back_is_asked_for_the_call() {
    let roll = roll(1);
    // SAFETY: the roll outlives the seat.
    let seat = unsafe { roll.take() }.unwrap();
    let enter = || seat.enter().then(|| seat.look_closer()).flatten();
    let call = |number| tell(&roll, Change { number, call: true, trim: true, but: None }).unwrap();
    let first = enter().unwrap();
    assert_eq!(roll.entered(&seat, first), Entered::Stale, "it has nothing yet");
    assert_eq!(call(FIRST + 1).called, [seat.at]);
    seat.leave();
    let news = enter().unwrap();
    assert_eq!(roll.entered(&seat, news), Entered::Asked(news), "its bit is set");
    seat.acknowledge(news);
    seat.leave();
    assert_eq!(call(FIRST + 2).away, 1);
    let news = enter().unwrap();
    assert_eq!(roll.entered(&seat, news), Entered::Stale, "its bit was cleared");
}
