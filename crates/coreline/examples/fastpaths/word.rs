use core::arch::asm;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use coreline::percpu::PerCpu;
use coreline_world::{IndexBy, Native, Place};

/// What [`Slots`](coreline::percpu::Slots) of words are, as far as an addition needs it.
#[repr(C)]
pub struct WordsByHand {
    /// The slots below it may be used.
    limit: u32,
    populated: u32,
    /// Where the index lies from the thread pointer, in an rseq area aligned to 32 bytes.
    index: isize,
    by: IndexBy,
    rseq: bool,
    first: *mut AtomicU64,
}

/// How far slots lie apart.
const STRIDE: usize = 1 << 16;

/// By hand.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C-unwind" fn word_add_by_hand(words: &WordsByHand, delta: u64) {
    let first = words.first;
    // SAFETY: `new` made the words, on a machine where sections work if the limit says so; the
    // index is checked against the limit, and there are as many words.
    unsafe {
        asm!(
            "2:
             lea {slot}, [rip + 5f]
             mov qword ptr fs:[{area} + 8], {slot}
             3:
             test {index:l}, 4
             jnz 9f
             mov {slot:e}, dword ptr fs:[{area} + 4]
             test {slot:e}, {slot:e}
             js {no_slot}
             9:
             mov {slot:e}, dword ptr fs:[{index}]
             cmp {slot:e}, dword ptr [{limit}]
             jae {no_slot}
             shl {slot}, 16
             add qword ptr [{first} + {slot}], {delta}
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
            slot = out(reg) _,
            delta = in(reg) delta,
            area = in(reg) words.index & -32,
            index = in(reg) words.index,
            limit = in(reg) &raw const words.limit,
            first = in(reg) first,
            no_slot = label { return add_elsewhere(words, first, delta) },
            options(nostack),
        );
    }
}

/// Exported so that its parameters stay what they are, under a name that looks like Rust's.
#[unsafe(export_name = "_RNvNtC9fastpaths4word13add_elsewhere")]
#[cold]
#[inline(never)]
extern "C-unwind" fn add_elsewhere(words: &WordsByHand, first: *mut AtomicU64, delta: u64) {
    // The last word is for threads that have none.
    // SAFETY: `new` made one more than `populated`.
    let word = unsafe { &*first.byte_add(words.populated as usize * STRIDE) };
    word.fetch_add(delta, Ordering::Relaxed);
}

impl WordsByHand {
    /// As many words as there are CPUs, and one; they are leaked.
    fn new(by: IndexBy, sections: bool) -> Self {
        let populated = u32::try_from(Native::topology().cpu_limit()).expect("CPUs have u32s");
        let words = vec![0u64; (populated as usize + 1) * STRIDE / size_of::<u64>()].leak();
        let index = area() + if by == IndexBy::Cpu { 4 } else { 24 };
        let limit = if sections { populated } else { 0 };
        WordsByHand {
            limit,
            populated,
            index,
            by,
            rseq: sections,
            first: words.as_mut_ptr().cast(),
        }
    }

    fn sum(&self) -> u64 {
        // SAFETY: `new` made one more than `populated`.
        let word = |index| unsafe { &*self.first.byte_add(index * STRIDE) };
        (0..=self.populated as usize).map(|index| word(index).load(Ordering::Relaxed)).sum()
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
    unsafe { dlsym(ptr::null_mut(), NAME.as_ptr()).cast::<isize>().as_ref() }.copied().unwrap_or(0)
}

/// Checks the hand-written words against the primitive.
pub fn check() {
    for by in [IndexBy::Cpu, IndexBy::KernelCid] {
        // A machine without concurrency IDs has nothing to check there, and one where the C
        // library registers no threads has no area that this file knows.
        let (Ok(generic), true) = (PerCpu::<AtomicU64>::words(by), area() != 0) else {
            continue;
        };
        let by_hand = WordsByHand::new(by, generic.section().is_rseq());
        for delta in 0..100 {
            super::word_add_generic(&generic, delta);
            word_add_by_hand(&by_hand, delta);
        }
        assert_eq!(generic.sum(), (0..100).sum());
        assert_eq!(by_hand.sum(), generic.sum(), "indexed by {by}");
    }
}
