//! The law of budgets.

use std::sync::Arc;
use std::time::Duration;

use coreline::object::Budget;
use coreline_sim::{Machine, Sim};
use coreline_world::{Clock, Integer, JoinHandle, Native, Ordering, Testbed, Word};

use crate::worlds::{self, Effort, FEW, NATIVE, Numbers, TORN};

/// What is charged is never above the limit, and all of it comes back.
fn a_budget_is_kept<W: Testbed>(effort: Effort, limit: u64) {
    let budget = Budget::<W>::new_in("law", limit).unwrap();
    let charged = Arc::new(W::U64::new_in(0));
    let threads = effort.crew::<W, _, _>(|thread| {
        let (budget, charged) = (budget.clone(), Arc::clone(&charged));
        move || {
            let mut numbers = Numbers(u64::from(thread));
            let mut held = Vec::new();
            for round in 1..=effort.rounds {
                let amount = numbers.below(limit as usize / 2) as u64;
                if budget.charge(amount).is_ok() {
                    // Relaxed: of one word, which says no more than what is there at least.
                    let before = charged.fetch_add(amount, Ordering::Relaxed);
                    assert!(before + amount <= limit, "{} of {limit}", before + amount);
                    held.push(amount);
                }
                if held.len() > 3 || round == effort.rounds || numbers.below(2) == 0 {
                    for amount in held.drain(..) {
                        // Relaxed: before it is given back, so the sum is never too high.
                        charged.fetch_add(amount.wrapping_neg(), Ordering::Relaxed);
                        budget.uncharge(amount);
                    }
                }
            }
        }
    });
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(budget.used(), 0);
    budget.charge(limit).expect("all of it can be charged by one");
    let refused = budget.charge(1).unwrap_err();
    assert_eq!((refused.asked, refused.used, refused.limit), (1, limit, limit));
}

#[test]
fn a_budget_is_kept_natively() {
    [2, 37, 1000, 1 << 40].into_iter().for_each(|limit| a_budget_is_kept::<Native>(NATIVE, limit));
}

#[test]
fn a_budget_is_kept_when_simulated() {
    let law = || [2, 37, 1000].into_iter().for_each(|limit| a_budget_is_kept::<Sim>(FEW, limit));
    worlds::simulate("budget::kept", "host-2c", TORN, law).unwrap();
}

/// One thread: what it charges from a stock has no other thread beside it.
fn one_uncharge_too_many_is_survived<W: Testbed>() {
    for limit in [2, 37, 100, 1 << 20, 1 << 40, u64::MAX] {
        let budget = Budget::<W>::new_in("law", limit).unwrap();
        for round in 0..3 {
            budget.charge(1).unwrap();
            budget.uncharge(2);
            assert_eq!(budget.used(), 0);
            // A charge that is refused takes the stocks back.
            assert!(limit == u64::MAX || budget.charge(limit + 1).is_err());
            budget.charge(limit).unwrap_or_else(|refused| panic!("round {round}: {refused}"));
            assert_eq!((budget.charge(1).unwrap_err().used, budget.used()), (limit, limit));
            budget.uncharge(limit);
        }
        // What others have charged stays charged, but for what was given back too often.
        budget.charge(limit).unwrap();
        budget.uncharge(1);
        assert_eq!(budget.used(), limit - 1);
        budget.charge(1).unwrap();
        assert_eq!(budget.charge(1).unwrap_err().used, limit);
    }
    let budget = Budget::<W>::new_in("law", 1000).unwrap();
    budget.charge(1).unwrap();
    budget.uncharge(u64::MAX);
    for _ in 0..3 {
        budget.charge(1000).unwrap();
        assert!(budget.charge(u64::MAX).is_err() && budget.charge(1 << 63).is_err());
        budget.uncharge(1000);
    }
    budget.charge(1000).unwrap();
    assert_eq!(budget.charge(1).unwrap_err().used, 1000);
}

#[test]
fn one_uncharge_too_many_is_survived_natively() {
    one_uncharge_too_many_is_survived::<Native>();
}

#[test]
fn one_uncharge_too_many_is_survived_when_simulated() {
    let law = one_uncharge_too_many_is_survived::<Sim>;
    worlds::simulate("budget::uncharged", "host-2c", TORN, law).unwrap();
}

fn a_limit_may_be_all_of_a_word<W: Testbed>() {
    let budget = Budget::<W>::new_in("law", u64::MAX).unwrap();
    assert_eq!(budget.limit(), u64::MAX);
    for amount in [1, 1 << 40, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
        budget.charge(amount).unwrap();
        assert_eq!(budget.used(), amount);
        assert_eq!(budget.charge(u64::MAX - amount + 1).is_err(), amount > 0);
        budget.uncharge(amount);
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn a_limit_may_be_all_of_a_word_natively() {
    a_limit_may_be_all_of_a_word::<Native>();
}

#[test]
fn a_limit_may_be_all_of_a_word_when_simulated() {
    let law = a_limit_may_be_all_of_a_word::<Sim>;
    worlds::simulate("budget::unlimited", "host-2c", TORN, law).unwrap();
}

/// Amounts that stocks have, and such that they have not.
fn a_limit_may_be_lowered_below_what_is_used<W: Testbed>() {
    for scale in [1, 1 << 30] {
        let budget = Budget::<W>::new_in("law", 100 * scale).unwrap();
        for _ in 0..3 {
            budget.charge(80 * scale).unwrap();
            budget.uncharge(scale);
            budget.set_limit(50 * scale);
            assert_eq!((budget.used(), budget.limit()), (79 * scale, 50 * scale));
            // What is given back stays given back.
            for left in (50..79).rev().map(|left| left * scale) {
                let refused = budget.charge(1).unwrap_err();
                assert_eq!((refused.used, refused.limit), (left + scale, 50 * scale));
                budget.charge(0).unwrap();
                budget.uncharge(scale);
                assert_eq!(budget.used(), left);
            }
            assert!(budget.charge(1).is_err());
            budget.uncharge(10 * scale);
            (0..10).for_each(|_| budget.charge(scale).unwrap());
            assert!(budget.charge(1).is_err());
            budget.set_limit(0);
            budget.uncharge(50 * scale);
            assert!(budget.used() == 0 && budget.charge(1).is_err());
            budget.set_limit(u64::MAX);
            budget.charge(u64::MAX).unwrap();
            budget.uncharge(u64::MAX);
            budget.set_limit(100 * scale);
            assert!(budget.charge(100 * scale + 1).is_err());
        }
    }
}

#[test]
fn a_limit_may_be_lowered_below_what_is_used_natively() {
    a_limit_may_be_lowered_below_what_is_used::<Native>();
}

#[test]
fn a_limit_may_be_lowered_below_what_is_used_when_simulated() {
    let law = a_limit_may_be_lowered_below_what_is_used::<Sim>;
    worlds::simulate("budget::lowered", "host-2c", TORN, law).unwrap();
}

/// The first thread sets the limit again and again while others charge and give back: nothing is
/// lost, and no charge is refused for good.
fn a_limit_that_changes_is_kept<W: Testbed>(effort: Effort, most: u64) {
    let budget = Budget::<W>::new_in("law", most).unwrap();
    let running = Arc::new(W::U32::new_in(effort.threads));
    let threads = effort.crew::<W, _, _>(|thread| {
        let (budget, running) = (budget.clone(), Arc::clone(&running));
        move || {
            let mut numbers = Numbers(u64::from(thread));
            for _ in 0..effort.rounds {
                let amounts = [0; 3].map(|_| numbers.below(most as usize / 4) as u64);
                let charged = amounts.map(|amount| budget.charge(amount).is_ok());
                for (amount, _) in amounts.iter().zip(charged).filter(|(_, charged)| *charged) {
                    budget.uncharge(*amount);
                }
            }
            // Relaxed: a count.
            running.fetch_sub(1, Ordering::Relaxed);
        }
    });
    let mut numbers = Numbers(77);
    // Relaxed: a count.
    while running.load(Ordering::Relaxed) > 0 {
        budget.set_limit(numbers.below(most as usize) as u64);
        W::relax();
    }
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(budget.used(), 0);
    budget.set_limit(most);
    budget.charge(most).expect("all of it can be charged by one");
    assert_eq!(budget.charge(1).unwrap_err().used, most);
}

#[test]
fn a_limit_that_changes_is_kept_natively() {
    let effort = Effort { rounds: 5_000, ..NATIVE };
    [8, 1000, 1 << 40]
        .into_iter()
        .for_each(|most| a_limit_that_changes_is_kept::<Native>(effort, most));
}

#[test]
fn a_limit_that_changes_is_kept_when_simulated() {
    let law =
        || [8, 1000].into_iter().for_each(|most| a_limit_that_changes_is_kept::<Sim>(FEW, most));
    worlds::simulate("budget::set", "host-2c", TORN, law).unwrap();
}

/// Threads charge to budgets in one that has no room for all: none has more than its limit, and all
/// of it comes back.
fn budgets_in_a_budget_are_kept<W: Testbed>(effort: Effort, limit: u64) {
    let parent = Budget::<W>::new_in("parent", limit).unwrap();
    let each = limit / 2 + limit / 4;
    let children = [0, 1].map(|_| parent.child("child", each).unwrap());
    let charged = Arc::new([0; 3].map(W::U64::new_in));
    let threads = effort.crew::<W, _, _>(|thread| {
        let which = thread as usize % 2;
        let (child, charged) = (children[which].clone(), Arc::clone(&charged));
        move || {
            let mut numbers = Numbers(u64::from(thread));
            for _ in 0..effort.rounds {
                let amount = numbers.below(limit as usize / 2) as u64;
                if child.charge(amount).is_err() {
                    continue;
                }
                for (word, most) in [(which, each), (2, limit)] {
                    // Relaxed: of one word, which says no more than what is there at least.
                    let before = charged[word].fetch_add(amount, Ordering::Relaxed);
                    assert!(before + amount <= most, "{} of {most}", before + amount);
                }
                for word in [which, 2] {
                    // Relaxed: before it is given back, so the sum is never too high.
                    charged[word].fetch_sub(amount, Ordering::Relaxed);
                }
                child.uncharge(amount);
            }
        }
    });
    threads.into_iter().for_each(JoinHandle::join);
    assert!(children.iter().all(|child| child.used() == 0));
    // What the others have in stock comes back, from below and from beside.
    parent.charge(limit).unwrap();
    assert_eq!(parent.used(), limit);
    assert_eq!(children[0].charge(1).unwrap_err().name, "parent");
    parent.uncharge(limit);
    children[0].charge(each).unwrap();
    assert_eq!(children[0].charge(1).unwrap_err().name, "child");
    children[1].charge(limit - each).unwrap();
    assert_eq!(children[1].charge(1).unwrap_err().used, limit);
    // What is left in a child goes with it.
    let [first, second] = children;
    drop(first);
    second.charge(each + each - limit).unwrap();
    assert_eq!(second.charge(1).unwrap_err().used, each);
    parent.set_limit(1);
    assert_eq!(parent.charge(1).unwrap_err().used, each);
    drop(second);
    parent.charge(1).unwrap();
    let grandchild = parent.child("child", u64::MAX).unwrap().child("grandchild", 1).unwrap();
    assert_eq!(grandchild.charge(1).unwrap_err().name, "parent");
    parent.uncharge(1);
    grandchild.charge(1).unwrap();
    for _ in 0..50 {
        assert_eq!(parent.child("child", 1).unwrap().charge(1).unwrap_err().name, "parent");
    }
    drop(grandchild);
    assert_eq!(parent.used(), 0);
}

#[test]
fn budgets_in_a_budget_are_kept_natively() {
    let law = budgets_in_a_budget_are_kept::<Native>;
    [8, 1000, 1 << 40].into_iter().for_each(|limit| law(NATIVE, limit));
}

#[test]
fn budgets_in_a_budget_are_kept_when_simulated() {
    let law =
        || [8, 1000].into_iter().for_each(|limit| budgets_in_a_budget_are_kept::<Sim>(FEW, limit));
    worlds::simulate("budget::children", "host-2c", TORN, law).unwrap();
}

/// The simulated time of a refused charge to a budget with so many others below it.
fn refusal(children: usize) -> Duration {
    let law = move || {
        let machine = Budget::<Sim>::new_in("machine", 1000).unwrap();
        let tenants: Vec<_> = (0..children).map(|_| machine.child("t", 1000).unwrap()).collect();
        machine.charge(1000).unwrap();
        machine.charge(1).unwrap_err();
        let begun = Sim::now();
        machine.charge(1).unwrap_err();
        let took = Sim::now() - begun;
        drop(tenants);
        took
    };
    Machine::preset("host-2c").expect("a preset").run(law).expect("it ends").value
}

#[test]
fn a_refusal_fences_no_budget_whose_stocks_are_empty() {
    let [alone, among] = [1, 101].map(refusal);
    // Some words of each budget are read.
    assert!(among - alone < 100 * Duration::from_nanos(500), "{alone:?}, and {among:?}");
}
