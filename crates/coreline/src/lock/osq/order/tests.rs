//! Tests of how holders treat waiters of several places, played by one thread.

use core::time::Duration;

use std::collections::VecDeque;

use coreline_sim::{Machine, Sim};
use coreline_world::{Native, Ordering, Word, Work};

use super::super::laws::come_from;
use super::super::nodes::{Board, Node, RING, TURN, Waiter};
use super::super::with_tables;
use super::*;
use crate::node_pool::Pooled;

#[test]
fn a_ring_keeps_the_order_wherever_it_begins() {
    for start in 0..RING as u32 {
        let board: Board<Native> = Pooled::<Native>::new_in();
        let ring = &board.rings[0].0;
        ring.start.set(start);
        let numbers: Vec<Number> = (1..=RING as u32).collect();
        assert!(numbers.iter().all(|number| ring.put(Waiter::new(*number, 0))), "room");
        assert!(!ring.put(Waiter::new(31, 0)), "a full ring has no room");
        let mut run = Run { start, len: RING as u32, left: 64, ..Run::default() };
        let taken: Vec<Number> = numbers.iter().map(|_| run.take(ring)).collect();
        assert_eq!(taken, numbers, "a ring that began at {start}");
        assert_eq!(run, Run { start, left: 64 - RING as u32, ..Run::default() });
    }
}

#[test]
fn a_run_goes_along_whole() {
    let most = Run {
        ring: 31,
        start: 29,
        len: 30,
        left: Near::PASSES + RING as u32,
        until: u64::MAX,
        ahead: u128::MAX,
    };
    for run in [most, Run::default(), Run { ring: 0, len: 0, ..most }] {
        let node: Node<Native> = Pooled::<Native>::new_in();
        run.give(&node);
        assert_eq!(Run::new(&node), run);
    }
}

/// A queue whose waiters one thread plays. Each has a place, and waits again after its turn and
/// this many turns of others.
struct Played<'a> {
    osq: &'a Osq<Near, Sim>,
    tables: &'a Tables<Sim>,
    waiting: Vec<(u32, Number)>,
    holder: (u32, Number),
    rests: usize,
    resting: VecDeque<u32>,
}

impl<'a> Played<'a> {
    /// The first one has its turn.
    fn new(osq: &'a Osq<Near, Sim>, tables: &'a Tables<Sim>, places: &[u32]) -> Self {
        let mut all = places.iter().map(|&place| (place, come_from(osq, tables, place)));
        let holder = all.next().expect("a place");
        let waiting = all.collect();
        Played { osq, tables, waiting, holder, rests: 0, resting: VecDeque::new() }
    }

    /// Passes on the turn, to a waiter. Returns that waiter's place.
    fn pass(&mut self) -> u32 {
        Near::pass(self.osq, self.tables, self.holder.1).expect("a waiter");
        let has_turn = |&(_, number): &(u32, Number)| {
            // Relaxed: there is one thread.
            self.tables.nodes.get(number).state.load(Ordering::Relaxed) == TURN
        };
        let next = self.waiting.iter().position(has_turn).expect("one has the turn");
        self.holder = self.waiting.remove(next);
        self.holder.0
    }

    /// Passes on the turn, and waits again. Returns whether the next one has a board.
    fn turn(&mut self) -> bool {
        self.resting.push_back(self.holder.0);
        self.pass();
        if self.resting.len() > self.rests {
            let place = self.resting.pop_front().expect("one rests");
            self.waiting.push((place, come_from(self.osq, self.tables, place)));
        }
        self.tables.nodes.get(self.holder.1).board.get() != NONE
    }
}

/// Runs `f` where threads of these places wait; the first one has its turn.
fn play<R: 'static>(places: &'static [u32], f: fn(&mut Played<'_>) -> R) -> R {
    let program = move || {
        let osq = Osq::<Near, Sim>::new_in();
        with_tables::<Sim, _>(|tables| f(&mut Played::new(&osq, tables, places)))
    };
    Machine::preset("x86-128c-8n").expect("a preset").run(program).expect("it ends").value
}

/// The numbers of turns with a board and without one, by turns; the first is of turns with one.
fn boards(played: &mut Played<'_>, turns: usize) -> Vec<usize> {
    let mut spans = vec![0];
    for _ in 0..turns {
        let has_board = played.turn();
        if has_board != (spans.len() % 2 == 1) {
            spans.push(0);
        }
        *spans.last_mut().expect("a span") += 1;
    }
    spans
}

/// One waiter at each place is never near the holder, and two seldom are.
#[test]
fn sorting_in_vain_ends_and_is_tried_again_after_so_many_turns() {
    let alone = play(&[0, 1, 2, 3], |played| boards(played, 3000));
    assert_eq!(alone[..5], [9, 1025, 9, 1025, 9]);
    let pairs = play(&[0, 1, 2, 3, 0, 1, 2, 3], |played| boards(played, 3000));
    assert_eq!(pairs[..5], [21, 1026, 20, 1026, 20]);
    // Three waiters are near, also if each rests while others have their turns.
    const ALL: [u32; 12] = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];
    let rest = |played: &mut Played<'_>| {
        played.rests = 6;
        boards(played, 3000)
    };
    assert_eq!(play(&ALL, |played| boards(played, 3000)), [3000]);
    assert_eq!(play(&ALL, rest), [3000]);
}

#[test]
fn there_is_no_board_for_one_waiter_and_for_one_place() {
    let made = |played: &mut Played<'_>| {
        boards(played, 3000);
        played.tables.boards.bytes()
    };
    assert_eq!(play(&[1, 1, 1, 1], made), 0);
    assert_eq!(play(&[0, 1], made), 0, "one waiter at a time");
}

/// A queue that was empty may have other threads.
#[test]
fn a_pause_ends_with_the_queue() {
    let tries = play(&[0, 1, 2, 3], |played| {
        // The board has ended without a gain, and the pause has begun.
        (0..100).for_each(|_| _ = played.turn());
        assert_ne!(played.tables.nodes.get(played.holder.1).along.get(), 0, "no pause");
        let places: Vec<u32> = played.waiting.iter().map(|it| it.0).collect();
        (0..3).for_each(|_| _ = played.pass());
        assert_eq!(Near::pass(played.osq, played.tables, played.holder.1), None, "none waits");
        let mut played = Played::new(played.osq, played.tables, &[&[0], &places[..]].concat());
        (0..4).any(|_| played.turn())
    });
    assert!(tries, "there is no board");
}

/// The places of turns, each of which takes this long, in microseconds. Three waiters of each place
/// come in the order 3, 1, 2.
fn runs(played: &mut Played<'_>, turn: u64) -> Vec<u32> {
    let turn = |_| {
        Sim::work(Duration::from_micros(turn));
        played.pass()
    };
    (0..9).map(turn).collect()
}

/// Near places follow each other at first, so that threads keep that order; later the oldest
/// waiters come first.
#[test]
fn the_runs_of_a_young_board_are_in_the_order_of_places() {
    const CAME: [u32; 11] = [0, 3, 1, 2, 3, 1, 2, 3, 1, 2, 0];
    assert_eq!(play(&CAME, |played| runs(played, 0)), [1, 1, 1, 2, 2, 2, 3, 3, 3]);
    // The second run begins after three turns.
    assert_eq!(play(&CAME, |played| runs(played, 35)), [1, 1, 1, 2, 2, 2, 3, 3, 3]);
    assert_eq!(play(&CAME, |played| runs(played, 50)), [1, 1, 1, 3, 3, 3, 2, 2, 2]);
}

/// The longest run of one place, of this many turns.
fn longest_run(played: &mut Played<'_>, turns: usize) -> u32 {
    let (mut longest, mut run) = (0, 0);
    for _ in 0..turns {
        let place = played.holder.0;
        played.turn();
        run = if played.holder.0 == place { run + 1 } else { 1 };
        longest = longest.max(run);
    }
    longest
}

/// The share of a run is of the other places: its own place does not count.
#[test]
fn a_run_has_the_bound_on_passes_for_itself_if_there_is_one_other_place() {
    const PAIR: [u32; 8] = [0, 1, 0, 1, 0, 1, 0, 1];
    let longest = play(&PAIR, |played| longest_run(played, 500));
    assert_eq!(longest, Near::PASSES + 1, "and the first one, which passes over none");
}
