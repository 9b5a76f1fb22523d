//! Whether standard output was closed when the process began.

use core::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks whether standard output is open, for [`output_was_closed`]. std puts `/dev/null` in its
/// place before `main`, so this has to run earlier: as an entry of the program's `.init_array`.
pub extern "C" fn note_closed_output() {
    // SAFETY: asks for the flags of a descriptor, open or not.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    // Relaxed: there is no other thread yet, and the flag is all that is told.
    CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Whether standard output was closed when [`note_closed_output`] ran; `false` if it never did.
/// What is written there is lost, and std says nothing of it.
pub fn output_was_closed() -> bool {
    // Relaxed: pairs with the store in `note_closed_output`.
    CLOSED.load(Ordering::Relaxed)
}
