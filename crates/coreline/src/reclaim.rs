//! The thread of a reclaimer, which frees the values that a [`Versioned`](crate::mask::Versioned)
//! or a [`Collector`](crate::rcu::Collector) retired.
//!
//! A thread that retires a value adds to a word and wakes the reclaimer. The reclaimer reads the
//! word before it looks for values:
//!
//! ```text
//! Reclaimer: reads the word; looks, and finds nothing
//! Update:    retires a value, adds to the word, wakes no thread
//! Reclaimer: is to sleep while the word is what it read      <- finds it changed, and looks again
//! ```
//!
//! | constant or rule | with less | with more | test |
//! |---|---|---|---|
//! | `NAPS[0]` | it never sleeps | values wait after short sections | 1, 2 |
//! | `NAPS[1]` | it looks too often | values wait after long sections | 1, 2 |
//!
//! 1: `a_reclaimer_sleeps_while_a_reader_holds_a_value`, in the laws of calls. 2:
//! `a_reclaimer_frees_soon_..`, in the tests of [`Collector`](crate::rcu::Collector).

use core::cell::Cell;
use core::mem;
use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::Arc;

use coreline_world::{
    Integer, JoinHandle, Ordering, Placement, SpawnError, Testbed, ThreadOptions, Time, Word,
    World, WorldLocal,
};

use crate::panics::Panics;

/// How long a reclaimer that waits for a reader sleeps before its second check, and the longest
/// sleep. The time doubles with each check.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];

/// How many reclaimers there are. Read and written under a lock.
pub(crate) struct Reclaimers {
    count: u32,
    /// The [generation](coreline_world::Signals::generation) of the memory in which they are
    /// threads: the child of a fork has none of them.
    generation: Option<NonZeroU32>,
}

impl Reclaimers {
    pub(crate) const NONE: Self = Reclaimers { count: 0, generation: None };

    /// Whether the caller's process has one.
    pub(crate) fn are_there<W: World>(&self) -> bool {
        self.count > 0 && self.generation == Some(W::generation())
    }

    fn add<W: World>(&mut self) {
        let count = if self.are_there::<W>() { self.count } else { 0 };
        *self = Reclaimers { count: count + 1, generation: Some(W::generation()) };
    }
}

/// The values that a reclaimer frees. This is a handle, and its clones refer to the same values.
pub(crate) trait Reclaim<W: World>: Clone + Send + 'static {
    /// How often reclaimers were asked to check. They sleep on this word. It wraps: to miss a look,
    /// 2^32 of them would have to come between a reclaimer's load and its sleep.
    fn asked(&self) -> &W::U32;

    /// Calls `f` with the number of reclaimers, under its lock.
    fn with_reclaimers(&self, f: &mut dyn FnMut(&mut Reclaimers));

    /// Frees what was given up until now, until `deadline` at most; returns whether that was all.
    /// **Panics** if a heavy fence fails.
    fn look(&self, deadline: Option<Time>, panics: &mut Panics) -> bool;
}

/// Has the reclaimers look, or end.
pub(crate) fn ask<W: World>(asked: &W::U32) {
    // Release: pairs with the Acquire in `serve`.
    asked.fetch_add(1, Ordering::Release);
    W::wake(&raw const *asked, u32::MAX);
}

/// The thread of a reclaimer. Dropping it ends the thread.
pub(crate) struct Thread<R: Reclaim<W>, W: Testbed> {
    of: R,
    /// 1: the thread must end.
    end: Arc<W::U32>,
    /// `None` only while this is dropped.
    thread: Option<W::JoinHandle<()>>,
    generation: NonZeroU32,
}

impl<R: Reclaim<W>, W: Testbed> Thread<R, W> {
    /// What it frees.
    pub(crate) fn of(&self) -> &R {
        &self.of
    }

    pub(crate) fn start(of: R) -> Result<Self, SpawnError> {
        let end = Arc::new(W::U32::new_in(0));
        let (theirs, over) = (of.clone(), Arc::clone(&end));
        let serve = move || serve::<R, W>(&theirs, &over);
        let options = ThreadOptions { name: "coreline-free", ..ThreadOptions::default() };
        let thread = W::spawn_with(options, Placement::Anywhere, serve)?;
        of.with_reclaimers(&mut Reclaimers::add::<W>);
        // What was retired before that, and behind the thread's first look.
        ask::<W>(of.asked());
        Ok(Thread { of, end, thread: Some(thread), generation: W::generation() })
    }
}

/// Calls `f` with whether the calling thread is that of a reclaimer.
fn with_serves<W: Testbed, R>(f: impl FnOnce(&Cell<bool>) -> R) -> R {
    static SERVES: WorldLocal = WorldLocal::new("thread of a reclaimer");
    SERVES.with::<W, _, _>(|| Cell::new(false), f)
}

/// What the thread does.
fn serve<R: Reclaim<W>, W: Testbed>(of: &R, end: &W::U32) {
    with_serves::<W, _>(|serves| serves.set(true));
    let asked = of.asked();
    let mut nap = NAPS[0];
    loop {
        // Acquire: pairs with the Release in `ask`: one that is for the end comes with `end`.
        let seen = asked.load(Ordering::Acquire);
        // Relaxed: see `seen`. Before the look, so that the last look comes after the last ask.
        let is_over = end.load(Ordering::Relaxed) != 0;
        let is_done = look::<R, W>(of);
        if is_over {
            return;
        }
        if is_done {
            nap = NAPS[0];
            W::park(asked, seen, None);
        } else {
            W::park(asked, seen, Some(W::now() + nap));
            nap = (nap * 2).min(NAPS[1]);
        }
    }
}

/// Frees all values that were given up until now and that no reader holds. Returns whether these
/// were all values.
fn look<R: Reclaim<W>, W: Testbed>(of: &R) -> bool {
    // Waits for no reader. In the model, where no time passes, it does: there, readers leave.
    let deadline = W::RUNS.then(W::now);
    // Forgotten: the hook for panics has reported them.
    let [mut fences, mut drops] = [Panics::NONE; 2];
    let mut is_done = true;
    fences.run(|| is_done = of.look(deadline, &mut drops));
    is_done
}

impl<R: Reclaim<W>, W: Testbed> Drop for Thread<R, W> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.generation != W::generation() {
            // A child, whose thread it is not, and which must not give its memory back.
            return mem::forget(thread);
        }
        self.of.with_reclaimers(&mut |reclaimers| reclaimers.count -= 1);
        // Relaxed: `ask` publishes it.
        self.end.store(1, Ordering::Relaxed);
        ask::<W>(self.of.asked());
        // Values that are dropped may own reclaimers:
        //
        //   Thread of reclaimer 1: drops a value, which owns reclaimer 2; waits for its thread
        //   Thread of reclaimer 2: drops a value, which owns reclaimer 1; waits for its thread
        if !with_serves::<W, _>(Cell::get) {
            thread.join();
        }
    }
}
