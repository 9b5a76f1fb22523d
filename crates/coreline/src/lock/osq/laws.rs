//! Properties of a board that the laws of locks do not reach. In the model they have two
//! contenders, and so no board. In simulation each turn takes time, so the bound on passes is
//! seldom reached.

use core::iter;
use core::mem::ManuallyDrop;
use std::collections::HashSet;
use std::sync::Arc;

use coreline_sim::{Machine, Sim};
use coreline_topology::CpuId;
use coreline_world::model::{Checker, Model, Plant};
use coreline_world::{Cell, Clock, JoinHandle, Placement, Threads, Work};

use super::nodes::RINGS;
use super::order::Pass;
use super::*;

/// Makes a node arrive at a queue, for no thread in particular.
pub(super) fn come<O: Order, W: World>(osq: &Osq<O, W>) -> Number {
    with_tables::<W, _>(|tables| {
        let number = tables.nodes.take().expect("a node");
        osq.arrive(tables, number);
        number
    })
}

/// A run of two turns. Its first waiter may give up. The holder's place is that of both, and a
/// waiter of the other place came first. One thread plays all but these two, because a board needs
/// so many waiters. How many gave up.
fn run_of_two(gives_up: bool) -> u32 {
    struct Shared {
        osq: Osq<Near, Model>,
        turns: Cell<u32, Model>,
    }
    let shared = Arc::new(Shared { osq: Osq::new_in(), turns: Cell::new_in(0) });
    let turn = |shared: &Shared| {
        // SAFETY: the caller has its turn.
        shared.turns.with_mut(|turns| unsafe {
            *turns += 1;
            *turns
        })
    };
    with_tables::<Model, _>(|tables| {
        let come = || come(&shared.osq);
        let pass = |number| Near::pass(&shared.osq, tables, number);
        let holder = come();
        Model::migrate(CpuId::new(2));
        let far = come();
        let near = [gives_up, false].map(|gives_up| {
            let theirs = Arc::clone(&shared);
            let wait = move || {
                let held = match gives_up {
                    true => theirs.osq.lock_by(Model::now()),
                    false => Some(theirs.osq.lock()),
                };
                let Some(held) = held.map(ManuallyDrop::new) else { return 0 };
                // Not by a destructor, which would run in the panic of a race that is found.
                turn(&theirs);
                with_tables::<Model, _>(|tables| {
                    Near::pass(&theirs.osq, tables, held.number);
                });
                1
            };
            Model::spawn(Placement::On(CpuId::new(0)), wait).expect("two threads")
        });
        let last = near.iter().fold(far, |before, _| {
            let next = &tables.nodes.get(before).next;
            // Relaxed: what a holder sees of a waiter is for the lock to order.
            Link::of(next.wait_until(Ordering::Relaxed, |next| next != NONE)).number()
        });
        assert_ne!(last, far);
        let end = come();
        turn(&shared);
        assert_eq!(pass(holder), Some(NONE));
        let taken: u32 = near.into_iter().map(JoinHandle::join).sum();
        let state = &tables.nodes.get(far).state;
        // Acquire: as a waiter does in `come`.
        state.wait_until(Ordering::Acquire, |state| state == TURN);
        assert_eq!(turn(&shared), taken + 2, "near ones come first");
        assert_eq!(pass(far), Some(NONE));
        assert_eq!(tables.nodes.get(end).board.get(), NONE, "the board is put back");
        assert!(tables.boards.bytes() > 0, "there was a board");
        assert_eq!(pass(end), None, "no waiter is left");
        // All that were put back.
        let nodes: HashSet<_> = iter::from_fn(|| tables.nodes.take()).collect();
        assert_eq!(nodes.len() % 8, 0, "no node is lost, or put back twice");
        2 - taken
    })
}

#[test]
fn a_run_goes_on_in_every_interleaving() {
    // With one preemption this takes minutes: loads that may see earlier values are many.
    let checker = || Checker::new().preemption_bound(0).max_branches(20_000);
    checker().check(|| assert_eq!(run_of_two(false), 0));
    checker().check(|| assert!(run_of_two(true) <= 1, "one waiter gives up at most"));
}

#[test]
fn a_missing_ordering_of_a_run_is_caught() {
    let law = || assert_eq!(run_of_two(false), 0);
    let checker = Checker::new().preemption_bound(1).plant(Plant::RELAXED_LOADS);
    let failure = checker.try_check(law).expect_err("a race");
    assert!(failure.message.contains("Causality violation"), "{failure}");
}

/// Like `arrive`, at a place of the caller's choice; there is one thread.
pub(super) fn come_from(osq: &Osq<Near, Sim>, tables: &Tables<Sim>, place: u32) -> Number {
    let number = tables.nodes.take().expect("a node");
    tables.nodes.get(number).prepare(place);
    // Relaxed: there is one thread.
    let before = osq.tail.swap(number, Ordering::Relaxed);
    if before != NONE {
        let link = Link::new(number, place).word();
        // Relaxed: as the swap.
        tables.nodes.get(before).next.store(link, Ordering::Relaxed);
    }
    number
}

/// A thread that one thread plays.
struct Played {
    place: u32,
    /// After how many turns of others it waits again.
    rests: u32,
    /// Its node, while it waits, and how many came before it.
    waits: Option<(Number, u32)>,
    passes: u32,
    nanos: u64,
}

/// Turns in a queue, one after another, by a single thread. Returns the most waiters that came
/// later and had their turns first, and the most nanoseconds that these took. Some waiters give up,
/// if the caller asks for it.
fn passed_over(seed: u64, turn: u64, gives_up: bool) -> (u32, u64) {
    let mut random = seed;
    let mut below = |most: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % most
    };
    let osq = Osq::<Near, Sim>::new_in();
    with_tables::<Sim, _>(|tables| {
        let mut came = 0;
        let mut come = |thread: &mut Played| {
            let number = come_from(&osq, tables, thread.place);
            came += 1;
            (thread.waits, thread.passes, thread.nanos) = (Some((number, came)), 0, 0);
        };
        // Some places have many threads, and some have few.
        let most: Vec<_> = (0..RINGS).map(|_| 1 + below(32)).collect();
        let mut threads = Vec::new();
        for (place, most) in (0..).zip(&most) {
            threads.extend((0..*most).map(|_| Played {
                place,
                rests: below(40) as u32,
                waits: None,
                passes: 0,
                nanos: 0,
            }));
        }
        threads[0].rests = 0;
        come(&mut threads[0]);
        let (mut holder, mut longest) = (0, (0, 0));
        let rest = 1 + below(12);
        for round in 0..3000 {
            let (number, mine) = threads[holder].waits.take().expect("it has the turn");
            threads[holder].rests = below(rest) as u32;
            let began = Sim::now();
            Sim::work(Duration::from_nanos(turn));
            for thread in threads.iter_mut().filter(|thread| thread.waits.is_none()) {
                match thread.rests {
                    // Now and then the queue runs empty, so that boards end and are used again.
                    _ if round % 750 >= 600 => {}
                    0 => come(thread),
                    _ => thread.rests -= 1,
                }
            }
            let took = (Sim::now() - began).as_nanos() as u64;
            for thread in &mut threads {
                if thread.waits.is_some_and(|(_, order)| order < mine) {
                    thread.passes += 1;
                    thread.nanos += took;
                    longest = (longest.0.max(thread.passes), longest.1.max(thread.nanos));
                }
            }
            for thread in threads.iter_mut().filter(|_| gives_up && below(300) == 0) {
                if let Some((number, _)) = thread.waits.take() {
                    assert!(tables.leave(number, WAIT), "it waits");
                }
            }
            let next = Near::pass(&osq, tables, number);
            let has_turn = |thread: &Played| {
                // Relaxed: this thread wrote it.
                let state = |number| tables.nodes.get(number).state.load(Ordering::Relaxed);
                thread.waits.is_some_and(|(number, _)| state(number) == TURN)
            };
            assert!(threads.iter().filter(|it| has_turn(it)).count() <= 1, "two holders");
            match threads.iter().position(has_turn) {
                Some(next) => holder = next,
                None => {
                    assert_eq!(next, None);
                    assert!(threads.iter().all(|it| it.waits.is_none()), "a waiter was lost");
                    come(&mut threads[0]);
                    holder = 0;
                }
            }
        }
        // Those that gave up are in the queue at most until it is empty. Two chunks have 128.
        let few = if gives_up { 16 } else { 2 };
        assert!(tables.nodes.bytes() <= few * 64 * 64, "nodes were lost");
        longest
    })
}

/// 28 waiters at each of three places come in turn, while this many other nodes are in use. Returns
/// the places in the order of their turns, each once for all that follow one another.
fn runs_of_waiters_that_come_by_turns(others: u32) -> Vec<(u32, u32)> {
    let osq = Osq::<Near, Sim>::new_in();
    with_tables::<Sim, _>(|tables| {
        (0..others).for_each(|_| assert!(tables.nodes.take().is_some(), "a node"));
        let come = |place| (place, come_from(&osq, tables, place));
        let mut holder = come(0).1;
        // The last one of all stays unsorted.
        let mut waiters: Vec<_> = (0..28 * 3).map(|number| come(1 + number % 3)).collect();
        waiters.push(come(0));
        let mut runs: Vec<(u32, u32)> = Vec::new();
        while Near::pass(&osq, tables, holder).is_some() {
            let has_turn = |&(_, number): &(u32, Number)| {
                // Relaxed: there is one thread.
                tables.nodes.get(number).state.load(Ordering::Relaxed) == TURN
            };
            let next = waiters.iter().position(has_turn).expect("one has the turn");
            let (place, number) = waiters.swap_remove(next);
            holder = number;
            match runs.last_mut().filter(|run| run.0 == place) {
                Some(run) => run.1 += 1,
                None => runs.push((place, 1)),
            }
        }
        assert!(waiters.is_empty(), "all had their turns");
        runs
    })
}

/// A share of the bound on passes would be 22 turns.
#[test]
fn a_run_has_all_that_wait() {
    let machine = Machine::preset("x86-128c-8n").expect("a preset");
    let runs = machine.run(|| runs_of_waiters_that_come_by_turns(0)).expect("it ends").value;
    assert_eq!(runs, [(1, 28), (2, 28), (3, 28), (0, 1)]);
}

#[test]
fn waiters_in_nodes_with_long_numbers_have_their_turns_unsorted() {
    let runs = |others: u32| {
        let machine = Machine::preset("x86-128c-8n").expect("a preset");
        machine.run(move || runs_of_waiters_that_come_by_turns(others)).expect("it ends").value
    };
    let by_turns: Vec<_> = (0..84).map(|number| (1 + number % 3, 1)).chain([(0, 1)]).collect();
    assert_eq!(runs(0x1_0000), by_turns);
    // Half of them can be sorted.
    let turns: u32 = runs(0x1_0000 - 43).iter().map(|(_, turns)| turns).sum();
    assert_eq!(turns, 85);
}

#[test]
fn a_waiter_is_passed_over_within_both_bounds() {
    let mut most = (0, 0);
    for seed in 0..60 {
        let turn = [0, 500, 5000, 30_000][seed as usize % 4];
        let machine = Machine::preset("x86-128c-8n").expect("a preset").seed(seed);
        let (passes, nanos) =
            machine.run(move || passed_over(seed, turn, seed >= 40)).expect("it ends").value;
        assert!(passes <= Near::PASSES, "seed {seed}: passed over {passes} times");
        // A run may end, and a board its youth, with a turn that had begun.
        let span = Near::SPAN + 2 * (turn + 2000);
        assert!(nanos <= span, "seed {seed}: passed over for {nanos} ns");
        most = (most.0.max(passes), most.1.max(nanos));
    }
    assert!(
        most.0 > Near::PASSES - 4 && most.1 > Near::SPAN / 2,
        "the bounds are not met: {most:?}"
    );
}
