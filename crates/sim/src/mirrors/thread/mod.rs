//! `std::thread`, simulated: change the import, and threads run on the machine's CPUs.
//!
//! | std | here |
//! |---|---|
//! | the system chooses a CPU | the CPU with the fewest threads, or [`Builder::on`] |
//! | a panic is `Err` for the joining thread | the same; if no thread learns of it, a failure (2) |
//! | a panic is printed | it is not printed, because the joining thread learns of it |
//! | a destroyed `thread_local!` stays destroyed | a destructor that uses it creates it again |
//! | [`ThreadId`]s are unique in the process | unique in the machine |
//! | [`Builder::stack_size`] of any size | at most [`STACK`] bytes |
//! | [`panicking`] | of the calling simulated thread (1) |
//! | `sleep_ms`, `park_timeout_ms`, `spawn_unchecked` | left out |
//!
//! 1. The host counts panics of all simulated threads as those of one thread. If a thread caught a
//!    panic and has not called [`panicking`] since, the thread may seem to unwind while another
//!    thread does.
//! 2. The run fails immediately if no handle is left. If the program returns or forgets the handle,
//!    the run fails at its end.
//!
//! All functions but [`panicking`] panic outside of a machine.

mod local;
mod scope;

use core::fmt;
use core::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use core::time::Duration;
use std::any::Any;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use coreline_topology::CpuId;
use coreline_world::{
    Parked, Placement, Signals as _, Sleep as _, SpawnError, Threads as _, Word as _,
};
use coreline_world::{Time, WorldLocal};

pub use local::{AccessError, LocalKey};
pub use scope::{Scope, ScopedJoinHandle, scope};

use crate::Sim;
use crate::engine::{self, Job, PanicNumber, STACK as ENGINE_STACK, inside};
use crate::mirrors::time::Instant;
use crate::words::SimU32;
use crate::words::atomic::{AtomicBool, Ordering};
use crate::world::sleep_until_woken;

/// The size of a simulated thread's stack, in bytes.
pub const STACK: usize = ENGINE_STACK;

/// The result of a thread: its return value, or the payload of its panic.
pub type Result<T> = std::result::Result<T, Box<dyn Any + Send + 'static>>;

/// A thread's number in its machine. The program's first thread has number 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ThreadId(NonZeroU64);

/// A handle to a thread, like [`std::thread::Thread`].
#[derive(Clone)]
pub struct Thread(Arc<Inner>);

struct Inner {
    name: Option<String>,
    /// Set when the thread has a number, before it runs.
    id: OnceLock<ThreadId>,
    /// [`EMPTY`], [`NOTIFIED`] or [`PARKED`].
    token: SimU32,
}

/// No token was left.
const EMPTY: u32 = 0;
/// A token is there: the next park returns immediately.
const NOTIFIED: u32 = 1;
/// The thread waits for a token: one below [`EMPTY`].
const PARKED: u32 = u32::MAX;

static CURRENT: WorldLocal = WorldLocal::new("the thread's handle");

impl Thread {
    fn new(name: Option<String>) -> Thread {
        Thread(Arc::new(Inner { name, id: OnceLock::new(), token: SimU32::new_in(EMPTY) }))
    }

    /// The handle of a running thread that has none: the first, or one from `Sim::spawn`.
    fn found() -> Thread {
        let number = Sim::thread_id();
        let first = number == NonZeroU32::MIN;
        let thread = Thread::new(first.then(|| "main".to_owned()));
        thread.number(u64::from(number.get()) - 1);
        thread
    }

    /// Gives the thread its number.
    fn number(&self, number: u64) {
        let id = NonZeroU64::MIN.saturating_add(number);
        self.0.id.get_or_init(|| ThreadId(id));
    }

    /// Returns the thread's number.
    pub fn id(&self) -> ThreadId {
        *self.0.id.get().expect("a thread has its number before its handle is given away")
    }

    /// Returns the thread's name. The first thread is called `main`.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Leaves a token for the thread and wakes the thread if it waits for a token.
    pub fn unpark(&self) {
        // Release: pairs with the Acquire accesses in `take_token`.
        if self.0.token.swap(NOTIFIED, Ordering::Release) == PARKED {
            Sim::wake(&self.0.token, 1);
        }
    }

    /// Waits for the token, at most until the deadline.
    #[track_caller]
    fn take_token(&self, deadline: Option<Time>) {
        use coreline_world::Integer as _;
        let token = &self.0.token;
        // From `NOTIFIED` to `EMPTY`, or from `EMPTY` to `PARKED`. Acquire: pairs with `unpark`.
        if token.fetch_sub(1, Ordering::Acquire) == NOTIFIED {
            return;
        }
        let is_spurious = inside(|engine| engine.is_unlucky(engine.faults().spurious));
        loop {
            if is_spurious || sleep_until_woken(token, PARKED, deadline) == Parked::TimedOut {
                // Takes a token that came meanwhile. Acquire: pairs with `unpark`.
                token.swap(EMPTY, Ordering::Acquire);
                return;
            }
            // Acquire: pairs with `unpark`. Relaxed if it fails: there was no token.
            let taken =
                token.compare_exchange(NOTIFIED, EMPTY, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return;
            }
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("id", &self.id()).field("name", &self.name()).finish()
    }
}

/// Returns the calling thread's handle.
pub fn current() -> Thread {
    CURRENT.with::<Sim, Thread, _>(Thread::found, Thread::clone)
}

/// Waits for a token: see [`Thread::unpark`]. Like std's function, it may return without a token.
/// It does so only by the fault [`spurious`](crate::Faults::spurious), which is on in searches.
#[track_caller]
pub fn park() {
    current().take_token(None);
}

/// Waits for a token, for at most `span`.
#[track_caller]
pub fn park_timeout(span: Duration) {
    current().take_token(Instant::deadline(span));
}

/// Takes the calling thread off its CPU for `span`.
#[track_caller]
pub fn sleep(span: Duration) {
    Sim::sleep(span);
}

/// Lets the other threads of the CPU run.
pub fn yield_now() {
    Sim::yield_now();
}

/// Returns the number of the machine's CPUs.
///
/// # Errors
///
/// The call never fails. Its return type is the same as in std.
pub fn available_parallelism() -> io::Result<NonZeroUsize> {
    let cpus = inside(|engine| engine.topology().cpu_count());
    Ok(NonZeroUsize::new(cpus).unwrap_or(NonZeroUsize::MIN))
}

/// Returns whether the calling thread is unwinding from a panic.
pub fn panicking() -> bool {
    engine::with(engine::Engine::is_unwinding).unwrap_or_else(std::thread::panicking)
}

/// A builder of threads with a name or on a CPU, like [`std::thread::Builder`].
#[derive(Debug, Clone)]
#[must_use = "a thread starts with `spawn`"]
pub struct Builder {
    name: Option<String>,
    stack_size: usize,
    placement: Placement,
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Builder {
    /// Creates a builder for a thread without a name, on any CPU.
    pub fn new() -> Builder {
        Builder { name: None, stack_size: 0, placement: Placement::Anywhere }
    }

    /// Sets the thread's name.
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Sets the number of bytes of stack that the thread needs.
    pub fn stack_size(mut self, size: usize) -> Builder {
        self.stack_size = size;
        self
    }

    /// Binds the thread to a CPU. This method does not exist in std. With std, a program binds a
    /// thread with a system call.
    pub fn on(mut self, cpu: CpuId) -> Builder {
        self.placement = Placement::On(cpu);
        self
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// An error if the thread needs more than [`STACK`] bytes of stack, if the machine does not
    /// have the CPU, or if the host has no memory for the thread.
    ///
    /// # Panics
    ///
    /// Panics if the name has a zero byte, like std's method.
    pub fn spawn<T, F>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.start(f, None).map(JoinHandle)
    }

    /// Starts the thread within a scope.
    ///
    /// # Errors
    ///
    /// The same as for [`spawn`](Builder::spawn).
    ///
    /// # Panics
    ///
    /// The same as for [`spawn`](Builder::spawn).
    pub fn spawn_scoped<'scope, T, F>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        scope.start(self, f)
    }

    /// Starts a thread that may borrow: the caller guarantees that `f` and its value do not outlive
    /// what they borrow.
    fn start<'a, T, F>(self, f: F, data: Option<Arc<scope::Data>>) -> io::Result<Handle<T>>
    where
        T: Send + 'a,
        F: FnOnce() -> T + Send + 'a,
    {
        let Builder { name, stack_size, placement } = self;
        if stack_size > STACK {
            let why = format!("a simulated thread has {STACK} bytes of stack, not {stack_size}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        assert!(
            !name.as_ref().is_some_and(|name| name.contains('\0')),
            "thread name may not contain interior null bytes"
        );
        let thread = Thread::new(name);
        let packet = Arc::new(Packet {
            value: Mutex::new(None),
            panic: Mutex::new(None),
            finished: AtomicBool::new(false),
            scope: data.clone(),
        });
        let (its_thread, its_packet) = (thread.clone(), Arc::clone(&packet));
        let body = move || {
            CURRENT.with::<Sim, Thread, _>(|| its_thread, |_| ());
            let value = panic::catch_unwind(AssertUnwindSafe(f));
            if let Err(payload) = &value {
                its_packet.keep(engine::caught(&**payload));
            }
            its_packet.put(value);
            // If no handle is left, the value drops here, before the scope that it may borrow from.
            drop(its_packet);
            if let Some(data) = data {
                data.left();
            }
        };
        let body: Box<dyn FnOnce() + 'a> = Box::new(body);
        // SAFETY: the same type except for its lifetime. `spawn` asks for 'static; a scope ends
        // only when `Data::left` was called, which is the last that the body does, or never, if the
        // machine fails: then all its threads stay suspended with what they own.
        let body: Box<dyn FnOnce() + 'static> = unsafe { core::mem::transmute(body) };
        let number = engine::spawn(placement, Job::new(body)).map_err(refused)?;
        thread.number(number as u64);
        Ok(Handle { number, thread, packet })
    }
}

fn refused(error: SpawnError) -> io::Error {
    let kind = match error {
        SpawnError::Exhausted(_) => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

/// The place where a thread leaves its value. The mutexes are the host's and never contended: no
/// thread switches while holding one.
struct Packet<T> {
    value: Mutex<Option<Result<T>>>,
    /// The panic that ended the thread: the run fails with it if no thread learns of it.
    panic: Mutex<Option<PanicNumber>>,
    finished: AtomicBool,
    scope: Option<Arc<scope::Data>>,
}

impl<T> Packet<T> {
    fn keep(&self, panic: PanicNumber) {
        *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
    }

    fn put(&self, value: Result<T>) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        // Release: pairs with the Acquire load in `is_finished`.
        self.finished.store(true, Ordering::Release);
    }
}

impl<T> Drop for Packet<T> {
    fn drop(&mut self) {
        let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = &value {
            let panic = self.panic.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            match (&self.scope, panic) {
                (Some(scope), Some(panic)) => {
                    scope.panicked(panic);
                    engine::with(|engine| engine.is_known(panic));
                }
                (None, Some(panic)) => engine::fail_with(panic),
                (_, None) => {}
            }
        }
    }
}

/// A thread that may be waited for.
struct Handle<T> {
    number: usize,
    thread: Thread,
    packet: Arc<Packet<T>>,
}

impl<T> Handle<T> {
    #[track_caller]
    fn join(self) -> Result<T> {
        engine::wait_for(self.number);
        engine::with(|engine| engine.learn_of(self.number));
        let value = self.packet.value.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.expect("a thread is joined in the machine that it ran in")
    }

    fn is_finished(&self) -> bool {
        // Acquire: pairs with the Release store in `put`.
        self.packet.finished.load(Ordering::Acquire)
    }
}

/// A handle to wait for a thread, like [`std::thread::JoinHandle`].
pub struct JoinHandle<T>(Handle<T>);

impl<T> JoinHandle<T> {
    /// Waits for the thread to finish.
    ///
    /// # Errors
    ///
    /// The payload of the thread's panic, if it panicked.
    ///
    /// # Panics
    ///
    /// Panics if the handle is used outside of its machine.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.0.join()
    }

    /// Returns the thread's handle.
    pub fn thread(&self) -> &Thread {
        &self.0.thread
    }

    /// Returns whether the thread's function has returned. The call is charged as a load.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

/// Starts a thread.
///
/// # Panics
///
/// Panics if the host has no memory for the thread.
pub fn spawn<T, F>(f: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Builder::new().spawn(f).expect("failed to spawn thread")
}
