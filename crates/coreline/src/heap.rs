//! Memory of the global allocator for callers that return an error if there is none. `Box::new` and
//! `collect` end the process.

use core::alloc::Layout;
use core::mem::MaybeUninit;

use coreline_world::{MapError, Why};

/// A box for a value that is written later.
pub(crate) fn uninit<T>() -> Result<Box<MaybeUninit<T>>, MapError> {
    let one = slice([MaybeUninit::<T>::uninit()].into_iter())?;
    // SAFETY: from a box. A slice of one is laid out as what is in it.
    Ok(unsafe { Box::from_raw(Box::into_raw(one).cast()) })
}

/// A box of this value.
pub(crate) fn boxed<T>(value: T) -> Result<Box<T>, MapError> {
    Ok(Box::write(uninit()?, value))
}

/// A boxed slice of these items.
pub(crate) fn slice<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Box<[T]>, MapError> {
    let mut all = Vec::new();
    let (len, layout) = (items.len(), Layout::array::<T>(items.len()));
    all.try_reserve_exact(len).map_err(|_| none_left(layout.ok()))?;
    all.extend(items.take(len));
    Ok(all.into_boxed_slice())
}

/// `None` if this is more than any memory has.
pub(crate) fn none_left(layout: Option<Layout>) -> MapError {
    let most = || Layout::from_size_align(isize::MAX as usize, 1);
    MapError {
        layout: layout.or_else(|| most().ok()).unwrap_or(Layout::new::<()>()),
        why: Why::new("the allocator has none left"),
        remedy: "ask for less",
    }
}
