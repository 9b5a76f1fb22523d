//! Every fast path twice: as the primitive, and written by hand for this machine alone.
//!
//! `cargo xtask golden` compares what the two compile to, instruction by instruction: that is the
//! proof that the world, a type parameter, costs nothing. `x_by_hand` is what one would write with
//! core's atomics and rseq who never heard of worlds. Running this program checks that the
//! hand-written code works, so that the comparison is with something that is right.
//!
//! The functions have C names and are not inlined, so that they can be found in the assembler text.
//! `C-unwind` keeps code that would stop a panic at the boundary out of the comparison.

use core::sync::atomic::{AtomicU32, Ordering};

use coreline::lock::RawTicketLock;

/// The ticket lock of [`RawTicketLock`].
#[repr(C)]
pub struct LockByHand {
    next: AtomicU32,
    serving: AtomicU32,
}

/// The primitive.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C-unwind" fn lock_generic(lock: &RawTicketLock) {
    lock.lock();
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

/// The primitive.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C-unwind" fn try_lock_generic(lock: &RawTicketLock) -> bool {
    lock.try_lock()
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

/// The counter, where coreline has restartable sections. Elsewhere it adds atomically, out of line.
#[cfg(target_arch = "x86_64")]
pub mod counter {
    use core::arch::asm;
    use core::ffi::{CStr, c_char, c_void};
    use core::sync::atomic::{AtomicU64, Ordering};

    use coreline::PerCpuCounter;
    use coreline_world::{IndexBy, Native, Place};

    /// The per-CPU counter of [`PerCpuCounter`].
    #[repr(C)]
    pub struct CounterByHand {
        mode: Mode,
        /// How many slots have a CPU or a concurrency ID; one more is for threads without.
        limit: u32,
        /// Where the rseq area lies from the thread pointer.
        area: isize,
        slots: Box<[Slot]>,
    }

    #[repr(u8)]
    enum Mode {
        Cpu,
        Cid,
        Atomics,
    }

    #[repr(align(64))]
    struct Slot(AtomicU64);

    /// The primitive.
    #[unsafe(no_mangle)]
    #[inline(never)]
    pub extern "C-unwind" fn counter_add_generic(counter: &PerCpuCounter, delta: i64) {
        counter.add(delta);
    }

    /// By hand.
    #[unsafe(no_mangle)]
    #[inline(never)]
    pub extern "C-unwind" fn counter_add_by_hand(counter: &CounterByHand, delta: i64) {
        let slots = counter.slots.as_ptr();
        'no_index: {
            // SAFETY: `like` made the counter, on a machine where sections work if the mode says
            // so; the index is checked against the limit, and there are more slots than that.
            unsafe {
                match counter.mode {
                    Mode::Cpu => {
                        add_in_section!("", "4", counter, slots, delta, { break 'no_index });
                    }
                    Mode::Cid => {
                        add_in_section!(
                            "cmp dword ptr fs:[{area} + 4], 0
                             js {no_index}",
                            "24",
                            counter,
                            slots,
                            delta,
                            { break 'no_index }
                        );
                    }
                    Mode::Atomics => add_atomically(counter, delta),
                }
            }
            return;
        }
        add_shared(counter, delta);
    }

    /// Adds to the slot whose number lies at `$index` in the rseq area, if `$check` lets it.
    macro_rules! add_in_section {
        (
            $check:literal, $index:literal, $counter:expr, $slots:expr, $delta:expr,
            $no_index:block
        ) => {
            asm!(
                "2:
                 lea {at}, [rip + 5f]
                 mov qword ptr fs:[{area} + 8], {at}
                 3:",
                $check,
                concat!("mov {at:e}, dword ptr fs:[{area} + ", $index, "]"),
                "cmp {at:e}, {limit:e}
                 jae {no_index}
                 shl {at}, 6
                 add qword ptr [{slots} + {at}], {delta}
                 4:
                 .pushsection __rseq_cs, \"aw\"
                 .balign 32
                 5:
                 .long 0, 0
                 .quad 3b, 4b - 3b, 6f
                 .popsection
                 .pushsection __rseq_failure, \"ax\"
                 .byte 0x0f, 0xb9, 0x3d
                 .long 0x53053053
                 6:
                 jmp 2b
                 .popsection",
                at = out(reg) _,
                area = in(reg) $counter.area,
                limit = in(reg) $counter.limit,
                slots = in(reg) $slots,
                delta = in(reg) $delta,
                no_index = label $no_index,
                options(nostack),
            )
        };
    }
    use add_in_section;

    #[inline(never)]
    fn add_atomically(counter: &CounterByHand, delta: i64) {
        let slot = &counter.slots[Native::cpu().index()];
        slot.0.fetch_add(delta.cast_unsigned(), Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn add_shared(counter: &CounterByHand, delta: i64) {
        let slot = &counter.slots[counter.limit as usize];
        slot.0.fetch_add(delta.cast_unsigned(), Ordering::Relaxed);
    }

    impl CounterByHand {
        /// A counter that works as `counter` does.
        pub fn like(counter: &PerCpuCounter) -> Self {
            let words = counter.words();
            let section = words.section();
            let mode = match section.index_by() {
                _ if !section.is_rseq() => Mode::Atomics,
                IndexBy::Cpu => Mode::Cpu,
                IndexBy::KernelCid => Mode::Cid,
            };
            let limit = u32::try_from(words.indexes()).expect("a CPU number has 32 bits");
            let slots = (0..=limit).map(|_| Slot(AtomicU64::new(0))).collect();
            CounterByHand { mode, limit, area: area(), slots }
        }

        fn sum(&self) -> i64 {
            let load = |slot: &Slot| slot.0.load(Ordering::Relaxed).cast_signed();
            self.slots.iter().map(load).sum()
        }
    }

    /// Where the C library says that it put each thread's rseq area; 0 if it says nothing.
    fn area() -> isize {
        unsafe extern "C" {
            fn dlsym(handle: *mut c_void, name: *const c_char) -> *const c_void;
        }
        const NAME: &CStr = c"__rseq_offset";
        // SAFETY: a null handle is the default scope, the name is a C string, and the C library
        // keeps a `ptrdiff_t` of this name or nothing.
        unsafe { dlsym(core::ptr::null_mut(), NAME.as_ptr()).cast::<isize>().as_ref() }
            .copied()
            .unwrap_or(0)
    }

    /// Checks the hand-written counter against the primitive.
    pub fn check() {
        for by in [IndexBy::Cpu, IndexBy::KernelCid] {
            // A machine without concurrency IDs has nothing to check there.
            let Ok(generic) = PerCpuCounter::new_in(by) else {
                continue;
            };
            let by_hand = CounterByHand::like(&generic);
            for delta in -10..100 {
                counter_add_generic(&generic, delta);
                counter_add_by_hand(&by_hand, delta);
            }
            assert_eq!(generic.sum(), (-10..100).sum());
            assert_eq!(by_hand.sum(), generic.sum(), "indexed by {by}");
        }
    }
}

fn main() {
    let generic = RawTicketLock::new();
    let by_hand = LockByHand { next: AtomicU32::new(0), serving: AtomicU32::new(0) };
    for _ in 0..3 {
        lock_generic(&generic);
        lock_by_hand(&by_hand);
        assert!(!try_lock_generic(&generic) && !try_lock_by_hand(&by_hand));
        // SAFETY: locked above, by this thread.
        unsafe { unlock_generic(&generic) };
        unlock_by_hand(&by_hand);
        assert!(try_lock_generic(&generic) && try_lock_by_hand(&by_hand));
        // SAFETY: `try_lock` said that it took the lock.
        unsafe { unlock_generic(&generic) };
        unlock_by_hand(&by_hand);
    }
    #[cfg(target_arch = "x86_64")]
    counter::check();
}
