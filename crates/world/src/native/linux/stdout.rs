//! A check whether standard output was writable when the process began.

use core::sync::atomic::{AtomicBool, Ordering};

static UNWRITABLE: AtomicBool = AtomicBool::new(false);

/// Checks whether standard output is writable, for [`output_was_unwritable`]. If it is closed, std
/// opens `/dev/null` in its place before `main`. If it was opened for reading, std treats the
/// failed write as a success. So this function has to run earlier: as an entry of the program's
/// `.init_array`.
pub extern "C" fn note_output() {
    // SAFETY: asks for the flags of a descriptor, open or not.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFL) };
    let only_reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
    let unwritable = flags == -1 || only_reads || flags & libc::O_PATH != 0;
    // Relaxed: there is no other thread yet, and the flag is all that is told.
    UNWRITABLE.store(unwritable, Ordering::Relaxed);
}

/// Returns whether standard output was not writable when [`note_output`] ran, or `false` if it
/// never ran. In that case, output is lost, and std reports no error.
pub fn output_was_unwritable() -> bool {
    // Relaxed: pairs with the store in `note_output`.
    UNWRITABLE.load(Ordering::Relaxed)
}
