//! Reference-counted pointers.
//!
//! The pointers wrap std's own, including the words of the counts. Before std changes a count, the
//! machine charges for the count's line. The counts lie where std's layout puts them: two words at
//! the start of the block, then the value at its alignment.

use core::any::Any;
use core::borrow::Borrow;
use core::fmt;
use core::mem::{self, ManuallyDrop};
use core::ops::Deref;
use core::ptr;
use std::sync as host;

use coreline_world::Ordering;

use crate::engine::{self, races};
use crate::hardware::coherence::Access;

/// A reference-counted pointer like [`std::sync::Arc`], but its counts are charged. A clone or a
/// drop updates the count's line, which lies right before the value, so counting and reading the
/// value contend as they do in reality.
///
/// The shared value is in a std `Arc`. Convert the `Arc` with `From` and `Into`.
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: coreline_sim::Allocator = coreline_sim::Allocator;
/// use coreline_sim::sync::Arc;
/// use coreline_sim::{Machine, thread};
///
/// let run = Machine::preset("epyc-9654-2s")?.run(|| {
///     let name = Arc::new("shared".to_owned());
///     let threads: Vec<_> = (0..16)
///         .map(|_| {
///             let name = Arc::clone(&name);
///             thread::spawn(move || (0..1000).map(|_| Arc::clone(&name).len()).sum::<usize>())
///         })
///         .collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
/// })?;
/// assert_eq!(run.value, 16 * 1000 * 6);
/// assert!(run.report.transfers.same_node > 1000, "the count moved from CPU to CPU");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arc<T: ?Sized>(host::Arc<T>);

/// A weak pointer like [`std::sync::Weak`], but its counts are charged.
pub struct Weak<T: ?Sized>(host::Weak<T>);

/// The address of the strong count, from that of the value: two words before it, or its alignment
/// if that is more. The weak count is the next word.
fn strong(value: usize, align: usize) -> usize {
    value - align.max(2 * size_of::<usize>())
}

impl<T> Arc<T> {
    /// Creates an `Arc` that holds `value`.
    #[track_caller]
    pub fn new(value: T) -> Arc<T> {
        Arc(host::Arc::new(value))
    }

    /// Creates an `Arc` whose value may hold a [`Weak`] to itself. The `Weak` cannot be upgraded
    /// while `f` creates the value.
    pub fn new_cyclic(f: impl FnOnce(&Weak<T>) -> T) -> Arc<T> {
        let this = Arc(host::Arc::new_cyclic(|weak| f(&Weak(weak.clone()))));
        // A thread that upgrades the reference that `f` was given knows what `f` did.
        races::updated(this.counts(), Ordering::Release);
        this
    }

    /// Returns the value, if `this` is the only strong reference.
    ///
    /// # Errors
    ///
    /// Returns the reference, if there are other strong references.
    #[track_caller]
    pub fn try_unwrap(this: Arc<T>) -> Result<T, Arc<T>> {
        this.charge(Access::Update);
        this.synchronise();
        host::Arc::try_unwrap(this.into_std()).map_err(Arc)
    }

    /// Drops the reference. Returns the value if this was the last strong reference. If all
    /// references end by this function or by a drop, exactly one call returns the value or one drop
    /// frees it.
    #[track_caller]
    pub fn into_inner(this: Arc<T>) -> Option<T> {
        this.charge(Access::Update);
        this.synchronise();
        host::Arc::into_inner(this.into_std())
    }

    /// Returns the value, or a clone of it if there are other references.
    #[track_caller]
    pub fn unwrap_or_clone(this: Arc<T>) -> T
    where
        T: Clone,
    {
        Arc::try_unwrap(this).unwrap_or_else(|this| T::clone(&this))
    }
}

impl<T: ?Sized> Arc<T> {
    #[track_caller]
    fn charge(&self, access: Access) {
        engine::access(self.counts(), access);
    }

    /// The effects of other references are known here: this reference ends, or is the only one.
    fn synchronise(&self) {
        races::updated(self.counts(), Ordering::AcqRel);
    }

    /// The address of the counts.
    fn counts(&self) -> usize {
        strong((&raw const *self.0).addr(), align_of_val(&*self.0))
    }

    /// The std reference, with the count that this one had.
    pub(crate) fn into_std(self) -> host::Arc<T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and `ManuallyDrop` keeps the original from being dropped.
        unsafe { ptr::read(&raw const this.0) }
    }

    /// Converts the reference into a raw pointer, without dropping it.
    pub fn into_raw(this: Arc<T>) -> *const T {
        host::Arc::into_raw(this.into_std())
    }

    /// Converts a raw pointer from [`into_raw`](Arc::into_raw) back into a reference.
    ///
    /// # Safety
    ///
    /// The same conditions as for std's function. The pointer came from
    /// [`into_raw`](Arc::into_raw), and is converted back only once.
    pub unsafe fn from_raw(at: *const T) -> Arc<T> {
        // SAFETY: the caller promises that the pointer came from `into_raw`, and is used once.
        Arc(unsafe { host::Arc::from_raw(at) })
    }

    /// Adds a reference, which [`decrement_strong_count`](Arc::decrement_strong_count) or a pointer
    /// that is converted back ends.
    ///
    /// # Safety
    ///
    /// The pointer came from [`into_raw`](Arc::into_raw), and its reference exists during the call.
    #[track_caller]
    pub unsafe fn increment_strong_count(at: *const T) {
        // SAFETY: the caller's promise. The caller keeps this reference, so it is not dropped here.
        let this = ManuallyDrop::new(unsafe { Arc::from_raw(at) });
        mem::forget(Arc::clone(&this));
    }

    /// Drops a reference.
    ///
    /// # Safety
    ///
    /// The pointer came from [`into_raw`](Arc::into_raw), and its reference is not used after the
    /// call.
    #[track_caller]
    pub unsafe fn decrement_strong_count(at: *const T) {
        // SAFETY: the caller gives the reference away.
        drop(unsafe { Arc::from_raw(at) });
    }

    /// Returns the address of the value.
    pub fn as_ptr(this: &Arc<T>) -> *const T {
        host::Arc::as_ptr(&this.0)
    }

    /// Creates a weak reference, which does not keep the value alive.
    #[track_caller]
    pub fn downgrade(this: &Arc<T>) -> Weak<T> {
        this.charge(Access::Update);
        Weak(host::Arc::downgrade(&this.0))
    }

    /// Returns the number of strong references.
    #[track_caller]
    pub fn strong_count(this: &Arc<T>) -> usize {
        this.charge(Access::Load);
        host::Arc::strong_count(&this.0)
    }

    /// Returns the number of weak references.
    #[track_caller]
    pub fn weak_count(this: &Arc<T>) -> usize {
        this.charge(Access::Load);
        host::Arc::weak_count(&this.0)
    }

    /// Returns whether two references point to the same value.
    pub fn ptr_eq(this: &Arc<T>, other: &Arc<T>) -> bool {
        host::Arc::ptr_eq(&this.0, &other.0)
    }

    /// Returns a mutable reference to the value, if there is no other strong or weak reference.
    #[track_caller]
    pub fn get_mut(this: &mut Arc<T>) -> Option<&mut T> {
        this.charge(Access::Update);
        this.synchronise();
        host::Arc::get_mut(&mut this.0)
    }
}

impl Arc<dyn Any + Send + Sync> {
    /// Converts the reference to one of its value's type.
    ///
    /// # Errors
    ///
    /// Returns the reference if the value has another type.
    pub fn downcast<T: Any + Send + Sync>(self) -> Result<Arc<T>, Self> {
        self.into_std().downcast().map(Arc).map_err(Arc)
    }
}

impl<T: Clone> Arc<T> {
    /// Returns a mutable reference to the value. If there are other references, the value is first
    /// copied.
    #[track_caller]
    pub fn make_mut(this: &mut Arc<T>) -> &mut T {
        this.charge(Access::Update);
        this.synchronise();
        host::Arc::make_mut(&mut this.0)
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    #[track_caller]
    fn clone(&self) -> Self {
        self.charge(Access::Update);
        Arc(host::Arc::clone(&self.0))
    }
}

impl<T: ?Sized> Drop for Arc<T> {
    fn drop(&mut self) {
        self.charge(Access::Update);
        self.synchronise();
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    /// Not charged: what of the value is read, the type of the value charges for.
    #[track_caller]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Weak<T> {
    /// Creates a weak reference without a value.
    pub const fn new() -> Weak<T> {
        Weak(host::Weak::new())
    }
}

impl<T: ?Sized> Weak<T> {
    /// Charges for an access to the counts, if there are any: a reference to nothing has none.
    #[track_caller]
    fn charge(&self, access: Access) {
        let value = self.0.as_ptr().cast::<u8>().addr();
        // Of a value that is gone, the alignment is not to be asked for; its counts lie within the
        // two words before it, unless it was aligned to more than those.
        let align = self.0.upgrade().map_or(0, |value| align_of_val(&*value));
        if value != usize::MAX {
            engine::access(strong(value, align), access);
        }
    }

    /// Returns a strong reference, if the value is still alive.
    #[track_caller]
    pub fn upgrade(&self) -> Option<Arc<T>> {
        self.charge(Access::Update);
        let upgraded = self.0.upgrade().map(Arc);
        if let Some(this) = &upgraded {
            races::loaded(this.counts(), Ordering::Acquire);
        }
        upgraded
    }

    /// Returns the number of strong references.
    #[track_caller]
    pub fn strong_count(&self) -> usize {
        self.charge(Access::Load);
        self.0.strong_count()
    }

    /// Returns the number of weak references, or 0 if the value was dropped.
    #[track_caller]
    pub fn weak_count(&self) -> usize {
        self.charge(Access::Load);
        self.0.weak_count()
    }

    /// Returns the address of the value, which may be gone. The address of a reference without a
    /// value is meaningless.
    pub fn as_ptr(&self) -> *const T {
        self.0.as_ptr()
    }

    /// Converts the reference into a raw pointer, without dropping it.
    pub fn into_raw(self) -> *const T {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and `ManuallyDrop` keeps the original from being dropped.
        unsafe { ptr::read(&raw const this.0) }.into_raw()
    }

    /// Converts a raw pointer from [`into_raw`](Weak::into_raw) back into a reference.
    ///
    /// # Safety
    ///
    /// The pointer came from [`into_raw`](Weak::into_raw), and is converted back only once.
    pub unsafe fn from_raw(at: *const T) -> Weak<T> {
        // SAFETY: the caller promises that the pointer came from `into_raw`, and is used once.
        Weak(unsafe { host::Weak::from_raw(at) })
    }

    /// Returns whether two references point to the same value, or both have none.
    pub fn ptr_eq(&self, other: &Weak<T>) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl<T: ?Sized> Clone for Weak<T> {
    #[track_caller]
    fn clone(&self) -> Self {
        self.charge(Access::Update);
        Weak(self.0.clone())
    }
}

impl<T: ?Sized> Drop for Weak<T> {
    fn drop(&mut self) {
        self.charge(Access::Update);
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Weak::new()
    }
}

impl<T: ?Sized> fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(Weak)")
    }
}

/// From whatever std makes an `Arc` of: a value, a `Box`, a `Vec`, a `&str`, an `Arc`.
impl<T: ?Sized, S: Into<host::Arc<T>>> From<S> for Arc<T> {
    #[track_caller]
    fn from(source: S) -> Self {
        Arc(source.into())
    }
}

impl<T> FromIterator<T> for Arc<[T]> {
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Arc(items.into_iter().collect())
    }
}

impl<T: ?Sized> AsRef<T> for Arc<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

impl<T: ?Sized> Borrow<T> for Arc<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl<T: ?Sized> fmt::Pointer for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.0, f)
    }
}
