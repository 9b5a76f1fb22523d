//! The state machine of a [`CidSpace`](super::CidSpace) under [`FirstFit`](super::FirstFit),
//! [`Recent`](super::Recent) and [`Clustered`](super::Clustered): [references](super::references)
//! that hooks move, and their lock.
//!
//! # Why a search for an ID ends
//!
//! A CPU that keeps no reference [looks](Referring::try_take) for an ID without the lock. If it
//! finds none, it takes the lock and raises `contended`, which also sends all later CPUs to the
//! lock. Under the lock:
//!
//! * No reference is being moved or given up, because that needs the lock. So each ID that is taken
//!   is some CPU's, and no CPU has two.
//! * The CPU has none itself, so fewer IDs are taken than CPUs are allowed: at every moment one
//!   below that number is free. The CPU can lose it only to CPUs that were looking when `contended`
//!   was raised, and to each of them once.
//!
//! So a search under the lock ends after at most as many tries as there are CPUs.
//!
//! # Where the bound is stricter than in the kernel
//!
//! The kernel's last step takes an ID below the number of allowed CPUs, and lets unused references
//! keep the lower ones. Here a reference that has been unused the longest is taken first. There
//! always is one if all IDs below the bound are taken, because fewer tasks run than the bound says.
//! The kernel's step remains for races, in which that reference is in use again before it is taken.
//! A CPU also does not use a reference to an ID that is not below the bound.

use core::ops::Range;
use std::sync::Arc;

use coreline_topology::CpuSet;
use coreline_world::{Integer, Lacking, Line, MapError, Native, Ordering, Time, Word, World};

use super::EXPIRY;
use super::base::Base;
use super::places::{Parts, Place};
use super::policy::{Engine, References};
use super::references::Referring;
use super::row::{Row, State};
use crate::lock::QueuedLock;

const EXPIRY_MILLIS: u32 = EXPIRY.as_millis() as u32;

/// | word | meaning | written by |
/// |---|---|---|
/// | `contended` | 1: a CPU searches under the lock, and all others must, too | the lock's holder |
/// | `lock` | the right to move references, and to search until an ID is free | its users |
///
/// There are three kinds of lines, because their writers differ. Every switch reads the lines of
/// `referring`. Tasks write them when they enter or leave. A CPU that finds no ID in its row reads
/// `contended`, which is not on the line of the lock. No switch reads the lock's line.
pub struct Hooked<P, W: World> {
    referring: Referring<P, W>,
    contended: Line<W::U32>,
    lock: Line<QueuedLock<(), W>>,
}

const _: () = {
    assert!(size_of::<Hooked<(), Native>>() == 256);
    assert!(align_of::<Hooked<(), Native>>() == 64);
};

/// A task. Only calls about the task write this value, and these calls do not overlap.
///
/// | bits of `last` | meaning |
/// |---|---|
/// | 48 | the task has run; if this bit is 0, all bits are 0 |
/// | 47..32 | the position where it ran last |
/// | 16 | the task may have left a reference at that position |
/// | 15..0 | the ID of that reference |
pub struct Visitor<W: World> {
    last: W::U64,
    /// How many CPUs it is allowed on.
    allowed: W::U32,
}

const _: () = {
    assert!(size_of::<Visitor<Native>>() == 16);
    assert!(align_of::<Visitor<Native>>() == 8);
};

const RAN: u64 = 1 << 48;
const LEFT: u64 = 1 << 16;

impl<W: World> Visitor<W> {
    fn ran(&self, position: u16, cid: u32) {
        let last = RAN | u64::from(position) << 32 | LEFT | u64::from(cid);
        // Relaxed, as all accesses to a task: calls about it do not overlap.
        self.last.store(last, Ordering::Relaxed);
    }

    /// The CPU on which it may have left a reference, and the ID of that reference.
    fn left(&self) -> Option<(u16, u32)> {
        // Relaxed: calls about the task do not overlap.
        let last = self.last.load(Ordering::Relaxed);
        (last & LEFT != 0).then_some(((last >> 32) as u16, u32::from(last as u16)))
    }

    fn left_nothing(&self) {
        // Relaxed: calls about the task do not overlap.
        self.last.store(0, Ordering::Relaxed);
    }
}

impl<P: References, W: World> Hooked<P, W> {
    /// Takes the ID below the bound that has been kept unused the longest, by the millisecond. If
    /// there are several, it takes the ID of the last CPU. Call this under the lock.
    fn take_idle(&self, now: Time, group: u16) -> Option<u32> {
        let range = self.referring.bounded(group);
        let is_kept = |row: Row| row.state() == State::Kept && range.contains(&row.cid());
        let kept = self.referring.rows(group).filter(|&(_, row)| is_kept(row));
        let (word, row) = kept.max_by_key(|(_, row)| row.idle_millis(now))?;
        row.replace::<W>(word, row.become_(State::Recent)).then_some(row.cid())
    }

    /// An ID for a CPU that has none.
    fn take(&self, now: Time, group: u16, recent: Option<u32>) -> u32 {
        // Relaxed: a CPU that misses it tries once without the lock, and then takes the lock.
        if self.contended.load(Ordering::Relaxed) == 0
            && let Some(cid) = self.referring.try_take(group, recent)
        {
            return cid;
        }
        let _lock = self.lock.lock();
        let try_take = || self.referring.try_take(group, recent);
        self.find(|| try_take().or_else(|| self.take_idle(now, group)), group)
    }

    /// Searches until there is an ID. The module says how long that takes. Call this under the
    /// lock.
    fn find(&self, look: impl Fn() -> Option<u32>, group: u16) -> u32 {
        // Relaxed, and below: see `take`.
        self.contended.store(1, Ordering::Relaxed);
        let cid = loop {
            if let Some(cid) = look().or_else(|| self.referring.take_allowed(group)) {
                break cid;
            }
            W::relax();
        };
        // Relaxed: a CPU that misses it takes the lock once more.
        self.contended.store(0, Ordering::Relaxed);
        cid
    }

    /// Takes the reference that a task left behind, if that is its last user. Call this under the
    /// lock.
    fn steal(&self, task: &Visitor<W>, to: State) -> Option<u32> {
        let (position, cid) = task.left()?;
        let word = self.base().row_at(position)?;
        let row = Row::load::<W>(word);
        task.left_nothing();
        let is_it = row.state() == State::Kept && row.cid() == cid;
        (is_it && row.replace::<W>(word, row.become_(to))).then_some(cid)
    }

    /// Frees IDs that were not used for the expiry. Then frees those that are not below the number
    /// of IDs left: immediately, or when the holder lets go.
    fn drop_old_and_high(&self, now: Time) {
        for group in self.base().groups() {
            for (word, row) in self.referring.rows(group) {
                if row.state() == State::Kept && row.idle_millis(now) >= EXPIRY_MILLIS {
                    self.referring.release(word, row);
                }
            }
            let range = self.base().range(group);
            let high = range.start + self.base().ids.count(range);
            for (word, row) in self.referring.rows(group).filter(|(_, row)| row.cid() >= high) {
                match row.state() {
                    State::Kept => self.referring.release(word, row),
                    // If it is let go this moment, the next scan finds it.
                    State::Held => drop(row.replace::<W>(word, row.become_(State::Put))),
                    _ => {}
                }
            }
        }
    }

    /// Gives the row an ID that sections on its CPU may use from now on.
    pub(super) fn use_at(&self, place: Place) -> Result<u32, MapError> {
        let word = self.base().row(place.position)?;
        self.base().allow(place);
        if let Some(cid) = self.referring.reuse(word) {
            return Ok(cid);
        }
        let _lock = self.lock.lock();
        loop {
            if let Some(cid) = self.referring.use_locked(place, word, |_| ()) {
                break Ok(cid);
            }
            W::relax();
        }
    }

    /// The ID of a row that sections may use.
    pub(super) fn held(&self, place: Place) -> Option<u32> {
        Row::shown::<W>(self.base().row_at(place.position)?)
    }

    /// See [`CidSpace::expire_unused`](super::CidSpace::expire_unused).
    pub(super) fn expire_unused(
        &self,
        now: Time,
        fence: impl FnOnce() -> Result<(), Lacking>,
    ) -> Result<(), Lacking> {
        if !self.base().is_due(now) {
            return Ok(());
        }
        let _lock = self.lock.lock();
        self.referring.expire_locked(now, fence)
    }
}

impl<P: References, W: World> Engine<W> for Hooked<P, W> {
    type Task = Visitor<W>;

    fn new_in(layout: &Arc<Parts>) -> Self {
        Hooked {
            referring: Referring::new_in(layout),
            contended: Line(W::U32::new_in(0)),
            lock: Line(QueuedLock::new_in(())),
        }
    }

    fn base(&self) -> &Base<W> {
        self.referring.base()
    }

    fn bounded(&self, place: Place) -> Range<u32> {
        self.referring.bounded(place.group)
    }

    fn enter(&self, allowed: &CpuSet) -> Visitor<W> {
        let allowed = self.base().allow_all(allowed);
        // Relaxed: see `Base::allow`.
        self.base().users.fetch_add(1, Ordering::Relaxed);
        Visitor { last: W::U64::new_in(0), allowed: W::U32::new_in(allowed) }
    }

    fn leave(&self, task: &Visitor<W>) {
        // Relaxed: see `Base::allow`.
        self.base().users.fetch_sub(1, Ordering::Relaxed);
        let _lock = self.lock.lock();
        if let Some(cid) = self.steal(task, State::Recent) {
            self.base().ids.remove(cid);
        }
    }

    fn allow(&self, task: &Visitor<W>, cpus: &CpuSet) {
        // Relaxed: only calls about the task write or read it.
        task.allowed.store(self.base().allow_all(cpus), Ordering::Relaxed);
    }

    fn switch_in(
        &self,
        now: Time,
        place: Place,
        task: &Visitor<W>,
    ) -> Result<Option<u32>, MapError> {
        let word = self.base().row(place.position)?;
        self.base().allow(place);
        let row = Row::load::<W>(word);
        if row.is_in_use() {
            return Ok(None);
        }
        if let Some(cid) = row.current()
            && self.referring.bounded(place.group).contains(&cid)
            && row.replace::<W>(word, Row::held(cid))
        {
            task.ran(place.position, cid);
            return Ok(Some(cid));
        }
        // The row keeps none, or one that is too high, or has just lost it.
        let row = Row::load::<W>(word);
        if row.state() == State::Kept && row.replace::<W>(word, row.become_(State::Recent)) {
            self.base().ids.remove(row.cid());
        }
        let cid = self.take(now, place.group, row.recent());
        Row::held(cid).store::<W>(word);
        task.ran(place.position, cid);
        Ok(Some(cid))
    }

    fn switch_out(&self, now: Time, place: Place, _task: &Visitor<W>) {
        let Some(word) = self.base().row_at(place.position) else { return };
        let held = Row::load::<W>(word);
        if held.state() == State::Held && held.replace::<W>(word, Row::kept(held.cid(), now)) {
            return;
        }
        // A scan or an exec wants it back, and no longer changes the row.
        let wanted = Row::load::<W>(word);
        let left = match wanted.state() {
            State::Put => wanted.become_(State::Recent),
            State::Drop => Row::NONE,
            _ => return,
        };
        left.store::<W>(word);
        self.base().ids.remove(wanted.cid());
    }

    fn migrate(&self, now: Time, task: &Visitor<W>, from: Place, to: Place) {
        self.base().allow(to);
        let destination = self.base().row(to.position).ok();
        let there = destination.map_or(Row::NONE, |row| Row::load::<W>(row));
        let has_one = there.current().is_some() || P::CACHE_LOCAL && there.recent().is_some();
        // A reference does not move to another group, whose IDs are others, nor to a row for which
        // there is no memory: this is as if the destination had one.
        let stays = has_one || from.group != to.group || destination.is_none();
        let allowed = if P::CACHE_LOCAL {
            self.base().weight(from.group)
        } else {
            // Relaxed: see `allow`.
            task.allowed.load(Ordering::Relaxed)
        };
        if stays && self.base().users() >= allowed {
            return;
        }
        if task.left().is_none_or(|(position, _)| position != from.position) {
            return;
        }
        let _lock = self.lock.lock();
        let Some(cid) = self.steal(task, State::None) else { return };
        if !stays
            && let Some(row) = destination
            && there.replace::<W>(row, Row::kept(cid, now))
        {
            task.ran(to.position, cid);
        } else {
            self.base().ids.remove(cid);
        }
    }

    fn expire(&self, now: Time) {
        if self.base().is_due(now) {
            let _lock = self.lock.lock();
            if self.referring.scan_is_due(now) {
                self.drop_old_and_high(now);
            }
        }
    }

    fn exec(&self, now: Time, task: &Visitor<W>, allowed: &CpuSet) {
        let _lock = self.lock.lock();
        self.base().allow_only(allowed);
        for group in self.base().groups() {
            // Relaxed: see `try_take`.
            self.referring.highest[usize::from(group)].store(0, Ordering::Relaxed);
            for (position, word) in self.base().rows(self.base().range(group)) {
                let row = Row::load::<W>(word);
                if row.state() == State::Kept {
                    self.base().ids.remove(row.cid());
                }
                let after = if row.is_in_use() { row.become_(State::Drop) } else { Row::NONE };
                after.store::<W>(word);
                if after.is_in_use() {
                    self.base().allow(Place { position: position as u16, group });
                }
            }
        }
        task.left_nothing();
        // Relaxed: see `allow`.
        task.allowed.store(self.base().layout.places(allowed).count() as u32, Ordering::Relaxed);
        self.base().delay_scan(now);
    }
}
