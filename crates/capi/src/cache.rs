//! Caches of objects that stay constructed.
//!
//! The cache of Rust keeps a [`Kept`] for each object, which has the address of a *block*: a header
//! and the memory of C's object. The header says whether the object is out of the cache, and leads
//! back to the `Kept`.

use core::ffi::{c_int, c_void};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use std::alloc::{self, Layout};
use std::error::Error;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use coreline::ObjectCache;
use coreline::object::GetError;

use crate::boundary::{boundary, returning};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, opaque};
use crate::with::with;

/// A cache of objects that stay constructed from one use to the next.
pub struct coreline_cache_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_cache_t, Cache, b"objcache");

/// The options of a cache. All members must be set. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coreline_cache_options_t {
    /// The size of an object in bytes. It must not be 0.
    pub size: usize,
    /// The alignment of an object in bytes, a power of two. 0 is that of `max_align_t`.
    pub alignment: usize,
    /// Constructs an object in memory of zeros, and returns 0. Otherwise the object is not
    /// constructed, and `coreline_cache_get` fails. Null constructs nothing.
    pub construct:
        Option<unsafe extern "C-unwind" fn(object: *mut c_void, context: *mut c_void) -> c_int>,
    /// Destroys an object. It may take only locks whose holders take no other lock, and call no
    /// function of a cache. Null destroys nothing.
    pub destroy: Option<unsafe extern "C-unwind" fn(object: *mut c_void, context: *mut c_void)>,
    /// The argument that both functions get. Several threads may call them at the same time.
    pub context: *mut c_void,
    /// The maximum number of idle objects. An object that is put back while this many are idle is
    /// destroyed. 0 means no limit.
    pub idle_limit: usize,
}

/// The cache, with what it must know of its objects.
pub(crate) struct Cache {
    objects: ObjectCache<Kept>,
    /// Each cache has its own number, which is in the headers of its objects.
    number: u64,
}

/// An object, as the cache has it: the address of the memory of C's object.
struct Kept(NonNull<c_void>);

// SAFETY: an address. The object goes from thread to thread, which the C program has agreed to.
unsafe impl Send for Kept {}

/// Before each object.
struct Header {
    /// [`OUT`], or another value.
    state: AtomicU64,
    /// The cache's number.
    cache: u64,
    /// The [`Kept`] of an object that is out. Another thread may put the object back by mistake
    /// while this is written.
    kept: AtomicPtr<Kept>,
}

/// The object is out of the cache.
const OUT: u64 = u64::from_ne_bytes(*b"obj.out.");
/// The object is in the cache.
const IN: u64 = u64::from_ne_bytes(*b"obj..in.");

/// The alignment of `max_align_t`.
const ALIGN: usize = 16;

/// The layout of blocks, and where the object begins.
#[derive(Clone, Copy)]
struct Block {
    layout: Layout,
    object: usize,
}

/// Why an object was not constructed.
#[derive(Debug, Clone, Copy)]
struct Failed(Code);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl Error for Failed {}

impl Block {
    fn of(options: &coreline_cache_options_t) -> Result<Self, Code> {
        let align = if options.alignment == 0 { ALIGN } else { options.alignment };
        let object = Layout::from_size_align(options.size, align);
        let object = object.ok().filter(|layout| layout.size() > 0);
        let object = object.ok_or(Code::CORELINE_ERROR_ARGUMENT)?;
        let (layout, object) =
            Layout::new::<Header>().extend(object).map_err(|_| Code::CORELINE_ERROR_ARGUMENT)?;
        Ok(Block { layout, object })
    }

    fn allocate(self, cache: u64) -> Option<NonNull<c_void>> {
        // SAFETY: the layout has the size of a header at least. The object begins in the block.
        unsafe {
            let block = NonNull::new(alloc::alloc_zeroed(self.layout))?;
            let object = block.add(self.object).cast();
            let (state, kept) = (AtomicU64::new(IN), AtomicPtr::new(ptr::null_mut()));
            header(object).write(Header { state, cache, kept });
            Some(object)
        }
    }

    /// # Safety
    ///
    /// The object is of a block of this layout, and is used no more.
    unsafe fn free(self, object: NonNull<c_void>) {
        // SAFETY: the caller's promise.
        unsafe { alloc::dealloc(object.cast::<u8>().sub(self.object).as_ptr(), self.layout) };
    }
}

/// The header of an object, which ends where the object begins. An object's offset in its block is
/// a multiple of 8, so the header is aligned.
fn header(object: NonNull<c_void>) -> NonNull<Header> {
    // Only an address: its users say why a header is there.
    NonNull::new(object.as_ptr().cast::<Header>().wrapping_sub(1)).unwrap_or(NonNull::dangling())
}

/// Takes an object that is out: from then on it is no other call's.
///
/// # Safety
///
/// The address is null, or not aligned, or that of an object which a cache once handed out and has
/// not destroyed.
unsafe fn come_back(cache: &Cache, object: *mut c_void) -> Result<NonNull<Kept>, Code> {
    let object = NonNull::new(object).ok_or(Code::CORELINE_ERROR_NULL)?;
    let header = header(object);
    if !header.is_aligned() {
        return Err(Code::CORELINE_ERROR_HANDLE);
    }
    // SAFETY: the object was handed out, so it has a header.
    let header = unsafe { header.as_ref() };
    // Acquire: pairs with the Release in `coreline_cache_get`, for a program that passes the object
    // to another thread by a relaxed access. Relaxed: without success nothing is read.
    let is_out = header.cache == cache.number
        && header.state.compare_exchange(OUT, IN, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if !is_out {
        return Err(Code::CORELINE_ERROR_HANDLE);
    }
    // Relaxed: the exchange has ordered it.
    NonNull::new(header.kept.load(Ordering::Relaxed)).ok_or(Code::CORELINE_ERROR_HANDLE)
}

/// Creates a cache, without objects.
///
/// `options` is copied. Every member of the structure must be set: begin with zeros. The functions
/// `construct` and `destroy` must return: they must not leave by `longjmp` or by an exception.
///
/// An object is constructed when a thread gets one while none is idle. It stays constructed when it
/// is put back, so the next thread that gets it need not construct it. If there is no memory for
/// the cache itself, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (the size is 0 or too large, or the
/// alignment is not a power of two), `CORELINE_ERROR_LACKING`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_cache_create(
    options: *const coreline_cache_options_t,
    out: *mut *mut coreline_cache_t,
) -> Code {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    with!([shared options, out out] {
        let block = Block::of(options)?;
        let coreline_cache_options_t { construct, destroy, context, idle_limit, .. } = *options;
        // An address, which may go to other threads: the C program has agreed to that.
        let context = context.expose_provenance();
        let context = move || ptr::with_exposed_provenance_mut::<c_void>(context);
        // Relaxed: each number is taken once.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mut builder = ObjectCache::<Kept>::builder("of a C program").destructor(
            move |Kept(object)| {
                // SAFETY: the options' promise, for an object that was constructed and that no
                // thread uses. It is of such a block.
                unsafe {
                    if let Some(destroy) = destroy {
                        returning(|| destroy(object.as_ptr(), context()));
                    }
                    block.free(object);
                }
            },
        );
        if idle_limit != 0 {
            builder = builder.idle_limit(idle_limit);
        }
        let objects = builder.build(move || {
            let none = Failed(Code::CORELINE_ERROR_NO_MEMORY);
            let object = block.allocate(number).ok_or(none)?;
            // SAFETY: the options' promise: the function constructs an object in such memory.
            let constructed =
                construct.map_or(0, |it| returning(|| unsafe { it(object.as_ptr(), context()) }));
            if constructed != 0 {
                // SAFETY: of this block, and not constructed.
                unsafe { block.free(object) };
                return Err(Failed(Code::CORELINE_ERROR_CONSTRUCTOR));
            }
            Ok(Kept(object))
        })?;
        create(Cache { objects, number }, out)
    })
}

/// Destroys a cache, with the objects that are idle.
///
/// All objects should have been put back before. Otherwise the call returns
/// `CORELINE_ERROR_FAULTS`, but still destroys the cache. The objects that are out keep their
/// memory, which is never freed, and cannot be put back.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_FAULTS`.
///
/// Threads: no other thread may use the cache during the call or after it. Signals: no signal
/// handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_cache_destroy(cache: *mut coreline_cache_t) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        let cache = unsafe { handle::take(cache) }?;
        cache.objects.close().map_err(|_| Code::CORELINE_ERROR_FAULTS)
    })
}

/// Gets an object from a cache.
///
/// The call writes the address of the object to `out`. The object is in the state in which it was
/// put back, or in which `construct` left it.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_CONSTRUCTOR`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has copies of all objects, and may continue to use the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_cache_get(
    cache: *const coreline_cache_t,
    out: *mut *mut c_void,
) -> Code {
    with!([handle cache, out out] {
        let kept = cache.objects.get().map_err(|error| match error {
            GetError::Constructor(why) => {
                why.downcast_ref::<Failed>().map_or(Code::CORELINE_ERROR_CONSTRUCTOR, |it| it.0)
            }
            GetError::Lacking(_) => Code::CORELINE_ERROR_LACKING,
            _ => Code::CORELINE_ERROR_NO_MEMORY,
        })?;
        let object = kept.0;
        let kept = kept.into_raw();
        // SAFETY: the object is this thread's, and has a header.
        let header = unsafe { header(object).as_ref() };
        // Relaxed: the next store orders it.
        header.kept.store(kept.as_ptr(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `come_back`.
        header.state.store(OUT, Ordering::Release);
        out.write(object.as_ptr());
    })
}

/// Puts an object back into its cache.
///
/// The object stays constructed. The caller leaves it in the state that the next holder expects.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE` (the cache is not a live handle, or the
/// object belongs to another cache, or was put back before and is still idle).
///
/// Threads: any number of threads may call it at the same time, even for objects that other threads
/// got. Signals: no signal handler may call it. Fork: a child may put back its copy of an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_cache_put(
    cache: *const coreline_cache_t,
    object: *mut c_void,
) -> Code {
    with!([handle cache] {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation. The object came
        // from `into_raw`, and `come_back` lets only one call have it.
        drop(unsafe { cache.objects.from_raw(come_back(cache, object)?) });
    })
}

/// Destroys an object instead of putting it back into its cache.
///
/// Use it for an object that its holder knows to be broken, such as a connection after an error.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE` (the cache is not a live handle, or the
/// object belongs to another cache, or was put back before and is still idle).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child may discard its copy of an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_cache_discard(
    cache: *const coreline_cache_t,
    object: *mut c_void,
) -> Code {
    with!([handle cache] {
        // SAFETY: as in `coreline_cache_put`.
        unsafe { cache.objects.from_raw(come_back(cache, object)?) }.discard();
    })
}

/// Destroys all objects of a cache that are idle.
///
/// The call writes their number to `out`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child may continue to use the cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_cache_shrink(
    cache: *const coreline_cache_t,
    out: *mut usize,
) -> Code {
    with!([handle cache, out out] { out.write(cache.objects.shrink()); })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header must end where the object begins, whatever the object's alignment is.
    #[test]
    fn a_header_is_just_before_its_object() {
        for align in [1, 2, 8, 16, 64, 4096] {
            let (construct, destroy, context) = (None, None, ptr::null_mut());
            let size = align;
            let options = coreline_cache_options_t {
                size,
                alignment: align,
                construct,
                destroy,
                context,
                idle_limit: 0,
            };
            let block = Block::of(&options).expect("a layout");
            let object = block.allocate(7).expect("memory");
            assert_eq!(object.addr().get() % align, 0);
            let begin = object.addr().get() - block.object;
            let header = header(object);
            assert!(header.is_aligned() && header.addr().get() >= begin, "{align}");
            // SAFETY: allocated above.
            unsafe {
                assert_eq!(header.as_ref().cache, 7);
                block.free(object);
            }
        }
    }
}
