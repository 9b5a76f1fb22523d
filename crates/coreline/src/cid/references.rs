//! The references to IDs that CPUs keep under [`FirstFit`](super::FirstFit),
//! [`Recent`](super::Recent) and [`Clustered`](super::Clustered). A [`CidSpace`] under these
//! policies shares this code with a domain. Each has a lock of its own, in `hooked.rs` and in
//! `domain/core.rs`. Here *the lock* is the caller's.
//!
//! [`CidSpace`]: super::CidSpace
//!
//! # How an ID is found
//!
//! A CPU that keeps no reference first tries its recent ID, then expands, and then takes the lowest
//! free ID. Another CPU may win each step, and no step is tried twice.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Range;
use std::sync::Arc;

use coreline_world::{Lacking, Native, Ordering, Time, Word, World};

use super::base::Base;
use super::places::{Parts, Place};
use super::policy::References;
use super::row::{Row, State};
use super::{EXPIRY, SCAN_DELAY};

/// | word | meaning | written by |
/// |---|---|---|
/// | `highest` | by group: how many IDs were handed out since fewer were possible | expansion |
pub(crate) struct Referring<P, W: World> {
    pub(super) base: Base<W>,
    pub(super) highest: Box<[W::U32]>,
    _policy: PhantomData<fn() -> P>,
}

const _: () = {
    assert!(size_of::<Referring<(), Native>>() == 112);
    assert!(align_of::<Referring<(), Native>>() == 8);
};

impl<P: References, W: World> Referring<P, W> {
    pub(crate) fn new_in(layout: &Arc<Parts>) -> Self {
        Referring {
            base: Base::new_in(layout),
            highest: layout.groups().iter().map(|_| W::U32::new_in(0)).collect(),
            _policy: PhantomData,
        }
    }

    pub(crate) fn base(&self) -> &Base<W> {
        &self.base
    }

    /// IDs of a group are below this number, counted from its first.
    fn bound(&self, group: u16) -> u32 {
        self.base.weight(group).min(self.base.users())
    }

    /// The same, as a range of IDs.
    pub(super) fn bounded(&self, group: u16) -> Range<u32> {
        let first = self.base.range(group).start;
        first..first + self.bound(group)
    }

    /// Tries each way to get an ID once.
    pub(super) fn try_take(&self, group: u16, recent: Option<u32>) -> Option<u32> {
        let range = self.bounded(group);
        if P::CACHE_LOCAL {
            let highest = &self.highest[usize::from(group)];
            let bound = range.end - range.start;
            // Relaxed, and below: how many were handed out is only a number; an exchange in `ids`
            // takes an ID.
            let mut handed = highest.load(Ordering::Relaxed);
            if handed > bound {
                // Tasks have left: later ones shall expand again.
                let (from, relaxed) = (handed, Ordering::Relaxed);
                handed = highest
                    .compare_exchange(from, bound, relaxed, relaxed)
                    .map_or_else(|now| now.min(bound), |_| bound);
            }
            let known = range.start..range.start + handed;
            if let Some(recent) = recent.filter(|cid| known.contains(cid))
                && self.base.ids.insert(recent)
            {
                return Some(recent);
            }
            // An exchange is lost only to an expansion, and there are no more of them than IDs.
            for _ in 0..bound {
                if handed >= bound {
                    break;
                }
                // Relaxed: a hint of where to look. The ID itself is taken by the bit in `ids`.
                let relaxed = Ordering::Relaxed;
                match highest.compare_exchange(handed, handed + 1, relaxed, relaxed) {
                    Ok(_) if self.base.ids.insert(range.start + handed) => {
                        return Some(range.start + handed);
                    }
                    Ok(_) => handed += 1,
                    Err(now) => handed = now,
                }
            }
        }
        self.base.ids.insert_lowest(range)
    }

    /// The last resort: below the number of allowed CPUs.
    pub(super) fn take_allowed(&self, group: u16) -> Option<u32> {
        let first = self.base.range(group).start;
        self.base.ids.insert_lowest(first..first + self.base.weight(group))
    }

    /// Takes a kept reference away, and frees its ID. Call this under the lock.
    pub(super) fn release(&self, word: &W::U32, row: Row) {
        if row.replace::<W>(word, row.become_(State::Recent)) {
            self.base.ids.remove(row.cid());
        }
    }

    /// Whether a scan may run; no other may before the delay has passed again. Call this under the
    /// lock.
    pub(super) fn scan_is_due(&self, now: Time) -> bool {
        let due = self.base.is_due(now);
        if due {
            self.base.delay_scan(now);
        }
        due
    }

    pub(super) fn rows(&self, group: u16) -> impl Iterator<Item = (&W::U32, Row)> {
        let rows = self.base.rows(self.base.range(group));
        rows.map(|(_, word)| (word, Row::load::<W>(word)))
    }

    fn all_rows(&self) -> impl Iterator<Item = (&W::U32, Row)> {
        self.base.groups().flat_map(|group| self.rows(group))
    }

    /// The ID that sections on this CPU may use from now on, if the row has one.
    pub(crate) fn try_reuse_at(&self, place: Place) -> Option<u32> {
        self.reuse(self.base.row_at(place.position)?)
    }

    pub(super) fn reuse(&self, word: &W::U32) -> Option<u32> {
        Row::shown::<W>(word).or_else(|| {
            let row = Row::load::<W>(word);
            let kept = row.state() == State::Kept;
            (kept && row.replace::<W>(word, Row::held(row.cid()))).then_some(row.cid())
        })
    }

    /// The ID that sections on this CPU may use from now on. Never waits. Call this under the
    /// caller's lock, which all callers of this and of [`expire_locked`](Self::expire_locked) hold.
    /// It calls `prepare`, which may panic, before the row shows an ID that it did not have.
    ///
    /// Returns `None` if there is no row or no ID: no CPU has two, so forks have left some taken.
    pub(crate) fn try_use_at(&self, place: Place, prepare: impl FnOnce(u32)) -> Option<u32> {
        let word = self.base.try_row(place.position)?;
        self.base.allow(place);
        self.use_locked(place, word, prepare)
    }

    /// If sections use rows, only holders of the lock give a row an ID or take one away. So each ID
    /// that is taken is some CPU's, unless its taker was lost in a fork.
    pub(super) fn use_locked(
        &self,
        place: Place,
        word: &W::U32,
        prepare: impl FnOnce(u32),
    ) -> Option<u32> {
        /// Frees the ID if the attempt failed.
        struct Taken<'a, W: World>(&'a Base<W>, u32);

        impl<W: World> Drop for Taken<'_, W> {
            fn drop(&mut self) {
                self.0.ids.remove(self.1);
            }
        }

        let row = Row::load::<W>(word);
        let cid = match row.current() {
            Some(cid) => cid,
            None => {
                let group = place.group;
                let below = self.try_take(group, row.recent()).or_else(|| self.take_allowed(group));
                let any = || self.base.ids.insert_lowest(self.base.range(group));
                let taken = Taken(&self.base, below.or_else(any)?);
                prepare(taken.1);
                ManuallyDrop::new(taken).1
            }
        };
        Row::held(cid).store::<W>(word);
        Some(cid)
    }

    /// See [`CidSpace::expire_unused`](super::CidSpace::expire_unused). Call this under the lock of
    /// [`try_use_at`](Self::try_use_at).
    ///
    /// ```text
    /// Thread 1: in a section: loads its row, held: ID 3
    /// scan:     marks the row as kept
    /// scan:     100 ms later: it still is, so frees ID 3, which CPU 7 gets
    /// Thread 1: commits to the memory of ID 3                <- two CPUs at once
    /// ```
    ///
    /// Thread 1 stood still for 100 ms, which a virtual machine can cause. The fence after the mark
    /// and before the row is cleared makes it start over, and then it finds the mark. If the fence
    /// fails no CPU has lost an ID.
    pub(crate) fn expire_locked(
        &self,
        now: Time,
        fence: impl FnOnce() -> Result<(), Lacking>,
    ) -> Result<(), Lacking> {
        if !self.scan_is_due(now) {
            return Ok(());
        }
        let kept = || self.all_rows().filter(|(_, row)| row.state() == State::Kept);
        if kept().next().is_some() {
            fence()?;
            // An earlier scan marked them, at least `SCAN_DELAY` ago: they are old enough.
            const { assert!(SCAN_DELAY.as_millis() >= EXPIRY.as_millis()) };
            kept().for_each(|(word, row)| self.release(word, row));
        }
        for (word, row) in self.all_rows().filter(|(_, row)| row.state() == State::Held) {
            // Sections do not write rows, and all writers hold the lock: this cannot fail.
            row.replace::<W>(word, Row::kept(row.cid(), now));
        }
        Ok(())
    }
}

/// The numbers that a domain reports.
impl<P: References, W: World> Referring<P, W> {
    /// The bytes that it has allocated, besides its own.
    pub(crate) fn bytes(&self) -> usize {
        self.base.bytes() + size_of_val(&*self.highest)
    }
}
