//! [`Budget`]: a limit that many CPUs charge against.
//!
//! A word that all CPUs subtract from costs a line transfer each time. So each CPU takes a *stock*
//! from the central word and charges against that, without atomic instructions; only one that has
//! run out, or has too much, goes to the central word. (The kernel's memory control groups do the
//! same: `memcg_stock`.)
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `used` | what is charged, and all stocks; never above the limit | exchanges, additions |
//! | a stock | what its CPU may charge without the central word | operations; a drain |
//!
//! A charge that finds the limit reached takes the stocks of all CPUs back before it gives up. So
//! one is refused while there is room only where other threads charge at the same moment, or where
//! the machine cannot fence sections.

use core::fmt;
use std::sync::Arc;

use coreline_world::{IndexBy, Integer, Line, Native, Ordering, Word, World};

use crate::percpu::{PerCpu, PoolError};

/// A charge was refused. Nothing was charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the budget {name} has no room for {asked}: {used} of {limit} are in use; give something back, \
     or raise the limit"
)]
pub struct OverBudget {
    /// The budget's name.
    pub name: String,
    /// What was asked for.
    pub asked: u64,
    /// What was in use.
    pub used: u64,
    /// What can be.
    pub limit: u64,
}

/// So much may be charged at one time, in units of the caller's: bytes, objects. A handle: clones
/// are the same budget.
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
/// **Law**: what is charged is never more than the limit.
///
/// **Signals**: not for handlers: a charge that is refused makes a message. **Fork**: the child has
/// a copy, with what was charged at the time of the fork; what another thread was moving between a
/// stock and the central word may be lost to it.
pub struct Budget<W: World = Native> {
    shared: Arc<Shared<W>>,
}

struct Shared<W: World> {
    name: String,
    limit: u64,
    /// A power of two: a stock is below twice as much.
    batch: u64,
    stocks: PerCpu<W::U64, W>,
    used: Line<W::U64>,
}

/// A stock leaves it as it is: set, it has gone below zero.
const SIGN: u64 = 1 << 63;

impl Budget {
    /// Nothing is charged.
    ///
    /// # Errors
    ///
    /// As [`new_in`](Budget::new_in).
    pub fn new(name: impl Into<String>, limit: u64) -> Result<Self, PoolError> {
        Self::new_in(name, limit)
    }
}

impl<W: World> Budget<W> {
    /// Nothing is charged.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory for the CPUs' stocks.
    pub fn new_in(name: impl Into<String>, limit: u64) -> Result<Self, PoolError> {
        let cpus = W::topology().cpu_limit().max(1) as u64;
        // All stocks together are at most a quarter of the limit, as far as that can be.
        let batch = (limit / (8 * cpus)).clamp(1, 1 << 20);
        let shared = Shared {
            name: name.into(),
            limit: limit.min(SIGN - 1),
            batch: 1 << batch.ilog2(),
            stocks: PerCpu::words_in(IndexBy::Cpu)?,
            used: Line(W::U64::new_in(0)),
        };
        Ok(Budget { shared: Arc::new(shared) })
    }

    /// Charges `amount`.
    ///
    /// # Errors
    ///
    /// [`OverBudget`] if that would be more than the limit, with nothing charged.
    #[inline]
    pub fn charge(&self, amount: u64) -> Result<(), OverBudget> {
        let stock = self.shared.stocks.field(|word| word);
        if amount < SIGN && stock.add_if(amount.wrapping_neg(), SIGN).is_ok() {
            return Ok(());
        }
        self.charge_centrally(amount)
    }

    /// Gives back what was charged.
    ///
    /// More than that is a mistake that shows in [`used`](Budget::used), and in charges that the
    /// limit should have refused.
    #[inline]
    pub fn uncharge(&self, amount: u64) {
        let kept = !(2 * self.shared.batch - 1);
        let stock = self.shared.stocks.field(|word| word);
        if stock.add_if(amount, kept).is_err() {
            self.give_back(amount);
        }
    }

    #[cold]
    #[inline(never)]
    fn charge_centrally(&self, amount: u64) -> Result<(), OverBudget> {
        let Shared { limit, batch, stocks, name, .. } = &*self.shared;
        let stocked = amount.saturating_add(*batch);
        if self.take(stocked) {
            let kept = !(2 * batch - 1);
            if stocks.field(|word| word).add_if(*batch, kept).is_err() {
                // Another thread of this CPU was faster.
                self.give_back(*batch);
            }
            return Ok(());
        }
        if self.take(amount) {
            return Ok(());
        }
        self.drain();
        if self.take(amount) {
            return Ok(());
        }
        let used = self.used();
        Err(OverBudget { name: name.clone(), asked: amount, used, limit: *limit })
    }

    /// Takes `amount` from the central word, if there is so much.
    fn take(&self, amount: u64) -> bool {
        let Shared { used, limit, .. } = &*self.shared;
        // Relaxed, all: the word carries nothing but its own value.
        let relaxed = Ordering::Relaxed;
        let mut seen = used.0.load(relaxed);
        loop {
            let room = limit.checked_sub(seen).filter(|room| *room >= amount);
            if room.is_none() {
                return false;
            }
            match used.0.compare_exchange_weak(seen, seen + amount, relaxed, relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn give_back(&self, amount: u64) {
        // Relaxed: the word carries nothing but its own value.
        self.shared.used.0.fetch_add(amount.wrapping_neg(), Ordering::Relaxed);
    }

    /// Takes the stocks of all CPUs back, as far as this machine lets a thread.
    fn drain(&self) {
        let stocks = &self.shared.stocks;
        let drained = stocks.with_all_stopped(|slots| {
            slots.map(|slot| slot.field(|word| word).replace(0)).fold(0, u64::wrapping_add)
        });
        if let Ok(drained) = drained {
            self.give_back(drained);
        }
    }

    /// What is charged: exact while no thread charges or gives back.
    pub fn used(&self) -> u64 {
        // The stocks first: what moves out of one meanwhile is then counted as used.
        let stocks = self.shared.stocks.sum();
        // Relaxed: a figure, stale when it is given.
        self.shared.used.0.load(Ordering::Relaxed).saturating_sub(stocks)
    }

    /// What can be charged at one time.
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }

    /// The budget's name, as messages have it.
    pub fn name(&self) -> &str {
        &self.shared.name
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
            .field("limit", &self.shared.limit)
            .finish_non_exhaustive()
    }
}
