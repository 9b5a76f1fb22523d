//! [`Member`]: a user of a domain, and its guard while it is inside the domain.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use coreline_world::{Native, World};

use super::{Domain, NoPresence};
use crate::cid::{Recent, References};
use crate::mask::{self, Entry, Shot};

/// A user of a domain, from [`Domain::join`]: a thread, a worker, a connection, a future. Dropping
/// it leaves the domain.
///
/// A member that is passed to `mem::forget` stays a user, and keeps its seat, as long as the domain
/// exists. **Fork**: members of the parent's other threads stay users in the child.
pub struct Member<P: References = Recent, W: World = Native> {
    domain: Domain<P, W>,
    seat: Option<mask::Member<W>>,
    /// How often it entered.
    entries: u32,
}

/// Reads of the clock are then as rare as possible, but frequent enough for the scan: the law
/// `the_id_of_a_cpu_that_left_comes_back_while_others_go_on` fails without it.
///
/// After this many entries a member checks whether it is time to take IDs back. Operations that
/// find their ID look at no clock. So if all busy CPUs have IDs, no ID would ever come back.
const LOOK_EVERY: u32 = 64;

impl<P: References, W: World> Member<P, W> {
    pub(super) fn new(domain: Domain<P, W>) -> Self {
        let seat = domain.presence().map(mask::Presence::register);
        domain.core().engine.base().join();
        Member { domain, seat, entries: 0 }
    }

    /// Returns the domain.
    pub fn domain(&self) -> &Domain<P, W> {
        &self.domain
    }

    /// Enters the domain, like the kernel's `switch_mm`. Returns whether the member's cached data
    /// about the domain is still valid. If a shootdown waits for this member, the shootdown's
    /// function runs here first. Without a presence, members are not notified, so this always
    /// returns [`Entry::Current`].
    ///
    /// With a presence, entering costs one store to the member's own cache line and one load from
    /// it. Without a presence, entering costs one addition in the member. Every 64th entry also
    /// [takes back](Domain::expire) IDs, if [`SCAN_DELAY`](crate::cid::SCAN_DELAY) has passed.
    #[inline]
    pub fn enter(&mut self) -> (Inside<'_, P, W>, Entry) {
        let Member { domain, seat, entries } = self;
        *entries = entries.wrapping_add(1);
        if entries.is_multiple_of(LOOK_EVERY) {
            domain.core().try_expire();
        }
        let (inside, entry) = match seat {
            None => (None, Entry::Current),
            Some(seat) => {
                let (inside, entry) = seat.enter();
                (Some(inside), entry)
            }
        };
        (Inside { domain, inside, _here: PhantomData }, entry)
    }
}

impl<P: References, W: World> Drop for Member<P, W> {
    fn drop(&mut self) {
        self.domain.core().engine.base().part();
    }
}

impl_debug!([P: References, W: World] Member<P, W> as it { domain: it.domain, .. });

/// The guard of a member inside its domain. Dropping the guard leaves the domain. Without a
/// presence, the guard only names the domain.
///
/// The guard holds no ID. A thread has an ID only during one operation, unless it has a
/// [`Lease`](super::Lease).
pub struct Inside<'a, P: References = Recent, W: World = Native> {
    domain: &'a Domain<P, W>,
    inside: Option<mask::Inside<'a, W>>,
    /// It is not `Send`: the thread that entered is present.
    _here: PhantomData<*const ()>,
}

// As the guard of a lock: a thread that panics inside leaves when the guard drops.
impl<P: References, W: World> UnwindSafe for Inside<'_, P, W> {}
impl<P: References, W: World> RefUnwindSafe for Inside<'_, P, W> {}

impl<P: References, W: World> Inside<'_, P, W> {
    /// Returns the domain.
    pub fn domain(&self) -> &Domain<P, W> {
        self.domain
    }

    /// Checks whether a shootdown waits for this member. If so, the call runs the shootdown's
    /// function.
    #[inline]
    pub fn poll(&mut self) -> Entry {
        self.inside.as_mut().map_or(Entry::Current, mask::Inside::poll)
    }

    /// Runs `f` in every member that is inside the domain, like [`mask::Inside::shootdown`].
    ///
    /// # Errors
    ///
    /// [`NoPresence`] if the domain has no presence.
    pub fn shootdown(&mut self, f: impl Fn() + Sync) -> Result<(Shot, Entry), NoPresence> {
        Ok(self.inside.as_mut().ok_or(NoPresence)?.shootdown(f))
    }
}

impl_debug!([P: References, W: World] Inside<'_, P, W> as it { domain: it.domain, .. });

/// A member and its guard in one, from [`Domain::enter`].
pub struct Entered<P: References = Recent, W: World = Native> {
    inside: ManuallyDrop<Inside<'static, P, W>>,
    /// The member that `inside` borrows; owned.
    member: NonNull<Member<P, W>>,
}

// As the guard that is in it.
impl<P: References, W: World> UnwindSafe for Entered<P, W> {}
impl<P: References, W: World> RefUnwindSafe for Entered<P, W> {}

impl<P: References, W: World> Entered<P, W> {
    pub(super) fn new(member: Member<P, W>) -> (Self, Entry) {
        let member = NonNull::from_mut(Box::leak(Box::new(member)));
        // SAFETY: just leaked; only `inside` uses it until `drop`, which drops `inside` first. No
        // reference to `inside` that is given out lives longer than this.
        let (inside, entry) = unsafe { (*member.as_ptr()).enter() };
        (Entered { inside: ManuallyDrop::new(inside), member }, entry)
    }

    /// Returns the domain.
    pub fn domain(&self) -> &Domain<P, W> {
        self.inside.domain()
    }

    /// Checks whether a shootdown waits for this member, like [`Inside::poll`].
    pub fn poll(&mut self) -> Entry {
        self.inside.poll()
    }

    /// Runs `f` in every member that is inside the domain, like [`Inside::shootdown`].
    ///
    /// # Errors
    ///
    /// [`NoPresence`] if the domain has no presence.
    pub fn shootdown(&mut self, f: impl Fn() + Sync) -> Result<(Shot, Entry), NoPresence> {
        self.inside.shootdown(f)
    }
}

impl<P: References, W: World> Drop for Entered<P, W> {
    fn drop(&mut self) {
        // SAFETY: once, here; the member was leaked by `new`, and its guard goes before.
        unsafe {
            ManuallyDrop::drop(&mut self.inside);
            drop(Box::from_raw(self.member.as_ptr()));
        }
    }
}

impl_debug!([P: References, W: World] Entered<P, W> as it (*it.inside));
