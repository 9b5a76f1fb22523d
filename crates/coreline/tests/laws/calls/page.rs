//! What readers of a `Versioned` read in its laws.

use coreline_world::{Cell, Line, Testbed};

const ALIVE: u64 = 7;
const DEAD: u64 = 0xdead;

/// A value that is written when it dies, so that a late read of it is noticed. Its number is larger
/// than those of the values before it.
pub(crate) struct Page<W: Testbed>(Line<Cell<u64, W>>, u32);

impl<W: Testbed> Page<W> {
    pub(crate) fn new_in(number: u32) -> Self {
        Page(Line(Cell::new_in(ALIVE)), number)
    }

    /// Its number, if it is alive.
    pub(crate) fn look(&self) -> u32 {
        // SAFETY: a page that is read is not freed: that is what is tested.
        assert_eq!(self.0.with(|at| unsafe { at.read_volatile() }), ALIVE, "it was freed");
        self.1
    }
}

impl<W: Testbed> Drop for Page<W> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: no other thread has the page: that is what is tested.
            self.0.with_mut(|at| unsafe { at.write_volatile(DEAD) });
        }
    }
}
