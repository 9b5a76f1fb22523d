//! [`OwnedObject`]: a handle to a live object, which keeps the cache alive.

use core::fmt;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use coreline_world::{Native, World};

use super::cache::{GetError, ObjectCache};
use super::handle::Object;

/// An [`Object`] that keeps its cache alive instead of borrowing it. Use it for tasks, unscoped
/// threads, and structures without a lifetime. Dropping it returns the object, still constructed.
///
/// The thread that drops the last handle or other owner also drops the cache with all objects.
/// Destructors run in that thread, and may take only leaf locks.
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
/// Each handle costs an atomic addition and an atomic subtraction on the reference count, which all
/// CPUs share. If many threads get and return objects, [`get`](ObjectCache::get) is faster.
///
/// A handle that is passed to `mem::forget` keeps its cache alive forever.
pub struct OwnedObject<T: Send + 'static, L: Send + 'static = (), W: World = Native> {
    /// Borrows what `cache` keeps, and is dropped before it: fields drop in this order.
    object: Object<'static, T, L, W>,
    cache: Arc<ObjectCache<T, L, W>>,
}

impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// Gets an object whose life has default data. The handle keeps the cache alive.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get`](ObjectCache::get).
    pub fn get_owned(self: &Arc<Self>) -> Result<OwnedObject<T, L, W>, GetError>
    where
        L: Default,
    {
        self.get_owned_with(L::default)
    }

    /// Gets an object, and calls `life` for the data of its life. The handle keeps the cache alive.
    /// `life` is called only after an object was found.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get`](ObjectCache::get). `life` was not called.
    pub fn get_owned_with(
        self: &Arc<Self>,
        life: impl FnOnce() -> L,
    ) -> Result<OwnedObject<T, L, W>, GetError> {
        // SAFETY: the object is of this cache.
        Ok(unsafe { self.owned(self.get_with(life)?) })
    }

    /// Converts a handle that borrows this cache into one that keeps the cache alive.
    ///
    /// # Safety
    ///
    /// The object is of this cache.
    pub(super) unsafe fn owned<'c>(
        self: &'c Arc<Self>,
        object: Object<'c, T, L, W>,
    ) -> OwnedObject<T, L, W> {
        // SAFETY: the cache stays where it is as long as it has an owner, which the handle is, and
        // drops after the reference. The reference leaves the handle for no longer than that.
        let cache: &'static Self = unsafe { &*Arc::as_ptr(self) };
        // SAFETY: the caller's promise, and the pointer is used once.
        let object = unsafe { cache.from_raw(object.into_raw()) };
        OwnedObject { object, cache: Arc::clone(self) }
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> OwnedObject<T, L, W> {
    /// Returns the cache that the object belongs to.
    pub fn cache(&self) -> &Arc<ObjectCache<T, L, W>> {
        &self.cache
    }

    /// Returns the data of this life.
    pub fn life(&self) -> &L {
        self.object.life()
    }

    /// Returns a mutable reference to the data of this life.
    pub fn life_mut(&mut self) -> &mut L {
        self.object.life_mut()
    }

    /// Returns mutable references to the constructed part and to the data of this life.
    pub fn parts_mut(&mut self) -> (&mut T, &mut L) {
        self.object.parts_mut()
    }

    /// Destroys the object: see [`Object::discard`].
    ///
    /// # Panics
    ///
    /// The same panics as for [`Object::discard`].
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
