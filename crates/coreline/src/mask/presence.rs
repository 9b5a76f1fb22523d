//! [`Presence`]: which contexts take part, and calls that reach only those.

use core::marker::PhantomData;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;
use core::time::Duration;
use std::sync::Arc;

use coreline_world::{Native, Ordering, Time, Word, World};

use super::roll::{Change, Entered, FIRST, News, Roll, Seat, Trimmed, Waited};
use super::rolls::{Rolls, Taken};
use crate::Mutex;
use crate::lock::Near;
use crate::lock::spin::Pauses;

/// The error for a shootdown that did not finish before its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Late {
    /// The shootdown was still waiting for another shootdown, so no context was notified.
    #[error(
        "the deadline passed while another shootdown was running, so no context was notified; try \
         again"
    )]
    Waiting,
    /// Some contexts neither ran the function nor left. They will no longer run the function. They
    /// get [`Entry::MustRefresh`] when they next enter or poll.
    #[error(
        "{late} contexts had neither run the function nor left by the deadline; make them poll \
         more often, or leave before they block"
    )]
    Missed {
        /// The number of contexts that neither ran the function nor left.
        late: usize,
        /// The numbers of contexts that ran the function, and of contexts that were away.
        shot: Shot,
    },
}

/// The state of a context's cached data when it enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what was cached may be out of date"]
pub enum Entry {
    /// The context has missed no change, so all its cached data is valid.
    Current,
    /// The context missed a change, or enters for the first time. It must renew its cached data.
    MustRefresh,
}

/// The options of a presence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct PresenceOptions {
    pub(super) seats: usize,
    pub(super) trim_every: Duration,
    pub(super) fence_every: Duration,
}

impl PresenceOptions {
    /// The default minimum time between two clearings of the bits of contexts that have left. The
    /// kernel uses the same time, because clearing at every flush costs 13 % of a benchmark of
    /// context switches (van Riel, ["x86/mm/tlb: Only trim the mm_cpumask once a second"][trim],
    /// 2024).
    ///
    /// [trim]: https://lore.kernel.org/r/20241204210316.612ee573@fangorn
    pub const TRIM_EVERY: Duration = Duration::from_secs(1);

    /// The default mean time between two heavy fences of updates of a
    /// [`Versioned`](super::Versioned) that follow one another quickly. In a virtual machine (Intel
    /// Xeon, family 6, model 207), a heavy fence takes 17 us beside a running reader. So there,
    /// updates spend a fifth of their time on fences.
    pub const FENCE_EVERY: Duration = Duration::from_micros(100);

    /// Creates the default options: two seats per CPU, at least 64 seats, bits cleared at most once
    /// per second, and [`FENCE_EVERY`](Self::FENCE_EVERY).
    pub const fn new() -> Self {
        let (trim_every, fence_every) = (Self::TRIM_EVERY, Self::FENCE_EVERY);
        PresenceOptions { seats: 64, trim_every, fence_every }
    }

    /// Sets the minimum number of initial seats. At most 256 seats per last-level cache are created
    /// at first. More seats are added when all seats are taken.
    pub const fn seats(mut self, seats: usize) -> Self {
        self.seats = seats;
        self
    }

    /// Sets the minimum time between two clearings of the bits of contexts that have left. A
    /// cleared bit costs its context a refresh when the context enters again. A bit that is not
    /// cleared costs every shootdown an access to a cache line.
    pub const fn trim_every(mut self, span: Duration) -> Self {
        self.trim_every = span;
        self
    }

    /// Sets the mean time between two heavy fences that updates of a
    /// [`Versioned`](super::Versioned) make to free old values. A shootdown always makes its
    /// fences.
    ///
    /// Updates may make fences up to 2 ms ahead of time. So with the default of 100 us, the first
    /// 20 updates of a quick series make one fence each. A later update of the series makes a fence
    /// only if `span` has passed for each earlier fence. The others leave old values to a later
    /// update. If none comes, old values stay until [`synchronize`](super::Versioned::synchronize)
    /// or a [`Reclaimer`](super::Reclaimer) frees them. There are at most as many of them as
    /// updates can be made during `span`. With a `span` of zero, each update makes a fence, and
    /// frees all values that no reader holds.
    pub const fn fence_every(mut self, span: Duration) -> Self {
        self.fence_every = span;
        self
    }
}

impl_default!([] PresenceOptions, new);

/// A record of which contexts use cached data, so that only these contexts are notified of a
/// change.
///
/// Each context (a thread, a worker, a connection) registers once and gets a [`Member`]. It enters
/// when it begins to use its cached data, and leaves when it is done. Neither step writes shared
/// memory, except for an entry after the context missed a change.
/// [`shootdown`](Presence::shootdown) runs a function in every context that is present, and returns
/// when all of them have run it or have left.
///
/// ```
/// use coreline::mask::{Entry, Presence};
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let presence = Presence::new();
/// let mut member = presence.register();
/// let (inside, entry) = member.enter();
/// assert_eq!(entry, Entry::MustRefresh, "the first time");
/// drop(inside);
/// let (mut inside, entry) = member.enter();
/// assert_eq!(entry, Entry::Current, "nothing happened meanwhile, and nothing was written");
///
/// let calls = AtomicU32::new(0);
/// inside.shootdown(|| {
///     calls.fetch_add(1, Ordering::Relaxed);
/// });
/// assert_eq!(calls.into_inner(), 1, "no other context is here");
/// ```
///
/// The type is a handle, and its clones are the same presence.
///
/// **Costs**: entering takes one store to the context's own cache line and one load from it. A
/// shootdown takes two heavy fences (natively, system calls). It also reads each seat whose bit is
/// set, and writes to each of these seats.
///
/// **Priorities**: a shootdown that waits for another one sleeps. A shootdown that has waited for
/// contexts for a long time sleeps between its checks, and so does one that begins inside and waits
/// for another. This holds for threads with a real-time priority, too. So contexts of lower
/// priority on the same CPU can answer.
///
/// **Signals, fork**: a signal handler must not call a shootdown. In a forked child, contexts of
/// other threads that were present at the fork stay present, and a shootdown waits for them
/// forever. If another thread was in a shootdown at the time of the fork, every shootdown of the
/// child waits forever. In such a child, no member that was registered before the fork may enter or
/// poll, because it could run a function whose stack no longer exists.
///
/// # Law
///
/// A context that enters during a shootdown either runs the shootdown's function or sees everything
/// that happened before the shootdown. After the shootdown, no context uses data that it cached
/// before. Present contexts have run the function. The other contexts get [`Entry::MustRefresh`]
/// when they next enter. A context that was preempted while it was present still counts as present,
/// and the shootdown waits for it.
///
/// # Source
///
/// Van Riel, ["sched/x86: Optimize switch_mm() for multi-threaded workloads"][riel] (2013: a bit is
/// tested before it is set, and leaving does not clear it); the kernel's `mm_cpumask` since 6.13
/// (lazy clearing at most once a second). The contexts of a program are not CPUs, because a CPU has
/// several contexts, and they move. So in coreline a bit belongs to a context, and lies on the line
/// of the last-level cache where the context registered. Several contexts of one CPU cannot take
/// each other's refresh.
///
/// [riel]: https://lore.kernel.org/r/20130731221421.616d3d20@annuminas.surriel.com
pub struct Presence<W: World = Native> {
    shared: Arc<Shared<W>>,
}

/// The state that handles and members share.
struct Shared<W: World> {
    rolls: Rolls<W>,
    /// It sleeps, as a shootdown waits for other contexts while it holds it.
    announcer: Mutex<Announcer, Near, W>,
    /// The call that `wanted` words refer to. Only owners that the announcer waits for read it.
    call: W::Ptr<Call>,
    trim_every: Duration,
}

/// Read and written under the lock.
#[derive(Debug)]
struct Announcer {
    number: u64,
    trimmed: Trimmed,
    /// A heavy fence was refused, so contexts may have missed a change.
    was_refused: bool,
}

impl Announcer {
    const fn new() -> Self {
        Announcer { number: FIRST, trimmed: Trimmed::NEVER, was_refused: false }
    }

    /// The next change.
    fn next<W: World>(&mut self, trim_every: Duration) -> Change {
        self.number += 1;
        let trim = self.trimmed.is_due(W::now(), trim_every);
        Change { number: self.number, call: false, trim, but: None }
    }
}

/// A function on the stack of the announcer.
struct Call(*const (dyn Fn() + Sync));

impl Presence {
    /// Creates a presence without members, on this machine.
    pub fn new() -> Self {
        Presence::new_in(PresenceOptions::new())
    }

    /// Creates a presence without members, with these options.
    pub fn with_options(options: PresenceOptions) -> Self {
        Presence::new_in(options)
    }
}

impl_default!([] Presence, new);

impl<W: World> Clone for Presence<W> {
    fn clone(&self) -> Self {
        Presence { shared: Arc::clone(&self.shared) }
    }
}

impl<W: World> Presence<W> {
    /// Creates a presence without members, in world `W`.
    pub fn new_in(options: PresenceOptions) -> Self {
        Presence {
            shared: Arc::new(Shared {
                rolls: Rolls::new_in(&W::topology(), options.seats),
                announcer: Mutex::new_in(Announcer::new()),
                call: <W::Ptr<Call> as Word>::new_in(core::ptr::null_mut()),
                trim_every: options.trim_every,
            }),
        }
    }

    /// All bytes of the presence.
    pub(crate) fn bytes(&self) -> usize {
        2 * size_of::<usize>() + size_of::<Shared<W>>() + self.shared.rolls.bytes()
    }

    /// Registers a context, and takes a seat for it, near the caller's CPU if such a seat is free.
    /// If no seat is free, the call adds as many seats as there are, up to a limit. Added seats
    /// stay. The call never waits, not even for a shootdown.
    pub fn register(&self) -> Member<W> {
        // SAFETY: the member keeps the rolls with its seat.
        let Taken { seat, roll } = unsafe { self.shared.rolls.take() };
        Member { shared: Arc::clone(&self.shared), seat, roll }
    }

    /// Runs `f` in every context that is present, and returns when each has run it or left. The
    /// result is the number of contexts that the call reached, and the number that were away.
    ///
    /// Each context that is present runs `f` in its next [`poll`](Inside::poll), or leaves. A
    /// context that does neither blocks the shootdown forever.
    ///
    /// **Not while present**: a context that is present must call [`Inside::shootdown`] instead,
    /// because this call would wait for itself. An `f` that calls a shootdown of the same presence
    /// would also wait for itself. **Panics**: a panic in `f` unwinds in the thread where `f` ran,
    /// and `f` counts as run. If a heavy fence [fails](coreline_world::Fences::try_fence_all), the
    /// call panics once no context can run `f` any more. Some contexts may have run `f`, and other
    /// contexts may use their cached data until the next shootdown.
    pub fn shootdown(&self, f: impl Fn() + Sync) -> Shot {
        let shared = &*self.shared;
        let mut announcer = shared.announcer.lock();
        shared.shoot(&mut announcer, None, None, &f).0
    }

    /// Runs `f` in every context that is present, like [`shootdown`](Presence::shootdown), but
    /// waits at most until `deadline`. If a context is running `f` at the deadline, the call waits
    /// for it.
    ///
    /// # Errors
    ///
    /// [`Late`] if the deadline passes first. Then present contexts may still use data that they
    /// cached before.
    pub fn shootdown_by(&self, deadline: Time, f: impl Fn() + Sync) -> Result<Shot, Late> {
        let shared = &*self.shared;
        let mut announcer = shared.announcer.lock_by(deadline).ok_or(Late::Waiting)?;
        match shared.shoot(&mut announcer, None, Some(deadline), &f) {
            (shot, 0) => Ok(shot),
            (shot, late) => Err(Late::Missed { late, shot }),
        }
    }
}

/// The result of a [`shootdown`](Presence::shootdown): the numbers of contexts that it reached and
/// that were away. A context that leaves or polls meanwhile may be counted as away or late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shot {
    /// The number of contexts that ran the function, or refreshed instead.
    pub reached: usize,
    /// The number of contexts that were away although their bit was set. They will refresh.
    pub away: usize,
}

impl<W: World> Shared<W> {
    /// Also returns how many contexts were late. Without a deadline none is.
    fn shoot(
        &self,
        announcer: &mut Announcer,
        but: Option<usize>,
        deadline: Option<Time>,
        f: &(dyn Fn() + Sync),
    ) -> (Shot, usize) {
        // Contexts that missed a change refresh; a call would hide that from them:
        //
        //   announcer: its first heavy fence is refused: it has asked no context
        //   next one:  has a context run another function, after which it knows of both changes
        let call = !announcer.was_refused;
        let change = Change { call, but, ..announcer.next::<W>(self.trim_every) };
        announcer.was_refused = true;
        // SAFETY: only the lifetime changes. `wait_for_call` returns when no context can call `f`
        // any more, and so does `tell` if it fails; nothing else in between panics.
        let f: *const (dyn Fn() + Sync + 'static) = unsafe { core::mem::transmute(f) };
        let mut call = Call(f);
        // Relaxed: an owner that runs it has acquired `wanted`, which is written after this.
        self.call.store(&raw mut call, Ordering::Relaxed);
        let told = self.rolls.tell(change).unwrap_or_else(|refused| panic!("{refused}"));
        announcer.was_refused = false;
        let Waited { reached, late } = self.rolls.wait_for_call(&told, change.number, deadline);
        let shot = Shot { reached, away: told.iter().map(|(_, told)| told.away).sum() };
        (shot, late)
    }
}

/// A registered context. Dropping it frees the seat.
pub struct Member<W: World = Native> {
    shared: Arc<Shared<W>>,
    seat: Seat<W>,
    /// The roll of the seat, which `shared` keeps.
    roll: NonNull<Roll<W>>,
}

// SAFETY: the seat may be sent. The pointer is to a roll, which all threads share.
unsafe impl<W: World> Send for Member<W> {}

// SAFETY: a shared member shows its seat's position, and does nothing else.
unsafe impl<W: World> Sync for Member<W> {}

// As above: nothing that a panic could leave half done is seen in a shared member.
impl<W: World> RefUnwindSafe for Member<W> {}

impl<W: World> Member<W> {
    /// Enters the presence. Returns whether the context's cached data is still valid. If a
    /// shootdown waits for this context, the shootdown's function runs here first.
    ///
    /// Entering takes one store to the context's own cache line and one load from it. It writes no
    /// shared memory, unless a shootdown waits for the context or the context missed a change.
    #[inline]
    pub fn enter(&mut self) -> (Inside<'_, W>, Entry) {
        let looks_closer = self.seat.enter();
        // From here on it leaves, also if a function that runs below panics.
        let inside = Inside { member: self, _here: PhantomData };
        let entry = if looks_closer { inside.member.entered() } else { Entry::Current };
        (inside, entry)
    }
}

impl<W: World> Member<W> {
    fn roll(&self) -> &Roll<W> {
        // SAFETY: `shared` keeps it, and rolls are shared by all threads.
        unsafe { self.roll.as_ref() }
    }

    /// Does what is wanted of this context, which enters.
    #[cold]
    #[inline(never)]
    fn entered(&self) -> Entry {
        let Some(news) = self.seat.look_closer() else { return Entry::Current };
        match self.roll().entered(&self.seat, news) {
            Entered::Stale => Entry::MustRefresh,
            Entered::Asked(news) => self.answer(news),
        }
    }

    /// Does what is wanted of this context, which is present, if anything is.
    #[inline]
    fn poll(&self) -> Entry {
        match self.seat.news() {
            None => Entry::Current,
            Some(news) => self.answer(news),
        }
    }

    /// Does what is wanted of this context, which is present.
    #[cold]
    #[inline(never)]
    fn answer(&self, mut news: News) -> Entry {
        if news.is_call() {
            match self.seat.claim(news) {
                Ok(()) => {
                    self.run(news);
                    return Entry::Current;
                }
                Err(refresh) => news = refresh,
            }
        }
        self.roll().set_bit(&self.seat);
        self.seat.acknowledge(news);
        Entry::MustRefresh
    }

    /// Runs the call of this news, which this context has claimed.
    fn run(&self, news: News) {
        /// It also acknowledges if the function panics. Otherwise the announcer would wait forever.
        struct Answered<'a, W: World>(&'a Seat<W>, News);
        impl<W: World> Drop for Answered<'_, W> {
            fn drop(&mut self) {
                self.0.acknowledge(self.1);
            }
        }
        let _answered = Answered(&self.seat, news);
        // Relaxed: `news` was acquired, and the announcer stored the call before.
        let call = self.shared.call.load(Ordering::Relaxed);
        // SAFETY: it was claimed, so the announcer keeps the call alive, and stores no other, until
        // it is acknowledged, which is after this: see `take_back`.
        let f = unsafe { &*(*call).0 };
        f();
    }
}

impl<W: World> Drop for Member<W> {
    fn drop(&mut self) {
        self.roll().give_back(&self.seat);
    }
}

/// The guard of a context that is present. Dropping the guard leaves the presence. The drop costs
/// one store to the context's own cache line.
///
/// If a guard is forgotten, its context stays present, and shootdowns wait for it. The wait ends
/// when the member enters again and leaves, or is dropped.
pub struct Inside<'a, W: World = Native> {
    member: &'a mut Member<W>,
    /// It is not `Send`: the thread that entered is present.
    _here: PhantomData<*const ()>,
}

// As the guard of a lock: a thread that panics inside leaves when the guard drops.
impl<W: World> UnwindSafe for Inside<'_, W> {}

impl<W: World> Inside<'_, W> {
    /// Checks whether a shootdown waits for this context. If so, the call runs the shootdown's
    /// function. If not, it costs one load.
    #[inline]
    pub fn poll(&mut self) -> Entry {
        self.member.poll()
    }

    /// Runs `f` in every context that is present, like [`Presence::shootdown`], but from a context
    /// that is present itself. `f` also runs in this context, and the call serves other shootdowns
    /// while it waits for its turn. So two contexts can call shootdowns of each other. Like
    /// [`poll`](Inside::poll), it also returns whether this context's cached data is still valid.
    ///
    /// `f` must not call a shootdown of the same presence, because it would wait for itself.
    pub fn shootdown(&mut self, f: impl Fn() + Sync) -> (Shot, Entry) {
        let Member { shared, seat, .. } = &*self.member;
        let mut entry = Entry::Current;
        let shot = {
            let mut pauses = Pauses::new();
            let mut announcer = loop {
                // The holder of the lock may be waiting for this context.
                if self.member.poll() == Entry::MustRefresh {
                    entry = Entry::MustRefresh;
                }
                match shared.announcer.try_lock() {
                    Some(announcer) => break announcer,
                    None => pauses.pause::<W>(),
                }
            };
            // Once more, as the last holder of the lock may have had a deadline, and left this
            // context behind. There is no call to run: each ends with its announcer.
            if self.member.poll() == Entry::MustRefresh {
                entry = Entry::MustRefresh;
            }
            let own = Some(seat.id());
            shared.shoot(&mut announcer, own, None, &f).0
        };
        f();
        (Shot { reached: shot.reached + 1, ..shot }, entry)
    }
}

impl<W: World> Drop for Inside<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.member.seat.leave();
    }
}

impl_debug!([W: World] Presence<W> as it { seats: it.shared.rolls.capacity(), .. });

impl_debug!([W: World] Member<W> as it { seat: it.seat.position(), .. });

impl_debug!([W: World] Inside<'_, W> as it { member: *it.member });

#[cfg(test)]
mod tests {
    use core::alloc::Layout;

    use super::*;

    #[test]
    fn bits_are_cleared_as_often_as_was_asked_for() {
        const HOUR: Duration = Duration::from_secs(3600);
        let mut announcer = Announcer::new();
        let mut trims = |every| announcer.next::<Native>(every).trim;
        let trims = [trims(HOUR), trims(HOUR), trims(Duration::ZERO), trims(HOUR)];
        assert_eq!(trims, [true, false, true, false], "the first change always may");
    }

    #[test]
    fn bytes_are_those_of_its_allocations() {
        let presence = Presence::new();
        // Two counts and what they count.
        let shared = Layout::new::<[usize; 2]>().extend(Layout::new::<Shared<Native>>());
        let shared = shared.unwrap().0.pad_to_align().size();
        assert_eq!(presence.bytes(), shared + presence.shared.rolls.bytes());
    }
}
