//! Values that were retired and not yet freed.
//!
//! A retired value goes to the list of the calling thread's CPU. A full list becomes a batch, which
//! waits for a grace period that begins later.
//!
//! | where a value is | guarded by | the thread that takes it out |
//! |---|---|---|
//! | a list of [`Lists`] | its lock | a thread that fills it or calls `barrier`, a reclaimer |
//! | a batch in [`Backlog::waiting`] | the lock of `Periods` | a thread that helps |
//! | a batch that a thread runs | nothing: it is that thread's | that thread |
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `ROOM` | a list grows step by step | memory that no batch needs | `a_list_has_room_..` |
//! | an emptied list is the next one | it grows again | | `a_list_that_was_emptied_..` |
//! | values share a list | each has one | a call is long | `values_that_are_taken_one_by_one_..` |

use core::mem;
use core::num::NonZeroU32;
use std::collections::VecDeque;

use coreline_world::{Line, MapError, World};

use crate::TicketLock;
use crate::heap;
use crate::panics::Panics;
use crate::percpu::own_stripe;

/// A value, and what frees it.
pub(super) struct Retired {
    value: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: the caller of `new` gives up a value that may be sent.
unsafe impl Send for Retired {}

impl Retired {
    /// # Safety
    ///
    /// `free(value)` may be called once, on any thread, when the grace period is over.
    pub(super) unsafe fn new<T>(value: *mut T, free: unsafe fn(*mut T)) -> Self {
        // SAFETY: both take one thin pointer, so one may be called as the other.
        let free = unsafe { mem::transmute::<unsafe fn(*mut T), unsafe fn(*mut ())>(free) };
        Retired { value: value.cast(), free }
    }

    /// A function that runs instead.
    pub(super) fn call<F: FnOnce() + Send + 'static>(f: F) -> Self {
        unsafe fn run<F: FnOnce()>(f: *mut F) {
            // SAFETY: from the box below, once.
            let f = unsafe { Box::from_raw(f) };
            f();
        }
        // SAFETY: the box is given up here.
        unsafe { Retired::new(Box::into_raw(Box::new(f)), run::<F>) }
    }

    pub(super) fn free(self) {
        // SAFETY: the promise of `new`; each is moved here once.
        unsafe { (self.free)(self.value) };
    }
}

type List = Vec<Retired>;

/// The values for which a new list has room at most. It grows if a batch is larger, which may be
/// larger than memory.
const ROOM: usize = 256;

/// A list for each CPU.
pub(super) struct Lists<W: World>(Box<[Line<TicketLock<List, W>>]>);

impl<W: World> Lists<W> {
    pub(super) fn new_in() -> Result<Self, MapError> {
        let list = |_| Line(TicketLock::new_in(List::new()));
        let lists = heap::slice((0..W::topology().cpu_limit().max(1)).map(list))?;
        Ok(Lists(lists))
    }

    /// Puts it into the list of this CPU, or into another if that is in use. Returns which, and how
    /// many it then has. A list has room for `batch` at once, up to [`ROOM`].
    #[inline]
    pub(super) fn push(&self, retired: Retired, batch: usize) -> (usize, usize) {
        let own = own_stripe::<W>(self.0.len());
        let len = match self.0[own].0.try_lock() {
            Some(mut list) => Self::push_locked(&mut list, retired, batch),
            None => return self.push_elsewhere(own, retired, batch),
        };
        (own, len)
    }

    #[inline]
    fn push_locked(list: &mut List, retired: Retired, batch: usize) -> usize {
        if list.capacity() == 0 {
            list.reserve_exact(batch.min(ROOM));
        }
        list.push(retired);
        list.len()
    }

    #[cold]
    #[inline(never)]
    fn push_elsewhere(&self, own: usize, retired: Retired, batch: usize) -> (usize, usize) {
        let all = self.0.len();
        let found = (own + 1..own + all).map(|at| at % all).find_map(|at| {
            let list = self.0[at].0.try_lock()?;
            Some((at, list))
        });
        let (at, mut list) = found.unwrap_or_else(|| (own, self.0[own].0.lock()));
        (at, Self::push_locked(&mut list, retired, batch))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|list| list.0.lock().len()).sum()
    }

    /// Frees the locks whose holders do not exist in this forked child. The values in these lists
    /// are never freed.
    ///
    /// # Safety
    ///
    /// The caller is the only thread, and holds none of the locks.
    pub(super) unsafe fn take_over(&self) {
        for list in &self.0 {
            if list.0.is_locked() {
                // SAFETY: no other thread holds it.
                unsafe { list.0.take_over() };
                // The thread that is gone may have left it half-way.
                mem::forget(mem::take(&mut *list.0.lock()));
            }
        }
    }

    /// Takes all values out. A lock that is held belongs to a thread that a fork left behind: what
    /// is in its list is never freed.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Retired> {
        self.0.iter_mut().flat_map(|list| {
            let is_left = list.0.is_locked();
            let values = mem::take(list.0.get_mut());
            if is_left {
                // The thread may have left it half-way.
                mem::forget(values);
                List::new()
            } else {
                values
            }
        })
    }
}

/// Values that wait for the same grace period.
struct Batch {
    /// The number of the grace period.
    period: u64,
    /// How many batches there were before.
    number: u64,
    list: List,
}

/// The batches of a collector. Used under a lock.
pub(super) struct Backlog {
    /// Waiting batches, in the order of their numbers and grace periods.
    waiting: VecDeque<Batch>,
    /// Batches that threads run.
    running: Vec<(u64, NonZeroU32)>,
    /// How many batches there were.
    batches: u64,
    /// How many values are in waiting batches.
    values: usize,
    /// The memory of an emptied list, kept for the next list.
    spare: List,
}

/// A batch that the caller must run and then [finish](Backlog::finish).
#[must_use]
pub(super) struct Ready {
    number: u64,
    list: List,
}

impl Ready {
    /// How many values it has.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Frees each value. Returns what is to be finished.
    pub(super) fn run(mut self, panics: &mut Panics) -> Self {
        self.list.drain(..).for_each(|retired| panics.run(|| retired.free()));
        self
    }
}

impl Backlog {
    pub(super) const NONE: Backlog = Backlog {
        waiting: VecDeque::new(),
        running: Vec::new(),
        batches: 0,
        values: 0,
        spare: List::new(),
    };

    /// Puts a list that has at least so many values into a batch.
    pub(super) fn take<W: World>(
        &mut self,
        lists: &Lists<W>,
        at: usize,
        least: usize,
        period: u64,
    ) {
        let list = {
            let mut list = lists.0[at].0.lock();
            // Another thread was faster.
            if list.len() < least {
                return;
            }
            self.values += list.len();
            // Into the last batch, if it has room and waits for no earlier grace period. Otherwise,
            // each of a few values that a reclaimer takes would keep the memory of a list. A batch
            // does not grow: one call frees all of it.
            if let Some(last) = self.waiting.back_mut()
                && last.period == period
                && last.list.capacity() - last.list.len() >= list.len()
            {
                last.list.append(&mut list);
                return;
            }
            mem::replace(&mut *list, mem::take(&mut self.spare))
        };
        self.waiting.push_back(Batch { period, number: self.batches, list });
        self.batches += 1;
    }

    /// Puts all lists into batches.
    pub(super) fn take_all<W: World>(&mut self, lists: &Lists<W>, period: u64) {
        (0..lists.0.len()).for_each(|at| self.take(lists, at, 1, period));
    }

    /// How many batches there were.
    pub(super) fn batches(&self) -> u64 {
        self.batches
    }

    /// How many values are in waiting batches.
    pub(super) fn values(&self) -> usize {
        self.values
    }

    /// The last grace period that a batch waits for.
    pub(super) fn wanted(&self) -> u64 {
        self.waiting.back().map_or(0, |batch| batch.period)
    }

    /// Whether none of the first batches, up to this number, still waits or runs.
    pub(super) fn is_done(&self, batches: u64) -> bool {
        self.waiting.front().is_none_or(|batch| batch.number >= batches)
            && self.running.iter().all(|&(number, _)| number >= batches)
    }

    /// Whether the calling thread runs a batch.
    pub(super) fn is_run_here<W: World>(&self) -> bool {
        let me = W::thread_id();
        self.running.iter().any(|&(_, thread)| thread == me)
    }

    /// Takes out the first batch, if its grace period is over, and fewer than so many batches were
    /// before it. Not for a thread that runs one: a value that retires the next one would else end
    /// the stack.
    pub(super) fn ready<W: World>(&mut self, over: u64, batches: u64) -> Option<Ready> {
        if self.is_run_here::<W>() {
            return None;
        }
        let first = self.waiting.front()?;
        if first.period > over || first.number >= batches {
            return None;
        }
        let Batch { number, list, .. } = self.waiting.pop_front()?;
        self.values -= list.len();
        self.running.push((number, W::thread_id()));
        Some(Ready { number, list })
    }

    /// Notes that a batch was run.
    pub(super) fn finish(&mut self, ready: Ready) {
        self.running.retain(|&(number, _)| number != ready.number);
        if self.spare.capacity() == 0 {
            self.spare = ready.list;
        }
    }

    /// Forgets the batches of threads that do not exist in this forked child.
    pub(super) fn lose_running(&mut self) {
        self.running.clear();
    }

    /// Takes out all batches, whose readers have all gone.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = Ready> {
        let batches = mem::take(&mut self.waiting);
        batches.into_iter().map(|Batch { number, list, .. }| Ready { number, list })
    }
}

#[cfg(test)]
mod tests {
    use coreline_world::Native;

    use super::*;

    /// As with a reclaimer beside a stuck reader, which takes each value on its own.
    #[test]
    fn values_that_are_taken_one_by_one_share_the_memory_of_a_list() {
        let (lists, mut backlog) = (Lists::<Native>::new_in().unwrap(), Backlog::NONE);
        for _ in 0..1_000 {
            lists.push(Retired::call(|| ()), 256);
            backlog.take_all(&lists, 2);
        }
        let room: usize = backlog.waiting.iter().map(|batch| batch.list.capacity()).sum();
        assert_eq!(backlog.values(), 1_000);
        assert!(room < 3_000, "room for {room} values");
        let mut panics = Panics::NONE;
        backlog.rest().for_each(|ready| _ = ready.run(&mut panics));
    }

    #[test]
    fn a_list_has_room_for_a_batch_at_once_but_for_no_huge_one() {
        for (batch, room) in [(100, 100), (usize::MAX, 256)] {
            let lists = Lists::<Native>::new_in().unwrap();
            let (at, _) = lists.push(Retired::call(|| ()), batch);
            assert_eq!(lists.0[at].0.lock().capacity(), room);
            lists.0[at].0.lock().drain(..).for_each(Retired::free);
        }
    }

    #[test]
    fn a_list_that_was_emptied_is_used_again() {
        let (lists, mut backlog) = (Lists::<Native>::new_in().unwrap(), Backlog::NONE);
        let mut panics = Panics::NONE;
        for _ in 0..2 {
            let (at, _) = lists.push(Retired::call(|| ()), 64);
            backlog.take(&lists, at, 1, 0);
            let ready = backlog.ready::<Native>(0, u64::MAX).unwrap();
            backlog.finish(ready.run(&mut panics));
        }
        assert_eq!(backlog.spare.capacity(), 64);
        let (at, _) = lists.push(Retired::call(|| ()), 64);
        backlog.take(&lists, at, 1, 0);
        assert_eq!(lists.0[at].0.lock().capacity(), 64, "what was emptied is the next list");
        backlog.rest().for_each(|ready| _ = ready.run(&mut panics));
    }
}
