//! The parts of a worker, and how it serves calls and waits.

use core::ptr::{self, NonNull};

use coreline_topology::{CacheId, CpuId, NodeId};
use coreline_world::{Integer, Line, Native, Ordering, Word, World};

use super::CallError;
use super::locals::Locals;
use super::mailbox::{Found, Mailbox, Offered};
use super::polling::{Polling, poll};
use super::request::Header;
use super::stats::Counts;
use super::tasks::Tasks;
use crate::lock::spin::MOST;

/// One worker, as all threads see it.
#[repr(C)]
pub(super) struct Worker<W: World> {
    pub(super) mailbox: Line<Mailbox<W>>,
    inbox: Line<Inbox<W>>,
    pub(super) tasks: Tasks<W>,
    pub(super) counts: Counts<W>,
    pub(super) cpu: CpuId,
    pub(super) cache: CacheId,
    pub(super) node: NodeId,
    /// Elsewhere: each poll of a future writes it, and each caller reads `cpu`.
    pub(super) locals: Box<Locals<W>>,
}

// Callers compute the address of a worker.
const _: () = assert!(size_of::<Worker<Native>>() <= 9 * size_of::<Line<u32>>());

/// The words that a worker reads after each message, on one line.
struct Inbox<W: World> {
    /// Calls that found the mailbox occupied, the latest first. [`Inbox::CLOSED`]: takes no more
    /// calls.
    more: W::Ptr<Header<W>>,
    /// The calls that the worker has taken and not begun, in order. Only the worker uses it, but it
    /// is not on its stack: a function that it runs may serve, and then finds them here.
    taken: W::Ptr<Header<W>>,
    /// Threads that sleep until a call to this worker is done, or are about to.
    sleepers: W::U32,
    /// The number of calls that the worker is running, or is about to begin. Only the worker writes
    /// it, like `later`.
    nested: W::U32,
    /// Calls that it has put off: the first and the last.
    later: [W::Ptr<Header<W>>; 2],
}

impl<W: World> Inbox<W> {
    /// An address that no call has.
    const CLOSED: *mut Header<W> = ptr::without_provenance_mut(1);

    /// A worker that is inside this many nested calls serves only calls of workers. A worker that
    /// waits for a call sends no other one meanwhile, so each waiting function has one such call at
    /// most. Other threads may send any number of calls. Nested in each other, these would overflow
    /// the stack.
    const DEEP: u32 = 4;
}

/// Where a sent call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// In the mailbox.
    First,
    /// Behind another message.
    Behind,
}

impl<W: World> Worker<W> {
    pub(super) fn new_in(cpu: CpuId, cache: CacheId, node: NodeId, limit: usize) -> Self {
        let none = || W::Ptr::new_in(ptr::null_mut());
        let inbox = Inbox {
            more: none(),
            taken: none(),
            sleepers: W::U32::new_in(0),
            nested: W::U32::new_in(0),
            later: [none(), none()],
        };
        Worker {
            mailbox: Line(Mailbox::new_in()),
            inbox: Line(inbox),
            tasks: Tasks::new_in(limit),
            counts: Counts::new_in(),
            cpu,
            cache,
            node,
            locals: Box::new(Locals::new_in()),
        }
    }

    /// Sends a call. If others are there, it goes behind them if it `queues`. `kick`: wakes the
    /// worker in any case.
    ///
    /// # Safety
    ///
    /// The request stays until it is done.
    #[inline]
    pub(super) unsafe fn send(
        &self,
        call: NonNull<Header<W>>,
        queues: bool,
        kick: bool,
    ) -> Result<Sent, CallError> {
        let sent = match self.mailbox.offer_call(call.as_ptr()) {
            Offered::Taken => Sent::First,
            Offered::Occupied if queues => {
                // SAFETY: by this function's contract.
                unsafe { self.queue(call) }?;
                Sent::Behind
            }
            Offered::Occupied => return Err(CallError::Busy),
            Offered::Closed => return Err(CallError::Closed),
        };
        if kick {
            self.mailbox.events().notify();
        }
        Ok(sent)
    }

    /// Whether a call is there for this worker, or one runs. If not, the worker checks its tasks
    /// before it begins any call, except calls that come later.
    ///
    /// A call lies in the mailbox, in `more`, in `later`, or in `taken`, where `nested` is not 0.
    /// Before the worker takes it away, it says so in `nested`. During a call, it puts other calls
    /// off to `later`. So this also looks at `nested` in between, and that look last sees what was
    /// put off.
    pub(super) fn is_called(&self) -> bool {
        // Acquire: pairs with the Release in `serve` and `serve_more`: what was put off in the
        // middle of the calls that have ended is seen.
        let is_in_one = || self.inbox.nested.load(Ordering::Acquire) > 0;
        // Acquire: pairs with the Release of the swap in `take_more`.
        let more = || self.inbox.more.load(Ordering::Acquire);
        let is_behind = || ![ptr::null_mut(), Inbox::<W>::CLOSED].contains(&more());
        // Acquire: pairs with the Release in `serve_later`.
        let is_late = || !self.inbox.later[0].load(Ordering::Acquire).is_null();
        self.mailbox.has_call() || is_behind() || is_in_one() || is_late() || is_in_one()
    }

    /// Whether a call waits for this worker, including one that it has put off. Only the worker may
    /// call this.
    pub(super) fn has_calls(&self) -> bool {
        // Relaxed: written by this thread alone. In the middle of more it serves none that was put
        // off.
        let is_late =
            || self.inbox.nested.load(Ordering::Relaxed) < Inbox::<W>::DEEP && self.is_late();
        self.has_more() || matches!(self.mailbox.look(), Found::Call(_)) || is_late()
    }

    /// Whether this worker is in the middle of a call inside another one. Only the worker may call
    /// this.
    pub(super) fn is_nested(&self) -> bool {
        // Relaxed: written by this thread alone.
        self.inbox.nested.load(Ordering::Relaxed) > 1
    }

    /// Says that this worker is about to take a call. Returns the number of calls that it is
    /// inside.
    #[inline]
    fn enter(&self) -> u32 {
        // Relaxed: written by this thread alone.
        let outer = self.inbox.nested.load(Ordering::Relaxed);
        // Relaxed: published by what takes the call.
        self.inbox.nested.store(outer + 1, Ordering::Relaxed);
        outer
    }

    /// Puts a call behind others.
    ///
    /// # Safety
    ///
    /// As for [`send`](Worker::send).
    #[cold]
    #[inline(never)]
    unsafe fn queue(&self, call: NonNull<Header<W>>) -> Result<(), CallError> {
        // Relaxed: the exchange looks again, and nothing is read through it here.
        let mut first = self.inbox.more.load(Ordering::Relaxed);
        loop {
            if first == Inbox::<W>::CLOSED {
                return Err(CallError::Closed);
            }
            // SAFETY: the request is not sent yet, so it is there.
            // Relaxed: the exchange below publishes it.
            unsafe { call.as_ref() }.next.store(first, Ordering::Relaxed);
            // Release: pairs with the Acquire of the swap in `take_more`. An exchange keeps what
            // the exchanges before it have published. Relaxed: tried again with what is found.
            match self.inbox.more.compare_exchange_weak(
                first,
                call.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => first = found,
            }
        }
        // Partner: the fence of a worker that has taken a message.
        W::fence(Ordering::SeqCst);
        // The worker is there: it closes this queue before its mailbox, and only if it is empty.
        self.mailbox.offer_work();
        Ok(())
    }

    /// Runs a call that this worker has [entered](Worker::enter), and then sets `nested` to
    /// `nested_after`. Passes the fence that a worker needs after it has [taken](Mailbox::take) a
    /// message. Returns 1, or 0 if it has put the call off.
    ///
    /// # Safety
    ///
    /// The call was sent to this worker, which has not run it; this is its thread.
    unsafe fn serve(&self, call: NonNull<Header<W>>, nested_after: u32, peers: &[Self]) -> u32 {
        // SAFETY: a request stays until it is done.
        let header = unsafe { call.as_ref() };
        let (caller, state) = (header.caller().worker(), &raw const header.state);
        // Relaxed: written by this thread alone.
        let nested = self.inbox.nested.load(Ordering::Relaxed);
        let is_deep = nested > Inbox::<W>::DEEP && caller.is_none();
        let is_awaited = if is_deep {
            self.put_off(call);
            false
        } else {
            // SAFETY: by this function's contract.
            unsafe { Header::run(call) }
        };
        // Release: pairs with the Acquire in `is_called`.
        self.inbox.nested.store(nested_after, Ordering::Release);
        if !is_awaited {
            // Partner: the fence of a sender before `offer_work`.
            W::fence(Ordering::SeqCst);
            return u32::from(!is_deep);
        }
        // SAFETY: only from here on it may be gone, and only its state is borrowed meanwhile.
        Header::<W>::finish(unsafe { &*state });
        // Partners: the fence of a caller before it sleeps, in `Asleep::new`; that of a sender
        // before `offer_work`.
        W::fence(Ordering::SeqCst);
        // Relaxed: by the fences, either a caller that goes to sleep is counted, or it sees that
        // its call is done.
        if self.inbox.sleepers.load(Ordering::Relaxed) > 0 {
            match caller {
                // The request may be gone: its address is all that is used.
                None => _ = W::wake(state, 1),
                Some(index) => peers[index].mailbox.events().notify(),
            }
        }
        1
    }

    /// Puts off a call until the worker is inside fewer calls.
    #[cold]
    #[inline(never)]
    fn put_off(&self, call: NonNull<Header<W>>) {
        let [first, last] = &self.inbox.later;
        let this = call.as_ptr();
        // Relaxed: the call was taken, so its link is this thread's, as the list is.
        // SAFETY: a call that was not run is there; so are those that were put off.
        unsafe { call.as_ref() }.next.store(ptr::null_mut(), Ordering::Relaxed);
        // Relaxed: this thread's alone.
        // SAFETY: as for `call`.
        match unsafe { last.load(Ordering::Relaxed).as_ref() } {
            // Relaxed: this thread's alone.
            Some(before) => before.next.store(this, Ordering::Relaxed),
            // Relaxed: this thread's alone.
            None => first.store(this, Ordering::Relaxed),
        }
        // Relaxed: this thread's alone.
        last.store(this, Ordering::Relaxed);
    }

    /// Serves the first call that was put off, if the worker is now inside few calls. Returns how
    /// many calls it ran.
    ///
    /// It serves one, and others later: the callers that it serves may put off another call when
    /// they have their value. A worker that served all calls would stay here as long as two such
    /// callers continue. The callers of the calls that it is inside would wait as long.
    #[cold]
    #[inline(never)]
    fn serve_later(&self, peers: &[Self]) -> u32 {
        let [first, last] = &self.inbox.later;
        // Relaxed: this thread's alone.
        if self.inbox.nested.load(Ordering::Relaxed) >= Inbox::<W>::DEEP {
            return 0;
        }
        // Relaxed: this thread's alone.
        let Some(call) = NonNull::new(first.load(Ordering::Relaxed)) else { return 0 };
        // Relaxed: this thread's alone.
        // SAFETY: a call that was put off is there until it was run.
        let next = unsafe { call.as_ref() }.next.load(Ordering::Relaxed);
        let outer = self.enter();
        // Release: pairs with the Acquire in `is_called`: without the call there, this is in it.
        first.store(next, Ordering::Release);
        if next.is_null() {
            // Relaxed: this thread's alone.
            last.store(next, Ordering::Relaxed);
        }
        // SAFETY: it was sent to this worker, and is in no list any more.
        let calls = unsafe { self.serve(call, outer, peers) };
        if self.is_late() {
            // To itself: it neither sleeps nor ends before it has looked here again.
            self.mailbox.offer_work();
        }
        calls
    }

    /// Whether calls were put off.
    fn is_late(&self) -> bool {
        // Relaxed: this thread's alone.
        !self.inbox.later[0].load(Ordering::Relaxed).is_null()
    }

    /// Serves the waiting calls. Returns how many it ran. A message of work is then gone: a caller
    /// looks at its queues after this in any case.
    ///
    /// Calls do not always run in the order of arrival. One that comes into the mailbox while
    /// another one runs here stays there until the next look:
    ///
    ///   Worker: takes call 1 from the mailbox, runs it
    ///   Sender: leaves call 2 in the mailbox
    ///   Sender: finds the mailbox occupied, puts call 3 into `more`
    ///   Worker: ends call 1, runs call 3, may begin a task     <- call 2 waits
    ///
    /// A second look here would take the line away from the caller of call 1, which reads its value
    /// from it. And a worker that served calls until it found none would begin no task while new
    /// calls keep coming.
    #[inline]
    pub(super) fn serve_calls(&self, peers: &[Self]) -> u32 {
        let mut calls = 0;
        match self.mailbox.look() {
            Found::Nothing => {}
            Found::Work => {
                self.mailbox.take();
                // Partner: the fence of a sender before `offer_work`.
                W::fence(Ordering::SeqCst);
            }
            Found::Call(call) => {
                let outer = self.enter();
                self.mailbox.take();
                self.counts.calls.add(1);
                // SAFETY: it was found where senders leave calls, which are not null, and was taken
                // away from there.
                calls += unsafe { self.serve(NonNull::new_unchecked(call), outer, peers) };
            }
        }
        if self.has_more() {
            calls += self.serve_more(peers);
        }
        // Put off in the middle of what was served here: this serves them if it is in the middle of
        // few itself.
        if self.is_late() {
            calls += self.serve_later(peers);
        }
        calls
    }

    /// Serves the calls that found the mailbox occupied, in order; returns how many it ran.
    #[cold]
    #[inline(never)]
    fn serve_more(&self, peers: &[Self]) -> u32 {
        let outer = self.enter();
        self.take_more();
        let (mut calls, mut nested) = (0, outer + 1);
        // Relaxed, here and below: the worker's alone.
        while let Some(call) = NonNull::new(self.inbox.taken.load(Ordering::Relaxed)) {
            // Relaxed: as for the load.
            // SAFETY: it was sent and not run, so it is there.
            let next = unsafe { call.as_ref() }.next.load(Ordering::Relaxed);
            // Relaxed: as for the load.
            self.inbox.taken.store(next, Ordering::Relaxed);
            // Before it is done: then its caller may read the counts.
            self.counts.calls.add(1);
            self.counts.queued.add(1);
            // In the middle of one between them, too:
            //
            //   Worker: leaves the first call
            //   Sender: adds a task, finds that the worker is in no call
            //   Worker: begins the second one, of a second     <- the task waits as long
            nested = if next.is_null() { outer } else { outer + 1 };
            // SAFETY: it was sent to this worker, and is in no list any more.
            calls += unsafe { self.serve(call, nested, peers) };
        }
        if nested != outer {
            // The last ones were run by one of the others, which served.
            //
            // Release: as in `serve`.
            self.inbox.nested.store(outer, Ordering::Release);
            // Partner: the fence of a sender before `offer_work`.
            W::fence(Ordering::SeqCst);
        }
        calls
    }

    /// Whether calls found the mailbox occupied and were not begun. Only the worker may call this.
    fn has_more(&self) -> bool {
        // Relaxed: `take_more` acquires. A call that is put there later comes with a message.
        let more = self.inbox.more.load(Ordering::Relaxed);
        // Relaxed: the worker's alone.
        let taken = self.inbox.taken.load(Ordering::Relaxed);
        !more.is_null() && more != Inbox::<W>::CLOSED || !taken.is_null()
    }

    /// Takes the calls that found the mailbox occupied, and puts them behind those taken before.
    fn take_more(&self) {
        // Acquire: pairs with the Release in `queue`. Release: pairs with the Acquire in
        // `is_called`: without calls there, this is in one.
        let mut latest = self.inbox.more.swap(ptr::null_mut(), Ordering::AcqRel);
        let mut first = ptr::null_mut();
        // SAFETY: these are requests that were sent and not run, so they are there; they were
        // taken out of the queue, so this thread alone follows and writes their links.
        while let Some(call) = unsafe { latest.as_ref() } {
            // Relaxed: the worker's own by now.
            let next = call.next.load(Ordering::Relaxed);
            // Relaxed: as for the load.
            call.next.store(first, Ordering::Relaxed);
            first = latest;
            latest = next;
        }
        let mut end = &self.inbox.taken;
        // Relaxed: the worker's alone.
        // SAFETY: these calls were taken before and not begun, so they are there, and this thread
        // alone follows and writes their links.
        while let Some(call) = unsafe { end.load(Ordering::Relaxed).as_ref() } {
            end = &call.next;
        }
        // Relaxed: as for the load.
        end.store(first, Ordering::Relaxed);
    }

    /// Takes no more calls and tasks, if there is none. Returns whether there was none. It runs
    /// nothing, because a function may call another worker, and the wait for that call would serve
    /// calls at a closed mailbox.
    pub(super) fn close(&self) -> bool {
        let (none, closed) = (ptr::null_mut(), Inbox::<W>::CLOSED);
        // Relaxed, twice: nothing that was published there is read here.
        if self
            .inbox
            .more
            .compare_exchange(none, closed, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        if self.tasks.close() {
            if self.mailbox.close() {
                return true;
            }
            self.tasks.open();
        }
        // Relaxed: publishes nothing. No exchange comes between: all expect another value.
        self.inbox.more.store(none, Ordering::Relaxed);
        false
    }

    /// Waits until a call to this worker is done. Only for threads that are not workers.
    pub(super) fn wait(&self, call: &Header<W>) {
        // Acquire, in `poll`: pairs with the Release in `finish`.
        if poll::<W, _>(&call.state, MOST, Some(self.cpu), Header::<W>::says_done).is_some() {
            return;
        }
        let _asleep = Asleep::new(self);
        loop {
            // Acquire: pairs with the Release in `finish`.
            let state = call.state.load(Ordering::Acquire);
            if Header::<W>::says_done(state) {
                return;
            }
            W::park(&call.state, state, None);
        }
    }

    /// Waits until a call from this worker to another one is done. Serves calls meanwhile, because
    /// that worker may wait for this one.
    pub(super) fn wait_serving(&self, call: &Header<W>, callee: &Self, peers: &[Self]) {
        // The message of the call that this is in the middle of was taken, and no fence was passed
        // since. Partner: the fence of a sender before `offer_work`.
        W::fence(Ordering::SeqCst);
        let mut polling = Polling::new::<W>(self.cpu, MOST);
        while !call.is_done() {
            if self.serve_calls(peers) > 0 {
                polling.again::<W>();
            } else if polling.goes_on::<W>() {
                W::relax();
            } else {
                let _asleep = Asleep::new(callee);
                self.mailbox.sleep(|| call.is_done());
                polling.slept::<W>();
            }
        }
    }
}

/// A thread that sleeps until a worker says that its call is done, or is about to.
struct Asleep<'a, W: World>(&'a Worker<W>);

impl<'a, W: World> Asleep<'a, W> {
    fn new(callee: &'a Worker<W>) -> Self {
        // Relaxed: the fence orders it.
        callee.inbox.sleepers.fetch_add(1, Ordering::Relaxed);
        // Before the thread looks at its call once more:
        //
        //   Worker: says that the call is done
        //   Worker: finds no thread asleep
        //   Caller: counts itself, finds the call not done, sleeps     <- for ever
        //
        // Partner: the fence in `serve`.
        W::fence(Ordering::SeqCst);
        Asleep(callee)
    }
}

impl<W: World> Drop for Asleep<'_, W> {
    fn drop(&mut self) {
        // Relaxed: one that is counted for too long is woken for nothing.
        self.0.inbox.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
