//! Threads that sleep on a word until another thread wakes them: the futex.

use core::panic::Location;
use std::collections::VecDeque;

use coreline_world::{Parked, Time};

use crate::engine::kernel::extension::enter_kernel;
use crate::engine::kernel::points::issue;
use crate::engine::{Engine, State, inside, suspend};

/// Parks the running thread, as a member of these groups, on a word whose value it has just read,
/// in the same step. The thread may wake spuriously if `wakes_spuriously`: then immediately, as a
/// thread does that others overtake before it runs again.
#[track_caller]
pub(crate) fn park(
    word: usize,
    deadline: Option<Time>,
    (groups, wakes_spuriously): (u32, bool),
) -> Parked {
    let site = Location::caller();
    let parked = inside(|engine| {
        engine.waits_at(site);
        engine.spend_in_call(engine.spec.costs().syscall);
        let at = deadline.map(crate::engine::picoseconds);
        let now = engine.here().now;
        if at.is_some_and(|at| at <= now) {
            return Some(Parked::TimedOut);
        }
        if wakes_spuriously && engine.is_unlucky(engine.faults.spurious) {
            return Some(Parked::Woken);
        }
        let current = engine.current();
        engine.parked.entry(word).or_default().push_back(current);
        engine.block(State::Parked { word, groups }, at);
        None
    });
    parked.unwrap_or_else(|| {
        suspend();
        inside(|engine| engine.threads[engine.current()].parked)
    })
}

/// Wakes up to `count` threads of these groups that are parked on a word.
pub(crate) fn wake(word: usize, count: u32, groups: u32) -> u32 {
    issue();
    enter_kernel();
    inside(|engine| {
        engine.spend_in_call(engine.spec.costs().syscall);
        let mut woken = 0;
        while woken < count
            && let Some(thread) = engine.next_parked(word, groups)
        {
            engine.threads[thread].parked = Parked::Woken;
            engine.make_ready(thread);
            woken += 1;
        }
        if engine.parked.get(&word).is_some_and(VecDeque::is_empty) {
            engine.parked.remove(&word);
        }
        woken
    })
}

impl Engine {
    /// Takes the thread of these groups that has slept longest on a word out of its sleepers.
    fn next_parked(&mut self, word: usize, groups: u32) -> Option<usize> {
        let threads = &self.threads;
        let sleepers = self.parked.get_mut(&word)?;
        let is_member = |&thread: &usize| match threads[thread].state {
            State::Parked { groups: theirs, .. } => theirs & groups != 0,
            state => unreachable!("a sleeper of a word is parked, not {state:?}"),
        };
        sleepers.remove(sleepers.iter().position(is_member)?)
    }
}
