//! The memory of this library, for which it never asks the program's allocator.
//!
//! A lock call may allocate, and the program's allocator may take locks. So a lock call that used
//! this allocator would call itself. So this allocator maps pages, and keeps what is freed in a
//! list for each size.
//!
//! | word | meaning | written by |
//! |---|---|---|
//! | `holder` | the generation of the memory of the thread that allocates; 0: none | that thread |
//! | the lists | what was freed of each size | the holder |
//! | `used` | the bytes that callers have, of all sizes | those that allocate and free |
//! | `limit` | what `used` may become | `begin_limit`, `end_limit` |
//!
//! The holder's signals are blocked, so that no handler waits for the thread that it interrupted. A
//! child that was forked while another thread held the allocator finds a holder of another
//! generation, and takes it over. Each change of a list is one store, so the child finds it whole.
//! It may lose what the other thread was about to take or to give back.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use coreline_world::{Memory, Native, Signals, Threads};

// The functions by which this library maps memory, hidden from others. A library of the program
// may have these functions, too, and take a lock in them. It then would be called in a lock call,
// also in one that has its lock already.
hidden! { "mmap" => map, "mmap64" => map, "munmap" => unmap, "madvise" => advise }

extern "C" fn map(
    at: *mut c_void,
    len: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: as the function of this name, whose callers promise what it asks for.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, at, len, access, flags, file, offset) };
    // The address, or `MAP_FAILED`, which is -1.
    ptr::with_exposed_provenance_mut(mapped as usize)
}

extern "C" fn unmap(at: *mut c_void, len: usize) -> c_int {
    // SAFETY: as in `map`.
    unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int }
}

extern "C" fn advise(at: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: as in `map`.
    unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) as c_int }
}

/// The sizes are powers of two, from 16 bytes to half of this. A larger block has a mapping of its
/// own.
const CHUNK: usize = 64 << 10;
const LEAST: usize = 16;
const SIZES: usize = (CHUNK / 2 / LEAST).ilog2() as usize + 1;

/// The part of it that locks may have. A program may free the memory of locks without destroying
/// them, as `std::shared_mutex` of C++ does, and these keep what they had here. At the limit no
/// further lock gets per-CPU counts.
const OF_LOCKS: usize = 4 << 20;

/// The freed and the never used blocks of one size.
struct Size {
    first: *mut Free,
    /// The next object that was never used; at the end of a chunk, none.
    fresh: usize,
}

struct Free {
    next: *mut Free,
}

pub(crate) struct Mapped {
    holder: AtomicU32,
    used: AtomicUsize,
    limit: AtomicUsize,
    sizes: UnsafeCell<[Size; SIZES]>,
}

// SAFETY: only the holder uses the lists.
unsafe impl Sync for Mapped {}

/// The right to use the lists. The signals come back last.
struct Holder<'a> {
    of: &'a Mapped,
    _held: <Native as Signals>::Held,
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        self.of.holder.store(0, Ordering::Release);
    }
}

impl Mapped {
    pub(crate) const fn new() -> Self {
        Mapped {
            holder: AtomicU32::new(0),
            used: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            sizes: UnsafeCell::new([const { Size { first: ptr::null_mut(), fresh: 0 } }; SIZES]),
        }
    }

    /// From now on, what is asked for is for locks. The memory that all locks share exists already.
    pub(crate) fn begin_limit(&self) {
        let limit = self.used.load(Ordering::Relaxed) + OF_LOCKS;
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Called in a process that is about to end.
    pub(crate) fn end_limit(&self) {
        self.limit.store(usize::MAX, Ordering::Relaxed);
    }

    fn hold(&self) -> Holder<'_> {
        let held = Native::hold();
        let me = Native::generation().get();
        loop {
            let seen = self.holder.load(Ordering::Relaxed);
            let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
            if seen != me && self.holder.compare_exchange(seen, me, taken, failed).is_ok() {
                return Holder { of: self, _held: held };
            }
            Native::yield_now();
        }
    }
}

impl Holder<'_> {
    fn size(&mut self, at: usize) -> &mut Size {
        // SAFETY: there is one holder, which has one `&mut` of itself.
        unsafe { &mut (*self.of.sizes.get())[at] }
    }

    /// An object of this size; null if there is no memory.
    fn take(&mut self, at: usize) -> *mut u8 {
        let size = self.size(at);
        if !size.first.is_null() {
            let taken = size.first;
            // SAFETY: what is in a list was written by `put`, and no thread uses it.
            size.first = unsafe { (*taken).next };
            return taken.cast();
        }
        if size.fresh.is_multiple_of(CHUNK) {
            let layout = const { Layout::from_size_align(CHUNK, CHUNK) };
            let Ok(chunk) = Native::map(layout.expect("a power of two")) else {
                return ptr::null_mut();
            };
            size.fresh = chunk.expose_provenance().get();
        }
        let taken = ptr::with_exposed_provenance_mut(size.fresh);
        size.fresh += LEAST << at;
        taken
    }

    /// # Safety
    ///
    /// The object is of this size, and no thread uses it.
    unsafe fn put(&mut self, object: *mut u8, at: usize) {
        let size = self.size(at);
        let object = object.cast::<Free>();
        // SAFETY: the caller's promise; each object has room for an address, and its alignment.
        unsafe { object.write(Free { next: size.first }) };
        size.first = object;
    }
}

/// The number of the size for such a request; `None` if it is mapped alone.
fn size_of(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(LEAST);
    (bytes <= CHUNK / 2).then(|| (bytes.next_power_of_two() / LEAST).ilog2() as usize)
}

// SAFETY: an object is given to one caller, until the caller frees it. It lies in a chunk, at a
// multiple of its size, which is at least its alignment; or it has whole pages of its own.
unsafe impl GlobalAlloc for Mapped {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(at) = size_of(layout) else {
            return Native::map(layout).map_or(ptr::null_mut(), NonNull::as_ptr);
        };
        let bytes = LEAST << at;
        if self.used.load(Ordering::Relaxed) + bytes > self.limit.load(Ordering::Relaxed) {
            return ptr::null_mut();
        }
        let taken = self.hold().take(at);
        if !taken.is_null() {
            self.used.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        let Some(at) = size_of(layout) else {
            if let Some(object) = NonNull::new(object) {
                // SAFETY: mapped by `alloc`, with this layout.
                unsafe { Native::unmap(object, layout) };
            }
            return;
        };
        // SAFETY: given by `alloc`, of this size.
        unsafe { self.hold().put(object, at) };
        self.used.fetch_sub(LEAST << at, Ordering::Relaxed);
    }
}
