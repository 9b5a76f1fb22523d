//! Ranges of memory that no cache can hold, or that no thread has touched.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline_topology::NodeId;
use coreline_world::{MapError, Memory, Native};

/// Lines of a machine: 64 bytes, or one half of 128.
const LINE: usize = 64;

/// The bytes that are touched for the first time.
const SMALL: usize = 32 << 20;

/// The largest page that is usual: each touch is of another one.
const PAGE: usize = 64 << 10;

/// A mapping of its own.
pub(super) struct Lines {
    at: NonNull<u8>,
    layout: Layout,
    /// The line that was looked at last.
    last: AtomicU64,
}

// SAFETY: the mapping belongs to the value, and after it was touched it is read only.
unsafe impl Send for Lines {}
// SAFETY: as for `Send`; `touch` writes zeros where zeros are, with atomic stores.
unsafe impl Sync for Lines {}

impl Lines {
    fn map(
        bytes: usize,
        map: impl Fn(Layout) -> Result<NonNull<u8>, MapError>,
    ) -> Result<Lines, &'static str> {
        let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| "no such range")?;
        let at = map(layout).map_err(|_| "no address space is left for it")?;
        Ok(Lines { at, layout, last: AtomicU64::new(0) })
    }

    /// Memory on huge pages if the machine has any, on a node if it is given, and touched.
    pub(super) fn new(bytes: usize, node: Option<NodeId>) -> Result<Lines, &'static str> {
        let lines = Lines::map(bytes, Native::map)?;
        // SAFETY: the whole of a mapping that lives. What is lacking makes the figure less exact:
        // without huge pages, it includes misses of the TLB.
        let _ = unsafe { Native::advise_huge(lines.at, bytes) };
        if let Some(node) = node {
            // SAFETY: as before.
            let _ = unsafe { Native::place(lines.at, bytes, node) };
        }
        lines.touch();
        Ok(lines)
    }

    /// Memory that no thread has touched.
    pub(super) fn untouched() -> Result<Lines, &'static str> {
        Lines::map(SMALL, Native::map)
    }

    /// Memory that was only read. [`touch`](Lines::touch) writes this many pages of it.
    pub(super) fn copied(pages: usize) -> Result<Lines, &'static str> {
        Lines::map(pages * PAGE, Native::map_copy_on_write)
    }

    /// How many pages [`touch`](Lines::touch) writes to.
    pub(super) fn touches(&self) -> usize {
        self.layout.size() / PAGE
    }

    pub(super) fn touch(&self) {
        for page in 0..self.touches() {
            // Relaxed: zero where zero is.
            self.word(page * PAGE).store(0, Ordering::Relaxed);
        }
    }

    /// Looks at lines in an order that no prefetcher follows, each once before any comes again.
    /// The target of a load depends on the previous load.
    pub(super) fn chase(&self, hops: u32) {
        let lines = (self.layout.size() / LINE) as u64;
        // Relaxed: one thread at a time.
        let mut line = self.last.load(Ordering::Relaxed);
        for _ in 0..hops {
            let zero = self.word(line as usize * LINE).load(Ordering::Relaxed);
            // A generator of full period: the modulus is a power of two, the factor is 1 modulo 4,
            // and the summand odd (Hull and Dobell, 1962).
            line = (line.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3_037_000_493)
                + zero)
                % lines;
        }
        self.last.store(line, Ordering::Relaxed);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + size_of::<AtomicU64>() <= self.layout.size());
        // SAFETY: `chase` and `touch` stay within the mapping, which lives as long as `self`, is
        // zeroed, and is aligned to pages; offsets are multiples of a line.
        unsafe { self.at.byte_add(offset).cast().as_ref() }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: it came from `map` with this layout, and no reference to it is left.
        unsafe { Native::unmap(self.at, self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_visited_before_any_comes_again() {
        let lines = Lines::untouched().unwrap();
        let count = SMALL / LINE;
        let mut seen = vec![false; count];
        for _ in 0..count {
            lines.chase(1);
            // Relaxed: this thread alone.
            let line = lines.last.load(Ordering::Relaxed) as usize;
            assert!(!std::mem::replace(&mut seen[line], true), "{line}");
        }
    }
}
