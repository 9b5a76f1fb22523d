//! Published values: readers enter and read a pointer, which updates replace.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use coreline::mask;
use coreline::world::Time;

use crate::boundary::{Outcome, boundary, returning};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, destroy, opaque};
use crate::inside::Owner;
use crate::with::with;

/// A pointer that is often read and seldom replaced.
///
/// A read takes a load and a compare, and writes no memory that other threads write. A pointer that
/// was replaced is destroyed when no reader can have it any more.
pub struct coreline_versioned_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_versioned_t, Versioned, b"versiond");

/// A reader of a published value, for one thread at a time.
pub struct coreline_reader_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_reader_t, Reader, b"-reader-");

/// A thread that destroys the values that updates of a published value have replaced.
pub struct coreline_reclaimer_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_reclaimer_t, mask::Reclaimer<Published>, b"reclaimr");

/// A function that destroys a value that no reader can have any more. It must return. An exception
/// that leaves it ends the process.
pub type coreline_destroy_f =
    Option<unsafe extern "C-unwind" fn(value: *mut c_void, context: *mut c_void)>;

/// A published value, with the function that destroys it.
pub(crate) struct Published {
    value: NonNull<c_void>,
    how: Destroy,
}

#[derive(Clone, Copy)]
struct Destroy {
    destroy: coreline_destroy_f,
    context: *mut c_void,
}

// SAFETY: addresses, which are given to functions of the C program: it has agreed that threads
// share the value, and that any thread may destroy it.
unsafe impl Send for Published {}
// SAFETY: the same.
unsafe impl Sync for Published {}
// SAFETY: the same.
unsafe impl Send for Destroy {}
// SAFETY: the same.
unsafe impl Sync for Destroy {}

impl Drop for Published {
    fn drop(&mut self) {
        if let Some(destroy) = self.how.destroy {
            let Published { value, how: Destroy { context, .. } } = self;
            // SAFETY: as the C program has promised; no thread has the value any more.
            returning(|| unsafe { destroy(value.as_ptr(), *context) });
        }
    }
}

pub(crate) struct Versioned {
    value: mask::Versioned<Published>,
    how: Destroy,
}

/// The value to publish at this address.
fn published(value: *mut c_void, how: Destroy) -> Result<Published, Code> {
    let value = NonNull::new(value).ok_or(Code::CORELINE_ERROR_NULL)?;
    Ok(Published { value, how })
}

/// A reader with its guards.
pub(crate) struct Reader {
    owner: Owner,
    /// How often the thread inside has entered. Used by that thread alone, as are the guards.
    depth: Cell<u64>,
    /// One guard for each of the first two levels. A reader with two gives up no value, so deeper
    /// levels need none.
    guards: [Cell<Option<mask::Reading<'static, Published>>>; 2],
    /// Owned. The guards borrow it.
    reader: NonNull<mask::Reader<Published>>,
}

// SAFETY: the cells are used by the thread that `owner` names alone, or by the one that destroys
// the reader, after it has found no thread inside. A reader may be sent.
unsafe impl Send for Reader {}
// SAFETY: the same.
unsafe impl Sync for Reader {}

impl Reader {
    fn new(reader: mask::Reader<Published>) -> Self {
        Reader {
            owner: Owner::none(),
            depth: Cell::new(0),
            guards: [Cell::new(None), Cell::new(None)],
            reader: NonNull::from_mut(Box::leak(Box::new(reader))),
        }
    }

    fn enter(&self) -> Result<*mut c_void, Code> {
        match self.owner.enter() {
            Err(Code::CORELINE_ERROR_INSIDE) => {}
            other => other?,
        }
        let depth = self.depth.get();
        if let Some(guard) = self.guards.get(depth as usize) {
            // SAFETY: owned. The guard is dropped before the reader.
            guard.set(Some(unsafe { self.reader.as_ref() }.enter()));
        }
        self.depth.set(depth + 1);
        Ok(self.read())
    }

    /// The newest value. The thread is inside.
    #[inline]
    fn read(&self) -> *mut c_void {
        let which = &self.guards[usize::from(self.depth.get() > 1)];
        let mut guard = which.take();
        let value = guard.as_mut().map_or(ptr::null_mut(), |guard| guard.get().value.as_ptr());
        which.set(guard);
        value
    }

    fn leave(&self) -> Outcome {
        self.owner.is_inside()?;
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        if let Some(guard) = self.guards.get(depth as usize) {
            guard.set(None);
        }
        if depth == 0 {
            self.owner.leave();
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.guards.iter().for_each(|guard| guard.set(None));
        // SAFETY: from a box that was leaked, and its guards are gone.
        drop(unsafe { Box::from_raw(self.reader.as_ptr()) });
    }
}

/// Publishes a value.
///
/// `value` is the address of the data that readers read, and may not be null. From then on it
/// belongs to the published value. When no reader can have it any more, `destroy` is called once,
/// with the value and `context`. It is of type `void (*)(void *value, void *context)`. If `destroy`
/// is null, nothing is called. `destroy` may call functions of the same published value, unless
/// that is being destroyed. It must return: it must not leave by `longjmp` or by an exception. If
/// there is no memory for the published value, the process aborts.
///
/// If the call fails, the value still belongs to the caller. But if there is no memory for the
/// handle, the value was destroyed.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_NO_MEMORY` (there is no memory for the handle).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_versioned_create(
    value: *mut c_void,
    destroy: coreline_destroy_f,
    context: *mut c_void,
    out: *mut *mut coreline_versioned_t,
) -> Code {
    with!([out out] {
        let how = Destroy { destroy, context };
        let value = mask::Versioned::new(published(value, how)?);
        create(Versioned { value, how }, out)
    })
}

/// Destroys a published value.
///
/// The call destroys the last value, and the earlier values that are not destroyed yet, unless
/// there is a reader or a reclaimer. Readers continue to read the last value. The call that
/// destroys the last of the readers and reclaimers then destroys the values.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the published value during the call or after it, except by its
/// readers. Signals: no signal handler may call it. Fork: safe in a forked child, in which
/// `destroy` is called for the child's copy. It is never called there if the parent had a reclaimer
/// at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_versioned_destroy(versioned: *mut coreline_versioned_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(versioned) }
}

/// Replaces a published value.
///
/// Each read that begins after the call has returned finds the new value, which may not be null.
/// The call waits for other updates, and never for readers. Unless there is a reclaimer, it
/// destroys the earlier values that no reader can have any more. A value that a reader may have is
/// destroyed by a later update, by `coreline_versioned_synchronize`, or by a reclaimer. If more
/// than 20 updates follow one another quickly, most of them leave this to a later one, even if no
/// reader may have the value.
///
/// If the new value depends on the old one, the updating threads must hold a lock meanwhile. If
/// there is no memory, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, after which the value still belongs to
/// the caller.
///
/// Threads: any number of threads may call it at the same time, also while they read. Signals: no
/// signal handler may call it. Fork: in a child, it waits forever if another thread was in an
/// update, in `coreline_versioned_synchronize` or in `coreline_versioned_retired` at the time of
/// the fork, or if a reclaimer was at work. Values that other threads read at that time are never
/// destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_versioned_update(
    versioned: *const coreline_versioned_t,
    value: *mut c_void,
) -> Code {
    with!([handle versioned] { versioned.value.update(published(value, versioned.how)?); })
}

/// Waits until no reader has a value that was replaced before the call, and destroys these values.
///
/// A reader that is inside, and neither leaves nor reads again, blocks the call forever. So does a
/// reader in which the calling thread is inside.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_PANIC` (the kernel
/// refuses `membarrier`).
///
/// Threads: any number of threads may call it at the same time. Others may update meanwhile.
/// Signals: no signal handler may call it. Fork: in a child, it waits forever if another thread was
/// inside of a reader or in an update at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_versioned_synchronize(
    versioned: *const coreline_versioned_t,
) -> Code {
    with!([handle versioned] {
        // A value of its own: `destroy` may destroy the handle while this waits.
        let value = versioned.value.clone();
        value.synchronize();
    })
}

/// Waits until no reader has a value that was replaced before the call, or until a deadline.
///
/// It does what `coreline_versioned_synchronize` does. `deadline` is a time of `coreline_now`. The
/// call returns `CORELINE_TIMED_OUT` if the deadline passes first. Then it has destroyed the values
/// that no reader had.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_PANIC` (the kernel
/// refuses `membarrier`).
///
/// Threads: any number of threads may call it at the same time. It waits for other updates,
/// whatever the deadline is. Signals: no signal handler may call it. Fork: in a child, it waits
/// forever if another thread was in an update at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_versioned_synchronize_by(
    versioned: *const coreline_versioned_t,
    deadline: u64,
) -> Code {
    with!([handle versioned] {
        // As in `coreline_versioned_synchronize`.
        let value = versioned.value.clone();
        let is_done = value.synchronize_by(Time::from_nanos(deadline));
        is_done.then_some(()).ok_or(Code::CORELINE_TIMED_OUT)
    })
}

/// Reports how many values were replaced and are not destroyed yet.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. It waits for updates. Signals: no
/// signal handler may call it. Fork: in a child, it waits forever if another thread was in an
/// update at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_versioned_retired(
    versioned: *const coreline_versioned_t,
    out: *mut usize,
) -> Code {
    with!([handle versioned, out out] { out.write(versioned.value.retired()); })
}

/// Creates a reader that is outside of its published value.
///
/// Create a reader once for each thread, and not for each read. If there is no memory for more
/// readers, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`.
///
/// Threads: any number of threads may call it at the same time. It does not wait. Signals: no
/// signal handler may call it. Fork: safe in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reader_create(
    versioned: *const coreline_versioned_t,
    out: *mut *mut coreline_reader_t,
) -> Code {
    with!([handle versioned, out out] { create(Reader::new(versioned.value.reader()), out) })
}

/// Destroys a reader that is outside.
///
/// If the published value was destroyed, and this is its last reader, the call destroys the values.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_INSIDE`,
/// `CORELINE_ERROR_NOT_OWNER` (another thread is inside).
///
/// Threads: no other thread may use the reader during the call or after it. Signals: no signal
/// handler may call it. Fork: a child may destroy its copy of a reader, unless another thread was
/// inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reader_destroy(reader: *mut coreline_reader_t) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        unsafe {
            handle::get(reader)?.owner.is_outside()?;
            handle::take(reader).map(drop)
        }
    })
}

/// Enters a reader, and reads the value.
///
/// The call writes the newest value to `value`. The value stays until the reader leaves or calls
/// `coreline_reader_get`. The caller should leave before it waits for anything, because values that
/// are replaced meanwhile are not destroyed.
///
/// A thread that is inside may enter again, and must leave as often. While it is inside more than
/// once, all values that it has read stay.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`value` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NOT_OWNER` (another thread is inside).
///
/// Threads: a reader is used by one thread at a time. The call detects that another thread is
/// inside, but not that another thread enters at the same time. A thread that ends inside leaves
/// its reader inside. Signals: a handler may use a reader that no other code uses, if its thread
/// has entered that reader once before. Fork: a child may use its copy of a reader, unless another
/// thread was inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reader_enter(
    reader: *const coreline_reader_t,
    value: *mut *mut c_void,
) -> Code {
    with!([handle reader, out value] { value.write(reader.enter()?); })
}

/// Reads the value again, in a reader that is inside.
///
/// The call writes the newest value to `value`. Unless the thread has entered more than once, the
/// values that it read before may be destroyed from then on.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`value` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_OUTSIDE`, `CORELINE_ERROR_NOT_OWNER` (another thread is
/// inside).
///
/// Threads: only the thread that entered may call it. Signals: a handler may call it inside of a
/// reader that it has entered itself. Fork: a child may use its copy of a reader, unless another
/// thread was inside.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reader_get(
    reader: *const coreline_reader_t,
    value: *mut *mut c_void,
) -> Code {
    with!([handle reader, out value] {
        reader.owner.is_inside()?;
        value.write(reader.read());
    })
}

/// Leaves a reader.
///
/// If the thread has not entered more than once, the values that it has read may be destroyed from
/// then on.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_OUTSIDE`,
/// `CORELINE_ERROR_NOT_OWNER` (another thread is inside).
///
/// Threads: only the thread that entered may call it. Signals: a handler may leave a reader that it
/// has entered itself. Fork: a child may leave a reader that the forking thread had entered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reader_leave(reader: *const coreline_reader_t) -> Code {
    with!([handle reader] { reader.leave() })
}

/// Starts a thread that destroys the values that are replaced from then on.
///
/// While there is a reclaimer, updates destroy no value. Its thread destroys a value when no reader
/// has it any more, or a few milliseconds later. Use it if values take long to destroy, or must not
/// stay until the next update. If there is no memory, the process aborts.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (`out` is not aligned),
/// `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_MEMORY`, `CORELINE_ERROR_LACKING` (there is no room
/// for another thread).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no such thread, and its updates destroy values as without a reclaimer. It
/// may start its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reclaimer_create(
    versioned: *const coreline_versioned_t,
    out: *mut *mut coreline_reclaimer_t,
) -> Code {
    with!([handle versioned, out out] {
        create(versioned.value.reclaimer().map_err(|_| Code::CORELINE_ERROR_LACKING)?, out)
    })
}

/// Ends the thread of a reclaimer, and waits for its end.
///
/// The thread first destroys the values that no reader has.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: no other thread may use the reclaimer during the call or after it. If the thread of a
/// reclaimer calls it, of this value or of another one, the call does not wait.
/// Signals: no signal handler may call it. Fork: in a child, it does nothing but free memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_reclaimer_destroy(reclaimer: *mut coreline_reclaimer_t) -> Code {
    // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
    unsafe { destroy(reclaimer) }
}
