//! The state that all workers share, and the life of a worker from its start to its end.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `idle` | the workers that have no task; they may be in calls | each worker its own bit |
//! | `asleep` | of these, workers that sleep or are about to; a hint | the same |
//! | `searcher` | the named worker, [`FIRST_DONE`], or [`NO_SEARCHER`] | any thread |
//! | `closing` | not 0: only workers may still send | `close` |
//! | `ended` | how many workers have ended | each worker, at its end |
//!
//! | a worker | means |
//! |---|---|
//! | is idle | it has no task |
//! | is called | a call waits for it, or it runs one |
//! | is free | it is idle and not called, so it sees a new task at once |
//! | is named | it must look for tasks of others: it is the searcher |
//! | rests | it has found nothing to do, and polls or sleeps |

use core::num::NonZeroU32;
use core::ops::Range;
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::sync::Arc;

use coreline_topology::{Cpu, CpuId};
use coreline_world::{Integer, Line, Ordering, Word, World};

use super::CallError;
use super::current::with_current;
use super::mailbox::Offered;
use super::policy::Policy;
use super::polling;
use super::request::Header;
use super::tasks::{For, Task};
use super::worker::{Sent, Worker};
use crate::mask::CpuMask;

/// No worker searches.
const NO_SEARCHER: u32 = u32::MAX;

/// No worker is free, but workers that have no task are in calls. The first of these whose call
/// ends must search.
const FIRST_DONE: u32 = u32::MAX - 1;

/// The workers of one [`Workers`](super::Workers).
pub(super) struct Shared<W: World> {
    /// Sorted by node, cache and CPU.
    pub(super) workers: Vec<Worker<W>>,
    /// By CPU number: its worker, or the nearest one.
    nearest: Vec<u32>,
    pub(super) policy: Policy,
    polling: Duration,
    pub(super) generation: NonZeroU32,
    /// Workers without work. One mask for those that poll and those that sleep. With two masks, a
    /// thread that reads one after the other could miss a worker that changes twice meanwhile.
    idle: CpuMask<W>,
    /// Of these, workers that sleep or are about to. This is a hint.
    asleep: CpuMask<W>,
    /// The worker that must search for tasks, or does: one at a time.
    searcher: Line<W::U32>,
    /// Not zero: no more calls and tasks are taken, except those that workers themselves make.
    closing: Line<W::U32>,
    /// How many workers have ended. Threads that wait for all of them sleep here.
    pub(super) ended: Line<W::U32>,
}

/// A worker among those of all sets. As long as one of these waits, no other set has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat {
    /// The address of its [`Shared`].
    set: usize,
    index: usize,
    pub(super) cpu: CpuId,
}

impl<W: World> Shared<W> {
    /// Workers for these CPUs, which the topology knows.
    pub(super) fn new_in(cpus: &[CpuId], policy: Policy, polling: Duration, limit: usize) -> Self {
        polling::prepare::<W>();
        let topology = W::topology();
        let known = cpus.iter().filter_map(|cpu| topology.cpu(*cpu));
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|cpu| (cpu.node, cpu.cache, cpu.id));
        known.dedup_by_key(|cpu| cpu.id);
        let worker = |cpu: &&Cpu| Worker::new_in(cpu.id, cpu.cache, cpu.node, limit);
        let workers: Vec<Worker<W>> = known.iter().map(worker).collect();
        let nearest = |number| {
            let near = |worker: &&Worker<W>| topology.distance(CpuId::new(number), worker.cpu);
            // `None`, for a CPU that the topology does not know, is always the same distance.
            let nearest = workers.iter().enumerate().min_by_key(|(_, worker)| near(worker));
            nearest.map_or(0, |(index, _)| index as u32)
        };
        Shared {
            nearest: (0..topology.cpu_limit() as u32).map(nearest).collect(),
            workers,
            policy,
            polling,
            generation: W::generation(),
            idle: CpuMask::new_in(),
            asleep: CpuMask::new_in(),
            searcher: Line(W::U32::new_in(NO_SEARCHER)),
            closing: Line(W::U32::new_in(0)),
            ended: Line(W::U32::new_in(0)),
        }
    }

    /// The seat of a worker.
    pub(super) fn seat_of(&self, index: usize) -> Seat {
        Seat { set: ptr::from_ref(self).addr(), index, cpu: self.workers[index].cpu }
    }

    /// The worker of a CPU.
    #[inline]
    pub(super) fn worker(&self, cpu: CpuId) -> Option<usize> {
        let index = *self.nearest.get(cpu.get() as usize)? as usize;
        (self.workers[index].cpu == cpu).then_some(index)
    }

    /// The worker that the calling thread is, if it is one of these.
    #[inline]
    pub(super) fn current(&self) -> Option<usize> {
        with_current::<W, _>(|current| {
            (current.shared.get() == ptr::from_ref(self).cast()).then(|| current.index.get())
        })
    }

    /// Whether this is not a fork's copy, whose workers are threads of the parent.
    pub(super) fn is_here(&self) -> bool {
        W::generation() == self.generation
    }

    /// Whether calls and tasks are taken from a thread that is this worker, or none of these.
    pub(super) fn admit(&self, current: Option<usize>) -> Result<(), CallError> {
        if !self.is_here() {
            Err(CallError::Forked)
        } else if current.is_none() && self.is_closing() {
            Err(CallError::Closed)
        } else {
            Ok(())
        }
    }

    /// Whether a call always wakes its worker.
    pub(super) fn kicks(&self) -> bool {
        self.policy == Policy::AlwaysKick
    }

    /// All workers: this one first, then those under its cache, then those of its node.
    fn near(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let here = &self.workers[index];
        let begin = |key: &dyn Fn(&Worker<W>) -> bool| self.workers.partition_point(key);
        let place = (here.node, here.cache);
        let cache =
            begin(&|it| (it.node, it.cache) < place)..begin(&|it| (it.node, it.cache) <= place);
        let node = begin(&|it| it.node < here.node)..begin(&|it| it.node <= here.node);
        let all = 0..self.workers.len();
        let around = move |range: Range<usize>, inner: Range<usize>| {
            let from = range.len().min(index - range.start);
            let turned = range.clone().skip(from).chain(range.take(from));
            turned.filter(move |at| !inner.contains(at))
        };
        around(cache.clone(), 0..0).chain(around(node.clone(), cache)).chain(around(all, node))
    }

    /// Whether it is closed to all but its workers.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        // Relaxed: nothing is read for it. Workers pass a fence between the message that `close`
        // has left and this.
        self.closing.load(Ordering::Relaxed) != 0
    }

    /// Takes no more calls and tasks. Workers end when they have nothing more to do.
    pub(super) fn close(&self) {
        // Relaxed: publishes nothing but itself.
        self.closing.store(1, Ordering::Relaxed);
        // Partner: the fence of a worker that has taken a message.
        W::fence(Ordering::SeqCst);
        for worker in &self.workers {
            worker.mailbox.offer_work();
        }
    }

    /// Adds a task. On a worker it goes to that worker. Otherwise it goes to a near worker without
    /// work, a polling one if possible, or else to the nearest worker.
    pub(super) fn spawn(&self, task: Task<W>, whom: For) -> Result<(), CallError> {
        if let Some(index) = self.current() {
            let own = &self.workers[index];
            if own.tasks.push(&task, whom).is_ok() {
                // One that serves a call, and has nothing else to do, runs the task next.
                if !self.is_idle(own) {
                    self.wake_searcher();
                }
                return Ok(());
            }
        }
        let here = self.here();
        let free = || self.near(here).filter(|index| self.is_free(&self.workers[*index]));
        let polls = |index: &usize| !self.asleep.test(self.workers[*index].cpu);
        let free = free().find(polls).or_else(|| free().next());
        let index = self.push_near(free.unwrap_or(here), &task, whom)?;
        let worker = &self.workers[index];
        // Partner: the fence of a worker that has taken a message.
        W::fence(Ordering::SeqCst);
        worker.mailbox.offer_work();
        // The worker may have begun something before it could see this task. Then this finds it not
        // free, or another thread has another worker search:
        //
        //   a task:                  it leaves `idle` before the fence in `leaves_idle`, and looks
        //                            at its tasks after it
        //   a call from the mailbox: `offer_work` read what `take` left, so `nested` is seen
        //                            (Acquire in `offer`, Release in `take`)
        //   a call in `more`:        its sender looks at these tasks in `goes_behind`, after the
        //                            fence in `queue`
        if free != Some(index) || !self.is_free(worker) {
            self.wake_searcher();
        }
        Ok(())
    }

    /// Adds a task to the first queue that takes it, from this one on. While workers end, one that
    /// takes tasks may come after one that has ended.
    fn push_near(&self, first: usize, task: &Task<W>, whom: For) -> Result<usize, CallError> {
        let mut refused = CallError::Closed;
        for index in self.near(first) {
            match self.workers[index].tasks.push(task, whom) {
                Ok(()) => return Ok(index),
                // One that is only full may take it later.
                Err(CallError::Full) => refused = CallError::Full,
                Err(_) => {}
            }
        }
        Err(refused)
    }

    /// Sends a call to a worker. If others are there, it goes behind them if it `queues`.
    ///
    /// # Safety
    ///
    /// The request stays until it is done.
    #[inline]
    pub(super) unsafe fn send(
        &self,
        index: usize,
        call: NonNull<Header<W>>,
        queues: bool,
    ) -> Result<(), CallError> {
        // SAFETY: by this function's contract.
        match unsafe { self.workers[index].send(call, queues, self.kicks()) }? {
            Sent::First => {}
            Sent::Behind => self.goes_behind(index),
        }
        Ok(())
    }

    /// A call was queued behind another message. If that message is work, the worker takes it, runs
    /// the call, which may take long, and checks its tasks only afterwards. So another worker must
    /// search if this one is named, or has tasks that any worker may run. If the message is a call,
    /// this costs little and loses nothing.
    #[cold]
    #[inline(never)]
    fn goes_behind(&self, index: usize) {
        // A thread that adds a task, or names this worker, passes a fence and then looks whether it
        // is called. The sender of the call has passed one in `queue`. So either that thread finds
        // the call, or this finds its task or the naming. So a worker that waits in a call need not
        // look whether it must search:
        //
        //   Namer:  names the worker, passes its fence, leaves it a message, finds it in no call
        //   Sender: puts a call into `more`, passes its fence, names another worker
        //   Worker: takes the message and the call, and waits in it for as long as that takes
        //
        // A call that comes into the mailbox comes after that message. The worker looks for its
        // name between the two.
        if self.is_searcher(index) {
            self.resign(index);
            self.wake_next();
        } else if self.workers[index].tasks.is_any_unbound() {
            self.wake_searcher();
        }
    }

    /// The worker that is nearest to the calling thread.
    fn here(&self) -> usize {
        self.nearest.get(W::cpu_hint().get() as usize).map_or(0, |index| *index as usize)
    }

    /// Adds a task for one worker only.
    pub(super) fn spawn_on(&self, index: usize, task: Task<W>) -> Result<(), CallError> {
        let worker = &self.workers[index];
        worker.tasks.push(&task, For::One)?;
        // Partner: the fence of a worker that has taken a message.
        W::fence(Ordering::SeqCst);
        worker.mailbox.offer_work();
        Ok(())
    }

    /// Adds a future of a worker that was woken.
    pub(super) fn wake_on(&self, index: usize, future: Task<W>) -> Result<(), CallError> {
        let worker = &self.workers[index];
        worker.tasks.push_woken(future)?;
        // Partner: the fence of a worker that has taken a message.
        W::fence(Ordering::SeqCst);
        worker.mailbox.offer_work();
        Ok(())
    }

    /// Whether a worker has no work.
    fn is_idle(&self, worker: &Worker<W>) -> bool {
        self.idle.test(worker.cpu)
    }

    /// Whether a worker has no work, and is in no call.
    fn is_free(&self, worker: &Worker<W>) -> bool {
        self.is_idle(worker) && !worker.is_called()
    }

    /// Makes one worker without work search, if a task waits that any worker may run and none
    /// searches.
    pub(super) fn wake_searcher(&self) {
        loop {
            // Between what the caller did and the looks here. Partners: the fence in `rest`,
            // between a worker's saying that it has no work and its last look at all tasks; that
            // in `wake_next`.
            W::fence(Ordering::SeqCst);
            if self.named() != NO_SEARCHER {
                return;
            }
            let free = self.free();
            let Some(name) = free.map(|index| index as u32).or(self.first_of_called()) else {
                return;
            };
            if !self.changes_searcher(NO_SEARCHER, name) {
                return;
            }
            // Partners: the fence in `leaves_idle`: either the worker sees that it was named, or is
            // seen to have begun to work; that behind a call, in `serve`: either the worker that
            // was in it sees that the first one is to search, or is seen to be free.
            W::fence(Ordering::SeqCst);
            let is_settled = match free.map(|index| &self.workers[index]) {
                Some(worker) => {
                    self.is_idle(worker)
                        && worker.mailbox.offer_work() != Offered::Closed
                        && !worker.is_called()
                }
                None => self.free().is_none(),
            };
            if is_settled {
                return;
            }
            self.changes_searcher(name, NO_SEARCHER);
            // Again from the first one:
            //
            //   This:    finds worker 1 at work, names worker 2
            //   Worker 1: comes to rest, finds no task
            //   Another: adds a task, finds that worker 2 is to search: leaves it at that
            //   This:    finds that worker 2 has begun to work      <- worker 1 is to search
        }
    }

    /// The nearest worker without work that is in no call.
    fn free(&self) -> Option<usize> {
        self.near(self.here()).find(|index| self.is_free(&self.workers[*index]))
    }

    /// The worker to name if no worker is free: [`FIRST_DONE`], if there are workers that have no
    /// task. A worker that has a task searches when it has none left.
    fn first_of_called(&self) -> Option<u32> {
        self.workers.iter().any(|worker| self.is_idle(worker)).then_some(FIRST_DONE)
    }

    /// Names another searcher; returns whether it was this worker.
    fn changes_searcher(&self, from: u32, to: u32) -> bool {
        // Relaxed, twice: which worker must search says nothing about what it finds.
        self.searcher.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether the worker, which is in no call, must search.
    fn is_to_search(&self, index: usize) -> bool {
        match self.named() {
            FIRST_DONE => self.changes_searcher(FIRST_DONE, index as u32),
            searcher => searcher == index as u32,
        }
    }

    /// The worker that must search.
    fn named(&self) -> u32 {
        // Relaxed: a worker is named before it is left a message, and looks here after each.
        self.searcher.load(Ordering::Relaxed)
    }

    /// Whether the worker must search.
    fn is_searcher(&self, index: usize) -> bool {
        self.named() == index as u32
    }

    /// The worker stops searching.
    fn resign(&self, index: usize) {
        self.changes_searcher(index as u32, NO_SEARCHER);
    }

    /// Looks for tasks of other workers, near ones first, and takes half of the tasks of one.
    fn search(&self, index: usize) -> Option<Task<W>> {
        let own = &self.workers[index];
        own.counts.searches.add(1);
        for other in self.near(index).skip(1) {
            let mut taken = self.workers[other].tasks.take_half();
            own.counts.steals.add(taken.len() as u32);
            if let Some(first) = taken.pop_front() {
                own.tasks.extend(taken);
                return Some(first);
            }
        }
        None
    }

    /// The worker begins what may take long: it is not to be named, and another one must search if
    /// there is anything to find.
    #[inline]
    fn leaves_idle(&self, index: usize) {
        let own = &self.workers[index];
        if self.is_idle(own) {
            // A worker has a bit: the mask is as wide as the machine.
            let _ = self.idle.clear(own.cpu);
        }
        // Partner: the fence in `wake_searcher`.
        W::fence(Ordering::SeqCst);
        if self.is_searcher(index) {
            self.resign(index);
            self.wake_next();
        }
        if own.tasks.is_any_unbound() {
            self.wake_searcher();
        }
    }

    /// Runs a task.
    fn run(&self, index: usize, task: Task<W>) {
        self.leaves_idle(index);
        self.workers[index].counts.tasks.add(1);
        // SAFETY: a task that was taken out of a queue is run by the thread that took it.
        unsafe { Header::run(task.0) };
    }

    /// Makes another worker search if there is anything to find.
    fn wake_next(&self) {
        // Partner: the fence in `wake_searcher`: a thread that has added a task, and has found a
        // searcher, added it before this look.
        W::fence(Ordering::SeqCst);
        if self.is_any_unbound() {
            self.wake_searcher();
        }
    }

    /// Whether a task waits that any worker may run.
    fn is_any_unbound(&self) -> bool {
        self.workers.iter().any(|worker| worker.tasks.is_any_unbound())
    }

    /// The calling thread is this worker from here on. It must [work](Shared::work) next, because
    /// others wait for its end.
    pub(super) fn begin(self: &Arc<Self>, index: usize) {
        with_current::<W, _>(|current| {
            current.shared.set(Arc::as_ptr(self).cast());
            current.index.set(index);
        });
    }

    /// The loop of a worker, which has [begun](Shared::begin). It calls `at_end` when it has run
    /// everything.
    pub(super) fn work(&self, index: usize, at_end: &mut dyn FnMut()) {
        let own = &self.workers[index];
        let mut window = self.polling;
        let is_child = loop {
            // What has just run may have forked, here and after the calls. The child has left the
            // function, and perhaps what the tasks of a scope in it borrow:
            //
            //   Child: in a call, leaves a scope that has a task, without waiting
            //   Child: returns from the call, which ends what the task borrows
            //   Child: comes to the task's ticket in its queue      <- it uses what has ended
            if !self.is_here() {
                break true;
            }
            let calls = own.serve_calls(&self.workers);
            if !self.is_here() {
                break true;
            }
            if let Some(task) = own.tasks.pop() {
                self.run(index, task);
                continue;
            }
            let is_searcher = self.is_to_search(index);
            if is_searcher || self.policy == Policy::Resched && calls > 0 {
                let found = self.search(index);
                if is_searcher && found.is_none() {
                    self.resign(index);
                    self.wake_next();
                }
                if let Some(task) = found {
                    self.run(index, task);
                    continue;
                }
            }
            if self.is_closing() {
                // The futures that wait have no other end, as there is nothing else to run here.
                if let Some(future) = own.locals.pop() {
                    // What it drops may wait for a task, which another worker must find then.
                    self.leaves_idle(index);
                    future.end();
                    // One that came meanwhile found this worker busy. A forked child must run none.
                    if let Some(task) = self.is_here().then(|| self.search(index)).flatten() {
                        self.run(index, task);
                    }
                    continue;
                }
                // It is not to be named any more: it searches no more.
                let _ = self.idle.clear(own.cpu);
                if own.close() {
                    break false;
                }
                continue;
            }
            self.rest(index, &mut window, calls > 0);
        };
        with_current::<W, _>(|current| current.shared.set(ptr::null()));
        if is_child {
            return;
        }
        at_end();
        // Release: pairs with the Acquire in `wait_for_end`. A thread that has waited could else
        // miss what functions wrote that the worker ran.
        self.ended.fetch_add(1, Ordering::Release);
        W::wake(&raw const *self.ended, u32::MAX);
    }

    /// Waits for a message: polls, and then sleeps. `has_served`: it has just answered a call.
    fn rest(&self, index: usize, window: &mut Duration, has_served: bool) {
        let own = &self.workers[index];
        if self.idle.set(own.cpu).unwrap_or(false) {
            // It has just run out of work. Partner: the fence in `wake_searcher`: either a thread
            // that has added a task finds this worker without work, or this finds the task.
            W::fence(Ordering::SeqCst);
            // Named after this worker's last look, as one of those that were busy:
            //
            //   Worker: finds no searcher
            //   Sender: finds this worker at work, another one in a call: names the first one
            //   Worker: comes to rest    <- all that add tasks leave them to the first one
            //
            // Partner: the fence behind the naming, in `wake_searcher`.
            let is_searcher = self.is_to_search(index);
            if let Some(task) = self.search(index) {
                return self.run(index, task);
            }
            if is_searcher {
                self.resign(index);
                self.wake_next();
            }
        }
        let Err(since) = own.mailbox.poll(own.cpu, *window, has_served) else {
            own.counts.spared.add(1);
            return;
        };
        let _ = self.asleep.set(own.cpu);
        let woken = own.mailbox.sleep(|| false);
        own.counts.sleeps.add(woken);
        own.counts.spurious.add(woken.saturating_sub(1));
        let _ = self.asleep.clear(own.cpu);
        *window = polling::next_window(*window, W::now() - since, self.polling);
    }

    /// Whether the calling thread is a worker with something else to do.
    pub(super) fn need_resched(&self) -> bool {
        self.current().filter(|_| self.is_here()).is_some_and(|index| {
            let own = &self.workers[index];
            // Not every message of work tells of a task: senders of calls that found the mailbox
            // occupied leave one, too.
            let is_to_search = || match self.named() {
                // Not in a call inside of another one, which would go on. And the task may be gone.
                FIRST_DONE => self.is_idle(own) && !own.is_nested() && self.is_any_unbound(),
                searcher => searcher == index as u32,
            };
            own.tasks.is_any() || own.has_calls() || is_to_search()
        })
    }

    /// Waits until a call is done.
    pub(super) fn wait(&self, current: Option<usize>, call: &Header<W>, callee: &Worker<W>) {
        match current {
            None => callee.wait(call),
            Some(index) => self.workers[index].wait_serving(call, callee, &self.workers),
        }
    }
}

#[cfg(test)]
mod tests;
