//! [`ChargeFuture`]: a caller that waits for room.
//!
//! The budgets of a tree have one queue, in FIFO order, with the amount of each waiting caller and
//! the budget that it charges. While a caller waits, the stocks of all budgets of the tree are
//! closed. So each amount that is given back arrives at the central words, and the thread that gave
//! it back serves the queue. It charges for the callers in their order, and wakes those for which
//! there was room:
//!
//! | the caller's charge | later callers |
//! |---|---|
//! | fits | are looked at |
//! | is refused by a budget below the root | are passed over if that budget is one of theirs |
//! | is refused by the root | wait |
//!
//! # No room is missed
//!
//! See [`queue`](crate::queue), with these steps:
//!
//! ```text
//! Waiter:    is in the queue; closes all stocks; heavy fence; takes all stocks back; serves
//! Uncharger: adds to a stock;                    light fence; looks whether stocks are closed
//! Uncharger: subtracts from a central word;      light fence; looks at the queue, and serves
//! ```
//!
//! A charge that fails occupied some room for a moment, so it also looks at the queue. So does a
//! caller that stops waiting, because others may have waited behind it. If sections cannot be
//! fenced, room in other CPUs' stocks would be missed, so no caller waits there.
//!
//! A thread that gives back opens its budget's stocks after the last caller has left:
//!
//! ```text
//! Thread 1: reads `stocking`: closed; finds no caller
//! Thread 2: joins the queue; closes the stocks: `stocking` counts that
//! Thread 1: opens the stocks  <- fails, as `stocking` has changed
//! ```

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::{fmt, mem};
use std::collections::BTreeSet;
use std::sync::Arc;

use coreline_world::{Lacking, Native, Time, World};

use super::{Budget, OverBudget, Shared};
use crate::block_on::block_on;
use crate::queue::{Awaited, Queue, Queues, Served, Waiting};

/// The reason why a charge that may wait failed. Nothing was charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChargeError {
    /// The deadline passed before there was room, or the amount exceeds a limit.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// A wait needs fences of the process's other threads and their sections, but the kernel
    /// refuses them.
    #[error(transparent)]
    Lacking(#[from] Lacking),
}

/// The request of a caller that waits.
pub(super) struct Asked<W: World> {
    budget: Budget<W>,
    amount: u64,
}

impl<W: World> Budget<W> {
    /// Charges `amount`, like [`charge`](Budget::charge), but sleeps while there is no room.
    ///
    /// Callers that wait are served in FIFO order. A caller waits behind an earlier caller only if
    /// both charge the budget that refuses the earlier one. A concurrent
    /// [`charge`](Budget::charge), which does not wait, may overtake all of them. While callers
    /// wait, charges and uncharges of the whole tree of budgets access shared words. Each budget
    /// uses stocks again after its next uncharge.
    ///
    /// If a limit is lowered below `amount` meanwhile, the caller waits until the limit is raised.
    /// If a waker panics, the thread that called it continues.
    ///
    /// # Errors
    ///
    /// [`ChargeError::OverBudget`] if `amount` is larger than the limit of this budget or of one
    /// above it. [`ChargeError::Lacking`] if the machine cannot fence all threads or sections.
    pub fn charge_wait(&self, amount: u64) -> Result<(), ChargeError> {
        self.charge_within(amount, None)
    }

    /// Charges `amount`, like [`charge_wait`](Budget::charge_wait), but waits at most until
    /// `deadline`.
    ///
    /// ```
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// use coreline::object::Budget;
    /// use coreline::world::{Clock, Native};
    ///
    /// let connections = Budget::new("connections", 1)?;
    /// connections.charge(1)?;
    /// let soon = Native::now() + Duration::from_millis(1);
    /// assert!(connections.charge_by(1, soon).is_err());
    ///
    /// let theirs = connections.clone();
    /// let waits = thread::spawn(move || theirs.charge_wait(1).is_ok());
    /// connections.uncharge(1);
    /// assert!(waits.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The same errors as for [`charge_wait`](Budget::charge_wait), and
    /// [`ChargeError::OverBudget`] if the deadline passes before there is room.
    pub fn charge_by(&self, amount: u64, deadline: Time) -> Result<(), ChargeError> {
        self.charge_within(amount, Some(deadline))
    }

    fn charge_within(&self, amount: u64, deadline: Option<Time>) -> Result<(), ChargeError> {
        if self.unless_others_wait(amount) {
            return Ok(());
        }
        let late = || Err(self.refuser(amount).refusal(amount).into());
        block_on::<W, _>(self.charge_async(amount), deadline).unwrap_or_else(late)
    }

    /// Returns a future that charges `amount`, like [`charge_wait`](Budget::charge_wait), for any
    /// executor.
    pub fn charge_async(&self, amount: u64) -> ChargeFuture<'_, W> {
        ChargeFuture { waiting: Waiting::new(Charge { budget: self, amount }) }
    }

    fn unless_others_wait(&self, amount: u64) -> bool {
        !self.is_waited_for() && self.charge(amount).is_ok()
    }

    /// Whether a caller waits for room in a budget of this tree.
    pub(in crate::object) fn is_waited_for(&self) -> bool {
        self.root().shared.queues.wanted().is_some()
    }

    fn root(&self) -> &Self {
        let mut at = self;
        while let Some(parent) = &at.shared.parent {
            at = parent;
        }
        at
    }

    /// This budget, and those above it.
    fn chain(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |budget| budget.shared.parent.as_ref())
    }

    /// The first budget that has no room for `amount`, as far as is known; otherwise this one.
    fn refuser(&self, amount: u64) -> &Self {
        self.chain().find(|budget| budget.lacks(amount)).unwrap_or(self)
    }

    fn lacks(&self, amount: u64) -> bool {
        self.limit().saturating_sub(self.used()) < amount
    }

    /// Whether this budget or one above it has no room for `amount`.
    pub(in crate::object) fn is_full_for(&self, amount: u64) -> bool {
        self.chain().any(|budget| budget.lacks(amount))
    }

    /// Charges for the callers that wait. A thread calls this after it has given something back.
    pub(super) fn serve(&self) {
        // Partner: the heavy fence of a caller that waits.
        W::fence_light();
        if self.batch() > 0 {
            // A caller that waits closes the stocks before its fence.
            return;
        }
        if let Some(queue) = self.root().shared.queues.wanted() {
            serve(queue);
        }
    }

    /// Closes the stocks of this budget and of all below.
    fn close_all_stocks(&self) {
        self.close_stocks();
        for shared in self.shared.children.all() {
            Budget { shared }.close_all_stocks();
        }
    }
}

/// Charges for the callers that wait in the queue of a tree.
#[cold]
#[inline(never)]
fn serve<W: World>(queue: &Queue<Asked<W>, (), W>) {
    let mut full = BTreeSet::<*const Shared<W>>::new();
    queue.serve(|Asked { budget, amount }| {
        if budget.chain().any(|budget| full.contains(&Arc::as_ptr(&budget.shared))) {
            return Served::Later;
        }
        match budget.take(*amount) {
            Ok(()) => Served::Given(()),
            Err(refuser) if refuser.shared.parent.is_none() => Served::Enough,
            Err(refuser) => {
                full.insert(Arc::as_ptr(&refuser.shared));
                Served::Later
            }
        }
    });
}

/// One caller's charge.
struct Charge<'a, W: World> {
    budget: &'a Budget<W>,
    amount: u64,
}

impl<'a, W: World> Awaited<'a, W> for Charge<'a, W> {
    type Asked = Asked<W>;
    type Given = ();
    type Value = ChargedAmount<'a, W>;
    type Error = ChargeError;

    fn unless_others_wait(&self) -> Result<Option<ChargedAmount<'a, W>>, ChargeError> {
        if self.budget.unless_others_wait(self.amount) {
            return Ok(Some(self.value(())));
        }
        let never = self.budget.chain().find(|budget| budget.limit() < self.amount);
        never.map_or(Ok(None), |budget| Err(budget.refusal(self.amount).into()))
    }

    fn queues(&self) -> &'a Queues<Asked<W>, (), W> {
        &self.budget.root().shared.queues
    }

    fn asked(&self) -> Asked<W> {
        Asked { budget: self.budget.clone(), amount: self.amount }
    }

    fn look(&self, queue: &Queue<Asked<W>, (), W>, is_first: bool) -> Result<(), ChargeError> {
        if is_first {
            // Before the stocks are closed: where sections cannot be fenced, stocks of other CPUs
            // cannot be taken back.
            W::fence_restartable()?;
            let root = self.budget.root();
            root.close_all_stocks();
            // Partner: the light fences in `stocked` and `serve`.
            W::try_fence_all()?;
            root.take_stocks_back();
        }
        serve(queue);
        Ok(())
    }

    fn value(&self, (): ()) -> ChargedAmount<'a, W> {
        ChargedAmount { budget: self.budget, amount: self.amount }
    }

    fn leave(&self, given: Option<()>) {
        match given {
            Some(()) => self.budget.uncharge(self.amount),
            None => self.budget.serve(),
        }
    }
}

/// An amount that was charged for a future: given back unless the future is ready.
struct ChargedAmount<'a, W: World> {
    budget: &'a Budget<W>,
    amount: u64,
}

impl<W: World> Drop for ChargedAmount<'_, W> {
    fn drop(&mut self) {
        self.budget.uncharge(self.amount);
    }
}

/// A future that charges a budget, from [`Budget::charge_async`].
///
/// **Cancelling**: dropping the future cancels the wait. If the amount was already charged for the
/// future, it is uncharged. A future that is neither polled nor dropped after it was woken keeps
/// the amount. A future that is forgotten while it waits stays in the queue, and keeps the budgets
/// alive and their stocks closed. **Signals**: signal handlers must not use it. **Fork**: in the
/// child, a future for which the amount was charged is ready. If another thread used the queue at
/// the time of the fork, the child loses that charge, and its amount stays in use. A future without
/// a charge tries again when it is next polled, and joins the child's queue if there is no room.
#[must_use = "a future does nothing unless it is polled"]
pub struct ChargeFuture<'a, W: World = Native> {
    waiting: Waiting<'a, Charge<'a, W>, W>,
}

impl<W: World> Future for ChargeFuture<'_, W> {
    type Output = Result<(), ChargeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.waiting.poll(context).map(|charged| charged.map(mem::forget))
    }
}

impl<W: World> fmt::Debug for ChargeFuture<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargeFuture").field("waits", &self.waiting.waits()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use coreline_topology::CpuId;
    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Testbed};

    use super::*;

    /// One waits for room while another gives the only amount back, into the stock of its CPU.
    fn one_waits_while_one_uncharges<W: Testbed>() {
        let budget = Budget::<W>::new_in("law", 1).unwrap();
        budget.charge(1).unwrap();
        let theirs = budget.clone();
        let waits = move || {
            theirs.charge_wait(1).unwrap();
            theirs.uncharge(1);
        };
        let waits = W::spawn(Placement::On(CpuId::new(1)), waits).unwrap();
        budget.uncharge(1);
        waits.join();
        assert_eq!(budget.used(), 0);
    }

    /// One has more for a moment than it gets: its first attempt fills a stock, too. Meanwhile
    /// another finds its budget full, waits, and has room from then on.
    fn one_waits_while_one_tries_for_more<W: Testbed>() {
        let root = Budget::<W>::new_in("root", 2).unwrap();
        root.charge(1).unwrap();
        let child = root.child("child", 2).unwrap();
        let (above, theirs) = (root.clone(), child.clone());
        let waits = move || {
            above.uncharge(1);
            theirs.charge_wait(1).unwrap();
            theirs.uncharge(1);
        };
        let waits = W::spawn(Placement::On(CpuId::new(1)), waits).unwrap();
        // Refused only while the other one tries for more.
        let charged = child.charge(1).is_ok();
        waits.join();
        child.uncharge(u64::from(charged));
        assert_eq!(child.used(), 0);
    }

    #[test]
    fn one_that_waits_gets_what_one_tried_for_in_every_interleaving() {
        let checker = Checker::new().preemption_bound(1).max_branches(20_000);
        checker.plant(Plant::EXCHANGES).check(one_waits_while_one_tries_for_more::<Model>);
    }

    #[test]
    fn one_that_waits_gets_the_room_in_every_interleaving() {
        let checker = |plant| Checker::new().preemption_bound(2).max_branches(20_000).plant(plant);
        let law = one_waits_while_one_uncharges::<Model>;
        // The queue's mutex has a law that needs stores to be exchanges.
        checker(Plant::EXCHANGES).check(law);
        for plant in [
            Plant { light_fences: false, ..Plant::EXCHANGES },
            Plant { heavy_fences: false, ..Plant::EXCHANGES },
        ] {
            let failure = checker(plant).try_check(law).expect_err("a missing fence");
            assert!(failure.message.contains("deadlock"), "{failure}");
        }
    }
}
