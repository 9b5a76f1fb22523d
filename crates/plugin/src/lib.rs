//! A library that contains coreline. The native tests of `coreline` load and unload it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use coreline::domain::DomainLocal;
use coreline::percpu::Word64;
use coreline::{Domain, PerCpu, PerCpuCounter};

const TIMES: u64 = 1_000;

struct Shared {
    counter: PerCpuCounter,
    words: PerCpu<Word64>,
    domain: Domain,
    tenant: DomainLocal<Word64>,
    /// The expected value of each of the three.
    added: AtomicU64,
}

impl Shared {
    fn get() -> &'static Shared {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(|| {
            let domain = Domain::new().expect("a domain");
            let tenant = domain.local(|| Word64::new(0)).expect("memory");
            let counter = PerCpuCounter::new().expect("memory");
            let words = PerCpu::new(|| Word64::new(0)).expect("memory");
            Shared { counter, words, domain, tenant, added: AtomicU64::new(0) }
        })
    }

    fn add(&self, times: u64) {
        for _ in 0..times {
            self.counter.add(1);
            self.words.add(1);
            self.tenant.add(1);
        }
        // Relaxed: a count; a caller of `coreline_plugin_lost` has waited for those that add.
        self.added.fetch_add(times, Ordering::Relaxed);
    }
}

/// Adds once more when its thread ends.
struct AtTheEnd;

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        Shared::get().add(1);
    }
}

thread_local! {
    static AT_THE_END: AtTheEnd = const { AtTheEnd };
}

/// Uses the state that coreline keeps for each thread and for the process. If `also_at_the_end` is
/// true, it uses this state again when the calling thread ends. Until then, the C library does not
/// unload this library.
#[unsafe(no_mangle)]
pub extern "C" fn coreline_plugin_use(also_at_the_end: bool) {
    if also_at_the_end {
        AT_THE_END.with(|_| ());
    }
    let shared = Shared::get();
    let mut member = shared.domain.join();
    let (_inside, _) = member.enter();
    drop(shared.domain.lease());
    shared.add(TIMES);
}

/// The number of additions that were lost. No thread may be adding during the call.
#[unsafe(no_mangle)]
pub extern "C" fn coreline_plugin_lost() -> u64 {
    let shared = Shared::get();
    // Relaxed: see `add`.
    let added = shared.added.load(Ordering::Relaxed);
    let sums =
        [shared.counter.read_exact().cast_unsigned(), shared.words.sum(), shared.tenant.sum()];
    sums.iter().map(|sum| sum.abs_diff(added)).sum()
}
