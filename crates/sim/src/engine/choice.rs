//! Schedules other than by time: at every point, a [`Chooser`] picks the thread that runs next.
//!
//! A thread stops at each point, before its action there takes effect. Between two points it runs
//! alone. So an access is one step here: its transfer is charged, but delays no other thread. The
//! next thread starts at the latest time that any other thread has reached.

use std::cell::Cell;
use std::cmp::Reverse;

use super::rng::{Rng, Stream};
use super::{Engine, NEVER, State, lately, with};
use crate::hardware::coherence::Access;
use crate::results::report::Site;
use crate::settings::schedule::{Choices, Schedule};

/// The next step of the loop.
pub(super) enum Next {
    Resume(usize),
    Stop,
}

/// A thread that could run next.
#[derive(Clone, Copy)]
struct Candidate {
    cpu: usize,
    thread: usize,
}

/// At one in this many points, a CPU switches to another of its threads.
const PREEMPT_ONE_IN: u32 = 8;

/// A thread that passes this many points while others could run counts as one that yields: it waits
/// for them in a loop that the machine does not recognise.
const PATIENCE: u64 = 10_000;

/// The number of turns for which a thread spins alone before it yields. More than locks and queues
/// spin before they park: the loop then has no end of its own.
const MOST_TURNS: u32 = 1000;

/// How the next thread is chosen.
enum Strategy {
    Random(Rng),
    Pct(Pct),
    Listed { choices: Choices, next: usize },
}

/// The state of probabilistic concurrency testing.
struct Pct {
    rng: Rng,
    /// The priority of each thread. Of those that can run, the highest runs. Drawn priorities are
    /// positive; a change point sets one below zero, and a thread that yields goes below all.
    priorities: Vec<i64>,
    /// The points where the running thread's priority changes, the next one last.
    changes: Vec<u64>,
    lowest: i64,
}

/// A point where more than one thread could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    /// How many.
    pub(crate) alternatives: u32,
    /// Whether taking another than the first is a preemption.
    pub(crate) preempts: bool,
}

/// The decisions of a run, which could have been others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decisions {
    /// In their order.
    pub(crate) all: Vec<Decision>,
    /// Whether a bound of the machine's own kept a thread from going on.
    pub(crate) is_bounded: bool,
}

/// An access, as a thread that spins repeats it: to this word, of this kind, at this place in the
/// source. The first store behind a loop may be to the word at which the loop looks.
pub(super) type Seen = (usize, Access, Site);

/// How a thread spins that has changed nothing since it began to.
///
/// A turn that finds what the turn before found needs no other schedule. So a thread that spins
/// alone passes its points without a choice. But an access that no earlier turn made may be the
/// first behind the loop, so others may come before it.
///
/// ```text
/// Thread 1: looks at `work` for the last time; its loop ends;                      sleeps = true
/// Thread 2:                                    work = true; sees that 1 is awake;
/// ```
///
/// Thread 1 has looked in vain, and no thread wakes it. Without a choice before its store to
/// `sleeps`, no search would see this.
#[derive(Debug, Clone, Default)]
struct Spin {
    /// Whether it runs alone, and for how many turns and points so far.
    is_alone: bool,
    turns: u32,
    points: u64,
    /// The accesses that it has made alone.
    accesses: Vec<Seen>,
    /// Whether others may come first once, although it runs alone.
    is_at_new_access: bool,
    /// Whether it has done so without success.
    is_endless: bool,
}

/// Chooses the thread that runs next.
pub(super) struct Chooser {
    strategy: Strategy,
    /// Points so far.
    points: u64,
    /// The thread that ran last, and how many points it has passed while others could run.
    last: usize,
    alone: u64,
    /// Whether it yields to the others.
    yields: bool,
    /// By thread.
    spins: Vec<Spin>,
    /// At one in this many turns, a thread begins to spin alone. 0 means never.
    cut_spins: u32,
    /// The decisions, if a search keeps them.
    decisions: Decisions,
}

impl Chooser {
    /// `None` for the schedule by time.
    pub(super) fn new(schedule: &Schedule, seed: u64, cut_spins: u32) -> Option<Chooser> {
        let mut rng = Rng::new(seed, Stream::Schedule);
        let strategy = match schedule {
            Schedule::Time => return None,
            Schedule::Random => Strategy::Random(rng),
            Schedule::Pct { depth, steps } => {
                let mut changes: Vec<u64> = (1..*depth).map(|_| rng.below(*steps)).collect();
                changes.sort_unstable_by_key(|&point| Reverse(point));
                Strategy::Pct(Pct { rng, priorities: Vec::new(), changes, lowest: 0 })
            }
            Schedule::Choices(choices) => Strategy::Listed { choices: choices.clone(), next: 0 },
        };
        let (points, last, alone, yields) = (0, 0, 0, false);
        let (spins, decisions) = (Vec::new(), Decisions::default());
        Some(Chooser { strategy, points, last, alone, yields, spins, cut_spins, decisions })
    }

    fn spin(&mut self, thread: usize) -> &mut Spin {
        if self.spins.len() <= thread {
            self.spins.resize(thread + 1, Spin::default());
        }
        &mut self.spins[thread]
    }

    /// A thread, which ran last, yields to the others, unless it must spin alone. Returns whether
    /// it yields.
    pub(super) fn give_way(&mut self, thread: usize, luck: &mut Rng) -> bool {
        let one_in = if self.is_listed() { 0 } else { self.cut_spins };
        let spin = self.spin(thread);
        if spin.is_alone {
            spin.turns += 1;
            if spin.turns < MOST_TURNS {
                return false;
            }
            *spin = Spin { is_endless: true, ..Spin::default() };
            self.decisions.is_bounded = true;
        } else if !spin.is_endless && luck.once_in(one_in) {
            spin.is_alone = true;
            return false;
        }
        self.yields = true;
        true
    }

    /// Whether a thread spins, so that its changes to words must be recorded.
    pub(super) fn watches(&self, thread: usize) -> bool {
        self.spins.get(thread).is_some_and(|spin| spin.is_alone || spin.is_endless)
    }

    /// Whether a thread spins alone.
    pub(super) fn is_alone(&self, thread: usize) -> bool {
        self.spins.get(thread).is_some_and(|spin| spin.is_alone)
    }

    /// A thread is at a point, before an access to a word or at a call of the kernel. Whether it
    /// passes that, since it spins alone: for this long only, as its next loop may be one in which
    /// it neither yields nor changes anything.
    fn passes_alone(&mut self, thread: usize, access: Option<Seen>) -> bool {
        let Some(spin) = self.spins.get_mut(thread).filter(|spin| spin.is_alone) else {
            return false;
        };
        spin.points += 1;
        if spin.points > PATIENCE {
            *spin = Spin { is_endless: true, ..Spin::default() };
            self.decisions.is_bounded = true;
            return false;
        }
        if let Some(access) = access
            && !spin.accesses.contains(&access)
        {
            spin.accesses.push(access);
            spin.is_at_new_access = true;
        }
        !spin.is_at_new_access
    }

    /// A thread has changed something, or waits in another way: it no longer spins without success.
    pub(super) fn stops_spinning(&mut self, thread: usize) {
        if self.watches(thread) {
            self.spins[thread] = Spin::default();
        }
    }

    /// Others run before a thread, which may have spun alone.
    fn stops_being_alone(&mut self, thread: usize) {
        if self.is_alone(thread) {
            self.spins[thread] = Spin::default();
        }
    }

    /// Whether something unlikely that is permitted happens, if the schedule lists that.
    pub(super) fn is_unlucky(&mut self) -> Option<bool> {
        let Strategy::Listed { choices, next } = &mut self.strategy else { return None };
        let point = self.decisions.all.len() as u64;
        let listed = choices.0.get(*next).filter(|(at, _)| *at == point);
        if listed.is_some() {
            *next += 1;
        }
        let happens = listed.is_some_and(|&(_, choice)| choice > 0);
        self.decisions.all.push(Decision { alternatives: 2, preempts: true });
        Some(happens)
    }

    /// A thread that waits in a loop loses its CPU to another. If it kept its priority, two such
    /// threads could take their CPU from each other forever, and from the thread they wait for.
    fn set_aside(&mut self, thread: usize) {
        if let Strategy::Pct(pct) = &mut self.strategy {
            pct.lower(thread);
        }
    }

    fn is_listed(&self) -> bool {
        matches!(self.strategy, Strategy::Listed { .. })
    }

    pub(super) fn take_decisions(&mut self) -> Decisions {
        std::mem::take(&mut self.decisions)
    }

    /// One of the candidates. There is at least one. Those of a CPU are neighbours, the one that
    /// has it first; `holds` tells which do. `sets_aside` says that the thread that ran last waits
    /// for a write, on a CPU that others want.
    fn choose(
        &mut self,
        candidates: &[Candidate],
        holds: impl Fn(Candidate) -> bool,
        sets_aside: bool,
    ) -> Candidate {
        let last = self.last;
        let passes = |spin: &mut Spin| spin.is_alone && !std::mem::take(&mut spin.is_at_new_access);
        if self.spins.get_mut(last).is_some_and(passes)
            && let Some(&spins) = candidates.iter().find(|candidate| candidate.thread == last)
        {
            return spins;
        }
        let goes_on = candidates.iter().any(|candidate| candidate.thread == last);
        self.alone = if goes_on && candidates.len() > 1 { self.alone + 1 } else { 0 };
        let is_patient = self.alone <= PATIENCE;
        self.decisions.is_bounded |= !is_patient;
        let yields = std::mem::take(&mut self.yields) || !is_patient;
        if yields {
            self.alone = 0;
        }
        let chosen = match &mut self.strategy {
            Strategy::Random(rng) => random(rng, candidates, holds),
            Strategy::Pct(pct) => pct.choose(candidates, last, yields, self.points),
            Strategy::Listed { choices, next } => {
                let mut order = candidates.to_vec();
                let highest = order.iter().map(|other| other.thread).max().unwrap_or(0);
                let numbers = highest.max(last) + 1;
                let distance = |other: &Candidate| match other.thread {
                    thread if thread == last && yields => numbers,
                    thread => (thread + numbers - last) % numbers,
                };
                order.sort_unstable_by_key(distance);
                let point = self.decisions.all.len() as u64;
                let alternatives = order.len() as u32;
                let listed = choices.0.get(*next).filter(|(at, _)| *at == point);
                let choice = match listed {
                    _ if alternatives == 1 => 0,
                    None => 0,
                    Some(&(_, choice)) => {
                        *next += 1;
                        choice.min(alternatives - 1)
                    }
                };
                if alternatives > 1 {
                    // The alternatives of a thread that waits in a loop are all explored, too.
                    let preempts = goes_on || sets_aside;
                    self.decisions.all.push(Decision { alternatives, preempts });
                }
                order[choice as usize]
            }
        };
        self.points += 1;
        if chosen.thread != last {
            self.alone = 0;
            // What others do may let its next look succeed.
            self.stops_being_alone(last);
        } else if yields
            && is_patient
            && self.cut_spins > 0
            && candidates.len() > 1
            && self.is_listed()
            && !self.spin(last).is_endless
        {
            // This counts as one of the preemptions for which it had to give way: it spins on to
            // its end.
            self.spin(last).is_alone = true;
        }
        self.last = chosen.thread;
        chosen
    }
}

/// A CPU, and then mostly the thread that has it.
fn random(rng: &mut Rng, candidates: &[Candidate], holds: impl Fn(Candidate) -> bool) -> Candidate {
    let cpus = candidates.chunk_by(|a, b| a.cpu == b.cpu);
    let chosen = rng.below(cpus.clone().count() as u64) as usize;
    let of_cpu = cpus.clone().nth(chosen).unwrap_or(candidates);
    let (first, others) = (of_cpu[0], &of_cpu[1..]);
    match others.len() as u64 {
        0 => first,
        count if !holds(first) => of_cpu[rng.below(count + 1) as usize],
        count if rng.once_in(PREEMPT_ONE_IN) => others[rng.below(count) as usize],
        _ => first,
    }
}

impl Pct {
    fn choose(
        &mut self,
        candidates: &[Candidate],
        last: usize,
        yields: bool,
        point: u64,
    ) -> Candidate {
        let threads = candidates.iter().map(|candidate| candidate.thread + 1).max().unwrap_or(0);
        self.draw(threads.max(last + 1));
        let changes = self.changes.pop_if(|change| *change <= point).is_some();
        if changes || yields {
            self.lower(last);
        }
        // Of two with one priority, the one with the lower number.
        let rank = |other: &&Candidate| (self.priorities[other.thread], Reverse(other.thread));
        *candidates.iter().max_by_key(rank).expect("a thread can run")
    }

    /// Draws the priorities of the first `threads` threads that have none yet.
    fn draw(&mut self, threads: usize) {
        while self.priorities.len() < threads {
            self.priorities.push(1 + self.rng.below(1 << 31) as i64);
        }
    }

    /// Moves a thread to the end of the order.
    fn lower(&mut self, thread: usize) {
        self.draw(thread + 1);
        self.lowest -= 1;
        self.priorities[thread] = self.lowest;
    }
}

thread_local! {
    /// Whether weak exchanges fail on the machine of this host thread. Separate from the engine, so
    /// that a machine without such choices pays only for the check of this field.
    static FAIL_WEAKLY: Cell<bool> = const { Cell::new(false) };
}

/// A machine on this host thread begins, with this rate of weak exchanges that fail.
pub(super) fn begin(weak: u32) {
    FAIL_WEAKLY.set(weak != 0);
}

/// Whether a weak exchange that would succeed fails.
#[inline]
pub(crate) fn fails_weakly() -> bool {
    FAIL_WEAKLY.get() && with(|engine| engine.is_unlucky(engine.faults.weak)).unwrap_or(false)
}

impl Engine {
    /// Whether something unlikely that is permitted happens now, once in this many times on
    /// average. In a schedule that is listed, it happens if the list says so.
    pub(crate) fn is_unlucky(&mut self, one_in: u32) -> bool {
        if one_in == 0 {
            return false;
        }
        let listed = self.chooser.as_mut().and_then(Chooser::is_unlucky);
        listed.unwrap_or_else(|| self.luck.once_in(one_in))
    }

    /// How often a thread of the machine's own locks looks before it parks, of `most` times: in a
    /// search mostly never, so that the search reaches what happens when it parks.
    pub(crate) fn turns(&mut self, most: u32) -> u32 {
        let is_listed = self.chooser.as_ref().is_some_and(|chooser| chooser.is_listed());
        match self.faults.cut_spins {
            0 => most,
            // Whatever a turn would see, the look without a turn sees under another schedule.
            _ if is_listed || !self.luck.once_in(4) => 0,
            _ => self.luck.below(u64::from(most)) as u32,
        }
    }

    /// The running thread waits for others in a loop, or lets them go first. Returns whether it
    /// yields to them.
    pub(super) fn give_way(&mut self) -> bool {
        let current = self.current();
        let luck = &mut self.luck;
        self.chooser.as_mut().is_none_or(|chooser| chooser.give_way(current, luck))
    }

    /// Whether the running thread passes a point, since it spins alone.
    pub(super) fn spins_alone(&mut self, access: Option<Seen>) -> bool {
        let current = self.current();
        self.chooser.as_mut().is_some_and(|chooser| chooser.passes_alone(current, access))
    }

    /// The running thread, which may have spun, does something else.
    pub(super) fn stops_spinning(&mut self) {
        let current = self.current();
        if let Some(chooser) = &mut self.chooser {
            chooser.stops_spinning(current);
        }
    }

    /// Notes a write of the running thread before it takes effect.
    pub(super) fn note_write(&mut self, address: usize) {
        let current = self.current();
        let watches = self.chooser.as_ref().is_some_and(|chooser| chooser.watches(current));
        if watches && self.line_of(address).is_some() {
            let word = address & !7;
            self.written = Some((word, lately::peek(word)));
        }
    }

    /// Whether the running thread's latest write, if one was noted, has changed something.
    pub(super) fn look_at_write(&mut self) {
        // A stack may be gone by now.
        if let Some((word, before)) = self.written.take()
            && self.line_of(word).is_some()
            && lately::peek(word) != before
        {
            self.stops_spinning();
        }
    }

    /// Like `decide`, by choice.
    #[cold]
    pub(super) fn decide_by_choice(&mut self) -> Option<Next> {
        let timer = self.next_timer();
        if timer <= self.settled {
            self.expire();
            return None;
        }
        for cpu in 0..self.cpus.len() {
            let at = self.next_interrupt(cpu);
            if at != NEVER && self.cpus[cpu].current.is_none() {
                self.leave_idle(cpu, at.max(self.settled));
            }
        }
        let candidates = self.candidates();
        let Some(&first) = candidates.first() else {
            if timer == NEVER {
                return self.no_thread_left();
            }
            self.settled = timer;
            self.expire();
            return None;
        };
        let last = self.chooser.as_ref().and_then(|chooser| self.threads.get(chooser.last));
        let sets_aside = last
            .is_some_and(|last| last.state.is_passive() && !self.cpus[last.cpu].queue.is_empty());
        let midway = |other: &&Candidate| self.threads[other.thread].state.is_access();
        let chosen = match (candidates.iter().find(midway), &mut self.chooser) {
            // An access is one step, whatever it takes.
            (Some(&midway), _) => midway,
            (None, Some(chooser)) => {
                let cpus = &self.cpus;
                let holds = |other: Candidate| cpus[other.cpu].current == Some(other.thread);
                chooser.choose(&candidates, holds, sets_aside)
            }
            (None, None) => first,
        };
        Some(self.run_next(chosen))
    }

    /// The threads that could run, by CPU; of each CPU, the one that has it comes first.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (cpu, place) in self.cpus.iter().enumerate() {
            let current = place.current.map(|thread| (thread, self.threads[thread].state));
            if let Some((thread, state)) = current
                && (!state.is_passive() || self.next_break(cpu, thread) != NEVER)
            {
                candidates.push(Candidate { cpu, thread });
            }
            let stays = |(thread, state): (usize, State)| {
                let thread = &self.threads[thread];
                state.is_access() || thread.masked > 0 || thread.is_idle
            };
            if !current.is_some_and(stays) {
                candidates.extend(place.queue.iter().map(|&thread| Candidate { cpu, thread }));
            }
        }
        candidates
    }

    /// Gives a thread its CPU, unless it has it already, and lets it run.
    fn run_next(&mut self, Candidate { cpu, thread }: Candidate) -> Next {
        self.cpus[cpu].now = self.cpus[cpu].now.max(self.settled);
        if self.cpus[cpu].current != Some(thread) {
            if let Some(before) = self.cpus[cpu].current {
                if self.threads[before].state.is_passive()
                    && let Some(chooser) = &mut self.chooser
                {
                    chooser.set_aside(before);
                }
                self.running = Some(cpu);
                self.preempt();
                self.running = None;
            }
            let queue = &mut self.cpus[cpu].queue;
            queue.retain(|&other| other != thread);
            queue.push_front(thread);
            let at = self.cpus[cpu].now.max(self.threads[thread].ready_since());
            self.dispatch(cpu, at);
        }
        self.running = Some(cpu);
        let waits = self.threads[thread].state.is_passive();
        let interrupt = self.next_break(cpu, thread);
        let midway = self.threads[thread].state.is_access();
        if !midway && (waits || interrupt <= self.cpus[cpu].now) {
            self.cpus[cpu].now = self.cpus[cpu].now.max(interrupt);
            self.break_off();
        }
        self.stop_computing(cpu, thread);
        while !midway
            && self.cpus[cpu].now >= self.cpus[cpu].next_tick.max(self.cpus[cpu].next_kernel_event)
        {
            self.look_after(cpu, thread);
        }
        self.settled = self.settled.max(self.cpus[cpu].now);
        self.horizon = NEVER;
        self.set_out(thread);
        Next::Resume(thread)
    }
}
