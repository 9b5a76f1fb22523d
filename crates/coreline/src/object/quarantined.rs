//! [`Quarantined`]: a rejected object that is kept for inspection.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use coreline_world::{Native, World};

use super::builder::AnyError;
use super::cache::{Body, ObjectCache};
use super::quarantine::Aside;
use crate::panics::Panics;

/// A rejected object that is kept for inspection. Dropping this value destroys the object. See
/// [`quarantine`](super::Builder::quarantine).
pub struct Quarantined<'c, T: Send + 'static, L: Send + 'static = (), W: World = Native> {
    cache: &'c ObjectCache<T, L, W>,
    body: NonNull<Body<T, L, W>>,
    /// Dropped as the object is, contained.
    why: ManuallyDrop<AnyError>,
}

impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// Returns the objects that were rejected since the last call and are not yet destroyed, the
    /// oldest first. The result is empty without a [quarantine](super::Builder::quarantine).
    pub fn quarantined(&self) -> Vec<Quarantined<'_, T, L, W>> {
        let quarantined =
            |Aside { body, why }| Quarantined { cache: self, body, why: ManuallyDrop::new(why) };
        self.quarantine.drain().map(quarantined).collect()
    }
}

// SAFETY: it owns its object, which goes with it: `T` is `Send`. Caches are shared.
unsafe impl<T: Send, L: Send, W: World> Send for Quarantined<'_, T, L, W> {}

impl<T: Send + 'static, L: Send + 'static, W: World> Quarantined<'_, T, L, W> {
    /// Returns the address of the object.
    pub fn address(&self) -> usize {
        self.body.addr().get()
    }

    /// Returns the reason for the rejection: the error of [`check`](super::Builder::check).
    pub fn why(&self) -> &AnyError {
        &self.why
    }

    /// Returns a mutable reference to the object, whose life has ended.
    pub fn kept(&mut self) -> &mut T {
        // SAFETY: the body is this one's.
        unsafe { &mut (*self.body.as_ptr()).kept }
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> Drop for Quarantined<'_, T, L, W> {
    fn drop(&mut self) {
        self.cache.quarantine.forget();
        let mut panics = Panics::NONE;
        panics.run(|| self.cache.unmake(self.body));
        // SAFETY: dropped here alone, and not used any more.
        panics.run(|| unsafe { ManuallyDrop::drop(&mut self.why) });
        panics.resume::<W>();
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> fmt::Display for Quarantined<'_, T, L, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, address) = (self.cache.name(), self.address());
        write!(f, "the object at {address:#x} of the cache {name} was rejected: {}", *self.why)
    }
}

impl_debug!([T: Send + 'static, L: Send + 'static, W: World] Quarantined<'_, T, L, W> as it {
    cache: it.cache.name(), address: it.address(), why: it.why, ..
});
