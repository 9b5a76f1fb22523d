//! [`Reclaimer`]: a thread that frees the retired values of a [`Collector`].

use std::sync::Arc;

use coreline_world::{Native, SpawnError, Testbed, Time, World};

use super::collector::Collector;
use crate::panics::Panics;
use crate::reclaim::{Reclaim, Reclaimers, Thread};

/// A thread, named `coreline-free`, that frees retired values and runs deferred functions.
///
/// As long as a reclaimer exists, calls of `retire` and `defer` free nothing themselves. The thread
/// frees a value a few milliseconds after the end of the last section that may have found it. Use a
/// reclaimer if drops take long or take locks, or if later calls may never come.
///
/// ```
/// use coreline::rcu::Collector;
/// use std::sync::{Arc, mpsc::channel};
///
/// let collector = Arc::new(Collector::new()?);
/// let reclaimer = collector.reclaimer()?;
/// let (tell, told) = channel();
/// collector.defer(move || tell.send(std::thread::current().name().map(str::to_owned)).unwrap());
/// assert_eq!(told.recv()?.as_deref(), Some("coreline-free"));
/// # drop(reclaimer);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping the reclaimer ends the thread, and waits for its end. The thread first frees the values
/// that no section holds. Later calls of `retire` free the rest. A reclaimer keeps the collector
/// alive. A retired value may own a reclaimer. If a reclaimer's thread drops such a value, the drop
/// does not wait.
///
/// **Costs**: the first value of a list, and each batch, cost one more system call. While a section
/// holds a value, the thread checks after 50 us, and then at growing intervals of up to 10 ms. If
/// values are retired faster than the thread frees them, the
/// [limit](super::CollectorOptions::limit) holds. With a patience of `Duration::MAX`, a drop must
/// then take no lock that a thread holds while it retires, because each would wait for the other.
///
/// **Panics**: if a drop or a function panics, the thread continues with the others. The panic hook
/// reports the panic.
///
/// **Priorities**: the thread has the priority of the thread that started it.
///
/// **Signals, fork**: a signal handler must not use a reclaimer. A forked child has no such thread,
/// and its calls of `retire` free values as without a reclaimer.
#[must_use = "the thread ends when this is dropped"]
pub struct Reclaimer<W: Testbed = Native> {
    thread: Thread<Arc<Collector<W>>, W>,
}

impl<W: Testbed> Collector<W> {
    /// Starts a thread that frees the values that were retired and those that are retired from now
    /// on.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if the machine has no room for another thread.
    pub fn reclaimer(self: &Arc<Self>) -> Result<Reclaimer<W>, SpawnError> {
        Ok(Reclaimer { thread: Thread::start(Arc::clone(self))? })
    }
}

impl<W: World> Reclaim<W> for Arc<Collector<W>> {
    fn asked(&self) -> &W::U32 {
        &self.asked
    }

    fn with_reclaimers(&self, f: &mut dyn FnMut(&mut Reclaimers)) {
        (**self).with_reclaimers(f);
    }

    fn look(&self, deadline: Option<Time>, panics: &mut Panics) -> bool {
        // No fence: as if a section held all. The next look tries again.
        // All that is ready is freed: after the last look, the thread ends.
        self.drain(deadline, None, panics).unwrap_or(false)
    }
}

impl_debug!([W: Testbed] Reclaimer<W> as it { collector: it.thread.of(), .. });
