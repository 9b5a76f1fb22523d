//! What a call is while it is under way: a request that lies with its caller.

use core::any::Any;
use core::panic::AssertUnwindSafe;
use core::ptr::{self, NonNull};
use std::panic::catch_unwind;

use coreline_world::{Cell, Ordering, Word, World};

use super::bell::Bell;

/// What a function came to: its value, or its panic.
pub(super) type Outcome<R> = Result<R, Box<dyn Any + Send>>;

/// The call is where the worker will find it.
const WAITING: u32 = 0;
/// The worker runs it.
const RUNS: u32 = 1;
/// It ran, and its value is there. The worker touches the request no more.
const DONE: u32 = 2;

/// What a worker knows of a request.
#[repr(C, align(64))]
pub(super) struct Header<W: World> {
    /// `WAITING`, `RUNS` or `DONE`. Its caller may sleep on it.
    pub(super) state: W::U32,
    /// The next of a queue.
    pub(super) next: W::Ptr<Header<W>>,
    /// Runs it; says whether a thread waits for it to be [done](Header::finish). If none does, the
    /// request may be gone.
    run: unsafe fn(NonNull<Header<W>>) -> bool,
    /// What the caller sleeps on if it is a worker: its bell. Null: `state`.
    pub(super) bell: *const Bell<W>,
}

impl<W: World> Header<W> {
    pub(super) fn new_in(run: unsafe fn(NonNull<Header<W>>) -> bool, bell: *const Bell<W>) -> Self {
        Header { state: W::U32::new_in(WAITING), next: W::Ptr::new_in(ptr::null_mut()), run, bell }
    }

    /// Runs the call.
    ///
    /// # Safety
    ///
    /// The caller is the worker that it was sent to, and has not run it yet.
    pub(super) unsafe fn run(this: NonNull<Self>) -> bool {
        // SAFETY: a request that was sent stays until it was run and is done.
        let run = unsafe { this.as_ref() }.run;
        // SAFETY: by this function's contract; `this` is the request that `run` was made for.
        unsafe { run(this) }
    }

    /// Says that the call with this state was run. From here on the request may be gone, also while
    /// this returns: so no more than the state, which is an atomic, is borrowed.
    pub(super) fn finish(state: &W::U32) {
        // Release: pairs with the Acquire in `is_done`. Without it the caller could read the value
        // before it is written, or leave while the worker still reads the function.
        state.store(DONE, Ordering::Release);
    }

    /// Whether it is done.
    pub(super) fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `finish`.
        Self::says_done(self.state.load(Ordering::Acquire))
    }

    pub(super) fn says_done(state: u32) -> bool {
        state == DONE
    }
}

/// A call of a function whose caller waits for its value.
#[repr(C)]
pub(super) struct Request<F, R, W: World> {
    header: Header<W>,
    function: Cell<Option<F>, W>,
    value: Cell<Option<Outcome<R>>, W>,
}

// SAFETY: the function goes to the worker's thread and its value comes back, by move: `F: Send` and
// `R: Send` stand for that. The header's words are shared, and its pointers are followed under
// the protocol of `Post` alone.
unsafe impl<F: Send, R: Send, W: World> Sync for Request<F, R, W> {}

impl<F: FnOnce() -> R + Send, R: Send, W: World> Request<F, R, W> {
    pub(super) fn new_in(function: F, bell: *const Bell<W>) -> Self {
        Request {
            header: Header::new_in(Self::run, bell),
            function: Cell::new_in(Some(function)),
            value: Cell::new_in(None),
        }
    }

    pub(super) fn header(&self) -> &Header<W> {
        &self.header
    }

    /// What is sent.
    pub(super) fn as_message(&self) -> NonNull<Header<W>> {
        NonNull::from_ref(self).cast()
    }

    /// The function of a request that was not sent.
    pub(super) fn into_function(self) -> F {
        self.function.into_inner().expect("a request that was not sent was not run")
    }

    /// The value of a request that is done.
    pub(super) fn into_value(self) -> Outcome<R> {
        self.value.into_inner().expect("a request that is done has its value")
    }

    /// # Safety
    ///
    /// As for [`Header::run`]; the header is that of a `Request<F, R, W>`.
    unsafe fn run(header: NonNull<Header<W>>) -> bool {
        // SAFETY: by the contract; the pointer was made from a whole request by `as_message`.
        let this = unsafe { header.cast::<Self>().as_ref() };
        // Relaxed: no thread reads it but to sleep. It is written so that the line is here to be
        // written by the time the function has run.
        this.header.state.store(RUNS, Ordering::Relaxed);
        // SAFETY: until `finish` the worker alone touches the function and the value.
        let function = this.function.with_mut(|function| unsafe { (*function).take() });
        let value = catch_unwind(AssertUnwindSafe(function.expect("a call is run once")));
        // SAFETY: as for the function.
        this.value.with_mut(|at| unsafe { *at = Some(value) });
        true
    }
}
