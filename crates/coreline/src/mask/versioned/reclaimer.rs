//! [`Reclaimer`]: a thread that drops the values that a [`Versioned`] replaced.
//!
//! An update that has a reclaimer frees nothing, and [asks](Ask) the reclaimer: see
//! [`reclaim`](crate::reclaim).

use coreline_world::{Native, SpawnError, Testbed, Time, World};

use super::{Shared, Versioned};
use crate::panics::Panics;
use crate::reclaim::{self, Reclaim, Reclaimers, Thread};

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
/// **Costs**: an update takes one more system call. The thread makes the heavy fences of all
/// updates, whatever [`fence_every`](crate::mask::PresenceOptions::fence_every) says. Only updates
/// that come during the same fence share the next one. An update that comes during a fence waits
/// for its end. With one reader and updates without a pause, a reclaimer reduces the number of
/// updates by a fifth to a half (Intel Xeon, family 6, model 207, two busy CPUs). If updates are
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
/// Solve Concurrency Problems"](https://www.rdrop.com/users/paulmck/RCU/rclockpdcsproof.pdf), 1998.
/// The kernel also runs its callbacks on a thread.
#[must_use = "the thread ends when this is dropped"]
pub struct Reclaimer<T: Send + Sync + 'static, W: Testbed = Native> {
    thread: Thread<Versioned<T, W>, W>,
}

impl<T: Send + Sync + 'static, W: Testbed> Versioned<T, W> {
    /// Starts a thread that drops the values that are replaced from now on, and the replaced values
    /// that are not freed yet.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the machine has no room for another thread.
    pub fn reclaimer(&self) -> Result<Reclaimer<T, W>, SpawnError> {
        Ok(Reclaimer { thread: Thread::start(self.clone())? })
    }
}

impl<T: Send + Sync + 'static, W: World> Reclaim<W> for Versioned<T, W> {
    fn asked(&self) -> &W::U32 {
        &self.shared.asked
    }

    fn with_reclaimers(&self, f: &mut dyn FnMut(&mut Reclaimers)) {
        f(&mut self.shared.updater.lock().reclaimers);
    }

    fn look(&self, deadline: Option<Time>, panics: &mut Panics) -> bool {
        self.wait(deadline, panics)
    }
}

/// Asks the reclaimers when it drops, also where an update panics.
pub(super) struct Ask<'a, T: Send + Sync + 'static, W: World>(pub(super) &'a Shared<T, W>);

impl<T: Send + Sync + 'static, W: World> Drop for Ask<'_, T, W> {
    fn drop(&mut self) {
        reclaim::ask::<W>(&self.0.asked);
    }
}

impl_debug!([T: Send + Sync + 'static, W: Testbed] Reclaimer<T, W> as it {
    value: it.thread.of(),
    ..
});
