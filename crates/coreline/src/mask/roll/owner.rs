//! What the owner of a seat does: it enters, looks for news, acknowledges them, and leaves.

use coreline_world::{Ordering, Word, World};

use super::super::bits::Position;
use super::{News, PRESENT, REFRESH, Seat, Words};

impl<W: World> Seat<W> {
    #[inline]
    fn words(&self) -> &Words<W> {
        // SAFETY: in the roll that the seat was taken from, and the owner promises that the roll is
        // there. It consists of atomic words.
        unsafe { self.words.as_ref() }
    }

    /// The owner enters. Returns whether it has to look [closer](Seat::look_closer), because
    /// something is or may be wanted of it.
    #[inline]
    pub(in crate::mask) fn enter(&self) -> bool {
        let words = self.words();
        // Release: a thread that reads this word learns what we know, and must also have all that
        // we did before we acknowledged it, as it would from the acknowledgement's own store:
        //
        //   owner:     reads the old value, acknowledges, leaves, enters
        //   announcer: reads the last of these stores, frees the old value   <- beside that read
        //
        // What follows is ordered by the light fence.
        words.state.store(self.known.get(), Ordering::Release);
        self.has_news()
    }

    /// A light fence, and a check whether the owner, which has published its state, may have
    /// something to do.
    #[inline]
    fn has_news(&self) -> bool {
        // Pairs with both heavy fences in `tell`, and with those of `Versioned`, which follow
        // `publish`. Without it an announcer could miss that we are
        // present, while we miss what it wants, or what it published. Where it is not free,
        // `look_closer` has it.
        W::fence_light_free();
        // Acquire: pairs with the Release stores in `ask` and `want_refresh`: the call, and what
        // was published.
        self.words().wanted.load(Ordering::Acquire) > self.passes.get()
    }

    /// The demand on an owner that has entered, for `Roll::entered`.
    pub(in crate::mask) fn look_closer(&self) -> Option<News> {
        // As in `has_news`, where that has none.
        W::fence_light();
        self.news()
    }

    /// The demand on the owner, which is present. It costs one load.
    #[inline]
    pub(in crate::mask) fn news(&self) -> Option<News> {
        // Acquire: pairs with the Release stores in `ask` and `want_refresh`: the call, and what
        // was published.
        let wanted = self.words().wanted.load(Ordering::Acquire);
        (wanted > self.known.get()).then_some(News(wanted))
    }

    /// Makes the call of this news the owner's, which must then run and acknowledge it. If the
    /// announcer has taken the call back, returns what is wanted instead: a refresh, of this change
    /// or of a later one, because a call does not hide a missed change.
    pub(in crate::mask) fn claim(&self, news: News) -> Result<(), News> {
        let wanted = &self.words().wanted;
        // Relaxed: the call came with the news, and the announcer waits for the acknowledgement.
        // Also on failure: what a later change published is behind its heavy fence, with which the
        // fence in `set_bit` pairs, before any owner refreshes.
        wanted
            .compare_exchange(news.0, news.0 | REFRESH, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|now| Err(News(now)), |_| Ok(()))
    }

    /// The owner has done what was wanted.
    pub(in crate::mask) fn acknowledge(&self, news: News) {
        let known = news.0 | REFRESH;
        self.known.set(known);
        self.passes.set(if self.passes.get() == 0 { 0 } else { known });
        // Release: pairs with the Acquire of `is_done`. What the owner read of the old value, it
        // read before this; without it that value could be freed under a late read.
        self.words().state.store(known, Ordering::Release);
    }

    /// The owner leaves: it does not use its cached data until it enters again. Its bit stays.
    #[inline]
    pub(in crate::mask) fn leave(&self) {
        // Release: as in `acknowledge`.
        self.words().state.store(self.known.get() & !PRESENT, Ordering::Release);
    }

    pub(in crate::mask) fn position(&self) -> Position {
        self.at
    }

    /// A number that tells this seat from others; it is not a pointer.
    pub(in crate::mask) fn id(&self) -> usize {
        self.words.addr().get()
    }
}
