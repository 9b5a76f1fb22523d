//! [`Quarantine`]: the storage for the last rejected objects.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `MOST` | fewer than documented | more memory than there is | `a_quarantine_that_is_..` |

use core::ptr::{self, NonNull};

use coreline_world::{Integer, Ordering, Word, World};

use super::builder::AnyError;

/// This many objects at most, however many were asked for.
const MOST: usize = 1 << 16;

/// A ring of places. Each new object takes the next place and evicts the object there. That is the
/// oldest, or one about as old if several objects arrive at the same time. A place is emptied and
/// filled by one exchange. So no object is found twice, and no thread waits for another.
///
/// | word | meaning | written by |
/// |---|---|---|
/// | a place | an object; null: none | exchanges |
/// | `next` | the number of the next place, counted from the first ever | additions |
/// | `count` | how many objects are in it, or were taken out and are not destroyed | additions |
pub(super) struct Quarantine<B: 'static, W: World> {
    places: Box<[W::Ptr<Aside<B>>]>,
    next: W::U64,
    count: W::U64,
}

/// An object that was put aside, and why.
pub(super) struct Aside<B> {
    pub(super) body: NonNull<B>,
    pub(super) why: AnyError,
}

impl<B: 'static, W: World> Quarantine<B, W> {
    /// With room for this many objects.
    pub(super) fn new_in(room: usize) -> Self {
        let place = |_| W::Ptr::new_in(ptr::null_mut());
        Quarantine {
            places: (0..room.min(MOST)).map(place).collect(),
            next: W::U64::new_in(0),
            count: W::U64::new_in(0),
        }
    }

    /// Puts an object aside; returns the one that has to make room: this one, if there is none.
    pub(super) fn push(&self, body: NonNull<B>, why: AnyError) -> Option<Aside<B>> {
        if self.places.is_empty() {
            return Some(Aside { body, why });
        }
        // Relaxed: a number, which each thread gets another one of.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Relaxed: a count.
        self.count.fetch_add(1, Ordering::Relaxed);
        let entry = Box::into_raw(Box::new(Aside { body, why }));
        let place = &self.places[(number % self.places.len() as u64) as usize];
        // Release: pairs with the Acquire here and in `drain`: the entry is written. Acquire: pairs
        // with the Release of an earlier one, for the same reason.
        let oldest = self.take(place.swap(entry, Ordering::AcqRel))?;
        self.forget();
        Some(oldest)
    }

    /// One that was taken out is destroyed.
    pub(super) fn forget(&self) {
        // Relaxed: a count.
        self.count.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        // Relaxed: a count.
        self.count.load(Ordering::Relaxed) as usize
    }

    /// The entry that an exchange took out of a place.
    fn take(&self, entry: *mut Aside<B>) -> Option<Aside<B>> {
        // SAFETY: from `Box::into_raw`, and taken out by one exchange.
        (!entry.is_null()).then(|| *unsafe { Box::from_raw(entry) })
    }

    /// Takes all that are there, the oldest first.
    pub(super) fn drain(&self) -> impl Iterator<Item = Aside<B>> {
        let len = self.places.len();
        // Relaxed: a number, which says where to begin.
        let first = (self.next.load(Ordering::Relaxed) % len.max(1) as u64) as usize;
        // Acquire: pairs with the Release in `push`.
        let empty = |place: &W::Ptr<_>| place.swap(ptr::null_mut(), Ordering::Acquire);
        let places = (first..len).chain(0..first).map(|number| &self.places[number]);
        places.filter_map(move |place| self.take(empty(place)))
    }
}

#[cfg(test)]
mod tests {
    use coreline_world::Native;

    use super::*;

    #[test]
    fn a_quarantine_that_is_asked_for_too_much_has_65_536_places() {
        assert_eq!(Quarantine::<u64, Native>::new_in(usize::MAX).places.len(), 65_536);
        assert_eq!(Quarantine::<u64, Native>::new_in(1_000).places.len(), 1_000);
    }
}
