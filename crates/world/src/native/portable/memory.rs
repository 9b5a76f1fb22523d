//! Memory: std's system allocator, and not the program's own, which may itself be made with
//! coreline.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use std::alloc::System;

use coreline_topology::NodeId;

use crate::native::Native;
use crate::{Lacking, MapError, Memory, Why};

/// The alignment that the allocator provides without extra work. If a larger alignment is asked
/// for, the allocator writes the zeros itself, and so touches all of the memory.
const ALIGN: usize = 16;

// Where an allocation begins is written in front of what was asked for.
const _: () = assert!(size_of::<*mut u8>() <= ALIGN);

/// An allocation with an aligned range of this layout inside, behind [`ALIGN`] bytes. `None` if
/// that is more than can be.
fn around(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(layout.align().max(ALIGN))?;
    Layout::from_size_align(size, ALIGN).ok()
}

impl Memory for Native {
    fn map(layout: Layout) -> Result<NonNull<u8>, MapError> {
        let fail = |why| MapError { layout, why: Why::new(why), remedy: "ask for less" };
        let whole = around(layout).filter(|_| layout.size() > 0);
        let whole = whole.ok_or_else(|| fail("there is no such range"))?;
        // SAFETY: the layout has a size.
        let begin = NonNull::new(unsafe { System.alloc_zeroed(whole) });
        let begin = begin.ok_or_else(|| fail("the system has none left"))?;
        let align = layout.align().max(ALIGN);
        // The next multiple, which is `ALIGN` at least and `align` at most behind the beginning.
        let before = align - begin.addr().get() % align;
        // SAFETY: `around` has `align` bytes more than the range, which begins at a multiple of
        // `ALIGN` behind that many bytes. So there is room for an aligned pointer in front of it.
        unsafe {
            let at = begin.byte_add(before);
            at.cast::<NonNull<u8>>().sub(1).write(begin);
            Ok(at)
        }
    }

    unsafe fn unmap(at: NonNull<u8>, layout: Layout) {
        if let Some(whole) = around(layout) {
            // SAFETY: it came from `map` with this layout, as the caller promises, and `map` wrote
            // in front of it where the allocation of that layout begins.
            unsafe {
                let begin = at.cast::<NonNull<u8>>().sub(1).read();
                System.dealloc(begin.as_ptr(), whole);
            }
        }
    }

    unsafe fn place(_: NonNull<u8>, _: usize, _: NodeId) -> Result<(), Lacking> {
        Err(super::lacking("placement of memory on a node", super::ON_LINUX))
    }

    unsafe fn advise_huge(_: NonNull<u8>, _: usize) -> Result<(), Lacking> {
        Err(super::lacking("huge pages", super::ON_LINUX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_goes_back() {
        for align in [1, ALIGN, 4096, 1 << 16] {
            for size in [1, 100, 5000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let all = [(); 4].map(|()| Native::map(layout).unwrap());
                for at in all {
                    assert_eq!(at.addr().get() % align, 0);
                    // SAFETY: mapped above.
                    let bytes = unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), size) };
                    assert!(bytes.iter().all(|byte| *byte == 0));
                    bytes.fill(7);
                }
                // SAFETY: mapped above, and given back once.
                all.into_iter().for_each(|at| unsafe { Native::unmap(at, layout) });
            }
        }
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        for (size, align) in [(isize::MAX as usize - (2 << 20), 2 << 20), (0, 1)] {
            let layout = Layout::from_size_align(size, align).unwrap();
            let error = Native::map(layout).unwrap_err();
            assert!(error.to_string().contains("cannot map"), "{error}");
        }
    }
}
