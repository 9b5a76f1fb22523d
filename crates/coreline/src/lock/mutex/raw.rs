//! [`RawMutex`]: the lock without data.

use core::time::Duration;

use coreline_world::{ConstWorld, Integer, Native, Ordering, Time, Word, World};

use super::super::count::{Event, count, ended, park};
use super::super::osq::{Manner, Near, Order, Osq, Waited};
use super::super::spin::{DOZE, MOST, Spun, barge, doze, glance, is_over, spin};
use crate::node_pool::NONE;

/// Held.
const HELD: u32 = 1;
/// The first waiter sleeps on the word, or is about to.
const SLEEPS: u32 = 1 << 1;
/// The first waiter asks that the lock be handed to it.
const HAND: u32 = 1 << 2;
/// The lock is handed to the first waiter, and no thread holds it until that one has taken it.
const GIVEN: u32 = 1 << 3;
/// The lowest bit of a node's number: the holder must wake the thread of this node, the next first
/// waiter.
const NEXT: u32 = 4;

/// A sleeping first waiter asks for the lock after this time. A wake-up without success takes
/// longer than a turn, so running threads go first.
const PATIENCE: Duration = Duration::from_millis(1);

/// A spinning first waiter asks for the lock after this time.
const PATIENCE_SPINNING: Duration = Duration::from_micros(5);

/// A mutual exclusion lock of 8 bytes, without data: see [`Mutex`](super::Mutex).
///
/// Use it in a data structure whose protected data cannot live inside a `Mutex<T>`.
// The combinations of bits in `state` that occur, beside `NEXT`. A holder that will wake a thread
// has its node in `NEXT`, with the first five; it frees the lock by `unlock_slowly`.
//
// | state | what it says | left by |
// |---|---|---|
// | 0 | the lock is free | any thread: takes it, `HELD` |
// | `HELD` | held, and no waiter has asked | the holder: 0; the first waiter: the next three |
// | `HELD` `SLEEPS` | the first waiter sleeps, or is about to | the holder: 0, and wakes it |
// | `HELD` `HAND` | the first waiter spins, and asks | the holder: `HELD` `GIVEN` |
// | `HELD` `SLEEPS` `HAND` | it sleeps, and asks | the holder: `HELD` `GIVEN`, and wakes it |
// | `HELD` `GIVEN` | it is the first waiter's, which may not know | the first waiter: `HELD`; or a
//   thread that finds no waiter left: `HELD` |
//
// A fair holder that finds a thread in the queue leaves each of the second to the fifth by the
// sixth. The first waiter also leaves the third to the fifth: each request replaces the one before,
// and `take_or_leave` replaces it by none. No thread asks in a lock that is free or given. A holder
// that finds the queue empty stores 0 whatever the state is: a first waiter that came meanwhile
// finds that free, awake or woken.
#[repr(C)]
pub struct RawMutex<O: Order = Near, W: World = Native> {
    state: W::U32,
    pub(super) queue: Osq<O, W>,
}

const _: () = {
    assert!(size_of::<RawMutex<Near, Native>>() == 8);
    assert!(align_of::<RawMutex<Near, Native>>() == 4);
};

impl<O: Order, W: World> RawMutex<O, W> {
    /// Creates a free lock in a const context, in any order and any [`ConstWorld`].
    pub const fn const_new() -> Self
    where
        W: ConstWorld,
    {
        RawMutex { state: W::U32_ZERO, queue: Osq::const_new() }
    }

    /// Creates a free lock, in world `W`.
    pub fn new_in() -> Self {
        RawMutex { state: W::U32::new_in(0), queue: Osq::new_in() }
    }

    /// Takes the lock, and waits if it is held.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_slowly(None);
        }
    }

    /// Takes the lock, or gives up when `deadline` passes. Returns whether it took the lock.
    #[inline]
    pub fn lock_by(&self, deadline: Time) -> bool {
        self.try_lock() || self.lock_slowly(Some(deadline))
    }

    /// Takes the lock if it is free now. Returns whether it took the lock.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release in `unlock` and `unlock_slowly`. Without it, the section
        // could begin before the last holder's writes are seen.
        self.state.compare_exchange(0, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Frees the lock.
    ///
    /// The call reads the lock once more after it is free, so the memory must stay until the call
    /// returns.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    #[inline]
    pub unsafe fn unlock(&self) {
        if !self.queue.is_empty() {
            return self.unlock_slowly(HAND);
        }
        self.free();
    }

    /// Frees the lock of the caller, which found the queue empty.
    #[inline]
    fn free(&self) {
        // Release: pairs with the Acquire in `try_lock`, and in `spin` of the first waiter.
        self.state.store(0, Ordering::Release);
        // A thread may have come meanwhile, and sleep: the store has wiped its SLEEPS.
        //
        //   Thread 1: finds the queue empty
        //   Thread 2: queues, spins, writes SLEEPS, sleeps
        //   Thread 1: writes 0                <- thread 2 sleeps for ever
        //
        // Partner: the heavy fence in `Osq::fence`, between the arrival of thread 2 and its SLEEPS:
        // either the arrival is seen here, or the store there.
        W::fence_light();
        if !self.queue.is_empty() {
            self.wake_first();
        }
    }

    /// Frees the lock, and hands it to the first waiter if a thread is in the queue. No other
    /// thread can take the lock before that waiter does, whether it spins, sleeps or wakes up.
    ///
    /// A thread that finds the lock held looks for a few microseconds before it enters the queue.
    /// The first wait of a process takes milliseconds to get there. If no thread is in the queue at
    /// the last look, the
    /// call does what [`unlock`](RawMutex::unlock) does. So a thread that queues between that look
    /// and the write that frees the lock may be passed. The memory must stay until the call
    /// returns, as for `unlock`.
    ///
    /// A thread may also be passed if it waits without a node, because all nodes are in use. If at
    /// least 512 nodes of waiters that gave up are in queues, a thread with a deadline may take
    /// over the node of one that gave up, before threads that came sooner. The lock idles until the
    /// thread
    /// to which it is handed runs. If that thread was preempted, or has a low priority, this takes
    /// as long as the kernel takes to schedule it.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    #[inline]
    pub unsafe fn unlock_fair(&self) {
        // Again where all waiters have left: another thread may have come meanwhile.
        while !self.queue.is_empty() {
            if self.hand_over() {
                return;
            }
        }
        self.free();
    }

    /// Lets a waiter have the lock before the caller continues to hold it: frees it like
    /// [`unlock_fair`](RawMutex::unlock_fair), and takes it again. Does nothing if no thread waits.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    #[inline]
    pub unsafe fn bump(&self) {
        if !self.queue.is_empty() && self.hand_over() {
            self.lock();
        }
    }

    /// Hands the lock to the first waiter. Returns false if all waiters have left; then the caller
    /// still holds the lock.
    #[cold]
    fn hand_over(&self) -> bool {
        self.unlock_slowly(!0);
        !self.take_unclaimed()
    }

    /// Takes a lock that was handed over, if no waiter is left that could take it. Returns whether
    /// the caller holds it now.
    ///
    /// A waiter may come while the call takes the lock. The lock is that one's:
    ///
    /// ```text
    /// Thread 1, first waiter: its deadline has passed; leaves the queue, which is empty now
    /// Thread 2: takes the lock
    /// Thread 3: comes to the queue
    /// Thread 2: hands the lock over, to thread 3
    /// Thread 1: takes the lock                    <- would keep it, and free it for any thread
    /// ```
    fn take_unclaimed(&self) -> bool {
        while self.take_back() {
            if self.queue.is_empty() {
                return true;
            }
            self.unlock_slowly(!0);
        }
        false
    }

    /// Takes a lock that was handed over while no waiter is left. The thread that hands over calls
    /// this afterwards, and so does a first waiter that has left: one of the two sees what the
    /// other did.
    ///
    /// ```text
    /// Thread 1, first waiter: withdraws its request, as its deadline has passed
    /// Thread 2: finds the queue not empty, hands the lock over
    /// Thread 1: leaves the queue, which is empty now       <- the lock is given to no thread
    /// ```
    ///
    /// A thread that comes to the queue later is the first waiter at once, and takes such a lock.
    /// If it has, this thread may take the lock from another waiter: see
    /// [`take_unclaimed`](RawMutex::take_unclaimed).
    fn take_back(&self) -> bool {
        // SeqCst: pairs with itself in the other thread, between the write of `GIVEN` and the look
        // at the queue there, and between leaving the queue and the look at `GIVEN` here, or the
        // other way round.
        W::fence(Ordering::SeqCst);
        self.queue.is_empty() && self.take_given()
    }

    /// Returns whether a thread holds the lock. The result is a hint, and may be out of date when
    /// the call returns.
    pub fn is_locked(&self) -> bool {
        // Relaxed: nothing follows from the answer.
        self.state.load(Ordering::Relaxed) != 0
    }

    #[cold]
    #[inline(never)]
    fn wake_first(&self) {
        count::<W>(Event::Wake);
        W::wake(&raw const self.state, 1);
    }

    /// Frees a lock that a thread waits for. Hands it to the first waiter if the word has one of
    /// these bits. If they are the first waiter's, it is there, and looks at the word before it
    /// gives up; else see [`take_back`](RawMutex::take_back).
    #[cold]
    #[inline(never)]
    fn unlock_slowly(&self, hands: u32) {
        // Relaxed: the exchange looks again.
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let next = if state & hands == 0 { 0 } else { HELD | GIVEN };
            // Release: as in `unlock`.
            let freed =
                self.state.compare_exchange_weak(state, next, Ordering::Release, Ordering::Relaxed);
            match freed {
                Ok(_) => break,
                Err(found) => state = found,
            }
        }
        if state & SLEEPS != 0 {
            self.wake_first();
        }
        if state >> NEXT != 0 {
            Osq::<O, W>::wake(state >> NEXT);
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, deadline: Option<Time>) -> bool {
        count::<W>(Event::Wait);
        ended::<W>(self.wait(deadline))
    }

    fn wait(&self, deadline: Option<Time>) -> bool {
        // Relaxed: `try_lock` looks again.
        let enter = || self.state.load(Ordering::Relaxed) == 0 && self.try_lock();
        if barge::<W>(enter) {
            return true;
        }
        // A node in the queue would outlast the wait. Not in the model, where no time passes.
        if W::RUNS && is_over::<W>(deadline) {
            return false;
        }
        let enter = || enter().then_some(());
        // Comes to the queue again and again where there is no node.
        let waited = doze::<W, _>(deadline, || {
            match self.queue.wait(deadline, Manner::SpinsAndSleeps, Some(enter)) {
                Waited::NoNode => self.try_lock().then_some(Waited::Entered((), NONE)),
                waited => Some(waited),
            }
        });
        let first = match waited {
            Some(Waited::Turn(first)) => first,
            Some(Waited::Entered((), next)) => {
                self.wake_at_end(next);
                return true;
            }
            _ => return self.try_lock(),
        };
        let locked = self.lock_first(first, deadline);
        let next = self.queue.pass(first);
        if locked {
            self.wake_at_end(next);
            return true;
        }
        Osq::<O, W>::wake(next);
        self.take_unclaimed()
    }

    /// Tells the holder, the caller, to wake the thread of this node, if it is one, when it frees
    /// the lock. That thread is the next first waiter and can take the lock only then. So the
    /// wake-up does not make the section longer. The queue is not empty until then, so `unlock`
    /// takes its slow way.
    fn wake_at_end(&self, next: u32) {
        if next != 0 {
            // Relaxed: read by this thread alone, when it frees the lock.
            self.state.fetch_or(next << NEXT, Ordering::Relaxed);
        }
    }

    /// Waits as the first waiter.
    fn lock_first(&self, first: u32, deadline: Option<Time>) -> bool {
        let until = |end| deadline.map_or(end, |deadline| deadline.min(end));
        let is_mine = |state| state == 0 || state & GIVEN != 0;
        let came = W::now();
        // With a deadline, it asks after half of the time at the latest. Otherwise a shorter time
        // would end before it asks.
        let asleep = deadline.map_or(PATIENCE, |by| PATIENCE.min((by - came) / 2));
        let mut now = came;
        let mut has_slept = false;
        loop {
            // A: spins, then asks and spins on. If it has slept, that time is over: it looks once.
            let mut spun = if has_slept {
                // Acquire, in `glance`, as in `spin`: pairs with the Release of the holder.
                glance::<W, _>(&self.state, 1, is_mine).map_or(Spun::Wanted, Spun::Ready)
            } else {
                spin::<W, _>(&self.state, now, until(came + PATIENCE_SPINNING), is_mine)
            };
            if spun == Spun::Late {
                self.ask(HAND);
                spun = spin::<W, _>(&self.state, W::now(), until(now + MOST), is_mine);
            }
            // B: takes the lock, or gives up.
            if matches!(spun, Spun::Ready(_)) {
                if self.take() {
                    return true;
                }
                now = W::now();
                continue;
            }
            now = W::now();
            if is_over::<W>(deadline) {
                return self.take_or_leave();
            }
            // C: sleeps, and asks when its patience is over. The model, where no time passes, is
            // impatient after a first sleep.
            let is_patient = if W::RUNS { now - came < asleep } else { !has_slept };
            let fenced = self.queue.fence(first);
            let by = match (fenced, is_patient) {
                // A wake-up could be lost: the sleep is short.
                (false, _) => Some(until(now + DOZE)),
                // Then it asks.
                (true, true) if W::RUNS => Some(until(came + asleep)),
                (true, _) => deadline,
            };
            if let Some(asked) = self.ask(if is_patient { SLEEPS } else { SLEEPS | HAND }) {
                park::<W>(&self.state, asked, by);
                has_slept = true;
            }
            // Also where it did not sleep: `fence` may have taken milliseconds.
            now = W::now();
        }
    }

    /// Writes the first waiter's request into the word of a lock that is held and not handed to it.
    /// Returns the word after that, or `None` if it was not written.
    fn ask(&self, asks: u32) -> Option<u32> {
        // Relaxed: the exchange looks again.
        let state = self.state.load(Ordering::Relaxed);
        if state & HELD == 0 || state & GIVEN != 0 {
            return None;
        }
        let asked = state & !(SLEEPS | HAND) | asks;
        // Relaxed, twice: asks, and publishes nothing.
        self.state
            .compare_exchange(state, asked, Ordering::Relaxed, Ordering::Relaxed)
            .map(|_| asked)
            .ok()
    }

    /// Takes the lock if it is free, or handed to this thread, the first waiter.
    fn take(&self) -> bool {
        self.take_given() || self.try_lock()
    }

    /// Takes a lock that was handed over. An exchange: [`take_back`](RawMutex::take_back) of
    /// another thread may come before it.
    fn take_given(&self) -> bool {
        let given = HELD | GIVEN;
        // Relaxed: the exchange looks again.
        if self.state.load(Ordering::Relaxed) != given {
            return false;
        }
        // Acquire: pairs with the Release in `unlock_slowly`. Relaxed: another thread was first.
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        self.state.compare_exchange(given, HELD, taken, failed).is_ok()
    }

    /// Takes the lock if that is possible now. Otherwise withdraws the request.
    fn take_or_leave(&self) -> bool {
        loop {
            if self.take() {
                return true;
            }
            if self.ask(0).is_some() {
                return false;
            }
        }
    }
}

impl_default!(
    [O: Order, W: ConstWorld] RawMutex<O, W>, const_new,
    "Creates a free lock, also in a `static`."
);

impl_debug!([O: Order, W: World] RawMutex<O, W> as it { locked: it.is_locked() });

#[cfg(test)]
mod laws;
