//! The memory areas of all indexes, which are adjacent.

use core::alloc::Layout;
use core::hint::black_box;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use coreline_world::{Testbed, Track};

use crate::RunError;

/// Bytes of an area, all of which a burst increments. Whole pages.
pub(super) const AREA: usize = 16 << 10;

/// The areas, which lie on copy-on-write pages.
pub struct Areas<W: Testbed> {
    at: NonNull<u8>,
    layout: Layout,
    track: W::Track,
    /// Whether a thread is at the area, for each area. Words of the host, which cost nothing in a
    /// simulation; set before the time is taken.
    taken: Vec<AtomicBool>,
    /// Whether a thread found an area taken.
    has_met: AtomicBool,
}

// SAFETY: the mapping belongs to the value, and a thread accesses an area only while it has taken
// it.
unsafe impl<W: Testbed> Send for Areas<W> {}
// SAFETY: as for `Send`.
unsafe impl<W: Testbed> Sync for Areas<W> {}

impl<W: Testbed> Areas<W> {
    /// Creates this number of areas, which hold zeros.
    ///
    /// # Errors
    ///
    /// [`RunError::Lack`] if the world has no memory for the areas.
    pub fn new(areas: usize) -> Result<Self, RunError> {
        // A page of any machine.
        let layout = Layout::from_size_align(areas * AREA, 64 << 10)
            .map_err(|error| RunError::Lack(error.to_string()))?;
        let at = W::map_copy_on_write(layout).map_err(|error| RunError::Lack(error.to_string()))?;
        let taken = (0..areas).map(|_| AtomicBool::new(false)).collect();
        Ok(Areas { at, layout, track: W::Track::new_in(), taken, has_met: AtomicBool::new(false) })
    }

    /// Returns the start of an area.
    pub fn area(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.taken.len());
        // SAFETY: an area of the mapping.
        unsafe { self.at.byte_add(index * AREA) }
    }

    /// Calls `f` with a function that increments each byte of an area. Returns `None` if there is
    /// no such area, or if another thread is using it.
    pub fn take<R>(&self, index: usize, f: impl FnOnce(&dyn Fn()) -> R) -> Option<R> {
        let taken = self.taken.get(index)?;
        // Acquire: pairs with the Release below, of the thread that was at the area before.
        if taken.swap(true, Ordering::Acquire) {
            // Relaxed: read when all threads have ended.
            self.has_met.store(true, Ordering::Relaxed);
            return None;
        }
        let area = self.area(index);
        let result = f(&|| {
            let _writing = self.track.writing(area.as_ptr(), AREA);
            // SAFETY: in the mapping, which lives as long as `self` and holds initialised bytes;
            // this thread has taken the area.
            let bytes = unsafe { area.cast::<[u8; AREA]>().as_mut() };
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
            // The optimiser must take the bytes as read.
            black_box(bytes);
        });
        // Release: pairs with the Acquire above.
        taken.store(false, Ordering::Release);
        Some(result)
    }

    /// Checks that every byte position was incremented `passes` times, and that no two threads used
    /// an area at one time. Call `check` after all threads have ended.
    ///
    /// # Errors
    ///
    /// [`RunError::Check`], which says which of the two conditions does not hold.
    pub fn check(&self, passes: usize) -> Result<(), RunError> {
        // Relaxed: the threads were joined.
        if self.has_met.load(Ordering::Relaxed) {
            let lack = "two threads used one area at the same time, because their turns are too \
                        close together";
            return Err(RunError::Check(lack.to_owned()));
        }
        let mut sums = vec![0u8; AREA];
        for index in 0..self.taken.len() {
            let area = self.area(index);
            let _reading = self.track.reading(area.as_ptr(), AREA);
            // SAFETY: as in `take`; all writers have been joined.
            let bytes = unsafe { area.cast::<[u8; AREA]>().as_ref() };
            sums.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum = sum.wrapping_add(*byte));
        }
        let expected = passes as u8;
        let Some(position) = sums.iter().position(|&sum| sum != expected) else { return Ok(()) };
        let found = sums[position];
        Err(RunError::Check(format!(
            "byte {position} of the areas has {found} increments (mod 256) after {passes} passes, \
             not {expected}"
        )))
    }
}

impl<W: Testbed> Drop for Areas<W> {
    fn drop(&mut self) {
        // SAFETY: mapped with this layout, and no reference to it is left.
        unsafe { W::unmap(self.at, self.layout) };
    }
}
