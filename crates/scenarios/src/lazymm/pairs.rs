//! A core's threads, and on which of its hardware threads they run.
//!
//! It is the host's data, because its lines would stay in one core, and their cost is part of the
//! times of calls, switches and wake-ups.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pair: usize,
    /// Whether it is the one that writes first, and counts.
    pub(super) is_first: bool,
    /// Whether it comes from a read.
    pub(super) has_read: bool,
}

/// The next step of a CPU.
pub(super) enum Next {
    Task(Task),
    Idle,
}

/// A byte in each direction, and who waits for it.
#[derive(Default)]
struct Pair {
    /// For the second thread, and for the first.
    bytes: [bool; 2],
    waits: [bool; 2],
    /// The last place of each thread.
    places: [usize; 2],
}

#[derive(Default)]
struct Cpu {
    queue: VecDeque<Task>,
    runs: bool,
    idles: bool,
}

struct State {
    cpus: Vec<Cpu>,
    pairs: Vec<Pair>,
}

pub(super) struct Core(Mutex<State>);

impl Core {
    /// This many hardware threads and pairs. First threads are ready, second ones wait.
    pub(super) fn new(cpus: usize, pairs: usize) -> Core {
        let mut all: Vec<Cpu> = (0..cpus).map(|_| Cpu::default()).collect();
        let mut of_pairs = Vec::new();
        for pair in 0..pairs {
            let places = [pair % cpus, (pair + 1) % cpus];
            all[places[0]].queue.push_back(Task { pair, is_first: true, has_read: false });
            of_pairs.push(Pair { waits: [false, true], places, ..Pair::default() });
        }
        Core(Mutex::new(State { cpus: all, pairs: of_pairs }))
    }

    /// No access to a word is made with it held, so that no simulated thread waits for another.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next step of a CPU that has nothing to do.
    pub(super) fn next(&self, place: usize) -> Next {
        let mut state = self.state();
        let own = state.cpus[place].queue.pop_front();
        let task = own.or_else(|| {
            // A thread that waits behind one that runs.
            let mut others = state.cpus.iter_mut().filter(|cpu| cpu.runs);
            others.find_map(|cpu| cpu.queue.pop_front())
        });
        state.cpus[place].runs = task.is_some();
        state.cpus[place].idles = task.is_none();
        let Some(task) = task else { return Next::Idle };
        state.pairs[task.pair].places[usize::from(!task.is_first)] = place;
        Next::Task(task)
    }

    /// A thread writes a byte. Returns the CPU that has to be told, if its partner waited and goes
    /// to one that idles.
    pub(super) fn write(&self, task: &Task, here: usize) -> Option<usize> {
        let mut state = self.state();
        let partner = usize::from(task.is_first);
        let pair = &mut state.pairs[task.pair];
        if !pair.waits[partner] {
            pair.bytes[partner] = true;
            return None;
        }
        pair.waits[partner] = false;
        let before = pair.places[partner];
        let idles = |place: &usize| state.cpus[*place].idles;
        let idle = Some(before).filter(idles).or_else(|| (0..state.cpus.len()).find(idles));
        let is_alone = state.cpus[here].queue.is_empty();
        let place = idle.unwrap_or(if is_alone { here } else { before });
        let woken = Task { pair: task.pair, is_first: !task.is_first, has_read: true };
        state.cpus[place].queue.push_back(woken);
        state.cpus[place].idles = false;
        idle
    }

    /// A thread reads a byte; false if it has to wait for one.
    pub(super) fn read(&self, task: &Task, here: usize) -> bool {
        let mut state = self.state();
        let me = usize::from(!task.is_first);
        let pair = &mut state.pairs[task.pair];
        let is_there = core::mem::take(&mut pair.bytes[me]);
        pair.waits[me] = !is_there;
        pair.places[me] = here;
        is_there
    }
}
