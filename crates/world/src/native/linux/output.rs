//! Whether standard output could be written when the process began.

use core::sync::atomic::{AtomicBool, Ordering};

static UNWRITABLE: AtomicBool = AtomicBool::new(false);

/// Looks whether standard output can be written, for [`output_was_unwritable`]. std puts
/// `/dev/null` where it is closed, before `main`, and takes the failure to write to one that was
/// opened for reading for success; so this has to run earlier: as an entry of the program's
/// `.init_array`.
pub extern "C" fn note_output() {
    // SAFETY: asks for the flags of a descriptor, open or not.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFL) };
    let only_reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let unwritable = flags == -1 || only_reads || flags & libc::O_PATH != 0;
    // Relaxed: there is no other thread yet, and the flag is all that is told.
    UNWRITABLE.store(unwritable, Ordering::Relaxed);
}

/// Whether standard output could not be written when [`note_output`] ran; `false` if it never did.
/// What is written there is lost, and std says nothing of it.
pub fn output_was_unwritable() -> bool {
    // Relaxed: pairs with the store in `note_output`.
    UNWRITABLE.load(Ordering::Relaxed)
}
