//! A call while it is under way: a request that lies with its caller.

use core::any::Any;
use core::panic::AssertUnwindSafe;
use core::ptr::{self, NonNull};
use std::panic::catch_unwind;

use coreline_world::{Cell, Ordering, Word, World};

use crate::panics::quietly;

/// The result of a function: its value, or its panic.
pub(super) type PanicResult<R> = Result<R, Box<dyn Any + Send>>;

/// Keeps a panic, unless there was one before.
pub(super) fn keep_first(first: &mut PanicResult<()>, next: PanicResult<()>) {
    if first.is_ok() {
        *first = next;
    } else {
        quietly(|| drop(next));
    }
}

/// Runs a request; returns whether a thread waits for it to be [done](Header::finish). If none
/// does, the request may be gone.
pub(super) type Run<W> = unsafe fn(NonNull<Header<W>>) -> bool;

/// The word on which a caller sleeps. For a worker it is the event count of the worker with this
/// index. For any other thread it is the state of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caller(u32);

impl Caller {
    pub(super) const OUTSIDE: Caller = Caller(u32::MAX);

    #[inline]
    pub(super) fn new(worker: Option<usize>) -> Self {
        worker.map_or(Caller::OUTSIDE, |index| Caller(index as u32))
    }

    /// Its index, if it is a worker.
    #[inline]
    pub(super) fn worker(self) -> Option<usize> {
        (self != Caller::OUTSIDE).then_some(self.0 as usize)
    }
}

/// The part of a request that a worker knows.
#[repr(C)]
pub(super) struct Header<W: World> {
    /// `WAITING`, `RUNS` or `DONE`; with `ASIDE` for a [`Post`](super::post::Post), and `FREE` for
    /// a parcel. A caller may sleep on it.
    pub(super) state: W::U32,
    /// Written before the request is sent, like `run`.
    caller: Cell<Caller, W>,
    /// The next in a queue.
    pub(super) next: W::Ptr<Header<W>>,
    run: Cell<Run<W>, W>,
}

impl<W: World> Header<W> {
    /// The call is where the worker will find it.
    pub(super) const WAITING: u32 = 0;
    /// The worker runs it.
    pub(super) const RUNS: u32 = 1;
    /// It ran, and its value is there. The worker no longer touches the request.
    pub(super) const DONE: u32 = 2;
    /// There is no call.
    pub(super) const FREE: u32 = 3;
    /// A bit beside the first three: from here on the state changes under a lock.
    pub(super) const ASIDE: u32 = 4;

    pub(super) fn new_in(run: Run<W>, caller: Caller) -> Self {
        Header {
            state: W::U32::new_in(Self::WAITING),
            caller: Cell::new_in(caller),
            next: W::Ptr::new_in(ptr::null_mut()),
            run: Cell::new_in(run),
        }
    }

    /// For a request that is not sent yet: sets what runs it, and for which caller.
    #[inline]
    pub(super) fn address(&self, run: Run<W>, caller: Caller) {
        // SAFETY: no worker knows of a call that was not sent.
        self.run.with_mut(|at| unsafe { *at = run });
        // SAFETY: as for `run`.
        self.caller.with_mut(|at| unsafe { *at = caller });
    }

    /// The thread that waits for a call that was sent and is not done.
    #[inline]
    pub(super) fn caller(&self) -> Caller {
        // SAFETY: written before the call was sent, and not until it is done.
        self.caller.with(|caller| unsafe { *caller })
    }

    /// Runs the call.
    ///
    /// # Safety
    ///
    /// The caller is the worker that it was sent to, and has not run it yet.
    pub(super) unsafe fn run(this: NonNull<Self>) -> bool {
        // SAFETY: a request that was sent stays until it was run and is done, and is not written.
        let run = unsafe { this.as_ref() }.run.with(|run| unsafe { *run });
        // SAFETY: by this function's contract; `this` is the request that `run` was made for.
        unsafe { run(this) }
    }

    /// Says that the call with this state was run. From here on the request may be gone, even while
    /// this returns. So this borrows no more than the state, which is an atomic.
    pub(super) fn finish(state: &W::U32) {
        // Release: pairs with the Acquire in `is_done`. Without it the caller could read the value
        // before it is written, or leave while the worker still reads the function.
        state.store(Self::DONE, Ordering::Release);
    }

    /// Whether the call is done.
    pub(super) fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `finish`.
        Self::says_done(self.state.load(Ordering::Acquire))
    }

    pub(super) fn says_done(state: u32) -> bool {
        state & !Self::ASIDE == Self::DONE
    }
}

/// A call of a function whose caller waits for its value.
#[repr(C, align(64))]
pub(super) struct Request<F, R, W: World> {
    header: Header<W>,
    function: Cell<Option<F>, W>,
    value: Cell<Option<PanicResult<R>>, W>,
}

// SAFETY: the function goes to the worker's thread and its value comes back, by move: `F: Send` and
// `R: Send` stand for that. The header's words are shared, and its pointers are followed under
// the protocol of `Mailbox` alone.
unsafe impl<F: Send, R: Send, W: World> Sync for Request<F, R, W> {}

impl<F: FnOnce() -> R + Send, R: Send, W: World> Request<F, R, W> {
    pub(super) fn new_in(function: F, caller: Caller) -> Self {
        Request {
            header: Header::new_in(Self::run, caller),
            function: Cell::new_in(Some(function)),
            value: Cell::new_in(None),
        }
    }

    pub(super) fn header(&self) -> &Header<W> {
        &self.header
    }

    /// The part that is sent.
    pub(super) fn as_message(&self) -> NonNull<Header<W>> {
        NonNull::from_ref(self).cast()
    }

    /// The function of a request that was not sent.
    pub(super) fn into_function(self) -> F {
        self.function.into_inner().expect("a request that was not sent was not run")
    }

    /// The value of a request that is done.
    pub(super) fn into_value(self) -> PanicResult<R> {
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
        this.header.state.store(Header::<W>::RUNS, Ordering::Relaxed);
        // SAFETY: until `finish` the worker alone touches the function and the value.
        let function = this.function.with_mut(|function| unsafe { (*function).take() });
        let value = catch_unwind(AssertUnwindSafe(function.expect("a call is run once")));
        // SAFETY: as for the function.
        this.value.with_mut(|at| unsafe { *at = Some(value) });
        true
    }
}
