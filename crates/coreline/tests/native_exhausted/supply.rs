//! The memory of the calling thread: what it has, and which of its requests fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};
use std::ptr;

/// Which requests count, and may fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// Those of the native world: `mmap`.
    Mappings,
    /// Those of the global allocator, too.
    All,
}

struct Supply {
    counts: Cell<Option<Requests>>,
    made: Cell<u64>,
    /// The number of the request that fails.
    fails: Cell<u64>,
    allocated: Cell<i64>,
    mapped: Cell<i64>,
}

thread_local! {
    static SUPPLY: Supply = const {
        Supply {
            counts: Cell::new(None),
            made: Cell::new(0),
            fails: Cell::new(0),
            allocated: Cell::new(0),
            mapped: Cell::new(0),
        }
    };
}

/// From here on, the request of this number fails.
pub(crate) fn fail(requests: Requests, number: u64) {
    SUPPLY.with(|supply| {
        supply.made.set(0);
        supply.fails.set(number);
        supply.counts.set(Some(requests));
    });
}

/// From here on, no request fails; returns how many were made.
pub(crate) fn restore() -> u64 {
    SUPPLY.with(|supply| {
        supply.counts.set(None);
        supply.made.get()
    })
}

/// The bytes in use: from the global allocator, and mapped.
pub(crate) fn bytes() -> [i64; 2] {
    SUPPLY.with(|supply| [supply.allocated.get(), supply.mapped.get()])
}

impl Supply {
    /// Whether a request is to be fulfilled.
    fn has(&self, is_mapping: bool) -> bool {
        match self.counts.get() {
            None => return true,
            Some(Requests::Mappings) if !is_mapping => return true,
            Some(_) => {}
        }
        self.made.set(self.made.get() + 1);
        self.made.get() != self.fails.get()
    }
}

fn add(bytes: &Cell<i64>, more: i64) {
    bytes.set(bytes.get() + more);
}

struct Counting;

// SAFETY: the system's allocator does the work, or nothing is allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        SUPPLY.with(|supply| {
            if !supply.has(false) {
                return ptr::null_mut();
            }
            add(&supply.allocated, layout.size() as i64);
            // SAFETY: the caller promises a layout with a size.
            unsafe { System.alloc(layout) }
        })
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        SUPPLY.with(|supply| add(&supply.allocated, -(layout.size() as i64)));
        // SAFETY: `alloc` had the memory from the same allocator, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// In place of the C library's, for the native world, which calls it by this name. C libraries and
/// std do not, for their own memory.
///
/// # Safety
///
/// As for the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    SUPPLY.with(|supply| {
        if !supply.has(true) {
            // SAFETY: the word is the thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            return libc::MAP_FAILED;
        }
        // SAFETY: the caller's promise. Arguments are whole registers.
        let [access, flags, file] = [access, flags, file].map(c_long::from);
        let call = libc::SYS_mmap;
        // SAFETY: the caller's promise.
        let mapped = unsafe { libc::syscall(call, at, len, access, flags, file, offset) };
        if mapped != -1 {
            add(&supply.mapped, len as i64);
        }
        ptr::with_exposed_provenance_mut(mapped as usize)
    })
}

/// In place of the C library's: see [`mmap`].
///
/// # Safety
///
/// As for the system call.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    let unmapped = unsafe { libc::syscall(libc::SYS_munmap, at, len) };
    if unmapped == 0 {
        SUPPLY.with(|supply| add(&supply.mapped, -(len as i64)));
    }
    unmapped as c_int
}
