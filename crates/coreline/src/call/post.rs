//! Calls and tasks whose senders do not wait: where the function and its value lie, and how the
//! worker and the [`Reply`](super::Reply) agree on which of them is the last one there.
//!
//! A [`Post`] lies on the heap (a *letter*) or, if it is small, next to the wake word of its worker
//! (a [parcel](super::parcel)). Its `state` is that of its header:
//!
//! | state | the function | the contents belong to | left by |
//! |---|---|---|---|
//! | `WAITING` | has not begun | the reply; the worker if it claims | the worker's claim |
//! | `RUNS` | has begun | the worker | the worker, at the end |
//! | `DONE` | has ended | the reply, which takes the value and gives the place back | the reply |
//!
//! With the bit `ASIDE` each state means the same, but changes only under the lock of `side`. A
//! parcel that belongs to no call is `FREE`.
//!
//! A reply that only waits awake needs two exchanges of the worker and no lock. A reply that leaves
//! a waker, withdraws or leaves locks `side` and sets `ASIDE`. The worker's exchange then fails,
//! and it locks `side`, too:
//!
//! | `side.rest` | means | gives the place back |
//! |---|---|---|
//! | `Stays` | the reply waits | the reply |
//! | `Withdraws` | the reply takes the function out, which must not run | see the next two |
//! | `Withdrawn` | the function was taken out | the worker that finds the message |
//! | `Skipped` | the worker has found the message before that | the reply |
//! | `Left` | the value is not wanted | the worker, when the function has ended |

use core::marker::PhantomData;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::panic::AssertUnwindSafe;
use core::ptr::NonNull;
use core::task::Waker;
use core::time::Duration;
use std::panic::catch_unwind;

use coreline_topology::CpuId;
use coreline_world::{Cell, Ordering, Word, World};

use super::polling::poll;
use super::request::{Caller, Header, PanicResult, Run};
use crate::TicketLock;
use crate::panics::quietly;

/// What a reply has left for the worker.
pub(super) struct Side {
    waker: Option<Waker>,
    rest: Rest,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Stays,
    /// The reply takes the function out, to drop it.
    Withdraws,
    Withdrawn,
    Skipped,
    Left,
}

/// A function on its way to a worker, and its value on the way back. `C` has the size and the
/// alignment for either.
#[repr(C)]
pub(super) struct Post<C, W: World> {
    pub(super) header: Header<W>,
    pub(super) contents: Cell<MaybeUninit<C>, W>,
    pub(super) side: TicketLock<Side, W>,
}

/// Where posts with such contents lie.
pub(super) trait Place: Sized {
    /// Gives the place back.
    ///
    /// # Safety
    ///
    /// No other thread uses the post any more, and its contents were taken out.
    unsafe fn give_back<W: World>(post: NonNull<Post<Self, W>>);
}

/// The contents of a letter.
#[repr(C)]
pub(super) union Either<F, V> {
    function: ManuallyDrop<F>,
    value: ManuallyDrop<V>,
}

impl<F, V> Place for Either<F, V> {
    unsafe fn give_back<W: World>(post: NonNull<Post<Self, W>>) {
        // SAFETY: a letter is made by `letter`, in a box, and the caller is the last one.
        drop(unsafe { Box::from_raw(post.as_ptr()) });
    }
}

impl<C, W: World> Post<C, W> {
    pub(super) fn new_in(run: Run<W>) -> Self {
        Post {
            header: Header::new_in(run, Caller::OUTSIDE),
            contents: Cell::new_in(MaybeUninit::uninit()),
            side: TicketLock::new_in(Side { waker: None, rest: Rest::Stays }),
        }
    }

    /// # Safety
    ///
    /// The contents belong to the caller, and a `T` fits.
    #[inline]
    pub(super) unsafe fn put<T>(&self, value: T) {
        // SAFETY: by the contract.
        self.contents.with_mut(|at| unsafe { at.cast::<T>().write(value) });
    }

    /// # Safety
    ///
    /// The contents belong to the caller, and are a `T`, which was not taken before.
    #[inline]
    pub(super) unsafe fn take<T>(&self) -> T {
        // SAFETY: by the contract.
        self.contents.with_mut(|at| unsafe { at.cast::<T>().read() })
    }
}

impl<C: Place, W: World> Post<C, W> {
    /// The worker runs a function whose sender does not wait, unless it was withdrawn.
    ///
    /// # Safety
    ///
    /// As for [`Header::run`]; the header is that of a `Post<C, W>` with an `F`, which was sent.
    pub(super) unsafe fn run<F: FnOnce() -> R, R>(header: NonNull<Header<W>>) -> bool {
        let place = header.cast::<Self>();
        // SAFETY: by the contract; the pointer was made from a whole post, which stays until the
        // last one of the worker and the reply gives it back.
        let this = unsafe { place.as_ref() };
        let state = &this.header.state;
        // Relaxed, twice: the message has brought the function, and the lock brings what the reply
        // has left.
        let claimed = state.compare_exchange(
            Header::<W>::WAITING,
            Header::<W>::RUNS,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if claimed.is_err() {
            match this.claim_aside() {
                Rest::Withdrawn => {
                    // SAFETY: the reply took the function, and knows the post no more.
                    unsafe { C::give_back(place) };
                    return false;
                }
                Rest::Skipped => return false,
                _ => {}
            }
        }
        // SAFETY: claimed, so the contents are the worker's: the function, which it takes once.
        let value = catch_unwind(AssertUnwindSafe(unsafe { this.take::<F>() }));
        // SAFETY: as for the function; the place is large enough for the value.
        unsafe { this.put::<PanicResult<R>>(value) };
        // Release: pairs with the Acquire of the reply's looks. Without it the reply could read the
        // value before it is written. From here on the post may be gone. Relaxed: the reply has
        // left something, which the lock brings.
        let ended = state.compare_exchange(
            Header::<W>::RUNS,
            Header::<W>::DONE,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if ended.is_err() {
            match this.end_aside() {
                Some(waker) => quietly(|| _ = waker.map(Waker::wake)),
                None => {
                    // SAFETY: the contents are the worker's: the value that it has put there.
                    quietly(|| drop(unsafe { this.take::<PanicResult<R>>() }));
                    // SAFETY: the reply has left, and knows the post no more.
                    unsafe { C::give_back(place) };
                }
            }
        }
        false
    }

    /// Claims a function whose reply has left something. It must not run if that is `Withdrawn`, or
    /// `Skipped`, with which the reply gives the place back:
    ///
    ///   Reply:  says that it withdraws; takes the function out, whose destructor takes long
    ///   Worker: finds that, and gives the place back
    ///   Reply:  takes the function out of freed memory        <- so the worker only skips
    #[cold]
    fn claim_aside(&self) -> Rest {
        let mut side = self.side.lock();
        match side.rest {
            Rest::Withdraws => side.rest = Rest::Skipped,
            Rest::Withdrawn => return core::mem::replace(&mut side.rest, Rest::Stays),
            // Relaxed: from `ASIDE` on it is written under the lock.
            _ => self.header.state.store(Header::<W>::RUNS | Header::<W>::ASIDE, Ordering::Relaxed),
        }
        side.rest
    }

    /// Says that a function has ended whose reply has left something; returns the waker, or `None`
    /// if the reply has left for good.
    #[cold]
    fn end_aside(&self) -> Option<Option<Waker>> {
        let mut side = self.side.lock();
        let waker = side.waker.take();
        if side.rest == Rest::Left {
            side.rest = Rest::Stays;
            return None;
        }
        // Release: pairs with the Acquire of the reply's looks, as in `run`. The reply sees `ASIDE`
        // and takes the lock once more before it gives the place back:
        //
        //   Worker: says that the function has ended
        //   Reply:  takes the value, frees the letter
        //   Worker: frees the lock                      <- in freed memory
        self.header.state.store(Header::<W>::DONE | Header::<W>::ASIDE, Ordering::Release);
        Some(waker)
    }
}

/// The reply's end of a post. Dropping it leaves the function to the worker.
pub(super) struct Posted<R, W: World> {
    header: NonNull<Header<W>>,
    side: NonNull<TicketLock<Side, W>>,
    /// Takes the value, and gives the place back. Safe if the value is there and this handle is the
    /// last thing that knows of the post.
    take: unsafe fn(NonNull<Header<W>>) -> PanicResult<R>,
    /// Takes the function, and drops it. Safe if it is there and belongs to the caller.
    drop_function: unsafe fn(NonNull<Header<W>>),
    /// Gives the place back. Safe if this handle is the last thing that knows of the post, and its
    /// contents were taken out.
    give_back: unsafe fn(NonNull<Header<W>>),
}

// SAFETY: the function and its value go from thread to thread by move, under the protocol of the
// state. `Unsent` asks for `F: Send` and `R: Send`. All else is atomics and locks.
unsafe impl<R, W: World> Send for Posted<R, W> {}
// SAFETY: as for `Send`. `&Posted` gives no access to the function or the value.
unsafe impl<R, W: World> Sync for Posted<R, W> {}

/// A post that was not sent. It is either [sent](Unsent::sent) or [taken back](Unsent::take_back).
#[must_use]
pub(super) struct Unsent<C, F, R, W: World> {
    post: NonNull<Post<C, W>>,
    types: PhantomData<(F, R)>,
}

/// A letter with this function.
pub(super) fn letter<F, R, W>(function: F) -> Unsent<Either<F, PanicResult<R>>, F, R, W>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
    W: World,
{
    let post = Box::new(Post::new_in(Post::<Either<F, PanicResult<R>>, W>::run::<F, R>));
    // SAFETY: no other thread knows it, and a function fits.
    unsafe { post.put(function) };
    // SAFETY: a box is not null. It has the function.
    unsafe { Unsent::new(NonNull::new_unchecked(Box::into_raw(post))) }
}

impl<C: Place, F: FnOnce() -> R + Send + 'static, R: Send + 'static, W: World> Unsent<C, F, R, W> {
    /// # Safety
    ///
    /// The post belongs to the caller, and no other thread has its address. It is `WAITING`, has an
    /// `F`, and has room for the value.
    #[inline]
    pub(super) unsafe fn new(post: NonNull<Post<C, W>>) -> Self {
        Unsent { post, types: PhantomData }
    }

    /// The message to send.
    #[inline]
    pub(super) fn as_message(&self) -> NonNull<Header<W>> {
        self.post.cast()
    }

    /// The function, which could not be sent.
    ///
    /// # Safety
    ///
    /// The message was not sent.
    pub(super) unsafe fn take_back(self) -> F {
        // SAFETY: this is the only one that knows the post, which has the function.
        let function = unsafe { self.post.as_ref().take() };
        // SAFETY: as for the function.
        unsafe { C::give_back(self.post) };
        function
    }

    /// The reply's end.
    ///
    /// # Safety
    ///
    /// The message was sent, or is sent next. A parcel stays at least as long as the handle.
    #[inline]
    pub(super) unsafe fn sent(self) -> Posted<R, W> {
        /// # Safety
        ///
        /// As for `Posted::take`; the post is a `Post<C, W>`.
        unsafe fn take<C: Place, R, W: World>(header: NonNull<Header<W>>) -> PanicResult<R> {
            let post = header.cast::<Post<C, W>>();
            // SAFETY: by the contract.
            let value = unsafe { post.as_ref().take() };
            // SAFETY: by the contract.
            unsafe { C::give_back(post) };
            value
        }
        /// # Safety
        ///
        /// As for `Posted::drop_function`; the post is a `Post<C, W>` with an `F`.
        unsafe fn drop_function<C, F, W: World>(header: NonNull<Header<W>>) {
            // SAFETY: by the contract.
            drop(unsafe { header.cast::<Post<C, W>>().as_ref().take::<F>() });
        }
        /// # Safety
        ///
        /// As for `Posted::give_back`; the post is a `Post<C, W>`.
        unsafe fn give_back<C: Place, W: World>(header: NonNull<Header<W>>) {
            // SAFETY: by the contract.
            unsafe { C::give_back(header.cast::<Post<C, W>>()) };
        }
        // SAFETY: the place stays until the reply gives it back, or has left.
        let side = NonNull::from_ref(unsafe { &self.post.as_ref().side });
        Posted {
            header: self.post.cast(),
            side,
            take: take::<C, R, W>,
            drop_function: drop_function::<C, F, W>,
            give_back: give_back::<C, W>,
        }
    }
}

impl<R, W: World> Posted<R, W> {
    fn state(&self) -> &W::U32 {
        // SAFETY: the worker gives the post back only after the reply has withdrawn or left, which
        // ends this handle.
        unsafe { &(*self.header.as_ptr()).state }
    }

    fn side(&self) -> &TicketLock<Side, W> {
        // SAFETY: the worker gives the post back only after the reply has withdrawn or left, which
        // ends this handle.
        unsafe { self.side.as_ref() }
    }

    /// Whether the value is there.
    pub(super) fn is_done(&self) -> bool {
        // Acquire: pairs with the Release of the worker at the end.
        Header::<W>::says_done(self.state().load(Ordering::Acquire))
    }

    /// Waits awake for this long if that may help; returns whether the value came. `runner`: the
    /// CPU of the worker that runs it, if that is known.
    #[inline]
    pub(super) fn wait_awake(&self, span: Duration, runner: Option<CpuId>) -> bool {
        // Acquire, in `poll`: pairs with the Release of the worker at the end.
        poll::<W, _>(self.state(), span, runner, Header::<W>::says_done).is_some()
    }

    /// The value, which [is there](Posted::is_done).
    #[inline]
    pub(super) fn take(self) -> PanicResult<R> {
        // Acquire: pairs with the Release of the worker at the end.
        let state = self.state().load(Ordering::Acquire);
        assert!(Header::<W>::says_done(state), "a reply's value is taken when it is there");
        if state & Header::<W>::ASIDE != 0 {
            // The worker has freed the lock, and so knows the post no more: see `end_aside`.
            drop(self.side().lock());
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is there, and the worker has made its last step.
        unsafe { (this.take)(this.header) }
    }

    /// Has the worker take the lock of `side` from here on; returns the state before. The caller
    /// holds this lock. A function that is done stays so, without the mark.
    fn mark(&self) -> u32 {
        // Acquire: pairs with the Release of the worker at the end.
        let mut state = self.state().load(Ordering::Acquire);
        while !Header::<W>::says_done(state) && state & Header::<W>::ASIDE == 0 {
            let marked = state | Header::<W>::ASIDE;
            // Relaxed: the lock brings what the reply leaves. Acquire: as for the load.
            match self.state().compare_exchange(state, marked, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => break,
                Err(found) => state = found,
            }
        }
        state & !Header::<W>::ASIDE
    }

    /// Whether the value is there. If not, the worker will wake the waker.
    pub(super) fn poll(&self, waker: &Waker) -> bool {
        // Made and dropped by what is none of ours: not under the lock.
        let mut new = None;
        loop {
            if self.is_done() {
                return true;
            }
            let mut side = self.side().lock();
            if Header::<W>::says_done(self.mark()) {
                return true;
            }
            if side.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
                return false;
            }
            if new.is_some() {
                let old = core::mem::replace(&mut side.waker, new);
                drop(side);
                drop(old);
                return false;
            }
            drop(side);
            new = Some(waker.clone());
        }
    }

    /// Withdraws the function, if it has not begun.
    pub(super) fn withdraw(self) -> Result<(), Self> {
        /// Lets the worker give the place back, or does so. Also after a panic of a destructor.
        struct Withdraws<'a, R, W: World>(&'a Posted<R, W>);
        impl<R, W: World> Drop for Withdraws<'_, R, W> {
            fn drop(&mut self) {
                let Withdraws(posted) = self;
                let mut side = posted.side().lock();
                let is_skipped = side.rest == Rest::Skipped;
                side.rest = if is_skipped { Rest::Stays } else { Rest::Withdrawn };
                drop(side);
                if is_skipped {
                    // SAFETY: the worker has made its last step, and the function was taken out.
                    unsafe { (posted.give_back)(posted.header) };
                }
            }
        }

        let mut side = self.side().lock();
        if self.mark() != Header::<W>::WAITING {
            drop(side);
            return Err(self);
        }
        side.rest = Rest::Withdraws;
        let waker = side.waker.take();
        drop(side);
        let this = ManuallyDrop::new(self);
        let _withdraws = Withdraws(&this);
        // The function and the waker may have destructors of others: not under the lock.
        drop(waker);
        // SAFETY: the worker does not claim a function that is withdrawn, so it is this handle's.
        unsafe { (this.drop_function)(this.header) };
        Ok(())
    }
}

impl<R, W: World> Drop for Posted<R, W> {
    fn drop(&mut self) {
        let mut side = self.side().lock();
        if Header::<W>::says_done(self.mark()) {
            // The worker has freed the lock, if it took it, and so knows the post no more.
            drop(side);
            // SAFETY: the value is there, and the worker has made its last step.
            drop(unsafe { (self.take)(self.header) });
            return;
        }
        side.rest = Rest::Left;
        let waker = side.waker.take();
        drop(side);
        // From here on the post may be gone.
        drop(waker);
    }
}

#[cfg(test)]
mod tests;
