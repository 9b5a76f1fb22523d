//! [`OwnedObject`]: an object that lives, and keeps its cache.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use coreline_world::{Native, World};

use super::cache::{GetError, ObjectCache};
use super::handle::Object;

/// An [`Object`] that keeps its cache instead of borrowing it: for tasks, threads that are not
/// scoped, and structures without a lifetime. It goes back when it drops, still constructed.
///
/// The last of the handles and other owners to drop drops the cache with all its objects, in its
/// thread: destructors run there, which may take leaf locks only.
///
/// ```
/// use std::sync::Arc;
/// use std::thread;
///
/// use coreline::object::{GetError, ObjectCache};
///
/// let buffers = ObjectCache::<Vec<u8>>::builder("buffers")
///     .build(|| Ok::<_, GetError>(Vec::with_capacity(4096)))?;
/// let buffers = Arc::new(buffers);
/// let mut buffer = buffers.get_owned()?;
/// let written = thread::spawn(move || {
///     buffer.extend(b"hello");
///     buffer.len()
/// });
/// assert_eq!(written.join().unwrap(), 5);
/// assert_eq!(buffers.stats().idle, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It costs an atomic addition and a subtraction on the count of owners, which all CPUs share:
/// where many threads get and give back, [`get`](ObjectCache::get) is faster.
///
/// One that is forgotten keeps its cache for good.
pub struct OwnedObject<T: Send + 'static, L: Send + 'static = (), W: World = Native> {
    /// Borrows what `cache` keeps, and is dropped before it: fields drop in this order.
    object: Object<'static, T, L, W>,
    cache: Arc<ObjectCache<T, L, W>>,
}

impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// An object that keeps the cache, with a life of its own.
    ///
    /// # Errors
    ///
    /// As [`get`](ObjectCache::get).
    pub fn get_owned(self: &Arc<Self>) -> Result<OwnedObject<T, L, W>, GetError>
    where
        L: Default,
    {
        self.get_owned_with(L::default)
    }

    /// An object that keeps the cache, with what `life` returns. That is called once there is an
    /// object.
    ///
    /// # Errors
    ///
    /// As [`get`](ObjectCache::get); `life` was not called.
    pub fn get_owned_with(
        self: &Arc<Self>,
        life: impl FnOnce() -> L,
    ) -> Result<OwnedObject<T, L, W>, GetError> {
        // SAFETY: the cache stays where it is as long as it has an owner, which the handle is, and
        // drops after the reference. The reference leaves the handle for no longer than that.
        let cache: &'static Self = unsafe { &*Arc::as_ptr(self) };
        Ok(OwnedObject { object: cache.get_with(life)?, cache: Arc::clone(self) })
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> OwnedObject<T, L, W> {
    /// The cache that the object is of.
    pub fn cache(&self) -> &Arc<ObjectCache<T, L, W>> {
        &self.cache
    }

    /// What this life has.
    pub fn life(&self) -> &L {
        self.object.life()
    }

    /// What this life has, to change.
    pub fn life_mut(&mut self) -> &mut L {
        self.object.life_mut()
    }

    /// What is constructed, and what this life has.
    pub fn parts_mut(&mut self) -> (&mut T, &mut L) {
        self.object.parts_mut()
    }

    /// Destroys the object: see [`Object::discard`].
    ///
    /// # Panics
    ///
    /// As [`Object::discard`].
    pub fn discard(self) {
        let OwnedObject { object, cache } = self;
        // The cache drops at the end, also if this panics.
        object.discard();
        drop(cache);
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> Deref for OwnedObject<T, L, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> DerefMut for OwnedObject<T, L, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.object
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> AsRef<T> for OwnedObject<T, L, W> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> AsMut<T> for OwnedObject<T, L, W> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: Send + fmt::Debug + 'static, L: Send + fmt::Debug + 'static, W: World> fmt::Debug
    for OwnedObject<T, L, W>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedObject").field("kept", &**self).field("life", self.life()).finish()
    }
}
