//! [`Budget`]: a limit that many CPUs charge against.
//!
//! If all CPUs subtract from one word, each charge costs a cache-line transfer. So each CPU takes a
//! *stock* from the central word and charges against it, without atomic instructions. A CPU
//! accesses the central word only when its stock is empty or too large. (The kernel's memory
//! control groups do the same: `memcg_stock`.)
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | an eighth of the limit, `MOST` | no stocks | stocks hold the limit back | `stocks_of_a_..` |
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `limit` | what may be charged at one time | [`Budget::set_limit`] |
//! | `used` | what is charged, and all stocks; above a limit that was lowered | exchanges |
//! | a stock | what its CPU may charge without the central word | operations; a drain |
//! | `stocking` | see below | [`Budget::set_limit`], a caller that waits, and what gives back |
//!
//! A charge that finds the limit reached takes back the stocks of all CPUs before it fails. So a
//! charge fails despite free room only if other threads charge at the same moment, or if the
//! machine cannot fence sections.
//!
//! # A limit that is lowered
//!
//! | bits of `stocking` | meaning |
//! |---|---|
//! | 0 to 20 | the *batch* that a stock is filled with, a power of two; 0: stocks are closed |
//! | 21 to 63 | how often the stocks were closed |
//!
//! A charge from a stock does not read the limit. So stocks are used only while `used`, which
//! includes all of them, is at most the limit. A thread that sets the limit first closes the stocks
//! and takes them back. That thread, or a thread that uncharges an amount, opens them again if it
//! finds that `used` is at most the limit. The opening fails if the limit was set meanwhile,
//! because the count has changed. A charge to the central word reads the limit again afterwards:
//!
//! ```text
//! Thread 1: charges 30: loads the limit, 100, and used, 40
//! Thread 2: sets the limit to 50; finds 40 in use, and opens the stocks
//! Thread 1: used: 40 to 70; loads the limit, 50, and gives the 30 back
//! ```
//!
//! Every update of `used` is an atomic read-modify-write. Thread 1's update follows thread 2's
//! read, so thread 1 sees the limit of thread 2.
//!
//! Stocks are also closed while a caller waits for room: see the module `wait`.
//!
//! # Budgets in budgets
//!
//! The amount in the central word of a [child](Budget::child) is also charged to its parent. It
//! consists of the child's charges and stocks. A charge from a child's stock does not charge the
//! parent. An amount that is given back to a child's central word is also given back to the parent.
//! A parent without room first takes back the stocks of all budgets below it.

mod children;
mod wait;

use core::fmt;
use std::sync::Arc;

use coreline_world::{IndexBy, Line, Native, Ordering, Word, World};

use crate::percpu::{PerCpu, PoolError};
use crate::queue::Queues;

use children::Children;
use wait::Asked;

pub use wait::{ChargeError, ChargeFuture};

/// The error for a refused charge. Nothing was charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the budget {name} has no room for {asked}: {used} of {limit} are in use; give something back, \
     or raise the limit"
)]
pub struct OverBudget {
    /// The name of the budget.
    pub name: String,
    /// The requested amount.
    pub asked: u64,
    /// The amount that was in use.
    pub used: u64,
    /// The limit of the budget.
    pub limit: u64,
}

/// A limit on the amount that is charged at one time, in the caller's units, such as bytes or
/// objects. The type is a handle, and its clones are the same budget. One central word counts the
/// charged amount. Each CPU charges a *stock* there in advance. A charge that the CPU's stock
/// covers needs no cache-line transfer.
///
/// ```
/// use coreline::object::Budget;
///
/// let bytes = Budget::new("tenant 7", 1000)?;
/// bytes.charge(900)?;
/// let refused = bytes.charge(200).unwrap_err();
/// assert_eq!((refused.used, refused.limit), (900, 1000));
/// bytes.uncharge(900);
/// assert_eq!(bytes.used(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// **Law**: the charged amount never exceeds the limit. If the limit was
/// [lowered](Budget::set_limit) below the amount charged at that time, it never exceeds that
/// amount. A limit of `u64::MAX` refuses no amount that can be counted, so it only counts.
///
/// **Waiting**: [`charge`](Budget::charge) refuses immediately if there is no room.
/// [`charge_by`](Budget::charge_by) and [`charge_async`](Budget::charge_async) wait for it.
///
/// **Signals**: signal handlers must not use a budget, because charges and uncharges may take locks
/// and allocate. **Memory**: see [the crate](crate#without-memory). **Fork**: the child has a copy,
/// with the charges at the time of the fork. The copy may lack an amount that another thread was
/// moving between a stock and the central word. It may also lack a child budget that another thread
/// was creating.
pub struct Budget<W: World = Native> {
    shared: Arc<Shared<W>>,
}

struct Shared<W: World> {
    name: String,
    cpus: u64,
    limit: W::U64,
    stocking: W::U64,
    stocks: PerCpu<W::U64, W>,
    used: Line<W::U64>,
    parent: Option<Budget<W>>,
    children: Children<W>,
    /// The callers that wait for room in this budget or in one below. A budget with a parent does
    /// not use this queue.
    queues: Queues<Asked<W>, (), W>,
}

/// A stock leaves it as it is: set, it has gone below zero.
const SIGN: u64 = 1 << 63;
/// The largest batch. A stock is below twice as much.
const MOST: u64 = 1 << 20;
/// The bits of `stocking` that are a batch.
const BATCH: u64 = 2 * MOST - 1;

impl Budget {
    /// Creates a budget without charges.
    ///
    /// # Errors
    ///
    /// The same errors as for [`new_in`](Budget::new_in).
    pub fn new(name: impl Into<String>, limit: u64) -> Result<Self, PoolError> {
        Self::new_in(name, limit)
    }
}

impl<W: World> Budget<W> {
    /// Creates a budget without charges.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory for the CPUs' stocks. Other memory comes from the global
    /// allocator: see [the crate](crate#without-memory).
    pub fn new_in(name: impl Into<String>, limit: u64) -> Result<Self, PoolError> {
        Self::below(name.into(), limit, None)
    }

    /// Creates a budget inside this budget, such as a tenant's budget inside the machine's budget.
    /// Each charge to the child is charged to both, and both limits hold. [`OverBudget::name`] says
    /// which budget refused a charge.
    ///
    /// ```
    /// use coreline::object::Budget;
    ///
    /// let machine = Budget::new("machine", 1000)?;
    /// let tenants = [machine.child("a", 600)?, machine.child("b", 600)?];
    /// tenants[0].charge(600)?;
    /// tenants[1].charge(400)?;
    /// assert_eq!(tenants[1].charge(1).unwrap_err().name, "machine");
    /// assert_eq!(machine.used(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The stocks of the child's CPUs are also charged to the parent. Together, they hold at most
    /// about a quarter of the child's limit. Before a parent refuses a charge, it takes those
    /// stocks back. While the parent is above a lowered limit, a child may still charge from its
    /// stocks.
    ///
    /// When the child's last handle is dropped, its remaining charges are returned to the parent.
    /// Nest budgets at most a few hundred levels deep, because a charge and the drop of the last
    /// handle recurse once per level.
    ///
    /// A global allocator must not charge a budget that has children, or for which callers wait,
    /// because it would deadlock.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory for the CPUs' stocks. Other memory comes from the global
    /// allocator: see [the crate](crate#without-memory).
    pub fn child(&self, name: impl Into<String>, limit: u64) -> Result<Self, PoolError> {
        let child = Self::below(name.into(), limit, Some(self.clone()))?;
        self.shared.children.add(Arc::downgrade(&child.shared));
        // A caller that waits is in the queue before it closes the stocks of all children. So its
        // look, which takes the lock of the children, finds this one, or comes before this look.
        if self.is_waited_for() {
            child.close_stocks();
        }
        Ok(child)
    }

    fn below(name: String, limit: u64, parent: Option<Budget<W>>) -> Result<Self, PoolError> {
        let cpus = W::topology().cpu_limit().max(1) as u64;
        let shared = Shared {
            name,
            cpus,
            limit: W::U64::new_in(limit),
            stocking: W::U64::new_in(batch(limit, cpus)),
            stocks: PerCpu::words_in(IndexBy::Cpu)?,
            used: Line(W::U64::new_in(0)),
            parent,
            children: Children::new_in(),
            queues: Queues::new_in(),
        };
        Ok(Budget { shared: Arc::new(shared) })
    }

    /// Charges `amount`.
    ///
    /// # Errors
    ///
    /// [`OverBudget`] if the charge would exceed the limit. Then nothing is charged.
    #[inline]
    pub fn charge(&self, amount: u64) -> Result<(), OverBudget> {
        if self.take_from_stock(amount) {
            return Ok(());
        }
        self.charge_centrally(amount)
    }

    #[inline]
    fn take_from_stock(&self, amount: u64) -> bool {
        amount < SIGN && self.batch() > 0 && {
            let stock = self.shared.stocks.field(|word| word);
            stock.add_if(amount.wrapping_neg(), SIGN).is_ok()
        }
    }

    /// Uncharges an amount that was charged before.
    ///
    /// Uncharging more than was charged is a mistake. Then [`used`](Budget::used) is too low, and
    /// charges pass that the limit should refuse. If an amount is uncharged while nothing is
    /// charged, it is ignored, at the latest when a charge is refused.
    #[inline]
    pub fn uncharge(&self, amount: u64) {
        let full = 2 * self.batch();
        if amount < full {
            let stock = self.shared.stocks.field(|word| word);
            if stock.add_if(amount, !(full - 1)).is_ok() {
                return self.stocked();
            }
        }
        self.give_back(amount);
    }

    /// A stock grew. Stocks that were closed meanwhile may be waited for.
    #[inline(always)]
    fn stocked(&self) {
        // Partner: the heavy fence of a caller that waits, which closes the stocks before it.
        W::fence_light();
        if self.batch() == 0 {
            self.take_stocks_back();
        }
    }

    /// Sets the limit. Other threads may charge and uncharge amounts meanwhile.
    ///
    /// Existing charges above the new limit stay. All new charges are refused until enough has been
    /// uncharged.
    ///
    /// ```
    /// use coreline::object::Budget;
    ///
    /// let bytes = Budget::new("cache", 1000)?;
    /// bytes.charge(900)?;
    /// bytes.set_limit(500);
    /// assert!(bytes.charge(1).is_err());
    /// bytes.uncharge(500);
    /// bytes.charge(100)?;
    /// assert_eq!((bytes.used(), bytes.limit()), (500, 500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The call stops the stocks of all CPUs. This costs one fence of all CPUs that the process
    /// runs on, for each budget whose stocks are not empty. These can be this budget and all
    /// budgets below it. Use the call to change the configuration, not for each request.
    pub fn set_limit(&self, limit: u64) {
        self.close(limit);
        self.take_stocks_back();
    }

    /// Sets the limit, and closes the stocks.
    fn close(&self, limit: u64) {
        // Relaxed: the release of the exchange publishes it.
        self.shared.limit.store(limit, Ordering::Relaxed);
        self.close_stocks();
    }

    /// Closes the stocks, without changing their contents.
    fn close_stocks(&self) {
        let stocking = &self.shared.stocking;
        // Relaxed: the exchange looks again.
        let mut seen = stocking.load(Ordering::Relaxed);
        loop {
            let closed = (seen & !BATCH).wrapping_add(BATCH + 1);
            // Release pairs with the acquire in `give_back_here`: what opens the stocks that this
            // closes compares `used` with this limit, or a later one. Relaxed on failure: it is
            // tried again.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            match stocking.compare_exchange_weak(seen, closed, done, failed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Returns the amount that a stock is filled with; 0 means that stocks are closed.
    #[inline]
    fn batch(&self) -> u64 {
        // Relaxed: a thread that comes behind the one that set the limit, in whatever way, finds
        // them closed; for another one it may have come before.
        self.shared.stocking.load(Ordering::Relaxed) & BATCH
    }

    #[cold]
    #[inline(never)]
    fn charge_centrally(&self, amount: u64) -> Result<(), OverBudget> {
        let charged = self.try_centrally(amount);
        // An attempt that failed held some room for a moment. Another thread that looked for room
        // at that moment, for the callers that wait, may have found none.
        self.serve();
        charged
    }

    fn try_centrally(&self, amount: u64) -> Result<(), OverBudget> {
        if self.take_and_stock(amount) {
            return Ok(());
        }
        self.take_stocks_back();
        if !self.take_here(amount) {
            return Err(self.refusal(amount));
        }
        let above = self.shared.parent.as_ref().map_or(Ok(()), |parent| parent.charge(amount));
        above.inspect_err(|_| _ = self.give_back_here(amount))
    }

    fn refusal(&self, asked: u64) -> OverBudget {
        let (name, used, limit) = (self.shared.name.clone(), self.used(), self.limit());
        OverBudget { name, asked, used, limit }
    }

    /// Takes `amount` from the central word, and fills the stock if there is enough.
    fn take_and_stock(&self, amount: u64) -> bool {
        let batch = self.batch();
        let stocked = amount.checked_add(batch).filter(|_| batch > 0);
        if stocked.is_none_or(|stocked| self.take(stocked).is_err()) {
            return self.take(amount).is_ok();
        }
        let kept = !(2 * batch - 1);
        if self.shared.stocks.field(|word| word).add_if(batch, kept).is_ok() {
            self.stocked();
        } else {
            // Another thread of this CPU was faster.
            self.give_back(batch);
        }
        true
    }

    /// Takes `amount` from the central word and from the parent, if both have this much.
    ///
    /// # Errors
    ///
    /// The budget that has not.
    fn take(&self, amount: u64) -> Result<(), &Self> {
        if !self.take_here(amount) {
            return Err(self);
        }
        // A parent's stock is not filled here: each level would try twice, and each of these the
        // level above.
        match &self.shared.parent {
            Some(parent) if !parent.take_from_stock(amount) => {
                parent.take(amount).inspect_err(|_| _ = self.give_back_here(amount))
            }
            _ => Ok(()),
        }
    }

    /// Takes `amount` from the central word, if there is this much.
    fn take_here(&self, amount: u64) -> bool {
        let Shared { used, limit, .. } = &*self.shared;
        // Relaxed: the exchange looks again.
        let mut seen = used.0.load(Ordering::Relaxed);
        loop {
            // Relaxed: it is looked at again behind the exchange.
            let most = limit.load(Ordering::Relaxed);
            if most.checked_sub(seen).is_none_or(|room| room < amount) {
                // Nothing is always there, also above a limit that was lowered.
                return amount == 0;
            }
            // Acquire pairs with the release in `give_back_here`: see the module. Relaxed on
            // failure: it is tried again.
            let (done, failed) = (Ordering::Acquire, Ordering::Relaxed);
            match used.0.compare_exchange_weak(seen, seen + amount, done, failed) {
                Ok(_) => {
                    // Relaxed: the acquire orders it behind the exchange.
                    if limit.load(Ordering::Relaxed) >= seen + amount {
                        return true;
                    }
                    self.give_back_here(amount);
                    // Relaxed: as at first.
                    seen = used.0.load(Ordering::Relaxed);
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Gives `amount` back to the central word, and to the parent.
    #[cold]
    #[inline(never)]
    fn give_back(&self, amount: u64) {
        let given = self.give_back_here(amount);
        match &self.shared.parent {
            Some(parent) => parent.uncharge(given),
            None => self.serve(),
        }
    }

    /// Gives `amount` back to the central word, and opens the stocks if they wait for this. Returns
    /// what was given back: not more than there was.
    fn give_back_here(&self, amount: u64) -> u64 {
        let Shared { used, stocking, limit, cpus, .. } = &*self.shared;
        // Acquire pairs with the release in `set_limit`: the limit that closed the stocks is there.
        let closed = stocking.load(Ordering::Acquire);
        // Relaxed: the exchange looks again.
        let mut seen = used.0.load(Ordering::Relaxed);
        let left = loop {
            // More than that was given back too often.
            let left = seen.saturating_sub(amount);
            // Release pairs with the acquire in `take`: a charge that comes behind this look sees
            // the limit. Relaxed on failure: it is tried again.
            let (done, failed) = (Ordering::Release, Ordering::Relaxed);
            match used.0.compare_exchange_weak(seen, left, done, failed) {
                Ok(_) => break left,
                Err(now) => seen = now,
            }
        };
        let given = seen - left;
        if closed & BATCH > 0 {
            return given;
        }
        // Relaxed: behind the acquire.
        let limit = limit.load(Ordering::Relaxed);
        if left <= limit && !self.is_waited_for() {
            let open = closed | batch(limit, *cpus);
            // Relaxed, both: it says no more than that stocks may be used. If it fails, they are
            // open already, or wait for another limit.
            let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = stocking.compare_exchange(closed, open, done, failed);
        }
        given
    }

    /// Gives back what is in the stocks here and in all budgets below.
    #[cold]
    #[inline(never)]
    fn take_stocks_back(&self) {
        // Those below first: what they give back may go into a stock of this one.
        for shared in self.shared.children.all() {
            Budget { shared }.take_stocks_back();
        }
        self.give_back(self.drain());
    }

    /// Takes what is in the stocks of all CPUs; where this machine does not let a thread do that,
    /// what is in its own one. Without a fence if they are empty, as those of most tenants are. A
    /// stock that a thread fills at this moment may be left: `used` has it, and while stocks are
    /// closed no charge takes it.
    fn drain(&self) -> u64 {
        let stocks = &self.shared.stocks;
        if stocks.sum() == 0 {
            return 0;
        }
        let drained = stocks.with_all_stopped(|slots| {
            slots.map(|slot| slot.field(|word| word).replace(0)).fold(0, u64::wrapping_add)
        });
        drained.unwrap_or_else(|_| stocks.field(|word| word).exchange(0))
    }

    /// Returns the charged amount. The amount is exact while no thread charges or uncharges an
    /// amount.
    pub fn used(&self) -> u64 {
        // The stocks first: what moves out of one meanwhile is then counted as used.
        let stocks = self.shared.stocks.sum();
        // Relaxed: a figure, stale when it is given.
        self.shared.used.0.load(Ordering::Relaxed).saturating_sub(stocks)
    }

    /// Returns the limit.
    pub fn limit(&self) -> u64 {
        // Relaxed: a figure, stale when it is given.
        self.shared.limit.load(Ordering::Relaxed)
    }

    /// Returns the budget's name, as it appears in messages.
    pub fn name(&self) -> &str {
        &self.shared.name
    }
}

/// The number of units that fill a stock. If possible, all stocks together are at most a quarter of
/// the limit.
pub(super) fn batch(limit: u64, cpus: u64) -> u64 {
    1 << (limit / (8 * cpus)).clamp(1, MOST).ilog2()
}

impl<W: World> Drop for Shared<W> {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            // Relaxed: no other thread has it.
            parent.uncharge(self.used.0.load(Ordering::Relaxed));
        }
    }
}

impl<W: World> Clone for Budget<W> {
    fn clone(&self) -> Self {
        Budget { shared: Arc::clone(&self.shared) }
    }
}

impl<W: World> fmt::Debug for Budget<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("name", &self.shared.name)
            .field("used", &self.used())
            .field("limit", &self.limit())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use coreline_topology::CpuId;
    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Testbed};

    use super::*;

    /// One thread charges, and another one lowers the limit and opens the stocks.
    fn open_stocks_are_within_the_limit<W: Testbed>() {
        let budget = Budget::<W>::new_in("law", 100).unwrap();
        assert!(budget.take_here(10));
        let theirs = budget.clone();
        let charge = W::spawn(Placement::On(CpuId::new(1)), move || theirs.take_here(30)).unwrap();
        budget.close(20);
        budget.give_back_here(0);
        let charged = charge.join();
        assert!(!charged || budget.batch() == 0, "40 of 20 are used, and stocks are open");
        assert_eq!(budget.used(), if charged { 40 } else { 10 });
        budget.give_back_here(budget.used() - 10);
        assert!(budget.batch() > 0, "the stocks stay closed");
    }

    #[test]
    fn open_stocks_are_within_the_limit_in_every_interleaving() {
        Checker::new().preemption_bound(3).check(open_stocks_are_within_the_limit::<Model>);
    }

    #[test]
    fn stocks_that_are_opened_by_a_relaxed_exchange_are_caught() {
        let checker = Checker::new().preemption_bound(3).plant(Plant::RELAXED_RMWS);
        let failure = checker.try_check(open_stocks_are_within_the_limit::<Model>).unwrap_err();
        assert!(failure.message.contains("stocks are open"), "{failure}");
    }
}
