//! [`Rcu`]: a value that readers see as a whole, and that writers replace.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use coreline_world::{Native, Ordering, Word, World};

use super::collector::Collector;
use super::guard::{Guard, Section};
use crate::percpu::PoolError;

/// A value that is often read and seldom replaced. Writers [retire](Collector::retire) the old one.
///
/// ```
/// use coreline::rcu::Rcu;
///
/// let routes = Rcu::new(vec!["10.0.0.0/8"])?;
/// let before = routes.read();
/// routes.update(|old| old.iter().copied().chain(["192.168.0.0/16"]).collect());
/// assert_eq!((before.len(), routes.read().len()), (1, 2), "a section keeps what it found");
/// # Ok::<(), coreline::percpu::PoolError>(())
/// ```
///
/// A read costs two additions to per-CPU memory and a load. In a section that has already begun,
/// [`load`](Rcu::load) costs only the load and a comparison.
///
/// **Law**: a reader finds the whole value of one store or update. Each value is dropped once,
/// after the end of all sections that may have found it.
///
/// The rules of [`Collector`] for memory, panics, priorities, signals and forks also hold here. In
/// a signal handler, [`read`](Rcu::read) and [`load`](Rcu::load) are async-signal-safe.
pub struct Rcu<T: Send + Sync + 'static, W: World = Native> {
    current: W::Ptr<T>,
    collector: Arc<Collector<W>>,
}

// As an `Arc` in a mutex that is not poisoned: a panic leaves the old value or the new one.
impl<T: Send + Sync + RefUnwindSafe + 'static, W: World> UnwindSafe for Rcu<T, W> {}
impl<T: Send + Sync + RefUnwindSafe + 'static, W: World> RefUnwindSafe for Rcu<T, W> {}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// Creates a value with a collector of its own.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if there is no memory.
    pub fn new(value: T) -> Result<Self, PoolError> {
        Ok(Self::with_collector(&Arc::new(Collector::new()?), value))
    }
}

impl<T: Send + Sync + 'static, W: World> Rcu<T, W> {
    /// Creates a value whose readers and old values are the collector's. One section may read
    /// several such values. A section also delays the drop of the old values of all the others.
    pub fn with_collector(collector: &Arc<Collector<W>>, value: T) -> Self {
        let current = <W::Ptr<T> as Word>::new_in(Box::into_raw(Box::new(value)));
        Rcu { current, collector: Arc::clone(collector) }
    }

    /// Returns the collector.
    pub fn collector(&self) -> &Arc<Collector<W>> {
        &self.collector
    }

    /// Reads the value, in a section that ends when the result drops.
    #[inline]
    pub fn read(&self) -> RcuRef<'_, T, W> {
        let guard = self.collector.enter();
        // SAFETY: the section begins before the load and ends after the reference, with which the
        // guard is kept.
        let value = unsafe { &*self.found() };
        RcuRef { value, _guard: guard }
    }

    /// Reads the value in a section that is in progress, which may read other values, too.
    ///
    /// ```
    /// use coreline::rcu::{Collector, Rcu};
    /// use std::sync::Arc;
    ///
    /// let collector = Arc::new(Collector::new()?);
    /// let [low, high] = [1, 9].map(|value| Rcu::with_collector(&collector, value));
    /// let guard = collector.enter();
    /// assert!(low.load(&guard) < high.load(&guard));
    /// # Ok::<(), coreline::percpu::PoolError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the section belongs to another collector.
    #[inline]
    pub fn load<'g>(&'g self, guard: &'g impl Section<W>) -> &'g T {
        let same = guard.is_of(&self.collector);
        assert!(same, "the guard is of another collector, which does not keep this value");
        // SAFETY: the section is in progress as long as the guard is borrowed.
        unsafe { &*self.found() }
    }

    #[inline]
    fn found(&self) -> *const T {
        // Acquire: pairs with the Release of the thread that stored it: the value is whole.
        self.current.load(Ordering::Acquire)
    }

    /// Replaces the value, and retires the old one. The call allocates. Otherwise, it works like
    /// [`retire`](Collector::retire).
    pub fn store(&self, value: T) {
        let new = Box::into_raw(Box::new(value));
        // Release: pairs with the Acquire in `found`. Acquire: pairs with the Release of the thread
        // that stored the old value, which the thread that drops it then finds whole.
        let old = self.current.swap(new, Ordering::AcqRel);
        // SAFETY: from a box. It is unlinked, by this thread alone.
        unsafe { self.collector.retire(old) };
    }

    /// Replaces the value with the result of `f`, which gets the present one. If another thread
    /// replaces the value during the call, `f` is called again, so no update is lost. If `f`
    /// panics, the value stays.
    ///
    /// `f` runs in a section. It must not [`synchronize`](Collector::synchronize).
    pub fn update(&self, mut f: impl FnMut(&T) -> T) {
        let guard = self.collector.enter();
        let mut found = self.found().cast_mut();
        let old = loop {
            // SAFETY: the section began before the load, and is in progress.
            let new = Box::into_raw(Box::new(f(unsafe { &*found })));
            // Release: pairs with the Acquire in `found`. Acquire on failure: the value that is
            // read next is whole. In the section, no other value gets this address.
            let (done, failed) = (Ordering::AcqRel, Ordering::Acquire);
            match self.current.compare_exchange(found, new, done, failed) {
                Ok(old) => break old,
                Err(now) => {
                    // SAFETY: from the box above, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(new) });
                    found = now;
                }
            }
        };
        // Before the old one is retired: that may wait.
        drop(guard);
        // SAFETY: from a box. It is unlinked, by this thread alone.
        unsafe { self.collector.retire(old) };
    }

    /// Returns the value. There is no reader, because readers borrow the cell.
    pub fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // Relaxed: the caller owns it.
        // SAFETY: from a box, and taken once.
        let value = unsafe { Box::from_raw(this.current.load(Ordering::Relaxed)) };
        // After that, because the last handle frees old values, whose drops may panic.
        // SAFETY: read once, from what is not dropped.
        drop(unsafe { core::ptr::read(&raw const this.collector) });
        *value
    }
}

impl<T: Send + Sync + 'static, W: World> Drop for Rcu<T, W> {
    fn drop(&mut self) {
        // Relaxed: the last owner's drop has acquired all others'.
        // SAFETY: from a box. Readers borrow the cell, so there are none.
        drop(unsafe { Box::from_raw(self.current.load(Ordering::Relaxed)) });
    }
}

impl<T: Send + Sync + fmt::Debug + 'static, W: World> fmt::Debug for Rcu<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rcu").field("value", &*self.read()).finish_non_exhaustive()
    }
}

/// A value that a section keeps, from [`Rcu::read`].
#[must_use = "the section ends when this drops"]
pub struct RcuRef<'a, T, W: World = Native> {
    value: &'a T,
    _guard: Guard<'a, W>,
}

impl<T, W: World> Deref for RcuRef<'_, T, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T: fmt::Debug, W: World> fmt::Debug for RcuRef<'_, T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
