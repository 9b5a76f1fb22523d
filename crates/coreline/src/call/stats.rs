//! The counts of workers.

use coreline_world::{Line, Ordering, Word, World};

/// A count that one thread writes, and any thread reads.
pub(super) struct Count<W: World>(W::U64);

impl<W: World> Count<W> {
    fn new_in() -> Self {
        Count(W::U64::new_in(0))
    }

    /// Only the writer may call this.
    #[inline]
    pub(super) fn add(&self, count: u32) {
        // Relaxed: a count, of one writer.
        let found = self.0.load(Ordering::Relaxed);
        // Relaxed: as for the load.
        self.0.store(found.wrapping_add(u64::from(count)), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        // Relaxed: a count.
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The counts of one worker, on lines of its own.
        #[repr(C)]
        pub(super) struct Counts<W: World> {
            $(pub(super) $name: Count<W>,)+
            _apart: Line<()>,
        }

        impl<W: World> Counts<W> {
            pub(super) fn new_in() -> Self {
                Counts { $($name: Count::new_in(),)+ _apart: Line(()) }
            }

            pub(super) fn read(&self, depth: u64) -> WorkerStats {
                WorkerStats { $($name: self.$name.get(),)+ depth }
            }
        }

        /// The counts of operations of one worker, or of all workers. Each number is exact, but the
        /// numbers together are not a snapshot.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct WorkerStats {
            $($(#[$doc])* pub $name: u64,)+
            /// The number of tasks that wait in the worker's queue now. A difference of two counts
            /// keeps the later number.
            pub depth: u64,
        }

        /// The difference to `earlier`.
        impl core::ops::Sub for WorkerStats {
            type Output = WorkerStats;

            fn sub(self, earlier: WorkerStats) -> WorkerStats {
                let depth = self.depth;
                WorkerStats { $($name: self.$name.saturating_sub(earlier.$name),)+ depth }
            }
        }

        impl core::ops::Add for WorkerStats {
            type Output = WorkerStats;

            fn add(self, other: WorkerStats) -> WorkerStats {
                let depth = self.depth + other.depth;
                WorkerStats { $($name: self.$name + other.$name,)+ depth }
            }
        }
    };
}

counts! {
    /// The number of calls that the worker ran.
    calls,
    /// The number of these calls that found a message in the mailbox and queued behind it.
    queued,
    /// The number of tasks that the worker ran. Each poll of a future counts. So does a visit to a
    /// scope of another worker whose tasks have all begun.
    tasks,
    /// The number of times that the worker looked for tasks of other workers.
    searches,
    /// The number of tasks that the worker took from other workers.
    steals,
    /// The number of times that the worker slept because it had nothing to do. A sleep while it
    /// waits for a call of its own is not counted. Each sleep costs two system calls: one to fall
    /// asleep, and one of another thread to wake it.
    sleeps,
    /// The number of times that the worker woke and found no message.
    spurious,
    /// The number of messages that the worker found while it was awake. This is the number of saved
    /// wake-ups.
    spared,
}
