//! Gets that wait for room in the cache's budget.

use std::sync::Arc;

use coreline_world::{Time, World};

use super::budget::Budget;
use super::builder::Pressure;
use super::cache::{Charged, GetError, ObjectCache};
use super::handle::Object;
use super::leaf;
use super::owned::OwnedObject;

/// # Gets that wait
///
/// A get that finds the [budget](super::Builder::budget) full calls
/// [`on_pressure`](super::Builder::on_pressure) first, as all gets do, and then waits. The callers
/// that wait for a budget get room in FIFO order: see [`Budget::charge_wait`]. Other gets do not
/// wait, and may overtake them. Without a budget, no get waits. The budget limits the objects in
/// use: if an object is returned on another CPU, a get that waited may construct one more.
///
/// **Panics**: in builds with debug assertions, these gets panic in the destructor of an object, as
/// all gets do. **Cancelling, fork** of the futures: see [`ChargeFuture`](super::ChargeFuture).
///
/// [`Budget::charge_wait`]: super::Budget::charge_wait
impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// Gets an object whose life has default data, like [`get`](ObjectCache::get), but waits until
    /// `deadline` if the budget is full.
    ///
    /// ```
    /// use std::thread;
    /// use std::time::Duration;
    ///
    /// use coreline::object::{Budget, GetError, ObjectCache};
    /// use coreline::world::{Clock, Native};
    ///
    /// // At most two connections at a time.
    /// let connections = ObjectCache::<u32>::builder("connections")
    ///     .budget(Budget::new("connections", 2)?, 1)
    ///     .build(|| Ok::<_, GetError>(7))?;
    /// thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| {
    ///             let deadline = Native::now() + Duration::from_secs(10);
    ///             connections.get_by(deadline).map(|connection| *connection)
    ///         });
    ///     }
    /// });
    /// assert_eq!(connections.stats().gets, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The same errors as for [`get`](ObjectCache::get). [`GetError::OverBudget`] means that the
    /// deadline passed, or that the budget's limit is too low for any object.
    pub fn get_by(&self, deadline: Time) -> Result<Object<'_, T, L, W>, GetError>
    where
        L: Default,
    {
        self.get_with_by(deadline, L::default)
    }

    /// Gets an object, and calls `life` for the data of its life, and waits like
    /// [`get_by`](ObjectCache::get_by). `life` is called only after an object was found.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get_by`](ObjectCache::get_by). `life` was not called.
    pub fn get_with_by(
        &self,
        deadline: Time,
        life: impl FnOnce() -> L,
    ) -> Result<Object<'_, T, L, W>, GetError> {
        leaf::no_cache_in_a_destructor::<W>(self.name());
        if let Some((budget, each)) = self.full_budget() {
            budget.charge_by(each, deadline)?;
        }
        self.begin_charged(life)
    }

    /// Gets an object whose life has default data, and waits without blocking the thread.
    ///
    /// Dropping the future cancels the wait, and nothing was charged.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get`](ObjectCache::get). [`GetError::OverBudget`] means that the
    /// budget's limit is too low for any object.
    pub async fn get_async(&self) -> Result<Object<'_, T, L, W>, GetError>
    where
        L: Default,
    {
        self.get_with_async(L::default).await
    }

    /// Gets an object, and calls `life` for the data of its life, and waits like
    /// [`get_async`](ObjectCache::get_async).
    ///
    /// # Errors
    ///
    /// The same errors as for [`get_async`](ObjectCache::get_async). `life` was not called.
    pub async fn get_with_async(
        &self,
        life: impl FnOnce() -> L,
    ) -> Result<Object<'_, T, L, W>, GetError> {
        leaf::no_cache_in_a_destructor::<W>(self.name());
        if let Some((budget, each)) = self.full_budget() {
            budget.charge_async(each).await?;
        }
        self.begin_charged(life)
    }

    /// Charges for an object, unless the budget refuses that or others wait for it. Returns the
    /// budget that the caller must wait for, and how much to charge.
    fn full_budget(&self) -> Option<(&Budget<W>, u64)> {
        let (budget, each) = self.budget.as_ref()?;
        let refused = if budget.is_waited_for() {
            // It must not overtake, but others may have said no to the pressure.
            let _ = budget.is_full_for(*each) && self.relieve(Pressure::Budget);
            true
        } else {
            self.charge().is_err()
        };
        refused.then_some((budget, *each))
    }

    /// Gets an object whose life has default data, and waits like [`get_by`](ObjectCache::get_by).
    /// The handle keeps the cache alive.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get_by`](ObjectCache::get_by).
    pub fn get_owned_by(self: &Arc<Self>, deadline: Time) -> Result<OwnedObject<T, L, W>, GetError>
    where
        L: Default,
    {
        // SAFETY: the object is of this cache.
        Ok(unsafe { self.owned(self.get_by(deadline)?) })
    }

    /// Gets an object whose life has default data, and waits like
    /// [`get_async`](ObjectCache::get_async). The handle keeps the cache alive.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get_async`](ObjectCache::get_async).
    pub async fn get_owned_async(self: &Arc<Self>) -> Result<OwnedObject<T, L, W>, GetError>
    where
        L: Default,
    {
        // SAFETY: the object is of this cache.
        Ok(unsafe { self.owned(self.get_async().await?) })
    }

    /// Takes an object for which the caller has charged.
    fn begin_charged(&self, life: impl FnOnce() -> L) -> Result<Object<'_, T, L, W>, GetError> {
        let body = self.take_charged(Charged(self))?;
        // SAFETY: the body is this thread's alone, and has no life before.
        Ok(unsafe {
            self.begin(body, life);
            Object::new(self, body)
        })
    }
}
