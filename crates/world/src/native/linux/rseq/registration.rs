//! Registering threads with the kernel.
//!
//! # Where the C library does it
//!
//! The C library publishes the distance of a thread's area from its thread pointer, and the size in
//! use.
//!
//! # Where we do it
//!
//! A thread registers its [own area](Area::own) when it first needs an index, with a length of 32
//! bytes: the legacy ABI, in which a kernel of any version aborts a section at every preemption.
//!
//! * **It asks once.** A refusal, or the end of the thread, is a
//!   [mark](crate::native::linux::marks), not an ID field.
//! * **A signal handler may come anywhere.** If it registers the thread first, the kernel answers
//!   `EBUSY`, and the thread is registered.
//! * **The thread unregisters before its memory goes.** musl unmaps a detached thread's stack, with
//!   the area on it, while the thread still runs. If the thread were preempted then, the kernel
//!   could not write its IDs, and would kill the process. So a destructor of a thread-specific key
//!   unregisters the thread, in the last round of destructors that POSIX has. Destructors that run
//!   later find no index and use the shared slot. A thread whose first operation is in such a
//!   destructor stays registered to its end. Do not let detached threads of musl do that.
//! * **A fork** copies the registration, the area and the marks. **exec** drops all three.
//!
//! Source: `rseq(2)` and `kernel/rseq.c` of Linux; `pthread_key_create(3p)`.

use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::io;

use crate::arch::{Area, SIGNATURE};
use crate::native::host::keeping_errno;
use crate::native::linux::marks;

/// The rseq areas that the C library publishes for its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The offset of a thread's area from its thread pointer, in bytes.
    pub offset: isize,
    /// `__rseq_size`: the number of bytes in use according to the C library. Zero if it registered
    /// no area.
    pub size: u32,
}

/// The registration that the C library publishes; `None` if the C library does not know rseq.
///
/// Only the first call asks the dynamic linker, and waits for a thread that loads a library.
pub(crate) fn published() -> Option<Registration> {
    static OFFSET: Symbol = Symbol::new(c"__rseq_offset");
    static SIZE: Symbol = Symbol::new(c"__rseq_size");
    let offset = OFFSET.find()?.cast::<isize>();
    let size = SIZE.find()?.cast::<u32>();
    // SAFETY: these are glibc's names for constants of these types, set before any code of ours
    // runs.
    Some(unsafe { Registration { offset: *offset, size: *size } })
}

/// A symbol of the C library, which is never unloaded.
struct Symbol {
    name: &'static CStr,
    /// Null: not looked up. `ABSENT`: there is none.
    at: AtomicPtr<c_void>,
}

const ABSENT: *mut c_void = ptr::without_provenance_mut(1);

impl Symbol {
    const fn new(name: &'static CStr) -> Self {
        Symbol { name, at: AtomicPtr::new(ptr::null_mut()) }
    }

    fn find(&self) -> Option<*const c_void> {
        // Relaxed, here and below: the address of a constant. Threads that look it up at the same
        // time find the same.
        let mut at = self.at.load(Ordering::Relaxed);
        if at.is_null() {
            // SAFETY: the name is a C string, and the default scope needs no open handle.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, self.name.as_ptr()) };
            at = if found.is_null() { ABSENT } else { found };
            // Relaxed: as above.
            self.at.store(at, Ordering::Relaxed);
        }
        (at != ABSENT).then_some(at.cast_const())
    }
}

/// The area that the C library registers for each thread.
pub(super) fn published_area() -> Option<Area> {
    // Areas are aligned to 32 bytes, and so are thread pointers where the C library has areas. One
    // that lies otherwise is as good as none: the kernel refuses us another, and says so.
    let usable = |area: &Registration| area.size > 0 && area.offset % 32 == 0;
    let registration = published().filter(usable)?;
    // SAFETY: the C library published this offset as that of the area which it owns in every
    // thread's control block. It registers at least the 32 bytes of the first `struct rseq`, under
    // the one signature that each processor has.
    Some(unsafe { Area::at(registration.offset) })
}

/// The length of our own area: that of the legacy ABI.
pub(super) const LENGTH: u32 = 32;
const UNREGISTER: u32 = 1;

/// How many bytes of this area are registered for the calling thread, if one of these lengths is
/// it. `None` also if the thread is not registered, or if a filter answers in the kernel's place.
///
/// The kernel refuses a second registration, by an error that says whether the area and its length
/// are those of the first. A thread without one would be registered by the question, so it is not
/// asked: its CPU is negative.
pub(super) fn registered_bytes(area: Area, lengths: &[u32]) -> Option<u32> {
    let is_it = |length: &u32| keeping_errno(|| call(area, *length, 0)) == Err(libc::EBUSY);
    let is_registered = area.cpu_id().cast_signed() >= 0;
    lengths.iter().copied().find(|length| is_registered && is_it(length))
}

/// Asks the kernel to register the calling thread's own area.
pub(crate) fn register() -> Result<(), i32> {
    match call(Area::own(), LENGTH, 0) {
        // Registered already, this very area: by a signal handler, or by another copy of this
        // crate. (Any other area of this thread is `EINVAL`.)
        Err(libc::EBUSY) => Ok(()),
        result => result,
    }
}

/// Asks the kernel to forget the calling thread's own area.
pub(crate) fn unregister() -> Result<(), i32> {
    call(Area::own(), LENGTH, UNREGISTER)
}

/// Our own area has [`LENGTH`] bytes. The kernel is only asked about the C library's: that is
/// registered already, or the call is not made.
fn call(area: Area, length: u32, flags: u32) -> Result<(), i32> {
    // SAFETY: the area is the calling thread's for its whole life, at least 32 bytes, aligned to
    // 32. The kernel alone writes its ID fields.
    let result = unsafe { libc::syscall(libc::SYS_rseq, area.address(), length, flags, SIGNATURE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

/// The key whose destructor unregisters a thread. Set by [`prepare_own`], before the choice is
/// published.
static KEY: AtomicU32 = AtomicU32::new(0);

/// How often the destructor is called before it is the last round.
///
/// `PTHREAD_DESTRUCTOR_ITERATIONS`, of POSIX, glibc and musl alike, less one.
const ROUNDS: usize = 3;

/// Below this number glibc has room for a thread's value; above it may allocate, which is nothing
/// to do in a signal handler. (`PTHREAD_KEY_2NDLEVEL_SIZE`; musl always has room.)
const KEYS: u32 = if cfg!(target_env = "musl") { u32::MAX } else { 32 };

/// The preparation that is needed once before threads register.
pub(super) fn prepare_own() -> Result<(), i32> {
    let mut key = 0;
    // SAFETY: the destructor is a function that may be called with any value.
    match unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) } {
        0 if key < KEYS => {
            // Relaxed: the choice is published after this, by a release.
            KEY.store(key, Ordering::Relaxed);
            Ok(())
        }
        0 => {
            // SAFETY: the key was just made, and no thread has a value.
            unsafe { libc::pthread_key_delete(key) };
            Err(libc::EAGAIN)
        }
        error => Err(error),
    }
}

/// Registers the calling thread's own area, unless that was refused before or the thread is ending.
pub(super) fn register_own() {
    let has_index = || Area::own().cpu_id().cast_signed() >= 0;
    if marks::get() & marks::REFUSED != 0 || has_index() {
        return;
    }
    // The destructor first: a registered thread must be unregistered. The kernel writes the IDs of
    // a thread as it registers it; a filter that answers in its place does not.
    if !keeping_errno(|| set_round(1) && register().is_ok() && has_index()) {
        set_round(0);
        marks::set(marks::REFUSED);
    }
}

fn set_round(round: usize) -> bool {
    // Relaxed: see `prepare_own`. A thread that comes here has seen the choice.
    let key = KEY.load(Ordering::Relaxed);
    // SAFETY: the key was made by `prepare_own`, and is never deleted.
    unsafe { libc::pthread_setspecific(key, core::ptr::without_provenance(round)) == 0 }
}

/// The destructor: has itself called again until the last round, and unregisters then.
unsafe extern "C" fn leave(round: *mut c_void) {
    let round = round.addr();
    if round <= ROUNDS && set_round(round + 1) {
        return;
    }
    // Before the thread is unregistered: from here on nothing registers it again.
    marks::set(marks::REFUSED);
    // An error means that the kernel, or a filter, does not let go; nothing can be done then.
    let _ = unregister();
}
