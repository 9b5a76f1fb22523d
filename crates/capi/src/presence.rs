//! Presence: which contexts take part, and calls that reach only those. A member is a context of a
//! presence or a user of a domain.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::domain;
use coreline::mask::{self, Entry, Late, Presence, PresenceOptions, Shot};
use coreline::world::Time;

use crate::boundary::{Outcome, boundary, returning};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, destroy, opaque};
use crate::inside::Owner;
use crate::with::with;

/// A record of which contexts use cached data, so that only these are notified of a change.
pub struct coreline_presence_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_presence_t, Known, b"presence");

/// A context of a presence, or a user of a domain: a thread, a worker, a connection.
pub struct coreline_member_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_member_t, Context, b"-member-");

/// The effects of a shootdown.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct coreline_shot_t {
    /// The number of members that ran the function, or were notified that their data is out of
    /// date.
    pub reached: usize,
    /// The number of members that were outside, but must be notified. They are notified when they
    /// enter.
    pub away: usize,
    /// The number of members that had done neither when the deadline passed.
    pub late: usize,
}

impl From<Shot> for coreline_shot_t {
    fn from(Shot { reached, away }: Shot) -> Self {
        coreline_shot_t { reached, away, late: 0 }
    }
}

/// A function that runs in members. It must return. An exception that leaves it ends the process.
pub type coreline_shootdown_f = Option<unsafe extern "C-unwind" fn(context: *mut c_void)>;

/// The function of a shootdown, which members run.
pub(crate) fn function(
    function: coreline_shootdown_f,
    context: *mut c_void,
) -> Result<impl Fn() + Sync, Code> {
    let function = function.ok_or(Code::CORELINE_ERROR_NULL)?;
    // An address, which goes to other threads: the C program has agreed to that.
    let context = context.expose_provenance();
    Ok(move || {
        // SAFETY: the caller of the C function promises that any thread may call it with this.
        returning(|| unsafe { function(ptr::with_exposed_provenance_mut(context)) })
    })
}

/// The state that members share, as C sees it.
pub(crate) struct Known {
    presence: Presence,
    number: u64,
}

/// A number for a presence or a domain, which no other one has. It is never 0.
pub(crate) fn number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    // Relaxed: each number is taken once.
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// A member of either kind.
enum Member {
    Presence(mask::Member),
    Domain(domain::Member),
}

/// Its guard.
enum Inside {
    Presence(mask::Inside<'static>),
    Domain(domain::Inside<'static>),
}

impl Inside {
    fn poll(&mut self) -> Entry {
        match self {
            Inside::Presence(inside) => inside.poll(),
            Inside::Domain(inside) => inside.poll(),
        }
    }

    fn shootdown(&mut self, f: impl Fn() + Sync) -> Result<(Shot, Entry), Code> {
        match self {
            Inside::Presence(inside) => Ok(inside.shootdown(f)),
            // Without a presence.
            Inside::Domain(inside) => {
                inside.shootdown(f).map_err(|_| Code::CORELINE_ERROR_ARGUMENT)
            }
        }
    }
}

/// A member with its guard.
pub(crate) struct Context {
    owner: Owner,
    /// Of the presence or the domain.
    number: u64,
    /// The guard, while a thread is inside. A call takes it out meanwhile, so a call from a
    /// function that it runs finds none. Used by the thread inside alone.
    inside: Cell<Option<Inside>>,
    /// The member in which the thread inside was before this one. Used by that thread alone.
    before: Cell<*const Context>,
    /// Owned. The guard borrows it.
    member: NonNull<Member>,
}

// SAFETY: the cells are used by the thread that `owner` names alone, or by the one that destroys
// the member, after it has found no thread inside. A member may be sent.
unsafe impl Send for Context {}
// SAFETY: the same.
unsafe impl Sync for Context {}

thread_local! {
    /// The member that the thread has entered last and not left, of those that lead to others by
    /// `before`. They live: a member is not destroyed while a thread is inside.
    static LAST: Cell<*const Context> = const { Cell::new(ptr::null()) };
}

/// The members in which the calling thread is.
fn here() -> impl Iterator<Item = NonNull<Context>> {
    // SAFETY: see `LAST`.
    let before = |context: &NonNull<Context>| unsafe { context.as_ref() }.before.get();
    let found = |context: *const Context| NonNull::new(context.cast_mut());
    core::iter::successors(found(LAST.get()), move |context| found(before(context)))
}

/// Finds that a shootdown of a presence would not wait for the calling thread: this is in no other
/// member of it.
pub(crate) fn is_elsewhere(number: u64, but: Option<&Context>) -> Outcome {
    let but = but.map_or(ptr::null(), ptr::from_ref);
    let waits = |it: NonNull<Context>| {
        // SAFETY: see `LAST`.
        !ptr::eq(it.as_ptr(), but) && unsafe { it.as_ref() }.number == number
    };
    if here().any(waits) { Err(Code::CORELINE_ERROR_DEADLOCK) } else { Ok(()) }
}

/// Gives the guard back when a call ends, also if it unwinds.
struct Lent<'a> {
    context: &'a Context,
    inside: Option<Inside>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.context.inside.set(self.inside.take());
    }
}

/// The thread leaves unless entering succeeds.
struct Entering<'a>(&'a Context);

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.0.left();
    }
}

impl Context {
    fn new(member: Member, number: u64) -> Self {
        let (inside, before) = (Cell::new(None), Cell::new(ptr::null()));
        let member = NonNull::from_mut(Box::leak(Box::new(member)));
        Context { owner: Owner::none(), number, inside, before, member }
    }

    fn enter(&self) -> Result<Entry, Code> {
        self.owner.enter()?;
        self.before.set(LAST.replace(self));
        let entering = Entering(self);
        // SAFETY: owned. There is no guard: the owner was none, and the cell is empty then. The
        // guard is dropped before the member.
        let (inside, entry) = match unsafe { &mut *self.member.as_ptr() } {
            Member::Presence(member) => {
                let (inside, entry) = member.enter();
                (Inside::Presence(inside), entry)
            }
            Member::Domain(member) => {
                let (inside, entry) = member.enter();
                (Inside::Domain(inside), entry)
            }
        };
        core::mem::forget(entering);
        self.inside.set(Some(inside));
        Ok(entry)
    }

    /// Calls `f` with the guard of the calling thread.
    fn with<R>(&self, f: impl FnOnce(&mut Inside) -> R) -> Result<R, Code> {
        self.owner.is_inside()?;
        let mut lent = Lent { context: self, inside: self.inside.take() };
        // None: the caller is a function that such a call runs.
        Ok(f(lent.inside.as_mut().ok_or(Code::CORELINE_ERROR_DEADLOCK)?))
    }

    fn leave(&self) -> Outcome {
        self.owner.is_inside()?;
        drop(self.inside.take().ok_or(Code::CORELINE_ERROR_DEADLOCK)?);
        self.left();
        Ok(())
    }

    /// Takes the calling thread out, which has no guard any more.
    fn left(&self) {
        let before = self.before.get();
        if ptr::eq(LAST.get(), self) {
            LAST.set(before);
        } else {
            // SAFETY: see `LAST`.
            let next = here().find(|it| ptr::eq(unsafe { it.as_ref() }.before.get(), self));
            // SAFETY: the same.
            next.inspect(|it| unsafe { it.as_ref() }.before.set(before));
        }
        self.owner.leave();
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.inside.set(None);
        // SAFETY: from a box that was leaked, and its guard is gone.
        drop(unsafe { Box::from_raw(self.member.as_ptr()) });
    }
}

/// Makes a member of a domain, for its handle.
pub(crate) fn join(
    member: domain::Member,
    number: u64,
    out: &mut MaybeUninit<*mut coreline_member_t>,
) -> Outcome {
    create(Context::new(Member::Domain(member), number), out)
}

/// The answer of functions that tell whether cached data is out of date.
fn tell(entry: Entry, out: &mut MaybeUninit<c_int>) {
    out.write(c_int::from(entry == Entry::MustRefresh));
}

/// Creates a presence, without members.
///
/// A presence records which contexts use data that they have cached. A context becomes a member by
/// `coreline_presence_join`, enters when it begins to use its data, and leaves when it is done.
/// Neither step writes memory that others write, unless the data has changed. A shootdown runs a
/// function in each member that is inside, and returns when all have run it or left.
///
/// `seats` is the expected number of members, and 0 means a default. More seats are added if all
/// are taken. A shootdown clears marks of members that have left, but at most once in `trim_every`
/// nanoseconds. 0 means one second. If there is no memory for the presence, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_presence_create(
    seats: usize,
    trim_every: u64,
    out: *mut *mut coreline_presence_t,
) -> Code {
    with!([out out] {
        let mut options = PresenceOptions::new();
        if seats != 0 {
            options = options.seats(seats);
        }
        if trim_every != 0 {
            options = options.trim_every(Duration::from_nanos(trim_every));
        }
        create(Known { presence: Presence::with_options(options), number: number() }, out)
    })
}

/// Destroys a presence.
///
/// Remaining members continue to work, and are destroyed by `coreline_member_destroy`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the presence during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_presence_destroy(presence: *mut coreline_presence_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(presence) }
}

/// Creates a member that is outside of its presence.
///
/// Create a member once for each context, and not for each use. If there is no memory for more
/// members, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. It does not wait for a shootdown.
/// Signals: no signal handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_presence_join(
    presence: *const coreline_presence_t,
    out: *mut *mut coreline_member_t,
) -> Code {
    with!([handle presence, out out] {
        create(Context::new(Member::Presence(presence.presence.register()), presence.number), out)
    })
}

/// Runs a function in each member that is inside, and waits.
///
/// Each member that is inside runs `function` with `context` in its next `coreline_member_poll`, or
/// leaves. The call returns when all have done so. A member that does neither blocks the call
/// forever. A member that enters meanwhile runs the function, or sees everything that happened
/// before the call. A member that is outside is notified, when it enters, that its data is out of
/// date. After the call, no member uses data that it cached before.
///
/// `function` is of type `void (*)(void *context)`. It must return: it must not leave by `longjmp`
/// or by an exception. In it, a call that would wait for its own thread returns an error.
///
/// The call writes to `shot` the number of members that it has `reached`, and the number of those
/// that must be notified but were `away`. `late` is 0. `shot` may not be null.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`shot` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_DEADLOCK` (the caller is inside, and must call
/// `coreline_member_shootdown` instead), `CORELINE_ERROR_PANIC` (the kernel refuses `membarrier`:
/// some members may have run the function, and others may use their old data until the next
/// shootdown).
///
/// Threads: any number of threads may call it at the same time, and wait for each other. Signals:
/// no signal handler may call it. Fork: in a child, it waits forever if another thread was inside
/// or in a shootdown at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_presence_shootdown(
    presence: *const coreline_presence_t,
    function: coreline_shootdown_f,
    context: *mut c_void,
    shot: *mut coreline_shot_t,
) -> Code {
    with!([handle presence, out shot] {
        let function = self::function(function, context)?;
        is_elsewhere(presence.number, None)?;
        shot.write(presence.presence.shootdown(function).into());
    })
}

/// Runs a function in each member that is inside, and waits until a deadline.
///
/// It does what `coreline_presence_shootdown` does. `deadline` is a time of `coreline_now`. If it
/// passes first, the call returns `CORELINE_TIMED_OUT`. `shot` counts the members that are late.
/// They no longer run the function. When they poll or enter again, they are notified that their
/// data is out of date. They may use it until then. If `shot` is all zeros, the call has only
/// waited for another shootdown, and has notified no member. If a member runs the function at the
/// deadline, the call waits for it.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`shot` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_DEADLOCK` (the caller is inside, and must call
/// `coreline_member_shootdown` instead), `CORELINE_ERROR_PANIC` (the kernel refuses `membarrier`:
/// some members may have run the function, and others may use their old data until the next
/// shootdown).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: in a child, it waits until the deadline if another thread was inside or in a shootdown
/// at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_presence_shootdown_by(
    presence: *const coreline_presence_t,
    function: coreline_shootdown_f,
    context: *mut c_void,
    deadline: u64,
    shot: *mut coreline_shot_t,
) -> Code {
    with!([handle presence, out shot] {
        let function = self::function(function, context)?;
        is_elsewhere(presence.number, None)?;
        let done = presence.presence.shootdown_by(Time::from_nanos(deadline), function);
        let (found, code) = match done {
            Ok(found) => (found.into(), Ok(())),
            Err(Late::Missed { late, shot }) => {
                (coreline_shot_t { late, ..shot.into() }, Err(Code::CORELINE_TIMED_OUT))
            }
            Err(_) => (Shot::default().into(), Err(Code::CORELINE_TIMED_OUT)),
        };
        shot.write(found);
        code
    })
}

/// Enters a member's presence or domain.
///
/// The call writes 1 to `must_refresh` if the member must renew what it has cached, because it
/// missed a change or enters for the first time, and otherwise 0. If a shootdown waits for the
/// member, its function runs in the call. In a domain without a presence, members are not notified,
/// and `must_refresh` is 0.
///
/// A thread may be inside in several members. It must leave by `coreline_member_leave` before it
/// waits for anything, because a shootdown waits for each member inside.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`must_refresh` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_INSIDE`, `CORELINE_ERROR_NOT_OWNER` (another thread is
/// inside).
///
/// Threads: a member is used by one thread at a time. The call detects that another thread is
/// inside, but not that another thread enters at the same time. A thread that ends inside leaves
/// its member inside. Signals: no signal handler may call it. Fork: a child must not call it for a
/// member that was created before the fork, if another thread was in a shootdown at the time of the
/// fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_member_enter(
    member: *const coreline_member_t,
    must_refresh: *mut c_int,
) -> Code {
    with!([handle member, out must_refresh] { tell(member.enter()?, must_refresh); })
}

/// Checks whether a shootdown waits for a member that is inside.
///
/// If one does, its function runs in the call. The call writes 1 to `must_refresh` if the member
/// must renew what it has cached, and otherwise 0. Call it often while inside.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`must_refresh` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_OUTSIDE`, `CORELINE_ERROR_NOT_OWNER` (another thread is
/// inside), `CORELINE_ERROR_DEADLOCK` (the caller is a function that the member runs).
///
/// Threads: the thread that entered calls it. Signals: no signal handler may call it. Fork: a child
/// must not call it for a member that was created before the fork, if another thread was in a
/// shootdown at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_member_poll(
    member: *const coreline_member_t,
    must_refresh: *mut c_int,
) -> Code {
    with!([handle member, out must_refresh] { tell(member.with(Inside::poll)?, must_refresh); })
}

/// Runs a function in each member that is inside, from a member that is inside itself.
///
/// It does what `coreline_presence_shootdown` does, and also runs the function in the caller's
/// member. While the call waits, it polls, so two members may call it at the same time. It writes 1
/// to `must_refresh` if the member must renew what it has cached, and otherwise 0.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned, or the
/// domain has no presence), `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_OUTSIDE`,
/// `CORELINE_ERROR_NOT_OWNER` (another thread is inside), `CORELINE_ERROR_DEADLOCK` (the caller is
/// also inside in another member of the presence, or is a function that the member runs),
/// `CORELINE_ERROR_PANIC` (the kernel refuses `membarrier`: some members may have run the function,
/// and others may use their old data until the next shootdown).
///
/// Threads: the thread that entered calls it. Signals: no signal handler may call it. Fork: in a
/// child, it waits forever if another thread was inside or in a shootdown at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_member_shootdown(
    member: *const coreline_member_t,
    function: coreline_shootdown_f,
    context: *mut c_void,
    shot: *mut coreline_shot_t,
    must_refresh: *mut c_int,
) -> Code {
    with!([handle member, out shot, out must_refresh] {
        let function = self::function(function, context)?;
        member.owner.is_inside()?;
        is_elsewhere(member.number, Some(member))?;
        let (found, entry) = member.with(|inside| inside.shootdown(function))??;
        shot.write(found.into());
        tell(entry, must_refresh);
    })
}

/// Leaves a member's presence or domain.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_OUTSIDE`,
/// `CORELINE_ERROR_NOT_OWNER` (another thread is inside), `CORELINE_ERROR_DEADLOCK` (the caller is
/// a function that the member runs).
///
/// Threads: the thread that entered calls it. Signals: no signal handler may call it. Fork: a child
/// may leave a member that the forking thread had entered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_member_leave(member: *const coreline_member_t) -> Code {
    with!([handle member] { member.leave() })
}

/// Destroys a member that is outside.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_INSIDE`,
/// `CORELINE_ERROR_NOT_OWNER` (another thread is inside).
///
/// Threads: no other thread may use the member during the call or after it. Signals: no signal
/// handler may call it. Fork: a child may destroy its copy of a member, unless another thread was
/// inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_member_destroy(member: *mut coreline_member_t) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        unsafe {
            handle::get(member)?.owner.is_outside()?;
            handle::take(member).map(drop)
        }
    })
}
