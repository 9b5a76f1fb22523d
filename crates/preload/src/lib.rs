//! `libcoreline_pthread.so`: a library to preload into programs that take readers-writer locks of
//! the C library. Their readers then count themselves on each CPU, if many meet.
//!
//! `docs/preload.md` says how to use it, what it changes, and what its limits are.
//!
//! | module | has |
//! |---|---|
//! | `memory` | this library's own allocator |
//! | `next` | the functions of the C library, for locks that are not ours |
//! | `clock` | clocks, and deadlines |
//! | `images` | which library or program has an address, and which symbol |
//! | `stats` | counts of lock calls, and the text of them at exit |
//! | `mode` | what calls have to do beside taking the lock |
//! | `lock` | a `pthread_rwlock_t` |
//! | `exports` | the functions that programs call |
#![cfg(all(target_os = "linux", target_env = "gnu"))]

/// Functions of this library that take the place of the C library's, only for this library.
macro_rules! hidden {
    ($($name:literal => $f:path),*) => {$(
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(
            concat!(".globl ", $name), concat!(".hidden ", $name), concat!($name, ": jmp {f}"),
            f = sym $f
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::global_asm!(
            concat!(".globl ", $name), concat!(".hidden ", $name), concat!($name, ": b {f}"),
            f = sym $f
        );
    )*};
}

mod clock;
mod exports;
mod images;
mod lock;
mod memory;
mod mode;
mod next;
mod stats;

use core::ffi::c_int;

use coreline_world::native::stay_mapped;
use coreline_world::{Native, Place};

#[global_allocator]
static ALLOCATOR: memory::Mapped = memory::Mapped::new();

/// Finds the functions of other libraries while the dynamic linker loads this one. Later it might
/// be busy: a constructor in `dlopen` may wait for a thread that takes its first lock.
#[used]
// SAFETY: the section holds pointers to functions that the dynamic linker calls; this one needs
// nothing that other libraries construct.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    next::find_all();
    clock::find();
    // Looks for the C library's registration of threads for rseq.
    let _ = Native::cpu();
    stay_mapped();
    stats::begin();
}

/// Ends the process with a message.
#[cold]
fn fatal(what: &str, more: &[&[u8]]) -> ! {
    let parts = [b"coreline_pthread: ", what.as_bytes()];
    for part in parts.into_iter().chain(more.iter().copied()).chain([&b"\n"[..]]) {
        // SAFETY: the part has this many bytes. There is no other place for the message.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

unsafe extern "C" {
    safe fn pthread_setcancelstate(state: c_int, before: Option<&mut c_int>) -> c_int;
}

/// Calls `f`, which calls cancellation points of the C library, while the thread cannot be
/// cancelled: lock calls are not cancellation points.
fn uncancelled(f: impl FnOnce()) {
    /// As in `pthread.h` of glibc.
    const DISABLE: c_int = 1;
    let mut before = 0;
    pthread_setcancelstate(DISABLE, Some(&mut before));
    f();
    pthread_setcancelstate(before, None);
}

/// Calls `f`, and leaves `errno` alone, as lock calls and `pthread_create` do.
fn keeping_errno<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: the word is the thread's own.
    let before = unsafe { *libc::__errno_location() };
    let result = f();
    // SAFETY: as before.
    unsafe { *libc::__errno_location() = before };
    result
}
