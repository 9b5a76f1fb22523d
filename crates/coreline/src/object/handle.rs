//! [`Object`]: a handle to a live object.

use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::ops::{Deref, DerefMut};
use core::panic::{RefUnwindSafe, UnwindSafe};
use core::ptr::NonNull;

use coreline_world::{Native, Ordering, Word, World};

use super::cache::{Body, GetError, Held, ObjectCache};
use super::leaf;

/// A handle to a live object. Dropping it returns the object to its [`ObjectCache`], still
/// constructed.
///
/// The handle dereferences to the constructed part. [`life`](Object::life) returns the data of this
/// life.
///
/// An object that is passed to `mem::forget` is never destroyed.
pub struct Object<'c, T: Send + 'static, L: Send + 'static = (), W: World = Native> {
    cache: &'c ObjectCache<T, L, W>,
    body: NonNull<Body<T, L, W>>,
    /// It owns both.
    _owned: PhantomData<(T, L)>,
}

// As a box of both.
impl<T, L, W: World> UnwindSafe for Object<'_, T, L, W>
where
    T: Send + UnwindSafe,
    L: Send + UnwindSafe,
{
}
impl<T, L, W: World> RefUnwindSafe for Object<'_, T, L, W>
where
    T: Send + RefUnwindSafe,
    L: Send + RefUnwindSafe,
{
}

// SAFETY: a handle owns its object, which goes with it: `T` and `L` are `Send`. Caches are shared.
unsafe impl<T: Send, L: Send, W: World> Send for Object<'_, T, L, W> {}
// SAFETY: a shared handle gives out shared references to both.
unsafe impl<T: Send + Sync, L: Send + Sync, W: World> Sync for Object<'_, T, L, W> {}

impl<'c, T: Send + 'static, L: Send + 'static, W: World> Object<'c, T, L, W> {
    /// # Safety
    ///
    /// The body is of this cache, is the caller's alone, and has a life.
    #[inline]
    pub(super) unsafe fn new(
        cache: &'c ObjectCache<T, L, W>,
        body: NonNull<Body<T, L, W>>,
    ) -> Self {
        Object { cache, body, _owned: PhantomData }
    }

    /// Returns the data of this life.
    pub fn life(&self) -> &L {
        // SAFETY: the body is this handle's, and has a life.
        unsafe { (*self.body.as_ptr()).life.assume_init_ref() }
    }

    /// Returns a mutable reference to the data of this life.
    pub fn life_mut(&mut self) -> &mut L {
        self.parts_mut().1
    }

    /// Returns mutable references to the constructed part and to the data of this life.
    pub fn parts_mut(&mut self) -> (&mut T, &mut L) {
        let body = self.body.as_ptr();
        // SAFETY: the body is this handle's, except for the count, and has a life.
        unsafe { (&mut (*body).kept, (*body).life.assume_init_mut()) }
    }

    /// Destroys the object instead of returning it to the cache. Use it for an object that its
    /// holder knows to be broken, such as a connection after an error.
    /// [`check`](super::Builder::check) is not called, and the object does not count as failed.
    ///
    /// ```
    /// use coreline::object::{GetError, ObjectCache};
    ///
    /// let buffers = ObjectCache::<Vec<u8>>::builder("buffers")
    ///     .build(|| Ok::<_, GetError>(Vec::with_capacity(4096)))?;
    /// let mut buffer = buffers.get()?;
    /// buffer.resize(1 << 20, 0);
    /// buffer.discard(); // grown too large to be kept
    /// let stats = buffers.stats();
    /// assert_eq!((stats.idle, stats.discarded, stats.destroyed), (0, 1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if dropping the life panics, or if the destructor panics. Even then, the object is
    /// destroyed. In builds with debug assertions, the call also panics in the destructor of an
    /// object.
    pub fn discard(self) {
        let object = ManuallyDrop::new(self);
        // SAFETY: the body is this handle's, and has a life; the handle is not used any more.
        unsafe { object.cache.end_and_discard(object.body) };
    }

    /// Converts the handle into a pointer, for [`from_raw`](ObjectCache::from_raw). The object is
    /// not moved.
    pub fn into_raw(self) -> NonNull<T> {
        // It is what a body begins with.
        ManuallyDrop::new(self).body.cast()
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> ObjectCache<T, L, W> {
    /// Gets an object whose life has default data.
    ///
    /// # Errors
    ///
    /// [`GetError`] if no object is idle and none can be constructed, or if the budget is full.
    #[inline(always)]
    pub fn get(&self) -> Result<Object<'_, T, L, W>, GetError>
    where
        L: Default,
    {
        self.get_with(L::default)
    }

    /// Gets an object, and calls `life` for the data of its life. `life` is called only after an
    /// object was found.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get`](ObjectCache::get). `life` was not called.
    #[inline(always)]
    pub fn get_with(&self, life: impl FnOnce() -> L) -> Result<Object<'_, T, L, W>, GetError> {
        leaf::no_cache_in_a_destructor::<W>(self.name());
        let body = self.take()?;
        // SAFETY: the body is this thread's alone, and has no life before.
        Ok(unsafe {
            self.begin(body, life);
            Object::new(self, body)
        })
    }

    /// Begins a life of a body that was taken.
    ///
    /// # Safety
    ///
    /// The body is of this cache, is the caller's alone, is charged, and has no life.
    #[inline(always)]
    pub(super) unsafe fn begin(&self, body: Held<T, L, W>, life: impl FnOnce() -> L) {
        let taken = Taken { cache: self, body };
        let life = life();
        mem::forget(taken);
        // SAFETY: the body is this thread's alone, except for the count, and has no life; then it
        // has one.
        unsafe {
            (*body.as_ptr()).life.write(life);
            let lives = &(*body.as_ptr()).lives;
            // Relaxed, both: written by the holder alone, and read for `stats`.
            lives.store(lives.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Gets an object with a copy of the data of the life of `other`. The constructed part is not
    /// copied.
    ///
    /// # Errors
    ///
    /// The same errors as for [`get`](ObjectCache::get).
    pub fn get_copy_of(&self, other: &Object<'_, T, L, W>) -> Result<Object<'_, T, L, W>, GetError>
    where
        L: Clone,
    {
        self.get_with(|| other.life().clone())
    }

    /// Converts a pointer from [`into_raw`](Object::into_raw) back into a handle.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Object::into_raw) of an object of this cache, and is
    /// converted back only once.
    pub unsafe fn from_raw(&self, object: NonNull<T>) -> Object<'_, T, L, W> {
        // SAFETY: the caller's promise: what a body begins with. Objects have a life when they are
        // made pointers.
        unsafe { Object::new(self, object.cast()) }
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> Deref for Object<'_, T, L, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the body is this handle's.
        unsafe { &(*self.body.as_ptr()).kept }
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> DerefMut for Object<'_, T, L, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the body is this handle's.
        unsafe { &mut (*self.body.as_ptr()).kept }
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> AsRef<T> for Object<'_, T, L, W> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> AsMut<T> for Object<'_, T, L, W> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: Send + 'static, L: Send + 'static, W: World> Drop for Object<'_, T, L, W> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the body is this handle's, and has a life; the handle is not used any more.
        unsafe { self.cache.put(self.body) };
    }
}

impl<T: Send + fmt::Debug + 'static, L: Send + fmt::Debug + 'static, W: World> fmt::Debug
    for Object<'_, T, L, W>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("kept", &**self).field("life", self.life()).finish()
    }
}

/// An object that was taken and charged, and has no life yet: goes back if `life` panics.
struct Taken<'a, T: Send + 'static, L: Send + 'static, W: World> {
    cache: &'a ObjectCache<T, L, W>,
    body: Held<T, L, W>,
}

impl<T: Send + 'static, L: Send + 'static, W: World> Drop for Taken<'_, T, L, W> {
    fn drop(&mut self) {
        self.cache.uncharge();
        self.cache.push(self.body);
    }
}
