//! A small call, which lies next to the wake word of its worker.
//!
//! A request on its caller's stack is a line of its own, which follows the message to the worker. A
//! function of a few words goes there with the message itself, and its value comes back the same
//! way: the line moves back and forth, as in a ping-pong.
//!
//! There is one parcel for each worker. Its state is `FREE`, or that of a request. The caller that
//! found it free has it until it, or its reply, has taken the value out. Other callers leave their
//! requests on their stacks meanwhile, or in letters on the heap. A reply that a program forgets
//! keeps the parcel for good, which costs only speed.

use core::marker::PhantomData;
use core::mem::{align_of, offset_of, size_of};
use core::panic::AssertUnwindSafe;
use core::ptr::NonNull;
use std::panic::catch_unwind;

use coreline_world::{Native, Ordering, Word, World};

use super::post::{Place, Post, Unsent};
use super::request::{Caller, Header, PanicResult};

/// First the function, and then its value.
pub(super) type Small = [usize; 3];

/// Where a small call lies.
pub(super) type Parcel<W> = Post<Small, W>;

/// What lies on the worker's line; what a reply leaves is behind that.
pub(super) const LENGTH: usize = offset_of!(Parcel<Native>, side);

/// Whether it fits into a parcel.
const fn fits<T>() -> bool {
    size_of::<T>() <= size_of::<Small>() && align_of::<T>() <= align_of::<Small>()
}

impl Place for Small {
    unsafe fn give_back<W: World>(post: NonNull<Post<Self, W>>) {
        // Release: pairs with the Acquire in `claim`: the next caller's function comes after what
        // was read here.
        // SAFETY: a parcel is there as long as its worker, which the caller keeps.
        unsafe { post.as_ref() }.header.state.store(Header::<W>::FREE, Ordering::Release);
    }
}

impl<W: World> Parcel<W> {
    pub(super) fn new_free() -> Self {
        let parcel = Post::new_in(Self::run_awaited::<fn(), ()>);
        // Relaxed: the worker is not there yet.
        parcel.header.state.store(Header::<W>::FREE, Ordering::Relaxed);
        parcel
    }

    /// Takes the parcel, if the function and its value are small and no other call lies here.
    #[inline]
    fn claim<F, R>(&self) -> bool {
        let (free, waiting) = (Header::<W>::FREE, Header::<W>::WAITING);
        // Acquire: pairs with the Release in `give_back`: the caller before has read its value.
        // Relaxed: another call lies here, which is all that matters.
        (const { fits::<F>() && fits::<PanicResult<R>>() })
            && self
                .header
                .state
                .compare_exchange(free, waiting, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Packs a function whose caller waits for its value. The caller must send it next.
    #[inline]
    pub(super) fn pack<F, R>(&self, function: F, caller: Caller) -> Result<Packed<'_, F, R, W>, F>
    where
        F: FnOnce() -> R + Send,
        R: Send,
    {
        if !self.claim::<F, R>() {
            return Err(function);
        }
        self.header.address(Self::run_awaited::<F, R>, caller);
        // SAFETY: this thread has taken the parcel. The function fits.
        unsafe { self.put(function) };
        Ok(Packed { parcel: self, types: PhantomData })
    }

    /// Packs a function for whose value a reply waits. The caller must send it next.
    #[inline]
    pub(super) fn post<F, R>(&self, function: F) -> Result<Unsent<Small, F, R, W>, F>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        if !self.claim::<F, R>() {
            return Err(function);
        }
        self.header.address(Self::run::<F, R>, Caller::OUTSIDE);
        // SAFETY: this thread has taken the parcel. The function fits.
        unsafe { self.put(function) };
        // SAFETY: this thread has taken the parcel, which has the function, and the value fits.
        Ok(unsafe { Unsent::new(NonNull::from_ref(self)) })
    }

    /// # Safety
    ///
    /// As for [`Header::run`]; the header is that of a parcel into which an `F` was packed.
    unsafe fn run_awaited<F: FnOnce() -> R, R>(header: NonNull<Header<W>>) -> bool {
        // SAFETY: by the contract; the pointer was made from a whole parcel, by `as_message`.
        let this = unsafe { header.cast::<Self>().as_ref() };
        // SAFETY: until `finish` the worker alone touches the contents: the function, which is
        // taken out once, as a call is run once.
        let value = catch_unwind(AssertUnwindSafe(unsafe { this.take::<F>() }));
        // SAFETY: as for the function. `claim` has made sure that the value fits.
        unsafe { this.put::<PanicResult<R>>(value) };
        true
    }
}

/// A parcel with the call of a caller. The caller either [takes the function back](Packed::unpack),
/// or sends it, waits and takes [the value](Packed::into_value).
pub(super) struct Packed<'a, F, R, W: World> {
    parcel: &'a Parcel<W>,
    types: PhantomData<(F, R)>,
}

impl<F, R, W: World> Packed<'_, F, R, W> {
    pub(super) fn header(&self) -> &Header<W> {
        &self.parcel.header
    }

    /// The request to send.
    pub(super) fn as_message(&self) -> NonNull<Header<W>> {
        NonNull::from_ref(self.parcel).cast()
    }

    /// The function of a call that was not sent.
    ///
    /// # Safety
    ///
    /// It must not have been sent.
    #[cold]
    pub(super) unsafe fn unpack(self) -> F {
        // SAFETY: the parcel is this caller's, and holds the function that was packed.
        unsafe { self.free::<F>() }
    }

    /// The value of the function.
    ///
    /// # Safety
    ///
    /// It must have been sent, and be [done](Header::is_done).
    pub(super) unsafe fn into_value(self) -> PanicResult<R> {
        // SAFETY: the parcel is this caller's again since the call is done, and holds the value.
        unsafe { self.free::<PanicResult<R>>() }
    }

    /// Takes out what is in the parcel, and leaves the parcel to others.
    ///
    /// # Safety
    ///
    /// The parcel is the caller's, and holds a `T`.
    unsafe fn free<T>(self) -> T {
        // SAFETY: by the contract. It is read once, as the parcel is left to others after that.
        let contents = unsafe { self.parcel.take() };
        // SAFETY: by the contract; the parcel is borrowed.
        unsafe { Small::give_back(NonNull::from_ref(self.parcel)) };
        contents
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_world::model::{Checker, Model, Plant};
    use coreline_world::{JoinHandle, Placement, Testbed};

    use super::*;

    /// Two callers of a worker each take its part, too: no order comes from its wake word.
    fn two_callers<W: Testbed>() {
        let parcel = Arc::new(Parcel::<W>::new_free());
        let call = |parcel: &Parcel<W>, number: u32| match parcel.pack(|| number, Caller::OUTSIDE) {
            Ok(packed) => {
                if number == 1 {
                    // SAFETY: it was not sent.
                    assert_eq!(unsafe { packed.unpack() }(), 1);
                } else {
                    // SAFETY: no other thread runs it.
                    unsafe { Header::run(packed.as_message()) };
                    // SAFETY: it was run.
                    assert_eq!(unsafe { packed.into_value() }.unwrap(), number);
                }
            }
            Err(function) => assert_eq!(function(), number),
        };
        let theirs = Arc::clone(&parcel);
        let other = W::spawn(Placement::Anywhere, move || call(&theirs, 1)).unwrap();
        call(&parcel, 2);
        other.join();
        let packed = parcel.pack(|| 3, Caller::OUTSIDE);
        assert!(packed.is_ok(), "it was left to others");
    }

    #[test]
    fn callers_follow_each_other_in_every_interleaving() {
        Checker::new().plant(Plant::EXCHANGES).check(two_callers::<Model>);
    }

    fn found(plant: Plant) -> String {
        let checker = Checker::new().plant(plant);
        checker.try_check(two_callers::<Model>).unwrap_err().to_string()
    }

    #[test]
    fn a_missing_order_is_caught() {
        let claims = Plant { rmw: Plant::RELAXED_RMWS.rmw, ..Plant::EXCHANGES };
        // Of the word that leaves the parcel.
        let leaves = Plant { store: Plant::RELAXED_STORES.store, ..Plant::EXCHANGES };
        for planted in [claims, leaves].map(found) {
            assert!(planted.contains("Causality violation"), "{planted}");
        }
    }
}
