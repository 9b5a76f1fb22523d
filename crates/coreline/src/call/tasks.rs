//! Tasks that wait for a worker.

use core::ptr::NonNull;
use std::collections::VecDeque;

use coreline_world::{Line, Native, Ordering, Word, World};

use super::CallError;
use super::request::Header;
use crate::lock::{Fifo, Mutex};

/// So many of the last tasks are looked at for messages that are taken back, and more by
/// [`AMONG`].
const LATER: usize = 64;

/// And so many for each message. With nested scopes, tickets of one lie among those of the others.
const AMONG: usize = 8;

/// A task: a request that no thread's stack holds.
pub(super) struct Task<W: World>(pub(super) NonNull<Header<W>>);

// SAFETY: requests are made of what is `Send`, and a task is in one place at a time.
unsafe impl<W: World> Send for Task<W> {}

/// Which worker a task is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// The worker in whose queue it is.
    One,
    /// Any worker.
    Any,
    /// Any worker, for a scope that a worker has opened. The limit does not hold: the task itself
    /// waits elsewhere, and this is taken back at the end of the scope.
    Scope,
}

/// The tasks of one worker.
#[repr(C)]
pub(super) struct Tasks<W: World> {
    queues: Line<Mutex<Queues<W>, Fifo, W>>,
    /// How many tasks wait. Holders of the lock write it.
    waiting: Line<W::U32>,
    /// How many of these tasks any worker may run. Holders of the lock write it when it changes.
    /// Workers that run out of tasks look at all of these counts.
    unbound: Line<W::U32>,
}

struct Queues<W: World> {
    /// For this worker only.
    bound: VecDeque<Task<W>>,
    /// For any worker.
    unbound: VecDeque<Task<W>>,
    /// Futures of this worker that were woken.
    woken: VecDeque<Task<W>>,
    /// Whether a future is next, if there are both. So futures that wake themselves do not keep
    /// tasks from running, and tasks do not keep futures from it.
    is_turn_of_woken: bool,
    /// Whether a task for any worker is next, if there are both kinds. So tasks for this worker
    /// that queue the next one do not keep those from running that no other worker takes.
    is_turn_of_unbound: bool,
    is_closed: bool,
    /// How many tasks may wait, apart from futures that were woken, and not for scopes.
    limit: usize,
}

// With the lock, on two lines.
const _: () = assert!(size_of::<Tasks<Native>>() <= 4 * size_of::<Line<u32>>());

impl<W: World> Tasks<W> {
    pub(super) fn new_in(limit: usize) -> Self {
        let queues = Queues {
            bound: VecDeque::new(),
            unbound: VecDeque::new(),
            woken: VecDeque::new(),
            is_turn_of_woken: false,
            is_turn_of_unbound: false,
            is_closed: false,
            limit,
        };
        let none = || Line(W::U32::new_in(0));
        Tasks { queues: Line(Mutex::new_in(queues)), waiting: none(), unbound: none() }
    }

    fn with<R>(&self, f: impl FnOnce(&mut Queues<W>) -> R) -> R {
        let mut queues = self.queues.lock();
        let returned = f(&mut queues);
        let unbound = queues.unbound.len() as u32;
        let bound = (queues.bound.len() + queues.woken.len()) as u32;
        // Relaxed: senders and the workers that look have fences of their own.
        self.waiting.store(bound + unbound, Ordering::Relaxed);
        // Relaxed: written under the lock alone.
        if self.unbound.load(Ordering::Relaxed) != unbound {
            // Relaxed: as for the other one.
            self.unbound.store(unbound, Ordering::Relaxed);
        }
        returned
    }

    /// Adds a task. If this succeeds, the caller has given the task away.
    pub(super) fn push(&self, task: &Task<W>, whom: For) -> Result<(), CallError> {
        let task = Task(task.0);
        self.with(|queues| {
            if queues.is_closed {
                return Err(CallError::Closed);
            }
            if whom != For::Scope && queues.bound.len() + queues.unbound.len() >= queues.limit {
                return Err(CallError::Full);
            }
            match whom {
                For::One => &mut queues.bound,
                For::Any | For::Scope => &mut queues.unbound,
            }
            .push_back(task);
            Ok(())
        })
    }

    /// Adds a future of this worker that was woken. The limit is for new tasks.
    pub(super) fn push_woken(&self, future: Task<W>) -> Result<(), CallError> {
        self.with(|queues| {
            if queues.is_closed {
                return Err(CallError::Closed);
            }
            queues.woken.push_back(future);
            Ok(())
        })
    }

    /// How many tasks wait.
    pub(super) fn depth(&self) -> u32 {
        // Relaxed: a count.
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether a task waits.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        // Relaxed: a hint, or after a fence of the caller.
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether a task waits that any worker may run.
    pub(super) fn is_any_unbound(&self) -> bool {
        // Relaxed: a hint, or after a fence of the caller.
        self.unbound.load(Ordering::Relaxed) > 0
    }

    /// The next task. Only this worker may call this.
    pub(super) fn pop(&self) -> Option<Task<W>> {
        if !self.is_any() {
            return None;
        }
        self.with(|queues| {
            let Queues { bound, unbound, woken, .. } = queues;
            let turn = |is_turn: &mut bool| core::mem::replace(is_turn, !*is_turn);
            let mut task = || match turn(&mut queues.is_turn_of_unbound) {
                true => unbound.pop_front().or_else(|| bound.pop_front()),
                false => bound.pop_front().or_else(|| unbound.pop_front()),
            };
            match turn(&mut queues.is_turn_of_woken) {
                true => woken.pop_front().or_else(task),
                false => task().or_else(|| woken.pop_front()),
            }
        })
    }

    /// Takes half of the tasks that any worker may run, the oldest ones.
    pub(super) fn take_half(&self) -> VecDeque<Task<W>> {
        if !self.is_any_unbound() {
            return VecDeque::new();
        }
        self.with(|queues| {
            let half = queues.unbound.len().div_ceil(2);
            queues.unbound.drain(..half).collect()
        })
    }

    /// Takes this message out, which was sent this often at most. Returns how often it was found.
    /// It takes no longer than sending did: what lies behind many other tasks stays.
    pub(super) fn take_back(&self, message: NonNull<Header<W>>, most: usize) -> usize {
        if !self.is_any_unbound() {
            return 0;
        }
        self.with(|queues| {
            let unbound = &mut queues.unbound;
            let before = unbound.len();
            let first = before.saturating_sub(LATER + AMONG * most);
            let mut kept = first;
            for at in first..before {
                if unbound[at].0 != message {
                    unbound.swap(kept, at);
                    kept += 1;
                }
            }
            unbound.truncate(kept);
            before - kept
        })
    }

    /// Adds tasks that belonged to another worker.
    pub(super) fn extend(&self, tasks: VecDeque<Task<W>>) {
        if !tasks.is_empty() {
            self.with(|queues| queues.unbound.extend(tasks));
        }
    }

    /// Takes no more tasks, if there is none; returns whether that is so.
    pub(super) fn close(&self) -> bool {
        self.with(|queues| {
            let Queues { bound, unbound, woken, .. } = queues;
            queues.is_closed = bound.is_empty() && unbound.is_empty() && woken.is_empty();
            queues.is_closed
        })
    }

    /// Takes tasks again.
    pub(super) fn open(&self) {
        self.with(|queues| queues.is_closed = false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Caller;
    use super::*;

    /// Futures that were woken and other tasks by turns, as long as there are both. Of the latter,
    /// tasks for this worker and tasks for any worker by turns.
    #[test]
    fn futures_and_tasks_come_by_turns() {
        let header = || Header::<Native>::new_in(|_| false, Caller::OUTSIDE);
        let (bound, unbound, woken) = (header(), header(), header());
        let message = NonNull::from_ref;
        let tasks = Tasks::<Native>::new_in(4);
        for _ in 0..2 {
            tasks.push(&Task(message(&bound)), For::One).unwrap();
            tasks.push(&Task(message(&unbound)), For::Any).unwrap();
        }
        assert_eq!(tasks.push(&Task(message(&bound)), For::One), Err(CallError::Full));
        assert_eq!(tasks.push(&Task(message(&unbound)), For::Any), Err(CallError::Full));
        for _ in 0..3 {
            tasks.push_woken(Task(message(&woken))).unwrap();
        }
        tasks.push(&Task(message(&unbound)), For::Scope).unwrap();
        let order = [&bound, &woken, &unbound, &woken, &bound, &woken];
        for expected in order {
            assert_eq!(tasks.pop().map(|task| task.0), Some(message(expected)));
        }
        assert_eq!(
            (tasks.depth(), tasks.take_back(message(&unbound), 2), tasks.depth()),
            (2, 2, 0)
        );
    }

    #[test]
    fn a_message_behind_many_later_tasks_is_not_looked_for() {
        let header = || Header::<Native>::new_in(|_| false, Caller::OUTSIDE);
        let (sent, later) = (header(), header());
        let message = NonNull::from_ref;
        let most = LATER + AMONG - 1;
        for (count, found) in [(most, 1), (most + 1, 0)] {
            let tasks = Tasks::<Native>::new_in(usize::MAX);
            tasks.push(&Task(message(&sent)), For::Scope).unwrap();
            for _ in 0..count {
                tasks.push(&Task(message(&later)), For::Any).unwrap();
            }
            assert_eq!(tasks.take_back(message(&sent), 1), found);
        }
    }

    #[test]
    fn messages_among_others_are_taken_back_and_the_others_stay_in_order() {
        let header = || Header::<Native>::new_in(|_| false, Caller::OUTSIDE);
        let (sent, others) = (header(), [header(), header(), header()]);
        let message = NonNull::from_ref;
        let tasks = Tasks::<Native>::new_in(usize::MAX);
        let count = 10 * LATER;
        for round in 0..count {
            tasks.push(&Task(message(&sent)), For::Scope).unwrap();
            tasks.push(&Task(message(&others[round % 3])), For::Any).unwrap();
        }
        assert_eq!(tasks.take_back(message(&sent), count), count);
        for round in 0..count {
            assert_eq!(tasks.pop().map(|task| task.0), Some(message(&others[round % 3])));
        }
        assert!(tasks.pop().is_none());
    }
}
