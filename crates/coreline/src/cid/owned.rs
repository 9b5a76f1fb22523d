//! The state machine of [`Owned`](super::Owned): tasks own IDs while there are few tasks, and CPUs
//! own IDs while there are many.
//!
//! | mode | owners | at a switch |
//! |---|---|---|
//! | per task | each task an ID, from its first run to its end | nothing: the ID moves along |
//! | per CPU | each CPU that runs tasks an ID | the task borrows it |
//!
//! With A allowed CPUs, U tasks and C CPUs: `opt = min(A, U)`, and IDs are below `most = min(opt +
//! opt / 4, C)`. The mode becomes per CPU when U > `most`. It becomes per task again when U <
//! `min(opt - opt / 4, C / 2)`, with the `opt` of the last change of the mode, or of the last time
//! that a CPU was allowed. So the mode does not change each time if the number of tasks fluctuates
//! around one value.
//!
//! # Changing the mode
//!
//! The task that enters or leaves changes it, under the lock. A switch never does. Unused IDs are
//! freed immediately. IDs that running tasks use are marked: the row's or the task's word goes from
//! `Held` to `Drop` (the kernel's `TRANSIT`). The switch that ends the use hands the ID to the new
//! owner or frees it. So at no time has a CPU or a task two IDs, and IDs never run out:
//!
//! * Per task there are at most U IDs, and U is at most `most`. (An ID that is still a CPU's
//!   belongs to the task that uses it and to no other.)
//! * Per CPU each running task has one ID, at most `opt` in all. A task can take an idle CPU's ID.
//!
//! The words are those of [rows](super::row), also for a task. A switch changes one of them with an
//! exchange. If it finds no ID, an ID above the bound, or a mark, it takes the lock. IDs are taken
//! and freed only under the lock.
//!
//! # Where the bound is stricter than in the kernel
//!
//! In the kernel, a CPU that finds all IDs below `most` taken gets one above it, and converges
//! later. Here it takes an idle CPU's ID, unless that CPU runs again before it is taken.
//! [`expire`](super::CidSpace::expire) frees IDs above `most` that are not in use. The kernel
//! leaves them until their owner runs again.

use core::ops::Range;
use std::sync::Arc;

use coreline_topology::CpuSet;
use coreline_world::{Integer, Line, MapError, Native, Ordering, Time, Word, World};

use super::base::Base;
use super::places::{Parts, Place};
use super::policy::Engine;
use super::row::{Row, State};
use crate::lock::QueuedLock;

/// | word | meaning | written by |
/// |---|---|---|
/// | `mode` | bits 31..1: the bound of the IDs; bit 0: [`PER_CPU`] | the holder of `lock` |
/// | `lock` | the tasks, and the right to take and free IDs and to change the mode | its users |
///
/// Each switch reads `mode`. It lies with the words of `base`: with `users`, which is written when
/// `mode` is written, and with words that are never written. The words that the first waiter reads
/// and that holders write for each other have a line of their own. A switch that finds its ID does
/// not read that line.
pub struct Ownership<W: World> {
    base: Base<W>,
    mode: W::U32,
    lock: Line<QueuedLock<Owners<W>, W>>,
}

const _: () = {
    assert!(size_of::<Ownership<Native>>() == 192);
    assert!(align_of::<Ownership<Native>>() == 64);
};

struct Owners<W: World> {
    /// By number; a gap where a task has left.
    tasks: Vec<Option<Arc<Holder<W>>>>,
    gaps: Vec<u32>,
    /// While CPUs own IDs: fewer tasks than this change the mode.
    threshold: u32,
}

/// A task.
pub struct Owner<W: World> {
    holder: Arc<Holder<W>>,
    number: u32,
}

/// | word | meaning | written by |
/// |---|---|---|
/// | `word` | as that of a row: which ID the task has | as a row; see the module |
/// | `position` | where it last used that | the task's switches |
struct Holder<W: World> {
    word: W::U32,
    position: W::U32,
}

const _: () = {
    assert!(size_of::<Holder<Native>>() == 8);
    assert!(align_of::<Holder<Native>>() == 4);
};

const PER_CPU: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mode {
    per_cpu: bool,
    most: u32,
}

impl Mode {
    fn bits(self) -> u32 {
        self.most << 1 | u32::from(self.per_cpu)
    }

    fn of(bits: u32) -> Mode {
        Mode { per_cpu: bits & PER_CPU != 0, most: bits >> 1 }
    }

    /// Whether this may be used without change.
    fn fits(self, row: Row) -> bool {
        row.state() == State::Kept && row.cid() < self.most
    }
}

impl<W: World> Ownership<W> {
    fn mode(&self) -> Mode {
        // Relaxed: a switch that misses a change finds the owner's word changed instead, or the
        // thread that changes the mode finds the ID in use.
        Mode::of(self.mode.load(Ordering::Relaxed))
    }

    /// The task takes this owner's ID, if it may be used without change.
    fn try_hold(word: &W::U32, mode: Mode) -> Option<u32> {
        let row = Row::load::<W>(word);
        (mode.fits(row) && row.replace::<W>(word, Row::held(row.cid()))).then_some(row.cid())
    }

    /// Takes an ID below the bound from an idle CPU. Call this under the lock.
    fn take_idle(&self, mode: Mode) -> Option<u32> {
        self.rows().find_map(|word| {
            let row = Row::load::<W>(word);
            (mode.fits(row) && row.replace::<W>(word, Row::NONE)).then_some(row.cid())
        })
    }

    /// A free ID. Call this under the lock: then no other thread takes or frees any, and each CPU
    /// except the caller's has at most one, so one is left. Returns `None` if tasks left while they
    /// ran, or run on one CPU.
    fn take(&self, mode: Mode) -> Option<u32> {
        let below = self.base.ids.insert_lowest(0..mode.most);
        let idle = || self.take_idle(mode);
        let any = || self.base.ids.insert_lowest(0..self.base.layout.cpus());
        below.or_else(idle).or_else(any)
    }

    /// Frees the ID of an owner that does not use it. Under the lock.
    fn free(&self, word: &W::U32, row: Row) -> bool {
        let freed = row.state() == State::Kept && row.replace::<W>(word, Row::NONE);
        if freed {
            self.base.ids.remove(row.cid());
        }
        freed
    }

    /// Takes the ID from an owner: now, or when its user lets go. Call this under the lock.
    fn disown(&self, word: &W::U32) {
        // Its use may begin or end meanwhile: the next turn sees that.
        loop {
            let row = Row::load::<W>(word);
            match row.state() {
                State::Kept if !self.free(word, row) => {}
                State::Held if !row.replace::<W>(word, row.become_(State::Drop)) => {}
                _ => return,
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = &W::U32> {
        self.base.rows(0..self.base.layout.cpus()).map(|(_, word)| word)
    }

    /// `opt`, and from it the mode's bound and the threshold for changing back.
    fn sizes(&self) -> (u32, u32) {
        let cpus = self.base.layout.cpus();
        let opt = self.base.weight(0).min(self.base.users());
        ((opt + opt / 4).min(cpus), (opt - opt / 4).min(cpus / 2))
    }

    /// Call this after tasks came or went, or CPUs were allowed: it computes the bound, and changes
    /// the mode if it must. Call this under the lock.
    fn update(&self, owners: &mut Owners<W>, wider: bool) {
        let (users, before) = (self.base.users(), self.mode());
        let (most, threshold) = self.sizes();
        if !before.per_cpu || wider {
            owners.threshold = threshold;
        }
        let per_cpu = if before.per_cpu { users >= owners.threshold } else { users > most };
        // Relaxed: see `mode`.
        self.mode.store(Mode { per_cpu, most }.bits(), Ordering::Relaxed);
        match (before.per_cpu, per_cpu) {
            (false, true) => owners.tasks.iter().flatten().for_each(|task| self.disown(&task.word)),
            (true, false) => self.rows().for_each(|word| self.disown(word)),
            _ => {}
        }
    }

    /// Tasks are allowed at these places from now on.
    fn widen(&self, places: impl IntoIterator<Item = Place>) {
        if places.into_iter().filter(|&place| self.base.allow(place)).count() > 0 {
            self.update(&mut self.lock.lock(), true);
        }
    }

    /// A use of a marked ID ends: it goes to its next owner, or is freed if that owner has an ID
    /// already.
    fn hand_over(&self, now: Time, from: &W::U32, row: &W::U32, task: &W::U32) {
        let _lock = self.lock.lock();
        let mode = self.mode();
        let cid = Row::load::<W>(from).cid();
        Row::NONE.store::<W>(from);
        let to = if mode.per_cpu { row } else { task };
        if cid < mode.most && Row::load::<W>(to) == Row::NONE {
            Row::kept(cid, now).store::<W>(to);
        } else {
            self.base.ids.remove(cid);
        }
    }
}

impl<W: World> Engine<W> for Ownership<W> {
    type Task = Owner<W>;

    fn new_in(layout: &Arc<Parts>) -> Self {
        let owners = Owners { tasks: Vec::new(), gaps: Vec::new(), threshold: 0 };
        Ownership {
            base: Base::new_in(layout),
            mode: W::U32::new_in(0),
            lock: Line(QueuedLock::new_in(owners)),
        }
    }

    fn base(&self) -> &Base<W> {
        &self.base
    }

    fn bounded(&self, _place: Place) -> Range<u32> {
        0..self.mode().most
    }

    fn enter(&self, allowed: &CpuSet) -> Owner<W> {
        let [word, position] = [Row::NONE.word(), 0].map(W::U32::new_in);
        let holder = Arc::new(Holder { word, position });
        let mut owners = self.lock.lock();
        let number = owners.gaps.pop().unwrap_or(owners.tasks.len() as u32);
        if number as usize == owners.tasks.len() {
            owners.tasks.push(None);
        }
        owners.tasks[number as usize] = Some(Arc::clone(&holder));
        let weight = self.base.weight(0);
        self.base.allow_all(allowed);
        // Relaxed: see `Base::allow`.
        self.base.users.fetch_add(1, Ordering::Relaxed);
        self.update(&mut owners, self.base.weight(0) > weight);
        drop(owners);
        Owner { holder, number }
    }

    fn leave(&self, task: &Owner<W>) {
        let mut owners = self.lock.lock();
        owners.tasks[task.number as usize] = None;
        owners.gaps.push(task.number);
        self.free(&task.holder.word, Row::load::<W>(&task.holder.word));
        // Relaxed: see `Base::allow`.
        self.base.users.fetch_sub(1, Ordering::Relaxed);
        self.update(&mut owners, false);
    }

    fn allow(&self, _task: &Owner<W>, cpus: &CpuSet) {
        self.widen(self.base.layout.places(cpus));
    }

    fn switch_in(
        &self,
        _now: Time,
        place: Place,
        task: &Owner<W>,
    ) -> Result<Option<u32>, MapError> {
        // First, as this may fail. Tasks that own their IDs need no row yet. They will when the
        // mode changes, and no change of the mode may fail.
        let row = self.base.row(place.position)?;
        let Holder { word, position } = &*task.holder;
        if Row::load::<W>(row).is_in_use() || Row::load::<W>(word).is_in_use() {
            return Ok(None);
        }
        self.widen([place]);
        let owner = |mode: Mode| {
            if mode.per_cpu {
                return row;
            }
            // Relaxed: calls about one task do not overlap, and none overlaps an exec.
            position.store(place.position.into(), Ordering::Relaxed);
            word
        };
        let mode = self.mode();
        if let Some(cid) = Self::try_hold(owner(mode), mode) {
            return Ok(Some(cid));
        }
        let _lock = self.lock.lock();
        let mode = self.mode();
        let word = owner(mode);
        if let Some(cid) = Self::try_hold(word, mode) {
            return Ok(Some(cid));
        }
        self.free(word, Row::load::<W>(word));
        let taken = self.take(mode);
        if let Some(cid) = taken {
            Row::held(cid).store::<W>(word);
        }
        Ok(taken)
    }

    fn switch_out(&self, now: Time, place: Place, task: &Owner<W>) {
        let Some(row) = self.base.row_at(place.position) else { return };
        let in_use = |word: &&W::U32| Row::load::<W>(word).is_in_use();
        let task = &task.holder.word;
        let Some(word) = [row, task].into_iter().find(in_use) else { return };
        let held = Row::load::<W>(word);
        if held.state() != State::Held || !held.replace::<W>(word, Row::kept(held.cid(), now)) {
            self.hand_over(now, word, row, task);
        }
    }

    fn migrate(&self, _now: Time, _task: &Owner<W>, _from: Place, to: Place) {
        self.widen([to]);
    }

    fn expire(&self, now: Time) {
        if !self.base.is_due(now) {
            return;
        }
        let owners = self.lock.lock();
        if !self.base.is_due(now) {
            return;
        }
        self.base.delay_scan(now);
        let most = self.mode().most;
        let tasks = owners.tasks.iter().flatten().map(|task| &task.word);
        for word in self.rows().chain(tasks) {
            let row = Row::load::<W>(word);
            if row.cid() >= most {
                self.free(word, row);
            }
        }
    }

    fn exec(&self, now: Time, _task: &Owner<W>, allowed: &CpuSet) {
        let mut owners = self.lock.lock();
        self.base.allow_only(allowed);
        let allow = |position: u16| self.base.allow(Place { position, group: 0 });
        for (position, word) in self.base.rows(0..self.base.layout.cpus()) {
            self.disown(word);
            if Row::load::<W>(word).is_in_use() {
                allow(position as u16);
            }
        }
        for Holder { word, position } in owners.tasks.iter().flatten().map(|task| &**task) {
            self.disown(word);
            if Row::load::<W>(word).is_in_use() {
                // Relaxed: see `switch_in`.
                allow(position.load(Ordering::Relaxed) as u16);
            }
        }
        self.update(&mut owners, true);
        self.base.delay_scan(now);
    }
}
