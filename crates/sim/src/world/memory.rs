//! Memory of the simulated machine.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc;

use coreline_topology::NodeId;
use coreline_world::{Lacking, MapError, Memory, Why};

use crate::Sim;
use crate::engine::{self, inside};

/// Bytes of a page.
const PAGE: usize = 4096;

impl Memory for Sim {
    /// The memory comes from the machine's arena, like everything that simulated code allocates.
    fn map(layout: Layout) -> Result<NonNull<u8>, MapError> {
        let fail = |why| MapError {
            layout,
            why: Why::new(why),
            remedy: "give the machine fewer CPUs, or ask for less",
        };
        if layout.size() == 0 {
            return Err(fail("there is no such range"));
        }
        // SAFETY: the layout has a size.
        let at = unsafe { alloc::alloc_zeroed(layout) };
        NonNull::new(at).ok_or_else(|| fail("the host has no memory left"))
    }

    fn map_copy_on_write(layout: Layout) -> Result<NonNull<u8>, MapError> {
        if !layout.size().is_multiple_of(PAGE) || !layout.align().is_multiple_of(PAGE) {
            let remedy = "ask for whole pages of 4096 bytes, aligned to pages";
            return Err(MapError {
                layout,
                why: Why::new("the request is not for whole pages"),
                remedy,
            });
        }
        let at = Self::map(layout)?;
        engine::copy_on_write(at.addr().get(), layout.size(), true);
        Ok(at)
    }

    unsafe fn unmap(at: NonNull<u8>, layout: Layout) {
        engine::set_home(at.addr().get(), layout.size(), None);
        engine::copy_on_write(at.addr().get(), layout.size(), false);
        // SAFETY: the caller's promise: allocated by `map`, with this layout.
        unsafe { alloc::dealloc(at.as_ptr(), layout) };
    }

    /// Lines that were not touched yet come from the node's memory; others stay where they are.
    unsafe fn place(at: NonNull<u8>, len: usize, node: NodeId) -> Result<(), Lacking> {
        if inside(|engine| engine.topology().nodes().any(|known| known == node)) {
            engine::set_home(at.addr().get(), len, Some(node));
            return Ok(());
        }
        Err(Lacking {
            world: "sim",
            capability: "placement of memory on a node",
            why: Why::new("the machine has no").node(node),
            remedy: "choose one of `Place::topology().nodes()`",
        })
    }

    unsafe fn advise_huge(_: NonNull<u8>, _: usize) -> Result<(), Lacking> {
        Err(Lacking {
            world: "sim",
            capability: "huge pages",
            why: Why::new("the simulator models no pages"),
            remedy: "use normal pages",
        })
    }
}
