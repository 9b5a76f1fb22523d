//! Handlers in a sandbox that refuses what slow paths ask of the kernel: no operation that promises
//! async-signal safety allocates, neither where it goes on without, nor to say what it lacks.

use std::alloc;
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use coreline::cid::SCAN_DELAY;
use coreline::domain::{Domain, DomainLocal};
use coreline::mask::{Member, Presence, Reader, Versioned};
use coreline::percpu::{PerCpuPool, PoolError, PoolOptions, ResizableStack, StopError, Word64};
use coreline::{CounterSet, CpuMask, Lacking, PerCpu, PerCpuCounter};
use coreline_topology::NodeId;
use coreline_world::{Fences, MapError, Memory, Native, Place, Time};

use crate::filter::{in_a_child, refuse};
use crate::os::{self, run_on};
use crate::{IN_HANDLER, IN_HANDLERS};

/// What [`on_signal`] works on, and what it found.
struct Scene {
    /// Has mapped nothing, and neither has the pool of huge pages.
    pool: PerCpuPool,
    huge: PerCpuPool,
    /// One addition away from slots.
    hot: PerCpuCounter,
    batched: PerCpuCounter,
    set: CounterSet<2>,
    /// No slot was used.
    words: PerCpu<Word64>,
    stack: PerCpu<ResizableStack<u64, 4>>,
    /// Has given no CPU an ID.
    fresh: DomainLocal<Word64>,
    /// Its domain may have an ID that is to be taken back, of another CPU than the handler's.
    tenant: DomainLocal<Word64>,
    domain: Domain,
    mask: CpuMask,
    member: Member,
    reader: Reader<u64>,
    page: NonNull<u8>,
    mapped: Option<Result<NonNull<u8>, MapError>>,
    allocated: Option<Result<NonNull<u8>, PoolError>>,
    stopped: Option<Result<usize, StopError>>,
    placed: Option<Result<(), Lacking>>,
    advised: Option<Result<(), Lacking>>,
}

const PAGE: alloc::Layout = alloc::Layout::new::<[u8; 4096]>();
const WORD: alloc::Layout = alloc::Layout::new::<u64>();

static SCENE: AtomicPtr<Scene> = AtomicPtr::new(ptr::null_mut());

extern "C" fn on_signal(_signal: c_int) {
    IN_HANDLER.set(true);
    // SAFETY: `raise` returns when this has, and its caller uses the scene before and after. Its
    // memory is that of `Native::map`. Relaxed: the same thread wrote the pointer.
    unsafe {
        let scene = &mut *SCENE.load(Ordering::Relaxed);
        scene.work();
        scene.mapped = Some(Native::map(PAGE));
        scene.placed = Some(Native::place(scene.page, PAGE.size(), NodeId::new(0)));
        scene.advised = Some(Native::advise_huge(scene.page, PAGE.size()));
    }
    IN_HANDLER.set(false);
}

impl Scene {
    fn new() -> Self {
        // An addition on a second CPU would give a counter its slots before the handler runs. A
        // mask has only CPUs that the system names: in a sandbox not always that of this thread.
        let named = Native::topology();
        let is_settled = named.cpus().any(|cpu| run_on(cpu.id.get() as usize));
        assert!(is_settled, "a thread may run on a CPU that the system names");
        let [pool, elsewhere] = [(); 2].map(|()| PerCpuPool::new(PoolOptions::new()).unwrap());
        let hot = PerCpuCounter::from_pool(&pool);
        let batched = PerCpuCounter::from_pool(&pool).batched(4);
        let set = CounterSet::from_pool(&pool);
        for _ in 0..255 {
            hot.add(1);
            batched.add(1);
            set.add(1, 1);
        }
        let domain = Domain::new().unwrap();
        Scene {
            huge: PerCpuPool::new(PoolOptions::new().huge_pages(true)).unwrap(),
            hot,
            batched,
            set,
            words: elsewhere.per_cpu(|| Word64::new(0)).unwrap(),
            stack: elsewhere.per_cpu(|| ResizableStack::with_capacity(4)).unwrap(),
            fresh: Domain::new().unwrap().local(|| Word64::new(0)).unwrap(),
            tenant: domain.local(|| Word64::new(0)).unwrap(),
            domain,
            mask: CpuMask::new(),
            member: Presence::new().register(),
            reader: Versioned::new(7).reader(),
            page: Native::map(PAGE).unwrap(),
            mapped: None,
            allocated: None,
            stopped: None,
            placed: None,
            advised: None,
            pool,
        }
    }

    /// Each operation that may be used in a handler, on the way that asks most of the kernel.
    fn work(&mut self) {
        self.hot.add(1);
        self.batched.add(1);
        self.set.add(1, 1);
        self.words.add(1);
        self.fresh.add(1);
        self.tenant.add(1);
        assert_eq!(self.stack.field(|stack| stack).pop(), None);
        self.stopped = Some(self.words.with_all_stopped(|slots| slots.count()));
        self.allocated = Some(self.huge.allocate(WORD));
        let cpu = Native::cpu();
        assert_eq!(self.mask.set(cpu), Ok(true));
        assert_eq!((self.mask.weight(), self.mask.clear(cpu)), (1, Ok(true)));
        self.mask.trim();
        drop(self.member.enter());
        assert_eq!(*self.reader.enter().get(), 7);
    }

    /// What none of it may have lost.
    fn check(&self) {
        assert_eq!(self.hot.read_exact(), 256);
        assert_eq!(self.batched.read_exact(), 256);
        assert_eq!(self.set.read_exact(), [0, 256]);
        assert_eq!([self.words.sum(), self.fresh.sum(), self.tenant.sum()], [1; 3]);
    }
}

/// Runs a handler while the kernel refuses this call, and returns what it worked on. `before` runs
/// first, while nothing is refused.
fn handle_without(call: libc::c_long, before: impl FnOnce(&Scene)) -> Scene {
    let mut scene = Scene::new();
    before(&scene);
    // Relaxed: the handler runs on this thread.
    SCENE.store(&raw mut scene, Ordering::Relaxed);
    os::on_signal(libc::SIGUSR1, on_signal);
    refuse(call);
    // SAFETY: a signal with a handler.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    assert_eq!(IN_HANDLERS.load(Ordering::Relaxed), 0, "allocations in a signal handler");
    scene.check();
    scene
}

fn without_membarrier(before: impl FnOnce()) {
    let mut ids = 0;
    let scene = handle_without(libc::SYS_membarrier, |scene| {
        before();
        let mut cpus = (0..1024).filter(|&cpu| run_on(cpu));
        assert!(cpus.next().is_some(), "this process may run somewhere");
        scene.tenant.add(0);
        // The handler's scan is due long since, and finds that this CPU's ID was not used.
        scene.domain.expire(Time::from_nanos(0) + SCAN_DELAY).unwrap();
        // The handler runs on another CPU, if there is one, and needs an ID there.
        ids = 1 + usize::from(cpus.next().is_some());
    });
    match scene.stopped.unwrap() {
        Err(lacking) => assert!(lacking.to_string().contains("membarrier"), "{lacking}"),
        Ok(_) => assert!(!scene.words.section().is_rseq(), "stopped without a fence"),
    }
    if scene.words.section().is_rseq() {
        assert_eq!(scene.domain.usage().ids, ids, "taken back without a fence");
    }
}

#[test]
fn without_membarrier_handlers_allocate_nothing() {
    in_a_child("refused::without_membarrier_handlers_allocate_nothing", || {
        without_membarrier(|| ());
    });
}

#[test]
fn when_membarrier_goes_away_handlers_allocate_nothing() {
    in_a_child("refused::when_membarrier_goes_away_handlers_allocate_nothing", || {
        without_membarrier(Native::fence_all);
    });
}

// musl's allocator maps all that it gives, so nothing goes on there without.
#[cfg(not(target_env = "musl"))]
#[test]
fn without_mmap_handlers_allocate_nothing() {
    in_a_child("refused::without_mmap_handlers_allocate_nothing", || {
        let scene = handle_without(libc::SYS_mmap, |_| ());
        let refused = scene.mapped.unwrap().unwrap_err().to_string();
        assert!(refused.contains("4096 bytes") && refused.contains("not permitted"), "{refused}");
        assert!(matches!(scene.allocated, Some(Err(PoolError::Map(_)))));
        assert!(!scene.hot.is_spread() && !scene.batched.is_spread() && !scene.set.is_spread());
        assert_eq!(scene.fresh.iter().count(), 1, "the shared slot is all there is");
    });
}

#[test]
fn without_mbind_handlers_allocate_nothing() {
    in_a_child("refused::without_mbind_handlers_allocate_nothing", || {
        let scene = handle_without(libc::SYS_mbind, |_| ());
        let refused = scene.placed.unwrap().unwrap_err().to_string();
        assert!(refused.contains("mbind to node 0: "), "{refused}");
        assert_eq!(scene.pool.lacking().is_some(), Native::topology().node_count() > 1);
        assert!(scene.hot.is_spread());
    });
}

#[test]
fn without_madvise_handlers_allocate_nothing() {
    in_a_child("refused::without_madvise_handlers_allocate_nothing", || {
        let scene = handle_without(libc::SYS_madvise, |_| ());
        let refused = scene.advised.unwrap().unwrap_err().to_string();
        assert!(refused.contains("madvise: "), "{refused}");
        assert!(scene.huge.lacking().is_some() && matches!(scene.allocated, Some(Ok(_))));
    });
}
