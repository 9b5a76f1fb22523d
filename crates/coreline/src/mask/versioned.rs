//! [`Versioned`]: a read-mostly value that every reader keeps, as a CPU keeps its TLB entries.

use core::cell::Cell;
use core::fmt;
use core::mem;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use std::collections::VecDeque;
use std::sync::Arc;

use coreline_world::{Native, Ordering, Time, Word, World};

use self::reclaimer::Ask;
use super::presence::{Announcer, PresenceOptions};
use super::roll::{News, Roll, Seat};
use super::rolls::{RollPosition, Rolls, Taken};
use crate::Mutex;
use crate::lock::Near;
use crate::panics::Panics;
use crate::reclaim::Reclaimers;

pub use self::reclaimer::Reclaimer;

/// A value that is often read and seldom changed.
///
/// Each reader keeps the address of the value that it read last. It reads a word on its own cache
/// line to learn whether that value is still current. This costs a load and a compare, and no
/// write. An [`update`](Versioned::update) writes the words of readers that are present or were
/// present lately. An old value can be freed once every reader that was present has read again or
/// left. A preempted reader has done neither, so it keeps the old value alive. The next update or
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
/// **Costs**: an update takes two heavy fences (natively, system calls), a read of the line of each
/// reader whose bit is set, and a write to each of these lines. A heavy fence interrupts the CPUs
/// on which readers run. In a virtual machine (Intel Xeon, family 6, model 207) it takes 17 us
/// beside one such reader, and so does an update. Without one, an update takes 0.5 us. A reader
/// that stays present without reading, or that reads only while it has several guards, keeps every
/// old value alive. So leave before you block. A new reader that finds no free seat adds as many
/// seats as there are, up to a limit, and they stay. Updates do not read the line of a seat that
/// was freed.
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
/// and all values that are replaced later. If one of these threads was in `update`, `synchronize`
/// or `retired`, or was a [`Reclaimer`] at work, updates of the child wait forever.
pub struct Versioned<T: Send + Sync + 'static, W: World = Native> {
    shared: Arc<Shared<T, W>>,
}

struct Shared<T: Send + Sync + 'static, W: World> {
    rolls: Rolls<W>,
    current: W::Ptr<T>,
    /// It sleeps, as its holder announces, or runs the function of `rcu`.
    updater: Mutex<Updater<T>, Near, W>,
    /// What [reclaimers](crate::reclaim) sleep on.
    asked: W::U32,
    options: PresenceOptions,
}

/// Read and written under the lock.
struct Updater<T> {
    announcer: Announcer,
    /// Values that were replaced but not announced: the last one, and those before it whose
    /// announcement failed.
    replaced: Vec<NonNull<T>>,
    /// In the order of their changes, oldest first.
    retired: VecDeque<Retired<T>>,
    /// Readers that were present at the change of the newest retired value, and have not looked
    /// since. Every reader that may hold a retired value, even an old one, is among them: see
    /// [`unheld`](Shared::unheld).
    holders: Vec<Holder>,
    reclaimers: Reclaimers,
}

/// A reader that was inside at the newest change.
struct Holder {
    at: RollPosition,
    /// A change: the reader holds nothing that this change or those before it replaced. The number
    /// in its seat may be older, because owners that are away are not told.
    knows: u64,
}

/// A value that was replaced.
struct Retired<T> {
    value: NonNull<T>,
    /// The change that replaced it, or the first one after it that was announced.
    number: u64,
}

// SAFETY: the pointers own values of a type that may be sent, and are used under the lock only.
unsafe impl<T: Send> Send for Updater<T> {}

impl<T> Updater<T> {
    /// The replaced values that are not freed yet.
    fn held(&self) -> impl Iterator<Item = NonNull<T>> + '_ {
        self.retired.iter().map(|old| old.value).chain(self.replaced.iter().copied())
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
    /// initial seats for readers, and how often bits are cleared.
    pub fn new_in(value: T, options: PresenceOptions) -> Self {
        Versioned {
            shared: Arc::new(Shared {
                rolls: Rolls::new_in(&W::topology(), options.seats),
                current: <W::Ptr<T> as Word>::new_in(Box::into_raw(Box::new(value))),
                updater: Mutex::new_in(Updater {
                    announcer: Announcer::new(),
                    replaced: Vec::new(),
                    retired: VecDeque::new(),
                    holders: Vec::new(),
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
        let shared = &*self.shared;
        // SAFETY: the reader keeps the rolls with its seat.
        let Taken { seat, roll } = unsafe { shared.rolls.take() };
        Reader {
            shared: Arc::clone(&self.shared),
            seat,
            roll,
            cached: Cell::new(NonNull::dangling()),
            guards: Cell::new(0),
        }
    }

    /// Replaces the value. Every [`get`](Reading::get) that begins after the call has returned
    /// finds the new value. Unless there is a [reclaimer](Versioned::reclaimer), the call frees the
    /// values that no reader can hold any more, and drops them on the caller's thread.
    ///
    /// The call waits for other updates, but never for readers. **Panics** if a heavy fence
    /// [fails](coreline_world::Fences::try_fence_all). Then the value is replaced, but readers may
    /// find the old value until the next update, which frees it.
    pub fn update(&self, value: T) {
        let value = Box::new(value);
        self.replace(|_| value);
    }

    /// Replaces the value by the result of `f`, which gets the present value. No other update comes
    /// in between, so no update is lost. Otherwise, the call works like
    /// [`update`](Versioned::update).
    ///
    /// `f` runs under the lock of updates. `f` must not update the same value, create or clone a
    /// reader of it, create or drop a reclaimer of it, or synchronize. `f` must not wait for a
    /// thread that executes such a call. Otherwise, `f` would wait for itself. While `f` runs,
    /// other updates wait. If `f` panics, the value is not replaced.
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
            let current = shared.current.load(Ordering::Relaxed);
            // SAFETY: there is always a value, and only the holder of the lock replaces it.
            let value = NonNull::from(Box::leak(make(unsafe { &*current })));
            // Release: pairs with the Acquire in `refresh`, so that readers find the value whole.
            // No Acquire: what we free was stored under the lock, or when this was made.
            let old = shared.current.swap(value.as_ptr(), Ordering::Release);
            updater.replaced.push(NonNull::new(old).expect("there is always a value"));
            shared.announce(&mut updater);
            if ask.is_some() { Vec::new() } else { Shared::<T, W>::unheld(&mut updater) }
        };
        drop(ask);
        let mut panics = Panics::NONE;
        panics.drop_each(free);
        panics.resume::<W>();
    }

    /// Waits until no reader holds a value that was replaced before this call, and frees the
    /// replaced values. A reader that is present and never leaves, or that reads only while it has
    /// several guards, blocks the call forever. A reader that is present on the calling thread also
    /// blocks it forever. Other threads can update meanwhile. **Panics** if a heavy fence fails
    /// again after it failed in an update.
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
            let (free, held) = {
                let mut updater = shared.updater.lock();
                if !updater.replaced.is_empty() {
                    shared.announce(&mut updater);
                }
                let last = *last.get_or_insert(updater.announcer.last());
                let free = shared.look(&mut updater);
                let held = updater.retired.partition_point(|old| old.number <= last);
                let held = held.checked_sub(1).map(|held| updater.retired[held].number);
                let holds = |number| {
                    let all = updater.holders.iter();
                    all.filter(|holder| holder.knows < number).map(|holder| holder.at).collect()
                };
                (free, held.map(|number| (number, holds(number))))
            };
            panics.drop_each(free);
            let Some((number, holders)) = held else { return true };
            let holders: Vec<RollPosition> = holders;
            // Not under a lock: a reader that is waited for may want to update.
            let is_done = |at| shared.rolls.wait_until_done(at, number, deadline);
            if !holders.into_iter().all(is_done) {
                return false;
            }
        }
    }

    /// Returns the number of replaced values that are not freed yet.
    pub fn retired(&self) -> usize {
        self.shared.updater.lock().held().count()
    }
}

impl<T: Send + Sync + 'static, W: World> Shared<T, W> {
    /// Tells readers of the replaced values. **Panics** if a heavy fence fails. Then they are not
    /// announced.
    fn announce(&self, updater: &mut Updater<T>) {
        let change = updater.announcer.next::<W>(self.options.trim_every);
        // Only if it succeeds: otherwise those of the change before hold what is retired.
        let pending = self.rolls.tell(change).unwrap_or_else(|refused| panic!("{refused}"));
        let newest = updater.retired.back().map_or(0, |old| old.number);
        let before = mem::take(&mut updater.holders);
        let mut from = 0;
        let mut knows = |at| {
            let known = self.known(at, change.number);
            if known >= newest {
                return known;
            }
            // Those that stay behind are mostly in the order in which they were. One that is not
            // found was away at the newest change, or has looked since.
            let is_it = |index: &usize| before[*index].at == at;
            let found = (from..before.len()).chain(0..from).find(is_it);
            found.map_or(newest, |index| {
                from = index + 1;
                known.max(before[index].knows)
            })
        };
        updater.holders =
            Rolls::<W>::pending(pending).map(|at| Holder { at, knows: knows(at) }).collect();
        let Updater { replaced, retired, .. } = updater;
        let number = change.number;
        retired.extend(replaced.drain(..).map(|value| Retired { value, number }));
    }

    /// The last change that the owner of a seat knows of. For an owner that is away it is `newest`:
    /// the next owner that enters sees that value.
    fn known(&self, at: RollPosition, newest: u64) -> u64 {
        self.rolls.known(at).min(newest)
    }

    /// Looks again at the holders, as [`announce`](Shared::announce) does, and takes out the values
    /// that no reader [holds](Shared::unheld).
    fn look(&self, updater: &mut Updater<T>) -> Vec<Box<T>> {
        if let Some(newest) = updater.retired.back().map(|old| old.number) {
            updater.holders.retain_mut(|holder| {
                holder.knows = holder.knows.max(self.known(holder.at, newest));
                holder.knows < newest
            });
        }
        Self::unheld(updater)
    }

    /// Takes out the replaced values that no reader can hold any more. Drop them without the lock,
    /// which a drop may want, and each of them, even if one panics.
    ///
    /// A reader that holds a value was inside when the value was replaced, and has neither checked
    /// nor left since. So every change after that one found it inside, too: the holders of the
    /// newest change include those of all changes before it. A reader among them that knows of
    /// change `n` holds only what was replaced after `n`. So values become free in the order of
    /// their changes, and the holder that knows least says how many. So an update costs the same
    /// however many values are retired.
    fn unheld(updater: &mut Updater<T>) -> Vec<Box<T>> {
        let Updater { retired, holders, .. } = updater;
        let least = holders.iter().map(|holder| holder.knows).min().unwrap_or(u64::MAX);
        let free = retired.partition_point(|old| old.number <= least);
        // SAFETY: from boxes, and taken out of `retired` here. No reader holds one: each that was
        // present when it was replaced is a holder that knows of that change by now, or has left,
        // and `known` acquired that; or it left before the newest change, and that found it away,
        // which `tell` acquired. Each reader that entered later found a newer one.
        let owned = |old: Retired<T>| unsafe { Box::from_raw(old.value.as_ptr()) };
        retired.drain(..free).map(owned).collect()
    }
}

impl<T: Send + Sync + 'static, W: World> Drop for Shared<T, W> {
    fn drop(&mut self) {
        let held = self.updater.get_mut().held();
        // Relaxed: the last handle's drop has acquired all others'.
        let values = held.chain(NonNull::new(self.current.load(Ordering::Relaxed)));
        // SAFETY: from boxes, each in one place. Readers have handles, so there are none.
        let free = values.map(|value| unsafe { Box::from_raw(value.as_ptr()) });
        let free: Vec<_> = free.collect();
        let mut panics = Panics::NONE;
        panics.drop_each(free);
        panics.resume::<W>();
    }
}

/// A registered reader. Dropping it frees the seat.
///
/// Reads nest. A thread that reads may enter again, and the two guards may be dropped in any order.
/// Each [`get`](Reading::get), whichever guard it is called on, finds the newest value. An earlier
/// value stays valid, because the reader gives up no value while it has two or more guards.
///
/// ```
/// use coreline::mask::Versioned;
///
/// let limit = Versioned::new(10);
/// let reader = limit.reader();
/// let mut outer = reader.enter();
/// let before = outer.get();
/// limit.update(20);
/// assert_eq!((*reader.enter().get(), *before), (20, 10), "an inner guard looks again");
/// ```
pub struct Reader<T: Send + Sync + 'static, W: World = Native> {
    shared: Arc<Shared<T, W>>,
    seat: Seat<W>,
    /// The roll of the seat, which `shared` keeps.
    roll: NonNull<Roll<W>>,
    /// The value that was current when the reader last looked.
    cached: Cell<NonNull<T>>,
    /// How many guards there are. It has 64 bits, so it does not wrap however many guards are
    /// forgotten.
    guards: Cell<u64>,
}

// Its cells hold numbers and an address, each of which is written whole.
impl<T: Send + Sync + RefUnwindSafe + 'static, W: World> RefUnwindSafe for Reader<T, W> {}

// SAFETY: one pointer is to a value that may be shared, which the seat keeps alive while the reader
// is inside; outside it is not used. The other is to a roll, which all threads share.
unsafe impl<T: Send + Sync, W: World> Send for Reader<T, W> {}

impl<T: Send + Sync + 'static, W: World> Reader<T, W> {
    /// Enters, so that the reader may read until the returned guard is dropped.
    ///
    /// Entering takes one store to the reader's own cache line and one load from it. It writes no
    /// shared memory, unless the value was replaced meanwhile. A reader that is already present
    /// only counts its guards.
    #[inline]
    pub fn enter(&self) -> Reading<'_, T, W> {
        let outer = self.guards.get();
        self.guards.set(outer + 1);
        if outer == 0 && self.seat.enter() {
            self.entered();
        }
        Reading { reader: self }
    }

    #[cold]
    #[inline(never)]
    fn entered(&self) {
        let Some(news) = self.seat.look_closer() else { return };
        // Only a refresh can be wanted: an update asks no reader to run a call.
        self.roll().entered(&self.seat, news);
        self.refresh();
    }

    /// The value was replaced while the reader was inside.
    #[cold]
    #[inline(never)]
    fn catch_up(&self) {
        let Some(news) = self.seat.news() else { return };
        if self.guards.get() > 1 {
            // Another guard may have lent a value, so nothing is acknowledged. That holds also what
            // is found now:
            //
            //   reader:  entered when change 4 was the last; finds the value of change 5
            //   update:  replaces that by change 6, and finds the reader inside since 4
            //
            // The update does find it: it begins after change 5 was told to all, which left the bit
            // of each reader set that was inside.
            return self.refresh();
        }
        self.renew(news);
    }

    /// Gives up what was cached for the current value.
    fn renew(&self, news: News) {
        self.roll().set_bit(&self.seat);
        // Before the acknowledgement: after it, what is cached may be freed.
        self.refresh();
        self.seat.acknowledge(news);
    }

    fn roll(&self) -> &Roll<W> {
        // SAFETY: `shared` keeps it, and rolls are shared by all threads.
        unsafe { self.roll.as_ref() }
    }

    fn refresh(&self) {
        // Acquire: pairs with the Release of the update that stored it: the value is whole.
        let current = self.shared.current.load(Ordering::Acquire);
        self.cached.set(NonNull::new(current).expect("there is always a value"));
    }
}

/// Makes another reader of the same value, outside, with a seat of its own, like
/// [`Versioned::reader`].
impl<T: Send + Sync + 'static, W: World> Clone for Reader<T, W> {
    fn clone(&self) -> Self {
        Versioned { shared: Arc::clone(&self.shared) }.reader()
    }
}

impl<T: Send + Sync + 'static, W: World> Drop for Reader<T, W> {
    fn drop(&mut self) {
        self.roll().give_back(&self.seat);
    }
}

/// The guard of a reader that is present. Dropping the reader's last guard leaves.
///
/// A forgotten guard keeps alive all values that are replaced from then on, until its reader is
/// dropped.
pub struct Reading<'a, T: Send + Sync + 'static, W: World = Native> {
    /// It is not `Send`, as a reader is not `Sync`: the thread that entered is inside.
    reader: &'a Reader<T, W>,
}

// As the guard of a lock: a thread that panics inside leaves when the guard drops. It gives out
// shared references.
impl<T: Send + Sync + RefUnwindSafe + 'static, W: World> UnwindSafe for Reading<'_, T, W> {}

impl<T: Send + Sync + 'static, W: World> Reading<'_, T, W> {
    /// Returns the current value. The call costs one load and one compare if the value has not
    /// changed since the last read.
    ///
    /// The result borrows the guard, because a new `get` gives up the value that was read before.
    #[inline]
    pub fn get(&mut self) -> &T {
        if self.reader.seat.news().is_some() {
            self.reader.catch_up();
        }
        // SAFETY: `cached` was current when this reader last looked, while it was inside. An update
        // frees it only after this reader acknowledges a later change or leaves. It does either
        // only while there is no other guard than the one that it is called on, or that is dropped:
        // so the borrow that is handed out here has ended, as that needs this guard.
        unsafe { self.reader.cached.get().as_ref() }
    }
}

impl<T: Send + Sync + 'static, W: World> Drop for Reading<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        let left = self.reader.guards.get() - 1;
        self.reader.guards.set(left);
        if left == 0 {
            self.reader.seat.leave();
        }
    }
}

impl<T: Send + Sync + 'static, W: World> fmt::Debug for Versioned<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Versioned");
        out.field("seats", &self.shared.rolls.capacity());
        match self.shared.updater.try_lock() {
            Some(updater) => out.field("retired", &updater.held().count()),
            None => out.field("retired", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

impl_debug!([T: Send + Sync + 'static, W: World] Reader<T, W> as it {
    seat: it.seat.position(), ..
});

impl_debug!([T: Send + Sync + 'static, W: World] Reading<'_, T, W> as it { reader: it.reader });

mod reclaimer;
#[cfg(test)]
mod tests;
