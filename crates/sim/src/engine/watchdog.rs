//! The watchdog: notices a thread that does nothing that the machine sees.
//!
//! Such a thread keeps the host thread, so the machine does nothing either. A thread of its own
//! looks at all machines of the process from time to time. It sees whether their host threads
//! sleep, and interrupts each of them. The handler, on the host thread that it looks at, sees
//! whether the machine has made a step since, and how long its thread has computed.
//!
//! A thread is stuck if it has computed for as long as the machine's patience without a step, by
//! the host's account of its processor time, or if it slept at [`LOOKS`] looks in a row without a
//! step. A host that is slow, or that stops the process, only delays both. A thread that waits to
//! write does not sleep: the reader of its output, such as a pager, may take any time.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use coreline_world::native::looks::{self, HostThread};

use super::blocks::user_site;
use super::{ENGINE, Engine, inside, stop};
use crate::hardware::arena;
use crate::results::failure::FailureKind;

/// How many looks in a row find a thread asleep that is stuck.
const LOOKS: u32 = 30;

/// The least time between two checks.
const SHORTEST: Duration = Duration::from_millis(1);

/// A machine that is watched.
struct Watched {
    host: HostThread,
    asleep: Arc<AtomicU32>,
    every: Duration,
    /// The time of its last check.
    looked: Instant,
}

/// All of them. The watchdog's thread waits while there are none.
static ALL: Mutex<Vec<Watched>> = Mutex::new(Vec::new());
static SOME: Condvar = Condvar::new();

/// The part of the watch that belongs to the machine's own host thread. It ends when this drops.
pub(super) struct Watch {
    patience: Duration,
    /// At how many looks in a row the host thread was asleep.
    asleep: Arc<AtomicU32>,
    /// The number of steps of the machine at the last check that found a new number, and how long
    /// its host thread had computed at that time.
    steps: Cell<u64>,
    computed: Cell<Duration>,
    /// The place where a stuck thread was.
    trace: Option<Backtrace>,
}

impl Watch {
    /// Has this host thread's machine watched from now on.
    pub(super) fn begin(patience: Duration) -> Watch {
        let asleep: Arc<AtomicU32> = Arc::default();
        if patience < Duration::MAX && looks::install(look) {
            start();
            let every = (patience / LOOKS).max(SHORTEST);
            let (host, asleep) = (HostThread::current(), Arc::clone(&asleep));
            let watched = Watched { host, asleep, every, looked: Instant::now() };
            ALL.lock().unwrap_or_else(PoisonError::into_inner).push(watched);
            SOME.notify_one();
        }
        let (steps, computed) = (Cell::new(0), Cell::new(Duration::ZERO));
        Watch { patience, asleep, steps, computed, trace: None }
    }

    /// Whether the machine, which has made this many steps, has made none for too long, and whether
    /// its thread sleeps.
    fn is_stuck(&self, steps: u64) -> Option<bool> {
        let computed = looks::computed();
        if steps != self.steps.replace(steps) {
            self.computed.set(computed);
            // Relaxed, as all of this word: a count that nothing else hangs on.
            self.asleep.store(0, Ordering::Relaxed);
            return None;
        }
        let waits = self.asleep.load(Ordering::Relaxed) >= LOOKS;
        let computes = computed.saturating_sub(self.computed.get()) >= self.patience;
        (waits || computes).then_some(waits)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|watched| !Arc::ptr_eq(&watched.asleep, &self.asleep));
    }
}

/// Starts the watchdog's thread, once. Without one, nothing is watched.
fn start() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let named = thread::Builder::new().name("coreline-sim watchdog".to_owned());
        drop(named.spawn(watch_all));
    });
}

/// Looks at each machine when it is due, for ever.
fn watch_all() {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = |of: &Watched| of.every.saturating_sub(of.looked.elapsed());
        for watched in all.iter_mut().filter(|watched| left(watched).is_zero()) {
            match watched.host.is_asleep() {
                true => _ = watched.asleep.fetch_add(1, Ordering::Relaxed),
                false => watched.asleep.store(0, Ordering::Relaxed),
            }
            watched.host.look();
            watched.looked = Instant::now();
        }
        // A machine that begins meanwhile ends the wait.
        all = match all.iter().map(left).min() {
            Some(next) => {
                let waited = SOME.wait_timeout(all, next.max(SHORTEST));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => SOME.wait(all).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// Runs in a signal handler on a host thread. If its machine's running thread is stuck, this thread
/// never continues: the handler does not return, but switches to the machine's loop.
fn look() {
    let engine = ENGINE.get();
    if engine.is_null() {
        return;
    }
    let stuck = {
        // SAFETY: valid while it is installed. No other reference to the engine is live: `ENGINE`
        // is null while one is. This one ends before the engine is used again.
        let engine = unsafe { &*engine };
        engine.is_stuck_here()
    };
    if let Some(waits) = stuck {
        inside(|engine| engine.fail_stuck(waits));
        stop();
    }
}

impl Engine {
    /// Whether the running thread is stuck: the handler runs on its stack, and it did not make a
    /// step for too long. Whether it sleeps.
    fn is_stuck_here(&self) -> Option<bool> {
        let here = 0_u8;
        let here = (&raw const here).addr();
        let (_, &(base, number)) = self.stacks.range(..=here).next_back()?;
        let is_its = here < base && self.cpus[self.running?].current == Some(number);
        self.watch.is_stuck(self.report.steps).filter(|_| is_its && self.failure.is_none())
    }

    fn fail_stuck(&mut self, waits: bool) {
        let (thread, cpu) = (self.current(), self.cpu());
        self.watch.trace = Some(Backtrace::force_capture());
        self.fail(FailureKind::Stuck { thread, cpu, waits, site: None });
    }

    /// The machine has stopped: where the thread was that stopped it, if one was stuck.
    pub(super) fn resolve_place_of_stuck(&mut self) {
        let Some(trace) = self.watch.trace.take() else { return };
        if let Some(FailureKind::Stuck { site, .. }) = &mut self.failure {
            let _host = arena::leave();
            *site = user_site(&trace.to_string());
        }
    }
}
