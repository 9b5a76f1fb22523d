//! [`Reader`]: reads a [`Versioned`](super::Versioned), on a seat of its own.

use core::cell::Cell;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use std::sync::Arc;

use coreline_world::{Native, Ordering, Word, World};

use super::super::roll::{News, Roll, Seat};
use super::super::rolls::Taken;
use super::Shared;

/// A registered reader. Dropping it frees the seat.
///
/// Reads nest. A thread that reads may enter again, and the two guards may be dropped in any order.
/// Each [`get`](Reading::get), whichever guard it is called on, finds the newest value. An earlier
/// value stays valid, because the reader gives up no value while it has two or more guards.
///
/// ```
/// use coreline::mask::Versioned;
///
/// let limit = Versioned::new(10);
/// let reader = limit.reader();
/// let mut outer = reader.enter();
/// let before = outer.get();
/// limit.update(20);
/// assert_eq!((*reader.enter().get(), *before), (20, 10), "an inner guard looks again");
/// ```
pub struct Reader<T: Send + Sync + 'static, W: World = Native> {
    shared: Arc<Shared<T, W>>,
    pub(super) seat: Seat<W>,
    /// The roll of the seat, which `shared` keeps.
    roll: NonNull<Roll<W>>,
    /// The value that was current when the reader last looked.
    cached: Cell<NonNull<T>>,
    /// How many guards there are. It has 64 bits, so it does not wrap however many guards are
    /// forgotten.
    guards: Cell<u64>,
}

// Its cells hold numbers and an address, each of which is written whole.
impl<T: Send + Sync + RefUnwindSafe + 'static, W: World> RefUnwindSafe for Reader<T, W> {}

// SAFETY: one pointer is to a value that may be shared, which the seat keeps alive while the reader
// is inside; outside it is not used. The other is to a roll, which all threads share.
unsafe impl<T: Send + Sync, W: World> Send for Reader<T, W> {}

impl<T: Send + Sync + 'static, W: World> Reader<T, W> {
    pub(super) fn new(shared: Arc<Shared<T, W>>) -> Self {
        // SAFETY: the reader keeps the rolls with its seat.
        let Taken { seat, roll } = unsafe { shared.rolls.take() };
        let (cached, guards) = (Cell::new(NonNull::dangling()), Cell::new(0));
        Reader { shared, seat, roll, cached, guards }
    }

    /// Enters, so that the reader may read until the returned guard is dropped.
    ///
    /// Entering takes one store to the reader's own cache line and one load from it. It writes no
    /// shared memory, unless the value was replaced meanwhile. A reader that is already present
    /// only counts its guards.
    #[inline]
    pub fn enter(&self) -> Reading<'_, T, W> {
        let outer = self.guards.get();
        self.guards.set(outer + 1);
        if outer == 0 && self.seat.enter() {
            self.entered();
        }
        Reading { reader: self }
    }

    #[cold]
    #[inline(never)]
    fn entered(&self) {
        let Some(news) = self.seat.look_closer() else { return };
        // The reader was told of no change while its bit was clear, or while its seat was free. So
        // it may know of a later change than it was told of. Otherwise it would seem to hold all
        // values that were replaced since.
        //
        // Acquire: pairs with the Release in `replace`: the value that the reader finds below is
        // that of this change, or a later one.
        let news = news.at_least(self.shared.last.load(Ordering::Acquire));
        // Only a refresh can be wanted: an update asks no reader to run a call.
        self.roll().entered(&self.seat, news);
        self.refresh();
    }

    /// The value was replaced while the reader was inside.
    #[cold]
    #[inline(never)]
    pub(super) fn catch_up(&self) {
        let Some(news) = self.seat.news() else { return };
        if self.guards.get() > 1 {
            // Another guard may have lent a value, so nothing is acknowledged. That holds also what
            // is found now:
            //
            //   reader:  entered when change 4 was the last; finds the value of change 5
            //   update:  replaces that by change 6, and finds the reader inside since 4
            //
            // The update does find it: it begins after change 5 was told to all, and no change
            // clears the bit of a reader that is inside for longer than it has the lock.
            return self.refresh();
        }
        self.renew(news);
    }

    /// Gives up what was cached for the current value.
    pub(super) fn renew(&self, news: News) {
        self.roll().set_bit(&self.seat);
        // Before the acknowledgement: after it, what is cached may be freed.
        self.refresh();
        self.seat.acknowledge(news);
    }

    fn roll(&self) -> &Roll<W> {
        // SAFETY: `shared` keeps it, and rolls are shared by all threads.
        unsafe { self.roll.as_ref() }
    }

    fn refresh(&self) {
        // Acquire: pairs with the Release of the update that stored it: the value is whole.
        let current = self.shared.current.load(Ordering::Acquire);
        self.cached.set(NonNull::new(current).expect("there is always a value"));
    }
}

/// Makes another reader of the same value, outside, with a seat of its own, like
/// [`Versioned::reader`](super::Versioned::reader).
impl<T: Send + Sync + 'static, W: World> Clone for Reader<T, W> {
    fn clone(&self) -> Self {
        Reader::new(Arc::clone(&self.shared))
    }
}

impl<T: Send + Sync + 'static, W: World> Drop for Reader<T, W> {
    fn drop(&mut self) {
        self.roll().give_back(&self.seat);
    }
}

/// The guard of a reader that is present. Dropping the reader's last guard ends its presence.
///
/// A forgotten guard keeps alive all values that are replaced from then on, until its reader is
/// dropped.
pub struct Reading<'a, T: Send + Sync + 'static, W: World = Native> {
    /// It is not `Send`, as a reader is not `Sync`: the thread that entered is inside.
    reader: &'a Reader<T, W>,
}

// As the guard of a lock: a thread that panics inside leaves when the guard drops. It gives out
// shared references.
impl<T: Send + Sync + RefUnwindSafe + 'static, W: World> UnwindSafe for Reading<'_, T, W> {}

impl<T: Send + Sync + 'static, W: World> Reading<'_, T, W> {
    /// Returns the current value. The call costs one load and one compare if the value has not
    /// changed since the last read.
    ///
    /// The result borrows the guard, because a new `get` gives up the value that was read before.
    #[inline]
    pub fn get(&mut self) -> &T {
        if self.reader.seat.news().is_some() {
            self.reader.catch_up();
        }
        // SAFETY: `cached` was current when this reader last looked, while it was inside. An update
        // frees it only after this reader acknowledges a later change or leaves. It does either
        // only while there is no other guard than the one that it is called on, or that is dropped:
        // so the borrow that is handed out here has ended, as that needs this guard.
        unsafe { self.reader.cached.get().as_ref() }
    }
}

impl<T: Send + Sync + 'static, W: World> Drop for Reading<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        let left = self.reader.guards.get() - 1;
        self.reader.guards.set(left);
        if left == 0 {
            self.reader.seat.leave();
        }
    }
}

impl_debug!([T: Send + Sync + 'static, W: World] Reader<T, W> as it {
    seat: it.seat.position(), ..
});

impl_debug!([T: Send + Sync + 'static, W: World] Reading<'_, T, W> as it { reader: it.reader });
