//! [`ReentrantMutex`].

use std::num::NonZeroUsize;

use lock_api_0_4 as lock_api;

use crate::RawMutex;

/// A mutual exclusion lock that its holder may take again. It gives shared access to the data.
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, RawThreadId, T>;
/// The guard of a [`ReentrantMutex`]. The lock is free when all guards of its holder have dropped.
pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawMutex, RawThreadId, T>;
/// The guard of a part of a [`ReentrantMutex`]'s data.
pub type MappedReentrantMutexGuard<'a, T> =
    lock_api::MappedReentrantMutexGuard<'a, RawMutex, RawThreadId, T>;

/// Creates a free [`ReentrantMutex`], also in a `static`. `ReentrantMutex::new` does the same.
pub const fn const_reentrant_mutex<T>(val: T) -> ReentrantMutex<T> {
    ReentrantMutex::const_new(
        <RawMutex as lock_api::RawMutex>::INIT,
        <RawThreadId as lock_api::GetThreadId>::INIT,
        val,
    )
}

/// The thread numbers by which a [`ReentrantMutex`] identifies its holder.
#[derive(Debug, Clone, Copy)]
pub struct RawThreadId;

// SAFETY: no two threads that run have a thread-local at one address, and none is at address zero.
unsafe impl lock_api::GetThreadId for RawThreadId {
    const INIT: Self = RawThreadId;

    #[inline]
    fn nonzero_thread_id(&self) -> NonZeroUsize {
        // Without a destructor, so it is there as long as the thread runs.
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| std::ptr::from_ref(here).addr().try_into().expect("not at zero"))
    }
}
