//! Scoped threads, which may borrow from their surroundings.

use core::fmt;
use core::marker::PhantomData;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Builder, Handle, Result, Thread, current, park};
use crate::engine::{Engine, OF_A_SCOPE, PanicNumber, inside};
use crate::words::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The state that a scope's threads and its owner share.
pub(super) struct Data {
    running: AtomicUsize,
    a_thread_panicked: AtomicBool,
    /// The first panic of a thread that was not joined. A mutex of the host's, never contended: no
    /// thread switches while holding it.
    panic: Mutex<Option<PanicNumber>>,
    owner: Thread,
}

impl Data {
    /// A thread has left: it no longer borrows anything of the scope.
    pub(super) fn left(&self) {
        // Release: pairs with the Acquire load of `scope`.
        if self.running.fetch_sub(1, Ordering::Release) == 1 {
            self.owner.unpark();
        }
    }

    /// A thread has panicked, and was not joined.
    pub(super) fn panicked(&self, panic: PanicNumber) {
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        // Relaxed: read after `running` has been seen at zero, which orders the two.
        self.a_thread_panicked.store(true, Ordering::Relaxed);
    }
}

/// A scope in which to start threads, like [`std::thread::Scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<Data>,
    /// Invariant: the scope must not be taken for a shorter one.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    ///
    /// # Panics
    ///
    /// Panics if the host has no memory for the thread.
    pub fn spawn<T, F>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        self.start(Builder::new(), f).expect("failed to spawn thread")
    }

    pub(super) fn start<T, F>(
        &'scope self,
        builder: Builder,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        // Relaxed: only the owner, or a thread of the scope that is counted itself, adds.
        self.data.running.fetch_add(1, Ordering::Relaxed);
        let handle = builder.start(f, Some(Arc::clone(&self.data)));
        match handle {
            Ok(handle) => Ok(ScopedJoinHandle { handle, scope: PhantomData }),
            Err(error) => {
                self.data.left();
                Err(error)
            }
        }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("running", &self.data.running).finish_non_exhaustive()
    }
}

/// Calls `f` with a scope, and then waits for all threads of the scope. These threads may borrow
/// values from outside of the scope.
///
/// # Panics
///
/// Panics if `f` panics, or if a thread panicked that the program did not join.
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let data = Data {
        running: AtomicUsize::new(0),
        a_thread_panicked: AtomicBool::new(false),
        panic: Mutex::new(None),
        owner: current(),
    };
    let scope = Scope { data: Arc::new(data), scope: PhantomData, env: PhantomData };
    let value = panic::catch_unwind(AssertUnwindSafe(|| f(&scope)));
    // Acquire: pairs with the Release subtraction in `left`, so that what the threads did is seen.
    while scope.data.running.load(Ordering::Acquire) != 0 {
        park();
    }
    match value {
        Err(payload) => {
            // No hook sees a panic that is raised again.
            inside(Engine::note_panic);
            panic::resume_unwind(payload)
        }
        // Relaxed: see `panicked`.
        Ok(_) if scope.data.a_thread_panicked.load(Ordering::Relaxed) => {
            let first = *scope.data.panic.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(panic) = first {
                inside(|engine| engine.learn(panic));
            }
            // Of the type that `panic!` with this text would raise.
            panic::panic_any(OF_A_SCOPE)
        }
        Ok(value) => value,
    }
}

/// A handle to wait for a scoped thread, like [`std::thread::ScopedJoinHandle`].
pub struct ScopedJoinHandle<'scope, T> {
    handle: Handle<T>,
    scope: PhantomData<&'scope mut &'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread to finish.
    ///
    /// # Errors
    ///
    /// The payload of the thread's panic, if it panicked.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.handle.join()
    }

    /// Returns the thread's handle.
    pub fn thread(&self) -> &Thread {
        &self.handle.thread
    }

    /// Returns whether the thread's function has returned. The call is charged as a load.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle").finish_non_exhaustive()
    }
}
