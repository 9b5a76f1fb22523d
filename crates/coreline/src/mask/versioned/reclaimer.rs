//! [`Reclaimer`]: a thread that drops what a [`Versioned`] replaced.
//!
//! An update that has a reclaimer frees nothing. It adds to a word and wakes the reclaimer, which
//! had read the word before it looked for values:
//!
//! ```text
//! Reclaimer: reads the word; looks, and finds nothing
//! Update:    retires a value, adds to the word, wakes no thread
//! Reclaimer: is to sleep while the word is what it read      <- finds it changed, and looks again
//! ```

use core::cell::Cell;
use core::mem;
use core::num::NonZeroU32;
use core::time::Duration;
use std::sync::Arc;

use coreline_world::{
    Integer, JoinHandle, Native, Ordering, Placement, SpawnError, Testbed, Word, World, WorldLocal,
};

use super::{Shared, Versioned};
use crate::panics::Panics;

/// How long a reclaimer that waits for a reader sleeps before its second look, and at most: twice
/// as long each time.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(10)];

/// How many reclaimers there are. Read and written under the lock of updates.
pub(super) struct Reclaimers {
    count: u32,
    /// The [generation](coreline_world::Signals::generation) of the memory in which they are
    /// threads: the child of a fork has none of them.
    generation: Option<NonZeroU32>,
}

impl Reclaimers {
    pub(super) const NONE: Self = Reclaimers { count: 0, generation: None };

    /// Whether the caller's process has one.
    pub(super) fn are_there<W: World>(&self) -> bool {
        self.count > 0 && self.generation == Some(W::generation())
    }

    fn add<W: World>(&mut self) {
        let count = if self.are_there::<W>() { self.count } else { 0 };
        *self = Reclaimers { count: count + 1, generation: Some(W::generation()) };
    }
}

/// A thread, named `coreline-free`, that frees the values which updates of a [`Versioned`] replace.
///
/// As long as a reclaimer exists, updates drop no value. Suppose that some readers were present
/// when a value was replaced. The thread drops the value once each of them has read again or left,
/// at most a few milliseconds later. Use a reclaimer for values that take long to drop, that the
/// updating thread must not drop, or that should not stay until the next update.
///
/// ```
/// use coreline::mask::Versioned;
///
/// let routes = Versioned::new(vec!["10.0.0.0/8"; 1 << 16]);
/// let reclaimer = routes.reclaimer()?;
/// let reader = routes.reader();
/// let mut reading = reader.enter();
/// reading.get();
/// routes.update(vec![]);
/// drop(reading);
/// // The large value goes now, on the other thread, although no update follows.
/// # drop(reclaimer);
/// # Ok::<(), coreline::world::SpawnError>(())
/// ```
///
/// Dropping the reclaimer ends the thread, and waits for its end. The thread first drops the values
/// that no reader holds. Later updates drop the values that readers still hold, as without a
/// reclaimer. A reclaimer keeps the `Versioned` alive. A value may own a reclaimer. If a
/// reclaimer's thread drops such a value, the drop does not wait.
///
/// **Costs**: an update takes one more system call. It does not wait for the thread. If updates are
/// faster than drops, replaced values pile up, so call [`synchronize`](Versioned::synchronize) from
/// time to time. While a reader holds a value, the thread checks after 50 us, and then at growing
/// intervals of up to 10 ms.
///
/// **Panics**: a value whose drop panics ends neither the thread nor the drops of other values. The
/// panic hook reports the panic. A failed heavy fence does not end the thread either, because the
/// next update tries again.
///
/// **Priorities**: the thread has the priority of the thread that started it.
///
/// **Signals, fork**: a signal handler must not use a reclaimer. A forked child has no such thread.
/// Its updates drop values as without a reclaimer, and dropping the reclaimer does nothing. If the
/// thread was at work at the time of the fork, updates of the child wait forever. So drop
/// reclaimers before a fork, or do not update in the child.
///
/// Source: Paul E. McKenney and John D. Slingwine, ["Read-Copy Update: Using Execution History to
/// Solve Concurrency Problems"](https://www.rdrop.com/users/paulmck/RCU/rclockpdcsproof.pdf), 1998,
/// whose callbacks run on a thread in today's kernel.
#[must_use = "the thread ends when this is dropped"]
pub struct Reclaimer<T: Send + Sync + 'static, W: Testbed = Native> {
    value: Versioned<T, W>,
    /// 1: the thread must end.
    end: Arc<W::U32>,
    /// `None` only while this is dropped.
    thread: Option<W::JoinHandle<()>>,
    generation: NonZeroU32,
}

impl<T: Send + Sync + 'static, W: Testbed> Versioned<T, W> {
    /// Starts a thread that drops the values that are replaced from now on, and the replaced values
    /// that are not freed yet.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the machine has no room for another thread.
    pub fn reclaimer(&self) -> Result<Reclaimer<T, W>, SpawnError> {
        let end = Arc::new(W::U32::new_in(0));
        let (value, over) = (self.clone(), Arc::clone(&end));
        let serve = move || serve(&value, &over);
        let thread = W::spawn_named("coreline-free", Placement::Anywhere, serve)?;
        self.shared.updater.lock().reclaimers.add::<W>();
        // What was retired before that, and behind the thread's first look.
        self.shared.ask();
        let (value, thread) = (self.clone(), Some(thread));
        Ok(Reclaimer { value, end, thread, generation: W::generation() })
    }
}

/// Calls `f` with whether the calling thread is that of a reclaimer.
fn with_serves<W: Testbed, R>(f: impl FnOnce(&Cell<bool>) -> R) -> R {
    static SERVES: WorldLocal = WorldLocal::new("thread of a reclaimer");
    SERVES.with::<W, _, _>(|| Cell::new(false), f)
}

/// The loop of the thread.
fn serve<T: Send + Sync + 'static, W: Testbed>(value: &Versioned<T, W>, end: &W::U32) {
    with_serves::<W, _>(|serves| serves.set(true));
    let asked = &value.shared.asked;
    let mut nap = NAPS[0];
    loop {
        // Acquire: pairs with the Release in `ask`: one that is for the end comes with `end`.
        let seen = asked.load(Ordering::Acquire);
        // Relaxed: see `seen`. Before the look, so that the last look comes after the last ask.
        let is_over = end.load(Ordering::Relaxed) != 0;
        let is_done = look(value);
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

/// Frees what was replaced until now and no reader holds; returns whether that was all.
fn look<T: Send + Sync + 'static, W: Testbed>(value: &Versioned<T, W>) -> bool {
    // Waits for no reader. In the model, where no time passes, it does: there, readers leave.
    let deadline = W::RUNS.then(W::now);
    // Forgotten: the hook for panics has reported them.
    let [mut fences, mut drops] = [Panics::NONE; 2];
    let mut is_done = true;
    fences.run(|| is_done = value.wait(deadline, &mut drops));
    is_done
}

/// Asks the reclaimers when it drops, also where an update panics.
pub(super) struct Ask<'a, T: Send + Sync + 'static, W: World>(pub(super) &'a Shared<T, W>);

impl<T: Send + Sync + 'static, W: World> Drop for Ask<'_, T, W> {
    fn drop(&mut self) {
        self.0.ask();
    }
}

impl<T: Send + Sync + 'static, W: World> Shared<T, W> {
    /// Makes the reclaimers check for retired values, and whether they must end.
    pub(super) fn ask(&self) {
        // Release: pairs with the Acquire in `serve`.
        self.asked.fetch_add(1, Ordering::Release);
        W::wake(&raw const self.asked, u32::MAX);
    }
}

impl<T: Send + Sync + 'static, W: Testbed> Drop for Reclaimer<T, W> {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.generation != W::generation() {
            // A child, whose thread it is not, and which must not give its memory back.
            return mem::forget(thread);
        }
        self.value.shared.updater.lock().reclaimers.count -= 1;
        // Relaxed: `ask` publishes it.
        self.end.store(1, Ordering::Relaxed);
        self.value.shared.ask();
        // Values that are dropped may own reclaimers:
        //
        //   Thread of reclaimer 1: drops a value, which owns reclaimer 2; waits for its thread
        //   Thread of reclaimer 2: drops a value, which owns reclaimer 1; waits for its thread
        if !with_serves::<W, _>(Cell::get) {
            thread.join();
        }
    }
}

impl_debug!([T: Send + Sync + 'static, W: Testbed] Reclaimer<T, W> as it { value: it.value, .. });
