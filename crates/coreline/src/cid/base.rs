//! The state that all policies share: the taken IDs, and their bounds.

use core::ops::Range;
use std::sync::Arc;

use coreline_topology::CpuSet;
use coreline_world::restartable::Rows;
use coreline_world::{Integer, MapError, Native, Ordering, Time, Word, World};

use super::SCAN_DELAY;
use super::bitmap::Bitmap;
use super::places::{Parts, Place};
use super::row::Row;
use crate::percpu::Lines;

/// | word | meaning | written by |
/// |---|---|---|
/// | `ids` | for each ID: a row, a task or a search has it | each thread that takes or frees one |
/// | `allowed` | for each position: a task is or was allowed there | `allow`, `allow_only` |
/// | `weights` | for each group: how many positions are allowed | with `allowed` |
/// | `users` | tasks | `enter`, `leave` |
/// | `next_scan` | no scan before that time, in nanoseconds | scans and execs, under a lock |
///
/// `users` may lie on the line of the pointers to the other words. A switch that needs the
/// bound of IDs reads `users` and the pointers. So it loads that line once after a task came or
/// went. A scan writes to the
/// line every 100 ms.
pub struct Base<W: World> {
    pub(super) layout: Arc<Parts>,
    pub(super) ids: Bitmap<W>,
    rows: Rows<W>,
    /// The pool of the rows' lines.
    lines: Arc<Lines<W>>,
    pub(super) users: W::U32,
    next_scan: W::U64,
    allowed: Bitmap<W>,
    weights: Box<[W::U32]>,
}

const _: () = {
    assert!(size_of::<Base<Native>>() == 96);
    assert!(align_of::<Base<Native>>() == 8);
};

impl<W: World> Base<W> {
    pub(super) fn new_in(layout: &Arc<Parts>) -> Self {
        let width = layout.width();
        Base {
            ids: Bitmap::new_in(width),
            rows: Rows::new_in(layout.cpus()),
            lines: Lines::of_world(),
            users: W::U32::new_in(0),
            next_scan: W::U64::new_in(SCAN_DELAY.as_nanos() as u64),
            allowed: Bitmap::new_in(width),
            weights: layout.groups().iter().map(|_| W::U32::new_in(0)).collect(),
            layout: Arc::clone(layout),
        }
    }

    /// Tasks are allowed there from now on; returns whether none was before.
    pub(super) fn allow(&self, place: Place) -> bool {
        let added = self.allowed.insert(u32::from(place.position));
        if added {
            // Relaxed: bounds are numbers; a thread that must not miss a task's entry hears of the
            // task first.
            self.weights[usize::from(place.group)].fetch_add(1, Ordering::Relaxed);
        }
        added
    }

    /// The same, for a set; returns how many of its CPUs the layout has.
    pub(super) fn allow_all(&self, cpus: &CpuSet) -> u32 {
        let allow = |place| {
            self.allow(place);
        };
        self.layout.places(cpus).map(allow).count() as u32
    }

    /// Allows only these CPUs from now on, and those whose rows are in use.
    pub(super) fn allow_only(&self, cpus: &CpuSet) {
        for (group, weight) in self.layout.groups().iter().zip(&self.weights) {
            for position in group.range.clone() {
                if self.allowed.remove(position) {
                    // Relaxed: a number; see `allow`.
                    weight.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        self.allow_all(cpus);
    }

    /// The row at a position, if it exists.
    pub(super) fn row_at(&self, position: u16) -> Option<&W::U32> {
        // SAFETY: a space gives and takes IDs as sections ask it to: see `Referring`.
        unsafe { self.rows.at(self.layout.cpu_at(position)?) }
    }

    /// The ID that sections on the CPU of this number may use. It comes with everything that was
    /// done before its row showed it.
    #[inline]
    pub(crate) fn shown_at(&self, cpu: usize) -> Option<u32> {
        // SAFETY: the row is only read.
        Row::shown::<W>(unsafe { self.rows.at(cpu) }?)
    }

    /// The row at a position of a CPU. Makes the row if it does not exist.
    pub(super) fn row(&self, position: u16) -> Result<&W::U32, MapError> {
        let cpu = self.layout.cpu_at(position).expect("the position of a place");
        // SAFETY: these lines alone are the rows'; a space gives and takes IDs as sections ask it
        // to.
        unsafe { self.lines.make(&self.rows, cpu, Row::NONE.word()) }
    }

    /// The same, without waiting; `None` if there is no memory for it, or another thread is making
    /// a row of any space.
    pub(super) fn try_row(&self, position: u16) -> Option<&W::U32> {
        let cpu = self.layout.cpu_at(position)?;
        // SAFETY: these lines alone are the rows'; a space gives and takes IDs as sections ask it
        // to.
        unsafe { self.lines.try_make(&self.rows, cpu, Row::NONE.word()) }
    }

    /// The rows by CPU number, for sections.
    pub(crate) fn rows_by_cpu(&self) -> &Rows<W> {
        &self.rows
    }

    /// The existing rows at these positions.
    pub(super) fn rows(&self, positions: Range<u32>) -> impl Iterator<Item = (u32, &W::U32)> {
        positions.filter_map(|position| Some((position, self.row_at(position as u16)?)))
    }

    /// Whether a scan may run.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        // Relaxed: a time, written under a lock and looked at again under it.
        now.as_nanos() >= self.next_scan.load(Ordering::Relaxed)
    }

    /// No other scan may run before the delay has passed.
    pub(super) fn delay_scan(&self, now: Time) {
        // Relaxed: a time, written under a lock and looked at again under it.
        self.next_scan.store((now + SCAN_DELAY).as_nanos(), Ordering::Relaxed);
    }

    /// How many IDs are taken. It may be out of date when it returns.
    pub(crate) fn taken(&self) -> u32 {
        self.ids.count(0..self.layout.width() as u32)
    }

    /// The bytes that it has allocated, besides its own.
    pub(crate) fn bytes(&self) -> usize {
        self.ids.bytes() + self.allowed.bytes() + size_of_val(&*self.weights) + self.rows.bytes()
    }

    /// How many CPUs of a group are allowed.
    pub(super) fn weight(&self, group: u16) -> u32 {
        // Relaxed: a number; see `allow`.
        self.weights[usize::from(group)].load(Ordering::Relaxed)
    }

    /// Counts one more user. Only the number of users is kept.
    pub(crate) fn join(&self) {
        // Relaxed: a number; see `allow`.
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one user less.
    pub(crate) fn part(&self) {
        // Relaxed: a number; see `allow`.
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn users(&self) -> u32 {
        // Relaxed: a number; see `allow`.
        self.users.load(Ordering::Relaxed)
    }

    pub(super) fn range(&self, group: u16) -> Range<u32> {
        self.layout.groups()[usize::from(group)].range.clone()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = u16> {
        (0..self.layout.groups().len()).map(|group| group as u16)
    }
}

impl<W: World> Drop for Base<W> {
    fn drop(&mut self) {
        // SAFETY: they came from these lines, and no thread uses the rows any more.
        unsafe { self.lines.release(&self.rows) };
    }
}
