//! Replies to calls and tasks whose senders do not wait.
//!
//! A reply is taken out of its handle for a function that may end it, and put back if that does
//! not: the handle stays the same.

use core::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError, TryLockError};

use coreline::call::Reply;
use coreline::world::Time;

use crate::boundary::{self, Outcome, boundary};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, opaque};

/// The reply to a call or a task: whether its function has run.
pub struct coreline_reply_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_reply_t, Pending, b"a--reply");

/// A reply that has not ended; `None` before its function is sent, and while a thread that holds
/// the mutex ends it.
pub(crate) struct Pending(Mutex<Option<Reply<()>>>);

/// Sends a function by `send`, and gives the reply to C. If the caller wants none, it is detached.
///
/// # Safety
///
/// The address is null, or not aligned, or that of memory that is the call's alone.
pub(crate) unsafe fn give(
    out: *mut *mut coreline_reply_t,
    send: impl FnOnce() -> Result<Reply<()>, Code>,
) -> Outcome {
    if out.is_null() {
        send()?.detach();
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let out = unsafe { boundary::out(out) }?;
    // The handle comes first: without memory for it, nothing may be sent.
    let mut place = MaybeUninit::uninit();
    create::<coreline_reply_t>(Pending(Mutex::new(None)), &mut place)?;
    // SAFETY: written by `create`, and a handle that no other thread knows.
    let (handle, Pending(pending)) = unsafe {
        let handle = place.assume_init();
        (handle, handle::get(handle)?)
    };
    match send() {
        Ok(reply) => {
            *pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
            out.write(handle);
            Ok(())
        }
        Err(code) => {
            // SAFETY: a handle of this call, which no other thread knows.
            unsafe { handle::take(handle) }?;
            Err(code)
        }
    }
}

/// Lets `end` try to end a reply. It returns the reply, with a code, if it does not.
///
/// # Safety
///
/// As [`handle::get`].
unsafe fn ending(
    reply: *mut coreline_reply_t,
    end: impl FnOnce(Reply<()>) -> Result<(), (Reply<()>, Code)>,
) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise.
        let Pending(pending) = unsafe { handle::get(reply) }?;
        let mut pending = match pending.try_lock() {
            Ok(pending) => pending,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is at it.
            Err(TryLockError::WouldBlock) => return Err(Code::CORELINE_BUSY),
        };
        let found = pending.take().ok_or(Code::CORELINE_ERROR_HANDLE)?;
        if let Err((found, code)) = end(found) {
            *pending = Some(found);
            return Err(code);
        }
        drop(pending);
        // SAFETY: the same. The reply was this call's, so no other call takes it.
        unsafe { handle::take(reply) }.map(drop)
    })
}

/// Waits until the function of a reply has run, and ends the reply.
///
/// Everything that the function wrote is visible to the caller afterwards. A worker that waits here
/// serves no calls and runs no tasks meanwhile, so two workers that wait for each other's replies
/// wait forever.
///
/// The call returns `CORELINE_BUSY` if another thread uses the reply. It can miss a thread that
/// begins while the reply ends.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE` (the reply has ended),
/// `CORELINE_ERROR_DEADLOCK` (the calling thread is the only worker that can run the function, and
/// runs it only after its current function: the reply stays).
///
/// Threads: one thread at a time may use a reply, and it may be any thread. Signals: no signal
/// handler may call it. Fork: a reply whose function had not run at the time of the fork is never
/// ready in the child, which must not use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reply_wait(reply: *mut coreline_reply_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { ending(reply, wait) }
}

fn wait(reply: Reply<()>) -> Result<(), (Reply<()>, Code)> {
    reply.checked_wait().map_err(|it| (it.reply, Code::CORELINE_ERROR_DEADLOCK))
}

/// Waits until the function of a reply has run, or gives up at a deadline.
///
/// `deadline` is a time of `coreline_now`. The call ends the reply if the function has run. It
/// returns `CORELINE_TIMED_OUT` if the deadline passes first, and `CORELINE_BUSY` if another thread
/// uses the reply. Then the reply stays.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE` (the reply has ended),
/// `CORELINE_ERROR_DEADLOCK` (as for `coreline_reply_wait`, if the deadline is `UINT64_MAX`).
///
/// Threads: one thread at a time may use a reply, and it may be any thread. Signals: no signal
/// handler may call it. Fork: a reply whose function had not run at the time of the fork is never
/// ready in the child, which must not use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reply_wait_by(
    reply: *mut coreline_reply_t,
    deadline: u64,
) -> Code {
    let by = |reply: Reply<()>| match deadline {
        u64::MAX => wait(reply),
        _ => reply
            .wait_by(Time::from_nanos(deadline))
            .map_err(|reply| (reply, Code::CORELINE_TIMED_OUT)),
    };
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { ending(reply, by) }
}

/// Ends a reply if its function has run, and does not wait.
///
/// The call returns `CORELINE_BUSY`, and the reply stays, if the function has not run yet, or if
/// another thread uses the reply.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE` (the reply has ended).
///
/// Threads: one thread at a time may use a reply, and it may be any thread. Signals: no signal
/// handler may call it. Fork: a reply whose function had not run at the time of the fork is never
/// ready in the child, which must not use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reply_try_wait(reply: *mut coreline_reply_t) -> Code {
    let now = |reply: Reply<()>| {
        reply.wait_by(Time::from_nanos(0)).map_err(|reply| (reply, Code::CORELINE_BUSY))
    };
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { ending(reply, now) }
}

/// Withdraws the function of a reply, so that it does not run, and ends the reply.
///
/// The call returns `CORELINE_UNCHANGED`, and the reply stays, if the function has begun or has
/// ended. In that case, wait for the function before you free the memory that it uses. The call
/// returns `CORELINE_BUSY` if another thread uses the reply.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE` (the reply has ended).
///
/// Threads: one thread at a time may use a reply, and it may be any thread. Signals: no signal
/// handler may call it. Fork: a reply whose function had not run at the time of the fork is never
/// ready in the child, which must not use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reply_cancel(reply: *mut coreline_reply_t) -> Code {
    let withdraw =
        |reply: Reply<()>| reply.withdraw().map_err(|reply| (reply, Code::CORELINE_UNCHANGED));
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { ending(reply, withdraw) }
}

/// Ends a reply without stopping its function.
///
/// No call tells the caller afterwards whether the function has run. `coreline_workers_destroy`
/// waits for it. The call returns `CORELINE_BUSY` if another thread uses the reply.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE` (the reply has ended).
///
/// Threads: one thread at a time may use a reply, and it may be any thread. Signals: no signal
/// handler may call it. Fork: a reply whose function had not run at the time of the fork is never
/// ready in the child, which must not use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reply_detach(reply: *mut coreline_reply_t) -> Code {
    let detach = |reply: Reply<()>| {
        reply.detach();
        Ok(())
    };
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { ending(reply, detach) }
}
