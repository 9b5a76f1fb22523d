//! Memory and signals of the model: the host's allocator, and no signals.

use core::alloc::Layout;
use core::num::NonZeroU32;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::alloc;

use coreline_topology::NodeId;

use super::Model;
use crate::{Lacking, MapError, Memory, Ordering, Signals, Why, World};

impl Memory for Model {
    fn map(layout: Layout) -> Result<NonNull<u8>, MapError> {
        let fail = |why| MapError { layout, why: Why::new(why), remedy: "ask for less" };
        if layout.size() == 0 {
            return Err(fail("there is no such range"));
        }
        // SAFETY: the layout has a size.
        let at = unsafe { alloc::alloc_zeroed(layout) };
        NonNull::new(at).ok_or_else(|| fail("the host has no memory left"))
    }

    unsafe fn unmap(at: NonNull<u8>, layout: Layout) {
        // SAFETY: `map` allocated it with this layout, as the caller promises.
        unsafe { alloc::dealloc(at.as_ptr(), layout) };
    }

    unsafe fn place(_: NonNull<u8>, _: usize, _: NodeId) -> Result<(), Lacking> {
        Err(lacking("placement of memory on a node"))
    }

    unsafe fn advise_huge(_: NonNull<u8>, _: usize) -> Result<(), Lacking> {
        Err(lacking("huge pages"))
    }
}

fn lacking(capability: &'static str) -> Lacking {
    Lacking {
        world: <Model as World>::NAME,
        capability,
        why: Why::new("memory has no location in the model"),
        remedy: "go on without, or use another world",
    }
}

loom::thread_local! {
    /// The calling thread's number.
    static ID: NonZeroU32 = next_id();
}

/// Numbers tell threads apart and do nothing else, so it does not matter that they go on from one
/// execution to the next.
fn next_id() -> NonZeroU32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Relaxed: each addition yields another number.
    NonZeroU32::new(LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)).unwrap_or(NonZeroU32::MIN)
}

impl Signals for Model {
    type Held = ();

    fn hold() {}

    fn generation() -> NonZeroU32 {
        NonZeroU32::MIN
    }

    fn thread_id() -> NonZeroU32 {
        ID.with(|id| *id)
    }

    fn is_unwinding() -> bool {
        std::thread::panicking()
    }
}
