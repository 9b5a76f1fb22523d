//! [`Scope`]: tasks that borrow from the function that waits for them.
//!
//! One word counts the tasks of a scope, and says whether its *owner*, the thread that opened it,
//! sleeps:
//!
//! | bits of `state` | meaning | written by |
//! |---|---|---|
//! | `ASLEEP` | the owner sleeps, or is about to | the owner; a thread that leaves it a task |
//! | the others | the tasks that have not ended | threads that add a task; workers that end one |
//!
//! An owner that is not a worker only sleeps, and each task of the scope waits in a worker's queue.
//! An owner that is a worker must run tasks of the scope itself, because there may be no other
//! worker. It must not run any other tasks:
//!
//!   Worker: opens a scope while it holds a lock, waits for a task that another worker runs
//!   Worker: runs a task of its queue meanwhile, which takes that lock     <- for ever
//!
//! So the tasks of such a scope wait in a queue of the scope, and *tickets* wait in the queues of
//! workers. A worker that takes a ticket from its queue runs the oldest task of the scope. There
//! are as many
//! tickets as tasks that wait, or more if the owner has run tasks itself. A new task needs no
//! ticket then. At the end of the scope, the owner removes the remaining tickets from its own
//! queue. Another worker may take one later. So a ticket shares the ownership of what it refers to:
//! it is a handle of the scope's [`Home`].

use core::any::Any;
use core::marker::PhantomData;
use core::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use std::collections::VecDeque;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;

use coreline_world::{Integer, Line, Native, Ordering, Threads, Word, World};

use super::polling::{Polling, poll};
use super::refused::{CallError, Refused};
use super::request::{Caller, Header};
use super::shared::Shared;
use super::tasks::{For, Task};
use super::waits::sleep_until;
use super::{Workers, mailbox};
use crate::lock::spin::MOST;
use crate::lock::{Fifo, Mutex};
use crate::panics::quietly;

/// A bit of `state`: the owner sleeps, or is about to.
const ASLEEP: u32 = 1;

/// A task that has not ended, in `state`.
const ONE: u32 = 2;

/// Of so many tasks that have not ended, some would be counted as none.
const TOO_MANY: u32 = u32::MAX / 2;

/// The tasks of one call of [`Workers::scope`], which may borrow what outlives `'scope`.
pub struct Scope<'scope, W: World = Native> {
    home: NonNull<Home<W>>,
    /// Invariant: with a shorter lifetime, tasks could borrow what ends before the scope does.
    borrows: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

// SAFETY: a `Home` is made of locks, atomics and handles that are `Sync`. Tasks are `Send`.
unsafe impl<W: World> Send for Scope<'_, W> {}
// SAFETY: as for `Send`.
unsafe impl<W: World> Sync for Scope<'_, W> {}

// A panic of a task goes to the owner, and leaves the scope as it was.
impl<W: World> UnwindSafe for Scope<'_, W> {}
impl<W: World> RefUnwindSafe for Scope<'_, W> {}

/// What the owner, the tasks and the tickets of a scope share.
#[repr(C)]
struct Home<W: World> {
    /// That of each ticket. It is only read.
    header: Header<W>,
    shared: Arc<Shared<W>>,
    /// The worker that opened the scope; `None` for another thread.
    owner: Option<usize>,
    state: Line<W::U32>,
    waiting: Mutex<Waiting<W>, Fifo, W>,
    /// The first panic of a task.
    panic: Mutex<Option<Box<dyn Any + Send>>, Fifo, W>,
}

/// The tasks of a scope that have not begun, if its owner is a worker.
struct Waiting<W: World> {
    tasks: VecDeque<Task<W>>,
    /// The tickets that were sent, or are about to be, and have not been run.
    tickets: usize,
}

/// A task of a scope on its way to a worker.
#[repr(C)]
struct Job<'scope, F, W: World> {
    header: Header<W>,
    scope: Scope<'scope, W>,
    function: F,
}

impl<'scope, F: FnOnce(&Scope<'scope, W>), W: World> Job<'scope, F, W> {
    /// # Safety
    ///
    /// As for [`Header::run`]; the header is that of a `Job<F, W>` in a box.
    unsafe fn run(header: NonNull<Header<W>>) -> bool {
        // SAFETY: by the contract. Only the thread that runs a task knows of it.
        let job = *unsafe { Box::from_raw(header.cast::<Self>().as_ptr()) };
        let Job { scope, function, .. } = job;
        let ended = catch_unwind(AssertUnwindSafe(|| function(&scope)));
        if let Err(panic) = ended {
            // SAFETY: this task has not ended.
            let mut first = unsafe { scope.home.as_ref() }.panic.lock();
            if first.is_none() {
                *first = Some(panic);
            } else {
                drop(first);
                quietly(|| drop(panic));
            }
        }
        // SAFETY: this task has not ended, and uses the scope no more.
        unsafe { Home::end(scope.home) };
        false
    }
}

impl<W: World> Home<W> {
    fn new(shared: Arc<Shared<W>>, owner: Option<usize>) -> Arc<Self> {
        Arc::new(Home {
            header: Header::new_in(Self::run, Caller::OUTSIDE),
            shared,
            owner,
            state: Line(W::U32::new_in(0)),
            waiting: Mutex::new_in(Waiting { tasks: VecDeque::new(), tickets: 0 }),
            panic: Mutex::new_in(None),
        })
    }

    /// The message of each ticket, whose sender gives a handle of the scope away with it.
    fn ticket(self: &Arc<Self>) -> NonNull<Header<W>> {
        // SAFETY: the address in an `Arc` is not null.
        unsafe { NonNull::new_unchecked(Arc::as_ptr(self).cast_mut()) }.cast()
    }

    /// Runs the oldest task of the scope, if there is one.
    ///
    /// # Safety
    ///
    /// As for [`Header::run`]; the header is that of a `Home<W>`, and the message a handle of it.
    unsafe fn run(header: NonNull<Header<W>>) -> bool {
        // SAFETY: by the contract.
        let home = unsafe { Arc::from_raw(header.cast::<Self>().as_ptr().cast_const()) };
        let task = {
            let mut waiting = home.waiting.lock();
            // With the look for a task, so that a thread that adds one later sends another ticket.
            waiting.tickets -= 1;
            waiting.tasks.pop_front()
        };
        if let Some(task) = task {
            // SAFETY: it was taken out of the queue, so this thread alone runs it.
            unsafe { Header::run(task.0) };
        }
        false
    }

    /// A task of the scope has ended.
    ///
    /// # Safety
    ///
    /// The caller runs that task, on a worker, and uses the scope no more.
    unsafe fn end(this: NonNull<Self>) {
        let this = this.as_ptr();
        // SAFETY: the owner waits for this task. A worker has a handle of its set as long as it
        // runs tasks, so the set stays even if the scope is gone.
        let (owner, set) = unsafe { ((*this).owner, Arc::as_ptr(&(*this).shared)) };
        // SAFETY: as for `owner`.
        let state = unsafe { &raw const (*this).state.0 };
        // Release: pairs with the Acquire of the owner's looks. Without it, the owner could end
        // what this task has borrowed while the task still writes it. From here on the scope may be
        // gone: only its state is borrowed, which is an atomic.
        // SAFETY: the scope stays until this.
        let before = unsafe { (*state).fetch_sub(ONE, Ordering::Release) };
        if before == ONE | ASLEEP {
            match owner {
                // Its address is all that is used.
                None => _ = W::wake(state, 1),
                // SAFETY: the set stays, as said above.
                Some(index) => unsafe { &*set }.workers[index].mailbox.events().notify(),
            }
        }
    }

    /// Leaves a task where the owner, which is a worker, and any other worker find it.
    fn leave(self: &Arc<Self>, task: Task<W>, owner: usize) {
        let mut waiting = self.waiting.lock();
        waiting.tasks.push_back(task);
        // The owner has run a task whose ticket waits, or is on its way to a queue: it finds this
        // task. A worker that comes to rest looks for it.
        let has_ticket = waiting.tickets >= waiting.tasks.len();
        waiting.tickets += usize::from(!has_ticket);
        // Relaxed: the owner sets the bit under the lock, too, if it finds no task.
        let is_asleep = self.state.load(Ordering::Relaxed) & ASLEEP != 0;
        if is_asleep {
            // Relaxed: `notify` publishes it.
            self.state.fetch_and(!ASLEEP, Ordering::Relaxed);
        }
        drop(waiting);
        if is_asleep {
            self.shared.workers[owner].mailbox.events().notify();
        }
        if has_ticket {
            return;
        }
        let sent = Arc::clone(self);
        match self.shared.spawn(Task(self.ticket()), For::Scope) {
            // A worker in a call tells no other worker of what it queues, because it runs that
            // itself after the call. Here it waits in the call.
            Ok(()) => {
                core::mem::forget(sent);
                self.shared.wake_searcher();
            }
            // No queue takes it: the owner runs the task.
            Err(_) => self.waiting.lock().tickets -= 1,
        }
    }

    /// Whether all tasks have ended.
    fn says_over(state: u32) -> bool {
        state < ONE
    }

    /// Waits until all tasks have ended. In a forked child, which has no workers, it does not wait.
    fn wait(self: &Arc<Self>) {
        let shared = &*self.shared;
        if !shared.is_here() {
            return;
        }
        // Acquire, in `poll`, `sleep_until` and `help`: pairs with the Release in `end`.
        match self.owner {
            Some(index) => {
                self.help(index);
                // A task that it ran may have forked: another thread may hold a lock in the child.
                if shared.is_here() {
                    self.take_tickets(index);
                }
            }
            None => {
                if poll::<W, _>(&*self.state, MOST, None, Self::says_over).is_none() {
                    // Relaxed: `end` finds it in the word that it changes.
                    self.state.fetch_or(ASLEEP, Ordering::Relaxed);
                    sleep_until::<W>(&self.state, |state| Self::says_over(state & !ASLEEP));
                }
            }
        }
    }

    /// Runs tasks of the scope, and calls, until all tasks have ended. Only for the owner.
    fn help(&self, index: usize) {
        let shared = &*self.shared;
        let own = &shared.workers[index];
        // The message of the call that this is in the middle of was taken. If a thread of the
        // scope's function has left all tasks, this one has passed no fence since:
        //
        //   Worker: takes the call, whose function opens this scope
        //   Sender: puts a call into `more`, finds the message of the first one in the mailbox
        //   Worker: does not see the call, sleeps      <- a task of the scope waits for that call
        //
        // Partner: the fence of a sender before `offer_work`.
        W::fence(Ordering::SeqCst);
        let mut polling = Polling::new::<W>(own.cpu, MOST);
        // A task that it runs may fork: the child has no other workers.
        while shared.is_here() {
            // Acquire: pairs with the Release in `end`.
            if Self::says_over(self.state.load(Ordering::Acquire)) {
                return;
            }
            let calls = own.serve_calls(&shared.workers);
            // As a task may: the child must not take a task.
            if !shared.is_here() {
                return;
            }
            // After calls, too. While two threads call again and again, there are always some:
            //
            //   Worker: runs the call of the first thread
            //   Second thread: sends its next call
            //   Worker: runs that, meanwhile the first thread sends      <- and so on
            let task = self.waiting.lock().tasks.pop_front();
            if let Some(task) = task {
                own.counts.tasks.add(1);
                // SAFETY: it was taken out of the queue, so this thread alone runs it.
                unsafe { Header::run(task.0) };
                polling.again::<W>();
            } else if calls > 0 {
                polling.again::<W>();
            } else if polling.goes_on::<W>() {
                W::relax();
            } else {
                self.sleep(&own.mailbox);
                polling.slept::<W>();
            }
        }
    }

    /// Takes the tickets of a scope that is over out of the queue of its owner. A call that opens
    /// one scope after the other may never return to the loop that runs them.
    fn take_tickets(self: &Arc<Self>, index: usize) {
        let tickets = self.waiting.lock().tickets;
        if tickets == 0 {
            return;
        }
        for _ in 0..self.shared.workers[index].tasks.take_back(self.ticket(), tickets) {
            // SAFETY: each ticket is a handle, and was taken out of the queue.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(self)) };
        }
    }

    /// Sleeps until there is a message, a task of the scope, or the end of all tasks.
    fn sleep(&self, mailbox: &mailbox::Mailbox<W>) {
        let waiting = self.waiting.lock();
        if !waiting.tasks.is_empty() {
            return;
        }
        // Under the lock, so that a thread that leaves a task finds it:
        //
        //   Owner:  finds no task
        //   Other:  leaves a task, finds the owner awake
        //   Owner:  says that it sleeps, and sleeps      <- until other tasks end
        //
        // Relaxed: `end` finds it in the word that it changes.
        self.state.fetch_or(ASLEEP, Ordering::Relaxed);
        drop(waiting);
        mailbox.sleep(|| {
            // Relaxed: `help` looks again, with Acquire.
            let state = self.state.load(Ordering::Relaxed);
            state & ASLEEP == 0 || Self::says_over(state & !ASLEEP)
        });
        // Relaxed: it is awake, which `leave` and `end` need not know.
        self.state.fetch_and(!ASLEEP, Ordering::Relaxed);
    }
}

impl<'scope, W: World> Scope<'scope, W> {
    /// Queues `function` as a task of the scope, which any worker may run. It gets the scope, and
    /// may add further tasks. The task cannot be withdrawn.
    ///
    /// # Errors
    ///
    /// [`Refused`], with the function, in a forked child, or if the workers are closed and the
    /// calling thread is not one of them. If the owner of the scope is not a worker, also if the
    /// queues
    /// are [full](super::Builder::queue_limit).
    ///
    /// # Panics
    ///
    /// Panics if the scope has 2^30 tasks that have not ended.
    pub fn spawn<F>(&self, function: F) -> Result<(), Refused<F>>
    where
        F: FnOnce(&Scope<'scope, W>) + Send + 'scope,
    {
        // SAFETY: the caller has the scope, so it is in the function of the scope, or in a task
        // that has not ended.
        let home = unsafe { self.home.as_ref() };
        if let Err(why) = home.shared.admit(home.shared.current()) {
            return Err(Refused { why, function });
        }
        // Relaxed: a count. The owner does not wait yet, or waits for the task that adds this one.
        let before = home.state.fetch_add(ONE, Ordering::Relaxed);
        if before >= TOO_MANY {
            // Relaxed: as for the addition.
            home.state.fetch_sub(ONE, Ordering::Relaxed);
            panic!("a scope has 2^30 tasks that have not ended");
        }
        let header = Header::new_in(Job::<F, W>::run, Caller::OUTSIDE);
        let scope = Scope { home: self.home, borrows: PhantomData };
        let job = Box::into_raw(Box::new(Job { header, scope, function }));
        // SAFETY: a box is not null.
        let task = Task(unsafe { NonNull::new_unchecked(job) }.cast());
        match home.owner {
            None => home.shared.spawn(task, For::Any).map_err(|why: CallError| {
                // Relaxed: as for the addition. The caller's own task, or the function of the
                // scope, has not ended, so this is not what the owner waits for.
                home.state.fetch_sub(ONE, Ordering::Relaxed);
                // SAFETY: it was not sent.
                let job = *unsafe { Box::from_raw(job) };
                Refused { why, function: job.function }
            }),
            Some(owner) => {
                // SAFETY: the address is that of an `Arc`, of which the owner has a handle.
                let home = unsafe {
                    Arc::increment_strong_count(self.home.as_ptr());
                    Arc::from_raw(self.home.as_ptr())
                };
                home.leave(task, owner);
                Ok(())
            }
        }
    }
}

impl<W: World + Threads> Workers<W> {
    /// Runs `function` on the calling thread with a [`Scope`], whose tasks may borrow from the
    /// caller. Returns its value when all tasks of the scope have ended, including those that tasks
    /// have added.
    ///
    /// If the caller is one of these workers, it runs tasks of this scope itself while it waits. It
    /// also serves calls, as in [`call_on`](Workers::call_on). It runs no other tasks. So a scope
    /// on a worker ends even if all other workers are busy, or if there is none. On another thread,
    /// the tasks run on the workers alone, and the caller sleeps after a while. A worker of another
    /// set serves calls of its own set.
    ///
    /// ```
    /// use coreline::Workers;
    ///
    /// let workers = Workers::new()?;
    /// let mut squares = [1, 2, 3, 4];
    /// let sum = workers.scope(|scope| {
    ///     for number in &mut squares {
    ///         scope.spawn(move |_| *number *= *number).unwrap();
    ///     }
    ///     1 + 2 + 3 + 4
    /// });
    /// assert_eq!((squares, sum), ([1, 4, 9, 16], 10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A task may borrow data that outlives the scope, but no data of the scope's own function:
    ///
    /// ```compile_fail,E0373
    /// # let workers = coreline::Workers::new().unwrap();
    /// workers.scope(|scope| {
    ///     let local = 5;
    ///     scope.spawn(|_| assert_eq!(local, 5)).unwrap(); // `local` ends first
    /// });
    /// ```
    ///
    /// **Closing**: tasks of a scope are accepted until the workers are [closed](Workers::close).
    /// Accepted tasks run even after that. A scope that a worker has
    /// opened accepts tasks from workers at any time. **Fork**: in a child that was forked in the
    /// scope, the scope accepts no tasks and does not wait. The tasks that had not begun do not run
    /// in the child, and are not dropped there.
    ///
    /// # Panics
    ///
    /// Panics if `function` or a task panics, after all tasks have ended. The panic of `function`
    /// is resumed, or else the first panic of a task.
    pub fn scope<'scope, R>(&self, function: impl FnOnce(&Scope<'scope, W>) -> R) -> R {
        let home = Home::new(Arc::clone(&self.shared), self.shared.current());
        // SAFETY: the address in an `Arc` is not null.
        let at = unsafe { NonNull::new_unchecked(Arc::as_ptr(&home).cast_mut()) };
        let scope = Scope { home: at, borrows: PhantomData };
        // All that is borrowed for `'scope` outlives this function. It does not return or unwind
        // before `wait` has seen the end of each task. No other code has the scope by value, so
        // nothing that a caller forgets or leaks can leave that out.
        let value = catch_unwind(AssertUnwindSafe(|| function(&scope)));
        home.wait();
        // In a child, a thread of the parent may hold the lock.
        let panic = self.shared.is_here().then(|| home.panic.lock().take()).flatten();
        match (value, panic) {
            (Ok(value), None) => value,
            // What is not returned ends here, and not while it unwinds: a destructor that panics
            // then aborts the process.
            (Err(panic), other) => {
                quietly(|| drop(other));
                resume_unwind(panic)
            }
            (Ok(value), Some(panic)) => {
                quietly(|| drop(value));
                resume_unwind(panic)
            }
        }
    }
}

impl_debug!([W: World] Scope<'_, W> { .. });

#[cfg(test)]
mod tests;
