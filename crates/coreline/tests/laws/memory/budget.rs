//! The law of budgets.

use std::sync::Arc;

use coreline::object::Budget;
use coreline_sim::Sim;
use coreline_world::{Integer, JoinHandle, Native, Ordering, Testbed, Word};

use crate::worlds::{self, Effort, FEW, NATIVE, Numbers, TORN};

/// What is charged is never above the limit, and all of it comes back.
fn a_budget_is_kept<W: Testbed>(effort: Effort, limit: u64) {
    let budget = Budget::<W>::new_in("law", limit).unwrap();
    let charged = Arc::new(W::U64::new_in(0));
    let place = effort.places::<W>();
    let threads: Vec<_> = (0..effort.threads)
        .map(|thread| {
            let (budget, charged) = (budget.clone(), Arc::clone(&charged));
            let work = move || {
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
            };
            W::spawn(place(thread), work).unwrap()
        })
        .collect();
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
