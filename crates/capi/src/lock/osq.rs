//! The queued locks of 4 bytes.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use coreline::lock::{Fifo, Near, Order, Osq, Turn};
use coreline::world::Time;

use super::this_thread;
use crate::boundary::{InPlace, Outcome};
use crate::code::coreline_code_t as Code;
use crate::with::with;

/// A queued lock of 4 bytes. Waiters spin on lines of their own, and near ones come first.
///
/// It lives in the memory of its user. `CORELINE_OSQ_INIT`, or zeros, is a free lock. It needs no
/// destruction. It may not be copied or moved while a thread uses it. A holder keeps its turn in a
/// `coreline_turn_t`.
#[repr(C)]
pub struct coreline_osq_near_t {
    /// Private: the end of the queue, or 0.
    pub tail: u32,
}

/// A queued lock of 4 bytes. Waiters spin on lines of their own, in FIFO order.
///
/// It lives in the memory of its user. `CORELINE_OSQ_INIT`, or zeros, is a free lock. It needs no
/// destruction. It may not be copied or moved while a thread uses it. A holder keeps its turn in a
/// `coreline_turn_t`.
#[repr(C)]
pub struct coreline_osq_fifo_t {
    /// Private: the end of the queue, or 0.
    pub tail: u32,
}

impl InPlace for coreline_osq_near_t {
    type Raw = Osq<Near>;
}

impl InPlace for coreline_osq_fifo_t {
    type Raw = Osq<Fifo>;
}

/// The turn of a thread in a queued lock, on the stack of that thread.
///
/// A function that locks fills the turn in, and a function that unlocks empties it.
/// `CORELINE_TURN_INIT`, or zeros, is an empty turn. A turn may be moved, but only one copy of it
/// may be ended.
#[repr(C)]
pub struct coreline_turn_t {
    /// Private: the lock, or null.
    pub lock: *const c_void,
    /// Private: the number of the thread that holds it.
    pub owner: u64,
    /// Private: the position in the queue.
    pub place: [u64; 2],
}

const _: () = {
    assert!(size_of::<Turn<'_, Near>>() == 16 && align_of::<Turn<'_, Near>>() == 8);
    assert!(size_of::<Turn<'_, Fifo>>() == 16 && align_of::<Turn<'_, Fifo>>() == 8);
};

/// The lock and the owner of a turn. Another thread may end the turn by mistake while its holder
/// writes to it: these two words tell that thread so.
fn words<'a>(turn: NonNull<coreline_turn_t>) -> (&'a AtomicPtr<c_void>, &'a AtomicU64) {
    let turn = turn.as_ptr();
    // SAFETY: a turn, whose memory stays during the call, as the caller of the C function promises.
    unsafe {
        let lock = AtomicPtr::from_ptr((&raw mut (*turn).lock).cast());
        (lock, AtomicU64::from_ptr(&raw mut (*turn).owner))
    }
}

/// Keeps a turn that a thread got, for `unlock`.
fn keep<O: Order>(lock: &Osq<O>, turn: Turn<'_, O>, out: NonNull<coreline_turn_t>) {
    // SAFETY: the call's own memory, as large and as aligned as the turn, as is asserted above.
    unsafe { (&raw mut (*out.as_ptr()).place).cast::<Turn<'_, O>>().write(turn) };
    let (of, owner) = words(out);
    // Relaxed: the next store orders it.
    owner.store(this_thread(), Ordering::Relaxed);
    // Release: pairs with the Acquire in `end`. A thread that finds the lock finds its owner, too.
    of.store(ptr::from_ref(lock).cast_mut().cast(), Ordering::Release);
}

/// Ends the turn.
fn end<O: Order>(lock: &Osq<O>, turn: NonNull<coreline_turn_t>) -> Outcome {
    let (of, owner) = words(turn);
    // Acquire: pairs with the Release in `keep`.
    if of.load(Ordering::Acquire).cast_const() != ptr::from_ref(lock).cast() {
        return Err(Code::CORELINE_ERROR_NOT_HELD);
    }
    // Relaxed, here and below: only the owner goes on, and it sees its own writes.
    if owner.load(Ordering::Relaxed) != this_thread() {
        return Err(Code::CORELINE_ERROR_NOT_OWNER);
    }
    of.store(ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: `keep` wrote it, for this thread, and it is read once.
    drop(unsafe { (&raw const (*turn.as_ptr()).place).cast::<Turn<'_, O>>().read() });
    Ok(())
}

/// The common part of the functions that lock: `how` gets the turn, or `failed` says why there is
/// none.
///
/// # Safety
///
/// The promise of the C function's caller: "Pointers" in the crate's documentation.
#[inline(always)]
unsafe fn take<'a, L: InPlace<Raw = Osq<O>> + 'a, O: Order + 'a>(
    lock: *mut L,
    turn: *mut coreline_turn_t,
    how: impl FnOnce(&'a Osq<O>) -> Option<Turn<'a, O>>,
    failed: Code,
) -> Code {
    with!([lock lock, place turn] { keep(lock, how(lock).ok_or(failed)?, turn); })
}

/// The common part of the functions that unlock.
///
/// # Safety
///
/// The promise of the C function's caller: "Pointers" in the crate's documentation.
#[inline(always)]
unsafe fn give<L: InPlace<Raw = Osq<O>>, O: Order>(
    lock: *mut L,
    turn: *mut coreline_turn_t,
) -> Code {
    with!([lock lock, place turn] { end(lock, turn) })
}

/// Locks a queued lock, and waits for a turn. Near waiters come first.
///
/// The call writes the turn to `turn`, which `coreline_osq_near_unlock` needs.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned).
///
/// Threads: any number of threads may call it at the same time. A thread that locks a lock which it
/// holds waits forever. Signals: a handler must not call it. Fork: a lock that another thread held
/// or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_near_lock(
    lock: *mut coreline_osq_near_t,
    turn: *mut coreline_turn_t,
) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { take(lock, turn, |lock| Some(lock.lock()), Code::CORELINE_BUSY) }
}

/// Locks a queued lock if it is free now.
///
/// The call returns `CORELINE_BUSY`, and leaves `turn` as it is, if a thread holds the lock.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: a lock that another thread held or waited for at the time of the fork stays locked in
/// the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_near_try_lock(
    lock: *mut coreline_osq_near_t,
    turn: *mut coreline_turn_t,
) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { take(lock, turn, Osq::try_lock, Code::CORELINE_BUSY) }
}

/// Locks a queued lock, or gives up at a deadline. Near waiters come first.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT`, and leaves `turn`
/// as it is, if the deadline passes first.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: a lock that another thread held or waited for at the time of the fork stays locked in
/// the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_near_lock_by(
    lock: *mut coreline_osq_near_t,
    turn: *mut coreline_turn_t,
    deadline: u64,
) -> Code {
    let deadline = Time::from_nanos(deadline);
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { take(lock, turn, |lock| lock.lock_by(deadline), Code::CORELINE_TIMED_OUT) }
}

/// Unlocks a queued lock.
///
/// The call ends the turn, and empties `turn`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned),
/// `CORELINE_ERROR_NOT_HELD` (`turn` is empty, or belongs to another lock),
/// `CORELINE_ERROR_NOT_OWNER` (`turn` belongs to another thread).
///
/// Threads: the holder calls it. Signals: a handler must not call it. Fork: a child may unlock a
/// lock that the forking thread held. But if another thread waited for the lock at the time of the
/// fork, it stays locked, and the child must initialise it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_near_unlock(
    lock: *mut coreline_osq_near_t,
    turn: *mut coreline_turn_t,
) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { give(lock, turn) }
}

/// Locks a queued lock, and waits for a turn. Waiters have their turns in FIFO order.
///
/// The call writes the turn to `turn`, which `coreline_osq_fifo_unlock` needs.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned).
///
/// Threads: any number of threads may call it at the same time. A thread that locks a lock which it
/// holds waits forever. Signals: a handler must not call it. Fork: a lock that another thread held
/// or waited for at the time of the fork stays locked in the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_fifo_lock(
    lock: *mut coreline_osq_fifo_t,
    turn: *mut coreline_turn_t,
) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { take(lock, turn, |lock| Some(lock.lock()), Code::CORELINE_BUSY) }
}

/// Locks a queued lock if it is free now.
///
/// The call returns `CORELINE_BUSY`, and leaves `turn` as it is, if a thread holds the lock.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: a lock that another thread held or waited for at the time of the fork stays locked in
/// the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_fifo_try_lock(
    lock: *mut coreline_osq_fifo_t,
    turn: *mut coreline_turn_t,
) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { take(lock, turn, Osq::try_lock, Code::CORELINE_BUSY) }
}

/// Locks a queued lock, or gives up at a deadline. Waiters have their turns in FIFO order.
///
/// `deadline` is a time of `coreline_now`. The call returns `CORELINE_TIMED_OUT`, and leaves `turn`
/// as it is, if the deadline passes first.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: a handler must not call
/// it. Fork: a lock that another thread held or waited for at the time of the fork stays locked in
/// the child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_fifo_lock_by(
    lock: *mut coreline_osq_fifo_t,
    turn: *mut coreline_turn_t,
    deadline: u64,
) -> Code {
    let deadline = Time::from_nanos(deadline);
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { take(lock, turn, |lock| lock.lock_by(deadline), Code::CORELINE_TIMED_OUT) }
}

/// Unlocks a queued lock.
///
/// The call ends the turn, and empties `turn`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (an address is not aligned),
/// `CORELINE_ERROR_NOT_HELD` (`turn` is empty, or belongs to another lock),
/// `CORELINE_ERROR_NOT_OWNER` (`turn` belongs to another thread).
///
/// Threads: the holder calls it. Signals: a handler must not call it. Fork: a child may unlock a
/// lock that the forking thread held. But if another thread waited for the lock at the time of the
/// fork, it stays locked, and the child must initialise it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_osq_fifo_unlock(
    lock: *mut coreline_osq_fifo_t,
    turn: *mut coreline_turn_t,
) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { give(lock, turn) }
}
