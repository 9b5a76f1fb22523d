//! The locks of `coreline`.

use coreline::lock::{Order, Osq, RawTicketLock};
use coreline_world::Testbed;

use super::Lock;

impl<O: Order, W: Testbed> Lock<W> for Osq<O, W> {
    fn new_in(_: &[u32]) -> Self {
        Osq::new_in()
    }

    fn hold(&self, _: usize, turn: impl FnOnce()) {
        let _turn = self.lock();
        turn();
    }
}

impl<W: Testbed> Lock<W> for RawTicketLock<W> {
    fn new_in(_: &[u32]) -> Self {
        RawTicketLock::new_in()
    }

    fn hold(&self, _: usize, turn: impl FnOnce()) {
        self.lock();
        turn();
        // SAFETY: taken above, and given back once.
        unsafe { self.unlock() };
    }
}
