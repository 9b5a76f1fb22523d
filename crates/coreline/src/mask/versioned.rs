//! [`Versioned`]: a read-mostly value that every reader keeps, as a CPU keeps its TLB entries.

use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use coreline_world::{Native, Ordering, Time, Word, World};

use self::reclaimer::Ask;
use super::presence::PresenceOptions;
use super::roll::{FIRST, Trimmed};
use super::rolls::{RollPosition, Rolls};
use crate::Mutex;
use crate::lock::Near;
use crate::panics::Panics;
use crate::reclaim::Reclaimers;

pub use self::reader::{Reader, Reading};
pub use self::reclaimer::Reclaimer;

/// A value that is often read and seldom changed.
///
/// Each reader keeps the address of the value that it read last. It reads a word on its own cache
/// line to learn whether that value is still current. This costs a load and a compare, and no
/// write. An [`update`](Versioned::update) writes the words of readers that are present or were
/// present lately. An old value can be freed once every reader that was present has read again or
/// left. A preempted reader has done neither, so it keeps the old value alive. A later update or
/// [`synchronize`](Versioned::synchronize) frees the value. A [reclaimer](Versioned::reclaimer)
/// frees it without waiting for either.
///
/// ```
/// use coreline::mask::Versioned;
///
/// let routes = Versioned::new(vec!["10.0.0.0/8"]);
/// let reader = routes.reader();
/// let mut reading = reader.enter();
/// assert_eq!(reading.get().len(), 1);
/// routes.update(vec!["10.0.0.0/8", "192.168.0.0/16"]);
/// assert_eq!(reading.get().len(), 2, "an update is seen by every read after it");
/// ```
///
/// Code that has no place to keep a reader, such as tasks that move between threads, keeps one
/// reader per thread:
///
/// ```
/// use coreline::mask::{Reader, Versioned};
/// use std::sync::LazyLock;
///
/// static ROUTES: LazyLock<Versioned<Vec<String>>> =
///     LazyLock::new(|| Versioned::new(vec!["10.0.0.0/8".to_owned()]));
///
/// fn routes<R>(f: impl FnOnce(&[String]) -> R) -> R {
///     thread_local! {
///         static READER: Reader<Vec<String>> = ROUTES.reader();
///     }
///     READER.with(|reader| f(reader.enter().get()))
/// }
///
/// let both = routes(|outer| routes(|inner| outer.len() + inner.len()));
/// assert_eq!(both, 2, "reads may nest");
/// ```
///
/// The type is a handle, and its clones are the same value.
///
/// **Memory**: an update frees the old value before it returns, if no reader that may hold the
/// value is present. There are two exceptions. Each of them can keep values forever.
///
/// - A reader that stays present without reading, or that reads only while it has several guards,
///   keeps every old value alive. So leave before you block.
/// - If more than about 20 updates follow one another quickly, only one in 100 us [frees
///   values](PresenceOptions::fence_every). It frees the values that all updates have replaced
///   since the last one that freed any. The values that the last updates of such a series replaced
///   stay until a later update, `synchronize` or a reclaimer frees them, although no reader may
///   hold them. So start a reclaimer if values are large, or set `fence_every` to zero.
///
/// **Costs**: an update writes the line of each reader whose bit is set. To free values, it also
/// reads these lines and makes a heavy fence (natively, a system call), which interrupts the CPUs
/// on which readers run. In a virtual machine (Intel Xeon, family 6, model 207) this takes 17 us
/// beside one such reader. If no reader's bit is set, an update makes no heavy fence. A new reader
/// that finds no free seat adds as many seats as there are, up to a limit. Added seats stay.
/// Updates do not read the line of a seat that was freed.
///
/// **Priorities**: reads never wait. An update that waits for another update sleeps. A
/// `synchronize` that has waited for readers for a long time sleeps between its checks. This holds
/// for threads with a real-time priority, too.
///
/// **Signals, fork**: a signal handler may read with a reader that was created outside the handler,
/// and that no other code uses. A handler that interrupts this handler must not use it either.
/// Guards nest in a thread, but not across an interrupt. A handler must not call `update`,
/// `synchronize` or `retired`, and must not create a reader. In a forked child, readers of other
/// threads that were present at the fork stay present. They keep alive the values that they held
/// and all values that are replaced later. If such a thread was in `update`, `synchronize` or
/// `retired`, or was a working [`Reclaimer`], updates of the child wait forever.
pub struct Versioned<T: Send + Sync + 'static, W: World = Native> {
    shared: Arc<Shared<T, W>>,
}

struct Shared<T: Send + Sync + 'static, W: World> {
    rolls: Rolls<W>,
    current: W::Ptr<T>,
    /// The number of the last change of which all readers are told. Each change replaces one value.
    /// Only the holder of the lock writes it.
    last: W::U64,
    /// It sleeps, as its holder may make a system call, or run the function of `rcu`.
    updater: Mutex<Updater<T>, Near, W>,
    /// What [reclaimers](crate::reclaim) sleep on.
    asked: W::U32,
    options: PresenceOptions,
}

/// Read and written under the lock.
struct Updater<T> {
    /// The last change that a heavy fence followed, or that found no reader's bit: seats tell which
    /// readers may hold what it and those before it replaced. Of what later changes replaced they
    /// do not tell yet.
    fenced: u64,
    /// The time that the heavy fences of updates have used up: each takes the same share of it.
    spent: Time,
    trimmed: Trimmed,
    /// In the order of their changes, oldest first.
    retired: VecDeque<Retired<T>>,
    reclaimers: Reclaimers,
}

/// A value that was replaced.
struct Retired<T> {
    value: NonNull<T>,
    /// The change that replaced it.
    number: u64,
}

/// How much earlier than its share of the time allows an update may make a heavy fence. So updates
/// that come now and then free what they replace, also if some of them come at once.
const EARLY: Duration = Duration::from_millis(2);

// SAFETY: the pointers own values of a type that may be sent, and are used under the lock only.
unsafe impl<T: Send> Send for Updater<T> {}

impl<T> Updater<T> {
    /// Whether the next update makes a heavy fence, where each takes up so much time.
    fn may_fence(&mut self, now: Time, every: Duration) -> bool {
        let may = self.spent <= now + EARLY;
        if may {
            self.spent = self.spent.max(now) + every;
        }
        may
    }
}

impl<T: Send + Sync + 'static> Versioned<T> {
    /// Creates a value on this machine.
    pub fn new(value: T) -> Self {
        Versioned::new_in(value, PresenceOptions::new())
    }
}

impl<T: Send + Sync + 'static, W: World> Clone for Versioned<T, W> {
    fn clone(&self) -> Self {
        Versioned { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Send + Sync + 'static, W: World> Versioned<T, W> {
    /// Creates a value, like [`new`](Versioned::new), in world `W`. The options set the number of
    /// initial seats for readers, how often bits are cleared, and how often updates make fences.
    pub fn new_in(value: T, options: PresenceOptions) -> Self {
        Versioned {
            shared: Arc::new(Shared {
                rolls: Rolls::new_in(&W::topology(), options.seats),
                current: <W::Ptr<T> as Word>::new_in(Box::into_raw(Box::new(value))),
                last: W::U64::new_in(FIRST),
                updater: Mutex::new_in(Updater {
                    fenced: FIRST,
                    spent: Time::from_nanos(0),
                    trimmed: Trimmed::NEVER,
                    retired: VecDeque::new(),
                    reclaimers: Reclaimers::NONE,
                }),
                asked: W::U32::new_in(0),
                options,
            }),
        }
    }

    /// Creates a reader, for one thread at a time. It holds no value until it enters.
    ///
    /// The reader takes a free seat among the initial seats, or else among the seats that were
    /// added first, and so on. Among these seats, it prefers a seat near the caller's CPU. If no
    /// seat is free, the call adds seats. The call never waits.
    pub fn reader(&self) -> Reader<T, W> {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Replaces the value. Every [`get`](Reading::get) that begins after the call has returned
    /// finds the new value. The call then drops, on the caller's thread, the old values that no
    /// reader can hold any more. It drops no values if there is a
    /// [reclaimer](Versioned::reclaimer). If more than 20 updates follow one another
    /// [quickly](PresenceOptions::fence_every), most of them leave old values to a later update.
    ///
    /// The call waits for other updates, but never for readers. If a heavy fence
    /// [fails](coreline_world::Fences::try_fence_all), replaced values stay until a later update or
    /// `synchronize` makes a fence that succeeds.
    pub fn update(&self, value: T) {
        let value = Box::new(value);
        self.replace(|_| value);
    }

    /// Replaces the value with the result of `f`, which gets the present value. No other update
    /// comes in between, so no update is lost. Otherwise, the call works like
    /// [`update`](Versioned::update).
    ///
    /// `f` runs under the lock of updates. `f` must not update the same value, ask for the number
    /// of its retired values, create or drop a reclaimer of it, or synchronize. `f` must not wait
    /// for a thread that executes such a call. Otherwise, `f` would wait for itself. While `f`
    /// runs, other updates wait. If `f` panics, the value is not replaced.
    ///
    /// ```
    /// use coreline::mask::Versioned;
    ///
    /// let routes = Versioned::new(vec!["10.0.0.0/8"]);
    /// routes.rcu(|old| old.iter().copied().chain(["192.168.0.0/16"]).collect());
    /// assert_eq!(routes.reader().enter().get().len(), 2);
    /// ```
    pub fn rcu(&self, f: impl FnOnce(&T) -> T) {
        self.replace(|old| Box::new(f(old)));
    }

    fn replace(&self, make: impl FnOnce(&T) -> Box<T>) {
        let shared = &*self.shared;
        // Dropped after the lock.
        let mut ask = None;
        let free = {
            let mut updater = shared.updater.lock();
            if updater.reclaimers.are_there::<W>() {
                ask = Some(Ask(shared));
            }
            // Relaxed: it was stored under the lock, or when this was made.
            let number = shared.last.load(Ordering::Relaxed) + 1;
            shared.put(&mut updater, number, make);
            let frees = shared.announce(&mut updater, number, ask.is_none());
            // Release: pairs with the Acquire in `entered`: the new value. Not before the readers
            // are told:
            //
            //   update: finds the reader away
            //   reader: enters because of an earlier change, finds its bit set
            //   update: clears the bit, wants the reader to refresh
            //   reader: acknowledges this change, which it found in `last`; leaves
            //   update: sees that it is away; its bit stays clear
            //   reader: enters, finds nothing wanted, and the next change goes by it
            shared.last.store(number, Ordering::Release);
            if frees { shared.unheld(&mut updater, |_, _| ()) } else { Vec::new() }
        };
        drop(ask);
        let mut panics = Panics::NONE;
        panics.drop_each(free);
        panics.resume::<W>();
    }

    /// Waits until no reader holds a value that was replaced before this call, and frees the
    /// replaced values. A reader that is present and never leaves, or that reads only while it has
    /// several guards, blocks the call forever. A reader that is present on the calling thread also
    /// blocks it forever. Other threads can update meanwhile. **Panics** if a heavy fence
    /// [fails](coreline_world::Fences::try_fence_all).
    pub fn synchronize(&self) {
        // Without a deadline it does not give up.
        let _: bool = self.wait_and_resume(None);
    }

    /// Waits, like [`synchronize`](Versioned::synchronize), but at most until `deadline`. Returns
    /// false if a reader may still hold a value that was replaced before. The call waits for other
    /// updates, whatever the deadline, but no update waits for readers. **Panics** like
    /// [`synchronize`](Versioned::synchronize).
    #[must_use]
    pub fn synchronize_by(&self, deadline: Time) -> bool {
        self.wait_and_resume(Some(deadline))
    }

    fn wait_and_resume(&self, deadline: Option<Time>) -> bool {
        let mut panics = Panics::NONE;
        let is_done = self.wait(deadline, &mut panics);
        panics.resume::<W>();
        is_done
    }

    /// Frees the values that were replaced until now, at most until `deadline`. Returns whether it
    /// freed all of them.
    fn wait(&self, deadline: Option<Time>, panics: &mut Panics) -> bool {
        let shared = &*self.shared;
        let mut last = None;
        loop {
            let mut holders = Vec::new();
            let (free, last, is_done) = {
                let mut updater = shared.updater.lock();
                // Relaxed: it was stored under the lock, or when this was made.
                let newest = shared.last.load(Ordering::Relaxed);
                let last = *last.get_or_insert(newest);
                if updater.fenced < last {
                    // Pairs with the light fences of readers: see `Roll::each_holder`.
                    W::try_fence_all().unwrap_or_else(|refused| panic!("{refused}"));
                    updater.fenced = newest;
                }
                let free = shared.unheld(&mut updater, |at, known| {
                    if known < last {
                        holders.push(at);
                    }
                });
                let is_done = updater.retired.front().is_none_or(|old| old.number > last);
                (free, last, is_done)
            };
            panics.drop_each(free);
            if is_done {
                return true;
            }
            // Not under a lock: a reader that is waited for may want to update.
            let is_done = |at| shared.rolls.wait_until_done(at, last, deadline);
            if !holders.into_iter().all(is_done) {
                return false;
            }
        }
    }

    /// Returns the number of replaced values that are not freed yet.
    pub fn retired(&self) -> usize {
        self.shared.updater.lock().retired.len()
    }
}

impl<T: Send + Sync + 'static, W: World> Shared<T, W> {
    /// Replaces the value by what `make` makes of it, as the change of this number.
    fn put(&self, updater: &mut Updater<T>, number: u64, make: impl FnOnce(&T) -> Box<T>) {
        // Relaxed: it was stored under the lock, or when this was made.
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: there is always a value, and only the holder of the lock replaces it.
        let value = NonNull::from(Box::leak(make(unsafe { &*current })));
        // Release: pairs with the Acquire in `refresh`, so that readers find the value whole. No
        // Acquire: what we free was stored under the lock, or when this was made.
        let old = self.current.swap(value.as_ptr(), Ordering::Release);
        let value = NonNull::new(old).expect("there is always a value");
        updater.retired.push_back(Retired { value, number });
    }

    /// Tells readers of the change that `put` made. Every look after this finds it. Returns whether
    /// values may have become free, which costs a heavy fence if a reader's bit is set: `frees`
    /// says whether the caller wants that.
    fn announce(&self, updater: &mut Updater<T>, number: u64, frees: bool) -> bool {
        let (now, options) = (W::now(), &self.options);
        let trims = updater.trimmed.is_due(now, options.trim_every);
        let (is_any, cleared) = self.rolls.publish(number, trims);
        if !is_any {
            // No reader has anything of what was replaced: the next look of each refreshes.
            updater.fenced = number;
            if trims {
                self.rolls.trim();
            }
            return frees;
        }
        // First, as the fence of a trim takes up time, too.
        let may_fence = frees && updater.may_fence(now, options.fence_every);
        if !trims && !may_fence {
            return false;
        }
        // Pairs with the light fences of readers: see `Roll::each_holder`. Under the lock, as the
        // next change would go by a reader that has come since its bit was cleared.
        let is_fenced = W::try_fence_all().is_ok();
        if is_fenced {
            updater.fenced = number;
        }
        if trims {
            self.rolls.restore(cleared, is_fenced);
            self.rolls.trim();
        }
        is_fenced && frees
    }

    /// Takes out the replaced values that no reader can hold any more, and calls `f` for each
    /// reader that is present, with the last change that it knows of. Drop the values without the
    /// lock, which a drop may want, and each of them, even if one panics.
    ///
    /// A reader that knows of change `n` holds only what was replaced after `n`. So values become
    /// free in the order of their changes, and the reader that knows least says how many. So an
    /// update costs the same however many values are retired.
    fn unheld(
        &self,
        updater: &mut Updater<T>,
        mut f: impl FnMut(RollPosition, u64),
    ) -> Vec<Box<T>> {
        // Relaxed: it was stored under the lock, or when this was made.
        let last = self.last.load(Ordering::Relaxed);
        let mut least = updater.fenced;
        self.rolls.each_holder(last, |at, known| {
            least = least.min(known);
            f(at, known);
        });
        let free = updater.retired.partition_point(|old| old.number <= least);
        // SAFETY: from boxes, and taken out of `retired` here. No reader holds one. A reader that
        // was present at a heavy fence after the change was found by `each_holder`, unless it knew
        // of the change or had left, which was acquired there. Each reader that entered later
        // found a newer value. Without a heavy fence, no bit was set after the change: a bit is
        // clear only behind a heavy fence, or because its owner gave its seat back, or because its
        // owner's fence in `set_bit` is still to come, and then the owner finds a newer value.
        let owned = |old: Retired<T>| unsafe { Box::from_raw(old.value.as_ptr()) };
        updater.retired.drain(..free).map(owned).collect()
    }
}

impl<T: Send + Sync + 'static, W: World> Drop for Shared<T, W> {
    fn drop(&mut self) {
        let retired = self.updater.get_mut().retired.drain(..).map(|old| old.value);
        // Relaxed: the last handle's drop has acquired all others'.
        let values = retired.chain(NonNull::new(self.current.load(Ordering::Relaxed)));
        // SAFETY: from boxes, each in one place. Readers have handles, so there are none.
        let free = values.map(|value| unsafe { Box::from_raw(value.as_ptr()) });
        let free: Vec<_> = free.collect();
        let mut panics = Panics::NONE;
        panics.drop_each(free);
        panics.resume::<W>();
    }
}

impl<T: Send + Sync + 'static, W: World> fmt::Debug for Versioned<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Versioned");
        out.field("seats", &self.shared.rolls.capacity());
        match self.shared.updater.try_lock() {
            Some(updater) => out.field("retired", &updater.retired.len()),
            None => out.field("retired", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

mod reader;
mod reclaimer;
#[cfg(test)]
mod tests;
