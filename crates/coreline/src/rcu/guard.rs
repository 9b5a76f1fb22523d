//! [`Guard`] and [`OwnedGuard`]: read-side critical sections.

use std::sync::Arc;

use coreline_world::{Native, World};

use super::collector::Collector;
use super::periods::Pair;

impl<W: World> Collector<W> {
    /// Begins a read-side critical section, which ends when the guard drops. The call never waits.
    ///
    /// Sections nest, in any order. The guard may move to another thread.
    #[inline]
    pub fn enter(&self) -> Guard<'_, W> {
        Guard { collector: self, pair: self.readers.come() }
    }

    /// Begins a section like [`enter`](Collector::enter), with a guard that owns a handle of the
    /// collector. A future can keep it while it awaits.
    pub fn enter_owned(self: &Arc<Self>) -> OwnedGuard<W> {
        OwnedGuard { pair: self.readers.come(), collector: Arc::clone(self) }
    }
}

/// A read-side critical section, from [`Collector::enter`]. It ends when the guard drops.
///
/// The section of a forgotten guard never ends.
#[must_use = "the section ends when the guard drops: at once, if it is not bound to a name"]
pub struct Guard<'a, W: World = Native> {
    collector: &'a Collector<W>,
    pair: Pair,
}

impl<W: World> Drop for Guard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.collector.readers.go(self.pair);
    }
}

impl_debug!([W: World] Guard<'_, W> as it { collector: it.collector });

/// A read-side critical section, from [`Collector::enter_owned`], which keeps the collector alive.
/// It ends when the guard drops.
///
/// The section of a forgotten guard never ends.
#[must_use = "the section ends when the guard drops: at once, if it is not bound to a name"]
pub struct OwnedGuard<W: World = Native> {
    collector: Arc<Collector<W>>,
    pair: Pair,
}

impl<W: World> Drop for OwnedGuard<W> {
    #[inline]
    fn drop(&mut self) {
        self.collector.readers.go(self.pair);
    }
}

impl_debug!([W: World] OwnedGuard<W> as it { collector: it.collector });

impl<W: World> Guard<'_, W> {
    /// Returns whether the section belongs to this collector. Interfaces that take a guard and
    /// return data that it protects must check this.
    #[inline]
    pub fn is_of(&self, collector: &Collector<W>) -> bool {
        core::ptr::eq(self.collector, collector)
    }
}

impl<W: World> OwnedGuard<W> {
    /// Returns whether the section belongs to this collector, like [`Guard::is_of`].
    #[inline]
    pub fn is_of(&self, collector: &Collector<W>) -> bool {
        core::ptr::eq(&raw const *self.collector, collector)
    }
}

/// A read-side critical section: a [`Guard`] or an [`OwnedGuard`].
pub trait Section<W: World>: sealed::Sealed {
    /// Returns whether the section belongs to this collector.
    fn is_of(&self, collector: &Collector<W>) -> bool;
}

mod sealed {
    use super::{Guard, OwnedGuard, World};

    pub trait Sealed {}

    impl<W: World> Sealed for Guard<'_, W> {}
    impl<W: World> Sealed for OwnedGuard<W> {}
}

impl<W: World> Section<W> for Guard<'_, W> {
    #[inline]
    fn is_of(&self, collector: &Collector<W>) -> bool {
        self.is_of(collector)
    }
}

impl<W: World> Section<W> for OwnedGuard<W> {
    #[inline]
    fn is_of(&self, collector: &Collector<W>) -> bool {
        self.is_of(collector)
    }
}
