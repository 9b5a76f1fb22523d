//! [`Mailbox`]: the wake word of a worker, which is also a mailbox of one slot, and the event count
//! on which it sleeps.
//!
//! | the word | means | written over by |
//! |---|---|---|
//! | `AWAKE` | no message; the worker looks here before it sleeps | senders; the worker |
//! | `SLEEPING` | no message; it sleeps, or is about to | senders, which notify; the worker |
//! | `WORK` | the worker is to look at its queues | the worker |
//! | `CLOSED` | the worker is gone | no thread |
//! | an address | the call that is there | the worker |
//!
//! A word with a message in it belongs to the worker, so the worker takes a message with a plain
//! store. Every other change is an exchange. So a sender needs one atomic operation for each
//! message, and notifies only if it replaced `SLEEPING`. A call and `WORK` are different messages:
//! a call tells the worker about nothing but itself.
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `COURTESY` | a call takes 145 instead of 130 ns | longer | `a_worker_that_has_answered_..` |

use core::mem::offset_of;
use core::ptr;
use core::time::Duration;

use coreline_topology::CpuId;
use coreline_world::{Native, Ordering, Time, Word, World};

use super::event_count::EventCount;
use super::parcel::{self, Parcel};
use super::polling::poll_at_home;
use super::request::Header;

/// How often a worker that has answered a call pauses before it looks for the next one: about one
/// transfer of a line.
const COURTESY: u32 = 2;

/// An address that no call has: calls are aligned to words.
const fn mark<W: World>(number: usize) -> *mut Header<W> {
    ptr::without_provenance_mut(number)
}

/// A worker's wake word, and the data next to it.
#[repr(C)]
pub(super) struct Mailbox<W: World> {
    word: W::Ptr<Header<W>>,
    events: EventCount<W>,
    parcel: Parcel<W>,
}

// One line: what goes to and fro between a caller and a worker that polls.
const _: () = assert!(offset_of!(Mailbox<Native>, parcel) + parcel::LENGTH <= 64);

/// The fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    /// The worker has it.
    Taken,
    /// There is a message already. After that, the worker will check its queues.
    Occupied,
    /// The worker is gone.
    Closed,
}

/// The content of the mailbox that a worker finds.
pub(super) enum Found<W: World> {
    Nothing,
    Work,
    Call(*mut Header<W>),
}

impl<W: World> Mailbox<W> {
    const AWAKE: *mut Header<W> = ptr::null_mut();
    const SLEEPING: *mut Header<W> = mark(1);
    const WORK: *mut Header<W> = mark(2);
    const CLOSED: *mut Header<W> = mark(3);

    pub(super) fn new_in() -> Self {
        Mailbox {
            word: W::Ptr::new_in(Self::AWAKE),
            events: EventCount::new_in(),
            parcel: Parcel::new_free(),
        }
    }

    /// Hands over a call; wakes the worker if it sleeps.
    #[inline]
    pub(super) fn offer_call(&self, call: *mut Header<W>) -> Offered {
        self.offer(call)
    }

    /// Tells the worker to check its queues, and wakes it if it sleeps.
    ///
    /// The caller first puts something into a queue, and then passes a fence (`SeqCst`). If so, a
    /// worker that is not gone finds it there, whatever this returns: see [`take`](Mailbox::take).
    ///
    /// After this call, the caller sees everything that the worker wrote before it
    /// [took](Mailbox::take) the previous message.
    pub(super) fn offer_work(&self) -> Offered {
        self.offer(Self::WORK)
    }

    /// Whether a call is there.
    pub(super) fn has_call(&self) -> bool {
        // Acquire: pairs with the Release in `take`: the worker that has taken the call away is
        // seen to be in it.
        matches!(Self::read(self.word.load(Ordering::Acquire)), Found::Call(_))
    }

    #[inline]
    fn offer(&self, message: *mut Header<W>) -> Offered {
        // A worker that is awake is the frequent case. Even a wrong guess has brought the line
        // here.
        let mut expected = Self::AWAKE;
        loop {
            // Release: pairs with the Acquire in `look`. Without it the worker could run a call
            // before it sees the function and its arguments. Acquire, twice: pairs with the Release
            // in `take`: after `offer_work` the sender sees in which call the worker is.
            match self.word.compare_exchange(expected, message, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(found) => {
                    if found == Self::SLEEPING {
                        self.events.notify();
                    }
                    return Offered::Taken;
                }
                Err(found) if found == Self::AWAKE || found == Self::SLEEPING => expected = found,
                Err(found) if found == Self::CLOSED => return Offered::Closed,
                Err(_) => return Offered::Occupied,
            }
        }
    }

    /// The place where a small call may lie.
    pub(super) fn parcel(&self) -> &Parcel<W> {
        &self.parcel
    }

    /// The event count on which the worker sleeps.
    pub(super) fn events(&self) -> &EventCount<W> {
        &self.events
    }

    /// Looks for a message. Only the worker may call this.
    #[inline]
    pub(super) fn look(&self) -> Found<W> {
        // Acquire: pairs with the Release in `offer`.
        Self::read(self.word.load(Ordering::Acquire))
    }

    fn read(word: *mut Header<W>) -> Found<W> {
        match word {
            none if none == Self::AWAKE || none == Self::SLEEPING => Found::Nothing,
            work if work == Self::WORK => Found::Work,
            call => Found::Call(call),
        }
    }

    /// Takes the message that was [found](Mailbox::look). Before the worker looks for the next
    /// message it passes a fence (`SeqCst`), and then looks at its queues:
    ///
    ///   Sender: puts something into a queue
    ///   Sender: offers, and finds the word occupied
    ///   Worker: takes that message
    ///   Worker: finds the queue empty            <- the sender's waits forever
    ///
    /// Partner: the fence that senders pass before `offer_work`.
    #[inline]
    pub(super) fn take(&self) {
        // Release: pairs with the Acquire in `offer` and `has_call`: the worker is seen to be
        // in the call that it takes. No exchange comes between: all expect another value.
        self.word.store(Self::AWAKE, Ordering::Release);
    }

    /// Polls for this long, until there is a message, or another thread wants the CPU, which is the
    /// worker's. If there is none, returns since when the worker has waited. `has_served`: it has
    /// just answered a call.
    pub(super) fn poll(&self, cpu: CpuId, window: Duration, has_served: bool) -> Result<(), Time> {
        // The caller takes its value out of this line and, often, puts its next call in: three
        // writes. A worker that looks meanwhile takes the line away between them, again and again.
        for _ in 0..if has_served { COURTESY } else { 0 } {
            W::relax();
        }
        let is_message = |word| !matches!(Self::read(word), Found::Nothing);
        // The clock is read by a worker that has waited for some time: the next call of a caller
        // that has got its answer is there sooner.
        poll_at_home::<W, _>(cpu, &self.word, window, is_message).map(|_| ())
    }

    /// Sleeps until there is a message, or `ready` returns true; returns how often the worker was
    /// woken from sleep. `ready` is asked again only after a [notification](EventCount::notify).
    pub(super) fn sleep(&self, ready: impl Fn() -> bool) -> u32 {
        let woken = if self.arm() { self.listen(ready) } else { 0 };
        // Relaxed, twice: fails if there is a message; `look` acquires.
        let _ = self.word.compare_exchange(
            Self::SLEEPING,
            Self::AWAKE,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        woken
    }

    /// Says that the worker sleeps, unless a message has come. So this is the second look.
    ///
    ///   Worker: finds no message
    ///   Sender: leaves one, and has found AWAKE: it does not notify
    ///   Worker: writes SLEEPING over it, sleeps      <- forever
    fn arm(&self) -> bool {
        // Relaxed, twice: what is found decides alone; `look` acquires.
        self.word
            .compare_exchange(Self::AWAKE, Self::SLEEPING, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Sleeps while the word says so.
    fn listen(&self, ready: impl Fn() -> bool) -> u32 {
        let mut woken = 0;
        loop {
            let key = self.events.prepare_wait();
            // Relaxed: `look` acquires.
            if self.word.load(Ordering::Relaxed) != Self::SLEEPING || ready() {
                return woken;
            }
            woken += u32::from(self.events.wait(key));
        }
    }

    /// Takes no more messages, if there is none now; returns whether that is so. Only the worker
    /// may call this.
    pub(super) fn close(&self) -> bool {
        // Relaxed, twice: nothing follows from it but that no message comes.
        self.word
            .compare_exchange(Self::AWAKE, Self::CLOSED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Testbed};

    use super::*;

    /// A worker that waits for one message, and its sender.
    fn arrives<W: Testbed>(sleep: fn(&Mailbox<W>)) {
        let mailbox = Arc::new(Mailbox::<W>::new_in());
        let theirs = Arc::clone(&mailbox);
        let worker = move || {
            while matches!(theirs.look(), Found::Nothing) {
                sleep(&theirs);
            }
            theirs.take();
        };
        let worker = W::spawn(Placement::Anywhere, worker).unwrap();
        assert_eq!(mailbox.offer_work(), Offered::Taken);
        worker.join();
        assert!(mailbox.close());
        assert_eq!(mailbox.offer_work(), Offered::Closed);
    }

    fn checker() -> Checker {
        Checker::new().plant(Plant::EXCHANGES)
    }

    #[test]
    fn a_message_arrives_in_every_interleaving() {
        checker().check(|| arrives::<Model>(|mailbox| _ = mailbox.sleep(|| false)));
    }

    #[test]
    fn a_worker_that_arms_without_a_second_look_is_found_asleep() {
        let blind = |mailbox: &Mailbox<Model>| {
            mailbox.word.store(Mailbox::<Model>::SLEEPING, Ordering::Relaxed);
            mailbox.listen(|| false);
        };
        let found = checker().try_check(move || arrives::<Model>(blind)).unwrap_err();
        assert!(found.to_string().contains("deadlock"), "{found}");
    }

    #[test]
    fn a_worker_that_prepares_after_its_second_look_is_found_asleep() {
        let late = |mailbox: &Mailbox<Model>| {
            mailbox.arm();
            while mailbox.word.load(Ordering::Relaxed) == Mailbox::<Model>::SLEEPING {
                let key = mailbox.events.prepare_wait();
                mailbox.events.wait(key);
            }
        };
        let found = checker().try_check(move || arrives::<Model>(late)).unwrap_err();
        assert!(found.to_string().contains("deadlock"), "{found}");
    }
}
