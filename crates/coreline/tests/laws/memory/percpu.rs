//! What happens where a slot cannot be made, and what making slots costs in the simulator. The laws
//! of slots are in `slots`.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::percpu::{PerCpuPool, PoolOptions, Slot};
use coreline::{IndexBy, PerCpu};
use coreline_sim::{Machine, Sim};
use coreline_world::{Word, Words};

/// Counts how many of it were dropped.
struct Counted {
    word: AtomicU64,
    dropped: Arc<AtomicU64>,
}

// SAFETY: a struct: every value has the same live fields in the same places.
unsafe impl Slot for Counted {}

impl Drop for Counted {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_init_that_panics_leaves_pool_and_slots_usable_natively() {
    // Which call panics: the one for the shared slot, and those for the slots of CPUs.
    for bad in 0..3 {
        let (made, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let pool = PerCpuPool::new(PoolOptions::new().checked(true)).unwrap();
        let init = {
            let (calls, made, dropped) =
                (AtomicU64::new(0), Arc::clone(&made), Arc::clone(&dropped));
            move || {
                assert_ne!(calls.fetch_add(1, Ordering::Relaxed), bad, "planted");
                made.fetch_add(1, Ordering::Relaxed);
                Counted { word: AtomicU64::new(0), dropped: Arc::clone(&dropped) }
            }
        };
        let slots = catch_unwind(AssertUnwindSafe(|| pool.per_cpu(init).unwrap()));
        assert_eq!(slots.is_err(), bad == 0);
        assert_eq!(pool.live(), usize::from(bad != 0), "after a panic in call {bad}");
        if let Ok(slots) = slots {
            let add = || slots.field(|slot| &slot.word).add(1);
            let added = (0..3).filter(|_| catch_unwind(AssertUnwindSafe(add)).is_ok()).count();
            assert_eq!(slots.field(|slot| &slot.word).sum(), added as u64);
            assert_eq!(slots.with_all_stopped(|slots| slots.count()), Ok(slots.populated() + 1));
            drop(slots);
        }
        let (made, dropped) = (made.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed));
        assert_eq!(made, dropped, "of what was made before the panic in call {bad}");
        assert_eq!(pool.close(), Ok(()));
    }
}

type SimWord = <Sim as Words>::U64;

/// Makes an array, with this many bytes of its own.
#[inline(never)]
fn make<const PADDING: usize>() -> PerCpu<SimWord, Sim> {
    let padding = black_box([0_u8; PADDING]);
    let array = PerCpu::<SimWord, Sim>::new_in(IndexBy::Cpu, || SimWord::new_in(0)).unwrap();
    black_box(&padding);
    array
}

/// Nanoseconds until one array is made, and then another, farther down the stack or not.
fn making<const PADDING: usize>() -> u64 {
    let law = || _ = black_box((make::<0>(), make::<PADDING>()));
    Machine::preset("host-2c").unwrap().run(law).unwrap().report.time_ns
}

/// An array is made on its maker's stack and then moved: how a compiler lays out that stack must
/// not decide what a simulation says.
#[test]
fn what_it_takes_to_make_an_array_depends_on_no_stack_frame() {
    let times = [
        making::<16>(),
        making::<32>(),
        making::<48>(),
        making::<64>(),
        making::<80>(),
        making::<96>(),
        making::<112>(),
        making::<128>(),
    ];
    assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
}
