//! shuttle: random schedules, and schedules with random priorities.

#[path = "programs.rs"]
mod programs;

mod api {
    pub(super) use shuttle::hint::spin_loop;
    pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, RwLock};
    pub(super) use shuttle::thread;

    /// shuttle has no cell of its own: accesses to plain data are not checked.
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }
        pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }
        pub(super) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

use super::{Program, child, runs};

const PROGRAMS: &[Program] = compiled!();

pub(super) fn random(program: usize, mistaken: bool) {
    run(RandomScheduler::new_from_seed(0, runs(mistaken) as usize), program, mistaken);
}

pub(super) fn pct(program: usize, mistaken: bool) {
    run(PctScheduler::new_from_seed(0, 3, runs(mistaken) as usize), program, mistaken);
}

fn run(scheduler: impl Scheduler + 'static, program: usize, mistaken: bool) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(child::counting(PROGRAMS[program], mistaken));
}
