//! Every fast path as a function of its own, and some of them twice: as the primitive, and written
//! by hand for this machine alone.
//!
//! `cargo xtask golden` counts the instructions of each, and compares what the two of a pair
//! compile to, instruction by instruction: that is the proof that the world, a type parameter,
//! costs nothing. `x_by_hand` is what one would write with core's atomics and rseq, without
//! worlds. Running this program checks that the hand-written code works, so that the comparison
//! is with something that is right.
//!
//! The functions have C names and are not inlined, so that they can be found in the assembler text.
//! `C-unwind` keeps code that would stop a panic at the boundary out of the comparison.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use coreline::counter::{CounterVec, Histogram, Max, PerCpuFold};
use coreline::domain::{Domain, DomainLocal, Member};
use coreline::limit::RateLimiter;
use coreline::lock::{RawBiasedRwLock, RawMutex, RawRwLock, RawTicketLock, ReadMostly};
use coreline::mask::{Entry, Reader, Reading};
use coreline::object::{Budget, ObjectCache};
use coreline::percpu::{
    LossyBuffer, PerCpuBag, ResizableStack, Slots, Word32, Word64, WordPtr, WordSize,
};
use coreline::rcu::{Collector, Rcu};
use coreline::{CounterSet, CpuMask, PerCpuCounter, Workers};
use coreline_topology::{Cid, CpuId};
use coreline_world::{Extended, Native, Place, SliceExtension};

/// Fast paths of primitives, which `cargo xtask golden` finds by their names.
macro_rules! fast_paths {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident $(<$life:lifetime>)? ($($argument:ident: $type:ty),* $(,)?) $(-> $output:ty)?
            $body:block
    )*) => {$(
        /// The primitive.
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub extern "C-unwind" fn $name $(<$life>)? ($($argument: $type),*) $(-> $output)? $body
    )*};
}

/// The ticket lock of [`RawTicketLock`].
#[repr(C)]
pub struct LockByHand {
    next: AtomicU32,
    serving: AtomicU32,
}

fast_paths! {
    fn lock_generic(lock: &RawTicketLock) { lock.lock() }
}

/// By hand. Orderings, here and below, are those of the primitive, and argued for there.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C-unwind" fn lock_by_hand(lock: &LockByHand) {
    let ticket = lock.next.fetch_add(1, Ordering::Relaxed);
    if lock.serving.load(Ordering::Acquire) != ticket {
        wait(&lock.serving, ticket);
    }
}

#[cold]
#[inline(never)]
fn wait(serving: &AtomicU32, ticket: u32) {
    while serving.load(Ordering::Acquire) != ticket {
        std::thread::yield_now();
    }
}

fast_paths! {
    fn try_lock_generic(lock: &RawTicketLock) -> bool { lock.try_lock() }
}

/// By hand.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C-unwind" fn try_lock_by_hand(lock: &LockByHand) -> bool {
    let serving = lock.serving.load(Ordering::Acquire);
    let taken = serving.wrapping_add(1);
    lock.next.compare_exchange(serving, taken, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The primitive.
///
/// # Safety
///
/// The caller holds the lock.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C-unwind" fn unlock_generic(lock: &RawTicketLock) {
    // SAFETY: the caller holds the lock.
    unsafe { lock.unlock() };
}

/// By hand.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C-unwind" fn unlock_by_hand(lock: &LockByHand) {
    let ticket = lock.serving.load(Ordering::Relaxed);
    lock.serving.store(ticket.wrapping_add(1), Ordering::Release);
}

/// A word in each slot.
type Words = Slots<Word64, Native>;
/// A word of 32 bits in each slot.
type Words32 = Slots<Word32, Native>;
/// A word that holds a `usize` in each slot.
type Sizes = Slots<WordSize, Native>;
/// A pointer in each slot.
type Pointers = Slots<WordPtr<u64>, Native>;
/// A word for each ID of a domain.
type DomainWords = DomainLocal<Word64>;
/// A stack of at most thirty pointers in each slot.
type Resizables = Slots<ResizableStack<u64, 30>, Native>;

fast_paths! {
    fn word_add_generic(words: &Words, delta: u64) { words.field(|word| word).add(delta) }
    fn domain_add_generic(words: &DomainWords, delta: u64) { words.add(delta) }
    /// The lease, and what returns it.
    fn domain_lease_generic(domain: &Domain) -> bool { domain.lease().is_ok() }
    /// Entering, and leaving.
    fn domain_enter_generic(member: &mut Member) -> bool { member.enter().1 == Entry::Current }
    fn word_load_generic(words: &Words) -> u64 { words.field(|word| word).load() }
    fn word_store_if_equal_generic(words: &Words, old: u64, new: u64) -> bool {
        words.field(|word| word).store_if_equal(old, new).is_ok()
    }
    fn word_add_if_generic(words: &Words, delta: u64, fixed: u64) -> bool {
        words.field(|word| word).add_if(delta, fixed).is_ok()
    }
    fn word_exchange_generic(words: &Words, new: u64) -> u64 {
        words.field(|word| word).exchange(new)
    }
    fn word32_add_generic(words: &Words32, delta: u32) { words.field(|word| word).add(delta) }
    fn word32_load_generic(words: &Words32) -> u32 { words.field(|word| word).load() }
    fn word32_exchange_generic(words: &Words32, new: u32) -> u32 {
        words.field(|word| word).exchange(new)
    }
    fn word32_store_if_equal_generic(words: &Words32, old: u32, new: u32) -> bool {
        words.field(|word| word).store_if_equal(old, new).is_ok()
    }
    fn word32_add_if_generic(words: &Words32, delta: u32, fixed: u32) -> bool {
        words.field(|word| word).add_if(delta, fixed).is_ok()
    }
    fn size_add_generic(words: &Sizes, delta: usize) { words.field(|word| word).add(delta) }
    fn size_load_generic(words: &Sizes) -> usize { words.field(|word| word).load() }
    fn size_exchange_generic(words: &Sizes, new: usize) -> usize {
        words.field(|word| word).exchange(new)
    }
    fn size_store_if_equal_generic(words: &Sizes, old: usize, new: usize) -> bool {
        words.field(|word| word).store_if_equal(old, new).is_ok()
    }
    fn size_add_if_generic(words: &Sizes, delta: usize, fixed: usize) -> bool {
        words.field(|word| word).add_if(delta, fixed).is_ok()
    }
    fn pointer_load_generic(words: &Pointers) -> *mut u64 { words.field(|word| word).load() }
    fn pointer_exchange_generic(words: &Pointers, new: *mut u64) -> *mut u64 {
        words.field(|word| word).exchange(new)
    }
    fn pointer_store_if_equal_generic(words: &Pointers, old: *mut u64, new: *mut u64) -> bool {
        words.field(|word| word).store_if_equal(old, new).is_ok()
    }
    fn resizable_push_generic(stacks: &Resizables, value: NonNull<u64>) -> bool {
        stacks.field(|stack| stack).push(value).is_ok()
    }
    fn resizable_pop_generic(stacks: &Resizables) -> Option<NonNull<u64>> {
        stacks.field(|stack| stack).pop()
    }
    fn resizable_push_batch_generic(stacks: &Resizables, values: &[NonNull<u64>; 16]) -> usize {
        stacks.field(|stack| stack).push_batch(values)
    }
    fn resizable_pop_batch_generic(
        stacks: &Resizables,
        into: &mut [Option<NonNull<u64>>; 16],
    ) -> usize {
        stacks.field(|stack| stack).pop_batch(into)
    }
    fn resizable_resize_generic(stacks: &Resizables, capacity: usize) -> usize {
        stacks.field(|stack| stack).resize(capacity)
    }
    fn counter_add_generic(counter: &PerCpuCounter, delta: i64) { counter.add(delta) }
    /// At an index that is known where it is called, as it is as a rule.
    fn counter_set_add_generic(counters: &CounterSet<4>, delta: i64) { counters.add(2, delta) }
    /// At an index that is not known where it is called.
    fn counter_vec_add_generic(counters: &CounterVec, index: usize, delta: i64) {
        counters.add(index, delta);
    }
    /// Whichever buckets it has.
    fn histogram_record_generic(histogram: &Histogram, value: u64) { histogram.record(value) }
    /// Whether there was a permit.
    fn limiter_acquire_generic(limiter: &RateLimiter) -> bool { limiter.try_acquire().is_ok() }
    /// Whether there was room.
    fn bag_push_generic(bag: &PerCpuBag<NonNull<u64>>, value: NonNull<u64>) -> bool {
        bag.push(value).is_ok()
    }
    fn bag_pop_generic(bag: &PerCpuBag<NonNull<u64>>) -> Option<NonNull<u64>> { bag.pop() }
    /// Whether there was room.
    fn lossy_buffer_push_generic(buffer: &LossyBuffer<u64>, value: u64) -> bool {
        buffer.push(value).is_ok()
    }
    /// Whether there was room.
    fn budget_charge_generic(budget: &Budget, amount: u64) -> bool { budget.charge(amount).is_ok() }
    fn budget_uncharge_generic(budget: &Budget, amount: u64) { budget.uncharge(amount) }
    fn max_record_generic(max: &PerCpuFold<Max<u64>>, value: u64) { max.record(value) }
    fn place_cpu_generic() -> u32 { Native::cpu().get() }
    fn extension_pair_generic() -> bool {
        Native::request_extension() && Native::end_extension() == Extended::Yielded
    }
    /// `u32::MAX` where there is none.
    fn place_kernel_cid_generic() -> u32 { Native::kernel_cid().map_or(u32::MAX, Cid::get) }
}

/// An addition to a word in the calling thread's slot, where coreline has restartable sections and
/// this file knows the assembly.
#[cfg(target_arch = "x86_64")]
pub mod word;

fast_paths! {
    /// A bit that is set, most of the time.
    fn mask_set_generic(mask: &CpuMask, cpu: u32) -> bool { mask.set(CpuId::new(cpu)) == Ok(true) }
    /// A value that is not replaced, most of the time.
    fn versioned_get_generic<'a>(reading: &'a mut Reading<'_, u64>) -> &'a u64 { reading.get() }
    /// As on the way into a request, and out of it.
    fn versioned_enter_get_generic(reader: &mut Reader<u64>) -> u64 { *reader.enter().get() }
    /// A mutex that no thread waits for: one exchange.
    fn mutex_lock_generic(lock: &RawMutex) { lock.lock() }
}

/// And one store.
///
/// # Safety
///
/// As [`RawMutex::unlock`].
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C-unwind" fn mutex_unlock_generic(lock: &RawMutex) {
    // SAFETY: the caller holds the lock, as it promises.
    unsafe { lock.unlock() };
}

fast_paths! {
    /// A reader, in and out.
    fn rwlock_read_generic(lock: &RawRwLock) {
        lock.read();
        // SAFETY: taken just now.
        unsafe { lock.unlock_read() };
    }
    /// A reader of a lock that may be biased, in and out, by the call that does not know whether
    /// the caller reads. There is code for both places where a reader is counted.
    fn biased_read_generic(lock: &RawBiasedRwLock) {
        lock.read();
        // SAFETY: taken just now.
        unsafe { lock.unlock() };
    }
    /// A writer of the same lock, in and out.
    fn biased_write_generic(lock: &RawBiasedRwLock) {
        if lock.write().is_ok() {
            // SAFETY: taken just now.
            unsafe { lock.unlock() };
        }
    }
    /// A reader that writes to its own slot, in and out.
    fn read_mostly_read_generic(lock: &ReadMostly<u64>) -> u64 { *lock.read() }
    /// A read-side critical section.
    fn rcu_enter_leave_generic(collector: &Collector) { drop(collector.enter()) }
    /// A value that is replaced, in a section of its own.
    fn rcu_read_generic(value: &Rcu<u64>) -> u64 { *value.read() }
    /// A value that readers may hold, which goes to the list of the CPU.
    fn rcu_defer_generic(collector: &Collector) { collector.defer(|| ()) }
    /// An object that stays constructed, with nothing that each life has for itself: from the stack
    /// of the CPU, and back.
    fn object_get_put_generic(cache: &ObjectCache<[u64; 7]>) -> u64 {
        cache.get().map_or(0, |object| object[0])
    }
    /// The caller's code for a small function on another CPU's worker, and its value.
    fn call_on_generic(workers: &Workers, cpu: u32, value: u64) -> u64 {
        workers.call_on(CpuId::new(cpu), move || value.wrapping_mul(3)).unwrap_or(0)
    }
}

fn main() {
    let generic = RawTicketLock::new();
    let by_hand = LockByHand { next: AtomicU32::new(0), serving: AtomicU32::new(0) };
    for _ in 0..3 {
        lock_generic(&generic);
        lock_by_hand(&by_hand);
        assert!(!try_lock_generic(&generic) && !try_lock_by_hand(&by_hand));
        // SAFETY: this thread took the lock by `lock_generic`, and has not freed it.
        unsafe { unlock_generic(&generic) };
        unlock_by_hand(&by_hand);
        assert!(try_lock_generic(&generic) && try_lock_by_hand(&by_hand));
        // SAFETY: `try_lock` said that it took the lock.
        unsafe { unlock_generic(&generic) };
        unlock_by_hand(&by_hand);
    }
    #[cfg(target_arch = "x86_64")]
    word::check();
}
