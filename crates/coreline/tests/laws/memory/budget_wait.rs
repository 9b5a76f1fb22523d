//! The laws of waiting for room in a budget: no room is missed, callers of one budget are served in
//! FIFO order, and a caller that gives up leaves its place to the next. In every interleaving of
//! the model they are in `object/budget/wait.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use coreline::object::{Budget, ChargeError, ChargeFuture, GetError, ObjectCache};
use coreline_sim::{Faults, Sim};
use coreline_world::{Integer, JoinHandle, Native, Ordering, Testbed, Word, World};

use crate::worlds::{self, Effort, FEW, Numbers, PREEMPTED, TORN};

fn poll<W: World>(future: &mut ChargeFuture<'_, W>) -> Poll<Result<(), ChargeError>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Threads that hold nothing wait for amounts of all sizes, in one budget or in two children of
/// one. Every third gives up at once where it would have to wait. A thread that is never woken
/// would let the machine stand still.
fn all_get_room<W: Testbed>(effort: Effort, limit: u64, children: bool) {
    let root = Budget::<W>::new_in("root", limit).unwrap();
    let budgets = if children {
        [root.child("a", limit - 1).unwrap(), root.child("b", limit).unwrap()]
    } else {
        [root.clone(), root.clone()]
    };
    let charged = Arc::new(W::U64::new_in(0));
    let work = |number: u32| {
        let (budget, charged) = (budgets[number as usize % 2].clone(), Arc::clone(&charged));
        let mut numbers = Numbers(u64::from(number));
        move || {
            for round in 0..effort.rounds {
                let amount = 1 + numbers.below(limit as usize - 1) as u64;
                let done = match (number + round) % 3 {
                    2 => budget.charge_by(amount, W::now()),
                    1 => budget.charge(amount).map_err(ChargeError::from),
                    _ => budget.charge_wait(amount),
                };
                match done {
                    Ok(()) => {
                        // Relaxed: of one word, which says no more than what is there at least.
                        let before = charged.fetch_add(amount, Ordering::Relaxed);
                        assert!(before + amount <= limit, "{} of {limit}", before + amount);
                        // Relaxed: before it is given back, so the sum is never too high.
                        charged.fetch_add(amount.wrapping_neg(), Ordering::Relaxed);
                        budget.uncharge(amount);
                    }
                    Err(ChargeError::OverBudget(_)) => assert_ne!((number + round) % 3, 0),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    };
    let threads = effort.crew::<W, _, _>(work);
    threads.into_iter().for_each(JoinHandle::join);
    drop(budgets);
    assert_eq!(root.used(), 0);
    root.charge(limit).expect("all of it can be charged by one");
}

#[test]
fn all_that_wait_get_room_natively() {
    for (limit, children) in [(2, false), (2, true), (100, false), (100, true), (5000, true)] {
        let effort = Effort { threads: 4, rounds: 2000, cpus: 2 };
        all_get_room::<Native>(effort, limit, children);
    }
}

#[test]
fn all_that_wait_get_room_when_simulated() {
    let few = Effort { threads: 5, rounds: 15, ..FEW };
    for (name, faults) in [("torn", TORN), ("preempted", PREEMPTED), ("", Faults::default())] {
        for (kind, limit, children) in [("one", 2, false), ("two", 40, true), ("many", 300, false)]
        {
            let name = format!("budget_wait::{kind}{name}");
            let law = move || all_get_room::<Sim>(few, limit, children);
            worlds::simulate(&name, "host-2c", faults, law).unwrap();
        }
    }
    let many = Effort { threads: 48, rounds: 4, cpus: 48 };
    let law = move || all_get_room::<Sim>(many, 1000, true);
    worlds::simulate_seeds("budget_wait", "epyc-9654-2s", Faults::default(), 3, law).unwrap();
}

/// A large amount waits before a small one for which there is room, and gives up.
fn order_of_arrival<W: Testbed>() {
    let budget = Budget::<W>::new_in("law", 10).unwrap();
    budget.charge(10).unwrap();
    let (mut eight, mut five) = (budget.charge_async(8), budget.charge_async(5));
    let mut one = budget.charge_async(1);
    for future in [&mut eight, &mut five, &mut one] {
        assert!(poll(future).is_pending());
    }
    budget.uncharge(5);
    for future in [&mut one, &mut five, &mut eight] {
        assert!(poll(future).is_pending(), "came later, or does not fit");
    }
    drop(eight);
    assert_eq!(budget.used(), 10, "the second is served");
    assert!(poll(&mut one).is_pending());
    // It has got the amount, and does not take it.
    drop(five);
    assert_eq!(poll(&mut one), Poll::Ready(Ok(())));
    assert_eq!(budget.used(), 6);
    budget.uncharge(6);
    budget.charge_wait(10).unwrap();
}

/// A budget that refuses keeps waiting the callers that charge it, and no other caller.
fn budgets_that_refuse<W: Testbed>() {
    let root = Budget::<W>::new_in("root", 10).unwrap();
    let (a, b) = (root.child("a", 4).unwrap(), root.child("b", 10).unwrap());
    a.charge(4).unwrap();
    b.charge(6).unwrap();
    let (mut in_a, mut in_b) = (a.charge_async(2), b.charge_async(3));
    assert!(poll(&mut in_a).is_pending() && poll(&mut in_b).is_pending());
    b.uncharge(3);
    assert!(poll(&mut in_a).is_pending(), "it is a that is full");
    assert_eq!(poll(&mut in_b), Poll::Ready(Ok(())));
    a.uncharge(4);
    assert_eq!(poll(&mut in_a), Poll::Ready(Ok(())));
    assert_eq!((root.used(), a.used(), b.used()), (8, 2, 6));
    // The root is full for one that comes first, and so for all.
    let (mut large, mut small) = (a.charge_async(4), b.charge_async(1));
    assert!(poll(&mut large).is_pending(), "`a` has room for 2");
    assert_eq!(poll(&mut small), Poll::Ready(Ok(())));
    a.uncharge(2);
    assert!(poll(&mut large).is_pending(), "the root has room for 3");
    let mut small = b.charge_async(1);
    assert!(poll(&mut small).is_pending(), "it would overtake");
    b.uncharge(2);
    assert_eq!((poll(&mut large), poll(&mut small)), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))));
    a.uncharge(4);
    b.uncharge(6);
    assert_eq!(root.used(), 0);
}

/// A caller that waits gets room that a new limit or a new child gives.
fn changes_while_one_waits<W: Testbed>() {
    let root = Budget::<W>::new_in("root", 1000).unwrap();
    let never = root.charge_wait(1001);
    assert!(matches!(never, Err(ChargeError::OverBudget(_))), "{never:?}");
    root.charge(500).unwrap();
    let mut waits = root.charge_async(1000);
    assert!(poll(&mut waits).is_pending());
    let child = root.child("new", 1000).unwrap();
    child.charge(400).unwrap();
    child.uncharge(400);
    root.uncharge(500);
    assert_eq!(poll(&mut waits), Poll::Ready(Ok(())), "a stock of the child has some");
    let mut waits = child.charge_async(500);
    assert!(poll(&mut waits).is_pending());
    root.set_limit(1499);
    assert!(poll(&mut waits).is_pending());
    root.set_limit(1500);
    assert_eq!(poll(&mut waits), Poll::Ready(Ok(())));
    drop(waits);
    root.uncharge(1000);
    let mut waits = root.charge_async(1500);
    assert!(poll(&mut waits).is_pending());
    // What the child has charged goes back with it.
    drop(child);
    assert_eq!(poll(&mut waits), Poll::Ready(Ok(())));
    let deadline = W::now() + Duration::from_millis(2);
    let Err(ChargeError::OverBudget(refused)) = root.charge_by(7, deadline) else {
        panic!("there is no room");
    };
    assert_eq!((refused.asked, refused.used, refused.limit), (7, 1500, 1500));
    assert!(W::now() >= deadline, "it gave up early");
}

#[test]
fn those_who_wait_are_served_in_their_order_in_every_world() {
    fn laws<W: Testbed>() {
        order_of_arrival::<W>();
        budgets_that_refuse::<W>();
        changes_while_one_waits::<W>();
    }
    laws::<Native>();
    let simulated = laws::<Sim>;
    worlds::simulate_seeds("budget_wait::order", "host-2c", Faults::default(), 2, simulated)
        .unwrap();
    worlds::simulate_seeds("budget_wait::torn", "host-2c", TORN, 2, simulated).unwrap();
}

/// Gets that wait: there are never more objects out than the budget allows, and all get one.
fn gets_wait<W: Testbed>(effort: Effort) {
    let budget = Budget::<W>::new_in("law", 2).unwrap();
    let cache = ObjectCache::<u32, (), W>::builder_in("law").budget(budget, 1);
    let cache = Arc::new(cache.build(|| Ok::<_, GetError>(7)).unwrap());
    let out = Arc::new(W::U64::new_in(0));
    let work = |number: u32| {
        let (cache, out) = (Arc::clone(&cache), Arc::clone(&out));
        move || {
            for round in 0..effort.rounds {
                let deadline = W::now() + Duration::from_secs(3600);
                let owned;
                let borrowed;
                if (number + round).is_multiple_of(2) {
                    owned = cache.get_owned_by(deadline).unwrap();
                    assert_eq!(*owned, 7);
                } else {
                    borrowed = cache.get_by(deadline).unwrap();
                    assert_eq!(*borrowed, 7);
                }
                // Relaxed, both: of one word, and while the object is out.
                let before = out.fetch_add(1, Ordering::Relaxed);
                assert!(before < 2, "{} are out", before + 1);
                out.fetch_add(u64::MAX, Ordering::Relaxed);
            }
        }
    };
    let threads = effort.crew::<W, _, _>(work);
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(cache.stats().gets, u64::from(effort.threads * effort.rounds));
    let both = [cache.get().unwrap(), cache.get().unwrap()];
    let late = cache.get_by(W::now()).map(drop);
    assert!(matches!(late, Err(GetError::OverBudget(_))), "{late:?}");
    drop(both);
    assert!(cache.get_by(W::now()).is_ok());
}

/// A get that must not overtake asks for relief, if it is its own budget that is full.
fn pressure_is_told_while_others_wait<W: Testbed>() {
    let root = Budget::<W>::new_in("root", 4).unwrap();
    let (a, b) = (root.child("a", 2).unwrap(), root.child("b", 2).unwrap());
    let kept = Arc::new(W::U64::new_in(0));
    let (evicts, evicted) = (b.clone(), Arc::clone(&kept));
    let cache = ObjectCache::<u32, (), W>::builder_in("law")
        .budget(b.clone(), 1)
        // Relaxed: one thread.
        .on_pressure(move |_| match evicted.swap(0, Ordering::Relaxed) {
            0 => false,
            kept => {
                evicts.uncharge(kept);
                true
            }
        })
        .build(|| Ok::<_, GetError>(7))
        .unwrap();
    a.charge(2).unwrap();
    let mut other = a.charge_async(1);
    assert!(poll(&mut other).is_pending());
    b.charge(2).unwrap();
    kept.store(2, Ordering::Relaxed);
    drop(cache.get_by(W::now()).expect("two were evicted"));
    b.charge(1).unwrap();
    kept.store(1, Ordering::Relaxed);
    drop(cache.get_by(W::now()).unwrap());
    assert_eq!(kept.load(Ordering::Relaxed), 1, "there was room");
    a.uncharge(1);
    assert_eq!(poll(&mut other), Poll::Ready(Ok(())));
}

#[test]
fn pressure_is_told_while_others_wait_in_every_world() {
    pressure_is_told_while_others_wait::<Native>();
    let law = pressure_is_told_while_others_wait::<Sim>;
    worlds::simulate_seeds("budget_wait::pressure", "host-2c", Faults::default(), 1, law).unwrap();
}

/// A waker that panics is its executor's mistake: the thread that gave back goes on.
#[test]
fn a_waker_that_panics_stops_no_one_else() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker's wake");
        }
    }
    let budget = Budget::new("law", 2).unwrap();
    budget.charge(2).unwrap();
    let (mut first, mut second) = (budget.charge_async(1), budget.charge_async(1));
    let waker = Waker::from(Arc::new(Panics));
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(poll(&mut second).is_pending());
    budget.uncharge(2);
    assert_eq!(poll(&mut second), Poll::Ready(Ok(())));
    assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
    budget.uncharge(2);
    assert_eq!(budget.used(), 0);
}

#[test]
fn gets_that_wait_get_an_object_natively() {
    gets_wait::<Native>(Effort { threads: 6, rounds: 2000, cpus: 2 });
}

#[test]
fn gets_that_wait_get_an_object_when_simulated() {
    let law = || gets_wait::<Sim>(Effort { threads: 6, rounds: 15, ..FEW });
    worlds::simulate("budget_wait::gets", "host-2c", TORN, law).unwrap();
}
