//! [`Model`]: the world of the loom model checker, for tests of memory order.
//!
//! [`check`] runs a program repeatedly, once for every interleaving of its threads and for every
//! value that the C11 memory model lets a load return. A test on `Native` may miss a mistake in
//! memory order, because the processor may order accesses more strongly than the code requires. A
//! test on the simulator may miss such a mistake, because the simulator is sequentially consistent.
//!
//! # What is modelled, and what is not
//!
//! | capability | here |
//! |---|---|
//! | words, cells | loom's; an access to a [`Cell`](crate::Cell) that races is reported |
//! | wait | load, test, yield |
//! | wait with a deadline | at most two tries; it gives up at any time |
//! | park, wake | a futex table; a lost wake-up is a deadlock, which loom reports |
//! | place | four CPUs; a thread has a CPU as a property, [`Model::migrate`] changes it |
//! | restartable operations | as without sections; only the simulator has aborts |
//! | light and heavy fence | both are `fence(SeqCst)`; for what was seen, `fence(Acquire)` |
//! | kick | a heavy fence; no thread is ever asked to give up its CPU |
//! | slice extensions | none |
//! | time | stands still |
//! | work | takes no time, and touches nothing |
//! | signals | there are none |
//! | memory | the host's |
//! | statics | created separately for every execution |
//!
//! loom has limits of its own. If one thread executes a load and a compare-exchange on one word,
//! loom records only the compare-exchange. It does not try the other values that another thread
//! could have read before the load. So code that loads and then exchanges is explored less than it
//! seems (`tests/model.rs` in the repository has an example). An execution has at most 5 threads,
//! including the initial one. Loads are never reordered with later stores of the same thread.
//! `SeqCst` on loads, stores and read-modify-writes is no stronger than `AcqRel`, so an algorithm
//! that needs more must use fences. A weak compare-exchange never fails spuriously. A program must
//! be deterministic, except for the values that it reads through its words.
//!
//! # Does the test see anything?
//!
//! A passing check is useful only if the same check fails when the algorithm is wrong. A [`Plant`]
//! removes orderings from an algorithm without a change to its source:
//!
//! ```
//! use coreline_world::conformance::order::published_data_is_seen;
//! use coreline_world::model::{Checker, Model, Plant};
//!
//! let executions = Checker::new().try_check(published_data_is_seen::<Model>)?;
//! assert!(executions > 1);
//!
//! let planted = Checker::new().plant(Plant::RELAXED_STORES);
//! let failure = planted.try_check(published_data_is_seen::<Model>).unwrap_err();
//! assert!(failure.message.contains("Causality violation"));
//! # Ok::<(), coreline_world::model::Failure>(())
//! ```

/// The answer of loom. `None` if it fails while the thread unwinds. In this case a destructor calls
/// it, and a panic that leaves a destructor would abort the process. Not a function: loom reports
/// the line of the caller.
macro_rules! attempt {
    ($access:expr) => {
        if std::thread::panicking() {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| $access)).ok()
        } else {
            Some($access)
        }
    };
}

mod check;
mod memory;
mod place;
mod plant;
mod sleep;
mod statics;
mod threads;
mod words;

use core::time::Duration;

use coreline_topology::CpuId;

pub use check::{Checker, Failure, check};
pub use place::ModelSection;
pub use plant::Plant;
pub use threads::ModelJoinHandle;
pub use words::{
    ModelPtr, ModelReading, ModelTrack, ModelU8, ModelU32, ModelU64, ModelUsize, ModelWriting,
};

use crate::{Clock, Fences, Kick, Lacking, Ordering, SliceExtension, Time, Why, Work, World};

/// The loom world, with the orderings that the check's [`Plant`] allows.
///
/// Its functions work only inside [`check`] or [`Checker`], and panic elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Model;

// SAFETY: without a plant it passes the laws: `tests/conformance.rs`. A plant weakens orderings,
// which only loom's own bookkeeping sees: on the host, all threads of an execution take turns on
// one thread. Or it refuses fences, which every world may.
unsafe impl World for Model {
    const NAME: &'static str = "model";
}

impl Model {
    /// The rare side of a pair, unless the plant takes it away or refuses it.
    fn try_fence_heavy(order: Ordering) -> Result<(), Lacking> {
        let plant = Plant::current();
        if (plant.refuses)() {
            return Err(Lacking {
                world: Self::NAME,
                capability: "heavy fence",
                why: Why::new("the plant refuses it"),
                remedy: "plant nothing",
            });
        }
        if plant.heavy_fences {
            attempt!(loom::sync::atomic::fence(order));
        }
        Ok(())
    }
}

impl Fences for Model {
    fn fence(order: Ordering) {
        let left = (Plant::current().fence)(order);
        // A plant answers `Relaxed` to take a fence away. From the caller `Relaxed` is a mistake,
        // which loom refuses as `std` does.
        if left != Ordering::Relaxed || left == order {
            attempt!(loom::sync::atomic::fence(left));
        }
    }

    fn fence_light() {
        // SeqCst, partner: the fence of `fence_all`. loom totally orders the two, so what stands
        // before the first is visible after the second. It also orders two light fences, which
        // `Native` does not.
        if Plant::current().light_fences {
            attempt!(loom::sync::atomic::fence(Ordering::SeqCst));
        }
    }

    fn light_is_free() -> bool {
        true
    }

    fn fence_light_free() {
        Self::fence_light();
    }

    fn try_fence_all() -> Result<(), Lacking> {
        // SeqCst, partner: the fence of `fence_light`.
        Self::try_fence_heavy(Ordering::SeqCst)
    }

    fn try_fence_seen() -> Result<(), Lacking> {
        // Acquire, partner: the fence of `fence_light`, which is stronger here than `Native`'s.
        Self::try_fence_heavy(Ordering::Acquire)
    }

    fn fence_restartable() -> Result<(), Lacking> {
        // No operation runs in a section, so none is under way.
        Self::try_fence_all()
    }
}

impl Kick for Model {
    fn kick(_: CpuId) -> Result<(), Lacking> {
        // No operation runs in a section, so none is under way on any CPU.
        Self::try_fence_all()
    }
}

impl SliceExtension for Model {
    fn enable_extension() -> Result<(), Lacking> {
        Err(Lacking {
            world: Self::NAME,
            capability: "slice extension",
            why: Why::new("threads of a model have no slices"),
            remedy: "run the program natively, or on a simulated machine",
        })
    }
}

impl Clock for Model {
    const RUNS: bool = false;

    type Instant = Time;

    fn now() -> Time {
        Time::from_nanos(0)
    }
}

impl Work for Model {
    fn work(_: Duration) {}
}
