//! Handlers that do, on the same memory, what the code does that they interrupt.

use std::alloc::Layout;
use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use coreline::domain::{Domain, DomainLocal};
use coreline::percpu::{PerCpuPool, PoolOptions, ResizableStack, Word64};
use coreline::{CounterSet, PerCpu, PerCpuCounter};
use coreline_world::{Native, Restartable};

use crate::{IN_HANDLER, IN_HANDLERS, os};

const VICTIMS: usize = 3;
const SIGNALS: usize = 1_000;
const TOKENS: u64 = 6;
/// What handlers and the code that they interrupt work on.
struct Shared {
    pool: PerCpuPool,
    counter: PerCpuCounter,
    batched: PerCpuCounter,
    set: CounterSet<2>,
    words: PerCpu<Word64>,
    stack: PerCpu<ResizableStack<u64, 64>>,
    /// Each at most one addition away from its slots, which a handler is to make.
    hot: Vec<PerCpuCounter>,
    next_hot: AtomicUsize,
    tenant: DomainLocal<Word64>,
    /// Each in a domain of its own, which has given no CPU an ID: a handler is to.
    fresh: Vec<DomainLocal<Word64>>,
    handled: AtomicU64,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

impl Shared {
    fn work(&self) {
        self.counter.add(1);
        self.batched.add(-3);
        self.set.add(1, 2);
        self.words.add(1);
        self.tenant.add(1);
        // A chunk that goes back, which this or another thread unmaps.
        let whole = Layout::from_size_align(Native::STRIDE, 8).unwrap();
        let at = self.pool.allocate(whole).unwrap();
        // SAFETY: just allocated; the bytes of slot 0 are this thread's until they are free.
        unsafe {
            at.write_bytes(1, Native::STRIDE);
            assert_eq!(self.pool.free(at, whole, 0), Ok(()));
        }
        self.pool.trim();
        let stack = self.stack.field(|stack| stack);
        if let Some(token) = stack.pop() {
            // There is room for all.
            assert!(stack.push(token).is_ok());
        }
    }
}

extern "C" fn on_signal(_signal: c_int) {
    let nested = IN_HANDLER.replace(true);
    // SAFETY: outlives the threads that signals are sent to. Acquire pairs with the release that
    // published it.
    let shared = unsafe { &*SHARED.load(Ordering::Acquire) };
    shared.work();
    // Relaxed, both: counts, read after the threads were joined.
    let next = shared.next_hot.fetch_add(1, Ordering::Relaxed);
    if let Some(counter) = shared.hot.get(next) {
        counter.add(1);
    }
    if let Some(tenant) = shared.fresh.get(next) {
        tenant.add(1);
    }
    shared.handled.fetch_add(1, Ordering::Relaxed);
    IN_HANDLER.set(nested);
}

#[test]
fn handlers_lose_nothing_and_allocate_nothing() {
    let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
    let hot = |_| {
        let counter = PerCpuCounter::from_pool(&pool);
        (0..255).for_each(|_| counter.add(1));
        counter
    };
    let tenant = || Domain::new().unwrap().local(|| Word64::new(0)).unwrap();
    let mut shared = Shared {
        pool: pool.clone(),
        counter: PerCpuCounter::from_pool(&pool),
        batched: PerCpuCounter::from_pool(&pool).batched(8),
        set: CounterSet::from_pool(&pool),
        words: pool.per_cpu(|| Word64::new(0)).unwrap(),
        stack: pool.per_cpu(|| ResizableStack::with_capacity(64)).unwrap(),
        hot: (0..SIGNALS).map(hot).collect(),
        next_hot: AtomicUsize::new(0),
        tenant: tenant(),
        fresh: (0..SIGNALS).map(|_| tenant()).collect(),
        handled: AtomicU64::new(0),
    };
    let tokens: Vec<u64> = (0..TOKENS).collect();
    for token in &tokens {
        shared.stack.field(|stack| stack).push(NonNull::from(token)).unwrap();
    }
    // Release pairs with the handler's acquire.
    SHARED.store(&raw mut shared, Ordering::Release);
    os::on_signal(libc::SIGUSR1, on_signal);
    let over = AtomicBool::new(false);
    let shared = &shared;
    let worked: u64 = thread::scope(|scope| {
        let (register, victims) = mpsc::channel();
        let workers: Vec<_> = (0..VICTIMS)
            .map(|_| {
                let (register, over) = (register.clone(), &over);
                scope.spawn(move || {
                    // SAFETY: asks for a number.
                    register.send(unsafe { libc::gettid() }).unwrap();
                    let mut worked = 0;
                    // Relaxed: carries nothing but itself.
                    while !over.load(Ordering::Relaxed) {
                        shared.work();
                        worked += 1;
                        if worked % 8 == 0 {
                            let before = shared.stack.populated() + 1;
                            let stopped = shared.stack.with_all_stopped(|slots| slots.count());
                            assert!(stopped.is_ok_and(|count| count >= before));
                        }
                    }
                    worked
                })
            })
            .collect();
        let victims: Vec<libc::pid_t> = victims.iter().take(VICTIMS).collect();
        for number in 0..SIGNALS {
            let victim = victims[number % VICTIMS];
            // SAFETY: the thread runs until it is told to stop, so its number is its own.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), victim, libc::SIGUSR1) };
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let handled = shared.handled.load(Ordering::Relaxed);
    assert!(handled > 0, "no signal was handled");
    let times = (worked + handled).cast_signed();
    assert_eq!(shared.counter.read_exact(), times);
    assert_eq!(shared.batched.read_exact(), -3 * times);
    let reading = shared.batched.read();
    assert!(reading.value.abs_diff(-3 * times) <= reading.error, "{reading:?} of {}", -3 * times);
    assert_eq!(shared.set.read_exact(), [0, 2 * times]);
    assert_eq!(shared.words.sum().cast_signed(), times);

    assert_eq!(shared.tenant.sum().cast_signed(), times);
    let reached = &shared.fresh[..handled as usize];
    assert!(reached.iter().all(|tenant| tenant.sum() == 1), "a handler lost an addition");
    // Not all: a handler that finds another thread's at the lines of rows takes the shared slot.
    let made = |tenant: &DomainLocal<Word64>| tenant.iter().count() > 1;
    assert!(reached.iter().any(made), "no handler made a slot");

    // Others may be spread, too: their maker may have been moved.
    let reached = &shared.hot[..handled as usize];
    assert!(reached.iter().all(PerCpuCounter::is_spread), "a handler gave a counter no slots");
    let hot: i64 = shared.hot.iter().map(PerCpuCounter::read_exact).sum();
    assert_eq!(hot, 255 * SIGNALS as i64 + handled.cast_signed());

    let mut found = Vec::new();
    let emptied = shared.stack.with_all_stopped(|slots| {
        for slot in slots {
            let mut popped = [None; TOKENS as usize + 1];
            let count = slot.field(|stack| stack).pop_batch(&mut popped);
            // SAFETY: the tokens live to the end of the test.
            found.extend(popped[..count].iter().flatten().map(|token| unsafe { *token.as_ref() }));
        }
    });
    assert_eq!(emptied, Ok(()));
    found.sort_unstable();
    assert_eq!(found, tokens, "tokens were lost or doubled");
    assert_eq!(IN_HANDLERS.load(Ordering::Relaxed), 0, "allocations in signal handlers");
}
