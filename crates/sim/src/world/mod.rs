//! `Sim` as a world: place, time, threads, sleep, statics, fences.

pub mod interrupts;
pub mod locks;
mod memory;
pub(crate) mod probes;
pub(crate) mod restartable;
pub(crate) mod signals;

use core::any::{Any, TypeId};
use core::ptr;
use core::time::Duration;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use coreline_topology::{Cid, CpuId, CpuSet, Topology};
use coreline_world::{
    Clock, Extended, Fences, JoinHandle, Kick, Lacking, Line, Ordering, Parked, Place, Placement,
    Sleep, SliceExtension, SpawnError, Statics, Threads, Time, Word, Work, World, WorldLocal,
    WorldStatic,
};

use crate::Sim;
use crate::engine::{self, Engine, Job, Key, inside, races};
use crate::words::SimU32;

// SAFETY: `tests/programs/conformance.rs` runs every law of `World` on it.
unsafe impl World for Sim {
    const NAME: &'static str = "sim";
}

impl Place for Sim {
    fn topology() -> Arc<Topology> {
        inside(|engine| Arc::clone(engine.topology()))
    }

    fn cpu() -> CpuId {
        engine::point();
        inside(|engine| {
            engine.spend_on_place();
            engine.cpu()
        })
    }

    fn kernel_cid() -> Option<Cid> {
        engine::point();
        inside(|engine| {
            engine.spend_on_place();
            engine.cid()
        })
    }
}

impl Clock for Sim {
    const RUNS: bool = true;

    type Instant = Time;

    fn now() -> Time {
        engine::issue();
        inside(|engine| {
            engine.spend_computing(engine.spec().costs().clock);
            engine.now()
        })
    }
}

impl Fences for Sim {
    fn fence(order: Ordering) {
        // Every run is sequentially consistent; what is left of a fence is its cost.
        if order == Ordering::SeqCst {
            engine::drain();
            inside(|engine| engine.spend(engine.spec().costs().locked));
        }
        inside(|engine| engine.acquire(order));
        races::fenced(order);
    }

    fn fence_light() {
        races::fenced(Ordering::SeqCst);
    }

    fn light_is_free() -> bool {
        true
    }

    fn fence_light_free() {
        Self::fence_light();
    }

    fn try_fence_all() -> Result<(), Lacking> {
        engine::drain();
        engine::enter_kernel();
        inside(|engine| engine.spend_in_call(engine.spec().costs().broadcast));
        races::fenced(Ordering::SeqCst);
        Ok(())
    }

    fn try_fence_seen() -> Result<(), Lacking> {
        races::fenced(Ordering::Acquire);
        Ok(())
    }

    fn fence_restartable() -> Result<(), Lacking> {
        // A defect takes no time either: in that of a broadcast, or of the caller's stores on their
        // way, a section would be over.
        if inside(|engine| engine.faults().missed_fences) {
            engine::issue();
            return Ok(());
        }
        engine::drain();
        engine::enter_kernel();
        inside(|engine| {
            engine.abort_other_sections();
            engine.spend_in_call(engine.spec().costs().broadcast);
        });
        races::fenced_sections();
        Ok(())
    }
}

impl Kick for Sim {
    fn kick(cpu: CpuId) -> Result<(), Lacking> {
        // A defect takes no time: see `fence_restartable`.
        if inside(|engine| engine.faults().missed_fences) {
            engine::issue();
            return Ok(());
        }
        engine::drain();
        engine::enter_kernel();
        inside(|engine| engine.spend_in_call(engine.spec().costs().syscall));
        engine::issue();
        if inside(|engine| engine.runs_elsewhere(cpu)) {
            let told = Arc::new(Line(SimU32::new_in(0)));
            let theirs = Arc::clone(&told);
            let handler = move || {
                engine::drain();
                inside(Engine::abort_own_section);
                // Release, partner: the acquire below.
                theirs.store(1, Ordering::Release);
            };
            // A CPU that went out of service meanwhile has nothing under way.
            if interrupts::send(cpu, handler).is_ok() {
                told.wait_until(Ordering::Acquire, |told| told == 1);
            }
        }
        Ok(())
    }

    const KNOWS_RESCHED: bool = true;

    fn need_resched() -> bool {
        engine::issue();
        inside(|engine| {
            engine.spend_on_place();
            engine.need_resched()
        })
    }
}

impl SliceExtension for Sim {
    /// Never fails.
    fn enable_extension() -> Result<(), Lacking> {
        engine::enable_extension();
        Ok(())
    }

    fn request_extension() -> bool {
        engine::request_extension()
    }

    fn end_extension() -> Extended {
        engine::end_extension()
    }
}

impl Sleep for Sim {
    #[track_caller]
    fn park_as(word: &SimU32, expected: u32, deadline: Option<Time>, groups: u32) -> Parked {
        sleep(word, expected, deadline, (groups, true))
    }

    fn wake_groups(word: *const SimU32, count: u32, groups: u32) -> u32 {
        engine::wake(word.addr(), count, groups)
    }
}

/// Sleeps like [`Sleep::park`], but never wakes spuriously: for waits of the mirrors whose callers
/// cannot notice that.
#[track_caller]
pub(crate) fn sleep_until_woken(word: &SimU32, expected: u32, deadline: Option<Time>) -> Parked {
    sleep(word, expected, deadline, (u32::MAX, false))
}

/// Sleeps as a member of these groups; whether it may wake spuriously.
#[track_caller]
fn sleep(word: &SimU32, expected: u32, deadline: Option<Time>, how: (u32, bool)) -> Parked {
    engine::enter_kernel();
    // SeqCst: the host atomic's ordering, which says nothing about the simulated program's. The
    // kernel's own read of a futex word is ordered by its bucket lock.
    while word.load(Ordering::SeqCst) == expected {
        // What was found may be the value before a store that is on its way, and its wake-up may be
        // over: then the load after that store decides. Relaxed: a glance at the host atomic.
        if word.atomic.0.load(Ordering::Relaxed) == expected {
            // No other thread ran since: checking and falling asleep are one step.
            return engine::park(ptr::from_ref(word).addr(), deadline, how);
        }
    }
    Parked::Changed
}

/// The handle of a simulated thread.
#[derive(Debug)]
pub struct SimJoinHandle<T> {
    thread: usize,
    /// The place where the thread leaves its value. A host mutex, never contended: no thread
    /// switches while holding it, and the handle may be carried out of the machine to a host
    /// thread.
    value: Arc<Mutex<Option<T>>>,
}

impl<T: Send + 'static> JoinHandle<T> for SimJoinHandle<T> {
    #[track_caller]
    fn join(self) -> T {
        engine::wait_for(self.thread);
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.expect("a thread is joined in the machine that it ran in")
    }

    fn is_current(&self) -> bool {
        inside(|engine| engine.current()) == self.thread
    }
}

impl Threads for Sim {
    type JoinHandle<T: Send + 'static> = SimJoinHandle<T>;

    fn spawn<T, F>(placement: Placement, f: F) -> Result<SimJoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let value = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&value);
        let thread = engine::spawn(
            placement,
            Job::new(move || {
                let value = f();
                *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            }),
        )?;
        Ok(SimJoinHandle { thread, value })
    }

    fn allowed() -> CpuSet {
        engine::allowed()
    }

    fn yield_now() {
        engine::yield_now();
    }

    #[track_caller]
    fn sleep(span: Duration) {
        engine::sleep(picoseconds(span));
    }
}

/// Begins another program on the calling thread, like the system call `exec`. The machine's
/// [`Kernel`](crate::Kernel) is notified.
///
/// The simulator charges one system call for the call. The charge excludes the time to load the
/// program, for which the program can call `Work::work`.
///
/// # Panics
///
/// Panics outside of a simulated machine.
pub fn exec() {
    engine::exec();
}

impl Work for Sim {
    /// `span` plus or minus a tenth, drawn from the seed. The thread can be preempted and
    /// interrupted during that time, at the exact time. The time that it then loses is added.
    fn work(span: Duration) {
        engine::work(picoseconds(span));
    }
}

/// A span in the engine's unit; saturates.
fn picoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000)
}

impl Statics for Sim {
    fn with_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        let id: Key = (ptr::from_ref(key).addr(), TypeId::of::<T>());
        let object = inside(|engine| engine.find_static(&id)).unwrap_or_else(|| {
            // `init` is simulated code and may let other threads run, one of which may be faster.
            let made: Rc<dyn Any + Send + Sync> = Rc::new(init());
            races::updated(id.0, Ordering::Release);
            inside(|engine| engine.keep_static(id, &made))
        });
        races::loaded(id.0, Ordering::Acquire);
        use_it(object.downcast_ref().expect("the key holds the type"))
    }

    fn find_static<T: Send + Sync + 'static, R>(
        key: &'static WorldStatic,
        use_it: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        let id: Key = (ptr::from_ref(key).addr(), TypeId::of::<T>());
        let object = inside(|engine| engine.find_static(&id))?;
        races::loaded(id.0, Ordering::Acquire);
        Some(use_it(object.downcast_ref().expect("the key holds the type")))
    }

    fn with_local<T: 'static, R>(
        key: &'static WorldLocal,
        init: impl FnOnce() -> T,
        use_it: impl FnOnce(&T) -> R,
    ) -> R {
        let id: Key = (ptr::from_ref(key).addr(), TypeId::of::<T>());
        let object = inside(|engine| engine.find_local(&id)).unwrap_or_else(|| {
            let made: Rc<dyn Any> = Rc::new(init());
            inside(|engine| engine.keep_local(id, &made))
        });
        use_it(object.downcast_ref().expect("the key holds the type"))
    }
}
