use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use coreline::percpu::PerCpu;
use coreline_world::{IndexBy, Native, Place};

/// [`Slots`](coreline::percpu::Slots) of words, as far as an addition needs them.
#[repr(C)]
pub struct WordsByHand {
    /// The slots below it may be used: by CPU number, and by concurrency ID. One of the two is 0.
    limits: [u32; 2],
    populated: u32,
    by: IndexBy,
    rseq: bool,
    first: *mut AtomicU64,
}

/// The distance of the rseq area of sections from the thread pointer.
#[inline(always)]
fn area_of_sections() -> isize {
    unsafe extern "C" {
        /// The words of this program in which coreline keeps such.
        #[link_name = "coreline_rseq_areas_3_of_block_80"]
        static AREAS: [isize; 3];
        /// A block of each thread, from which they count.
        #[link_name = "coreline_rseq_block_80"]
        static BLOCK: u8;
    }
    let area;
    // SAFETY: the words are there; they may be read at any time.
    unsafe {
        asm!(
            "mov {area}, qword ptr [rip + {areas} + 16]",
            "add {area}, qword ptr [rip + {block}@gottpoff]",
            area = out(reg) area,
            areas = sym AREAS,
            block = sym BLOCK,
            options(pure, nomem, nostack),
        );
    }
    area
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
             mov {slot:e}, dword ptr fs:[{area} + 4]
             cmp {slot:e}, dword ptr [{limits}]
             jb 9f
             sar {slot:e}, 31
             or {slot:e}, dword ptr fs:[{area} + 24]
             cmp {slot:e}, dword ptr [{limits} + 4]
             jae {no_slot}
             9:
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
            area = in(reg) area_of_sections(),
            limits = in(reg) &raw const words.limits,
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
        let limit = if sections { populated } else { 0 };
        WordsByHand {
            limits: if by == IndexBy::Cpu { [limit, 0] } else { [0, limit] },
            populated,
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

/// Checks the hand-written words against the primitive.
pub fn check() {
    for by in [IndexBy::Cpu, IndexBy::KernelCid] {
        // A machine without concurrency IDs has nothing to check there.
        let Ok(generic) = PerCpu::<AtomicU64>::words(by) else { continue };
        let by_hand = WordsByHand::new(by, generic.section().is_rseq());
        for delta in 0..100 {
            super::word_add_generic(&generic, delta);
            word_add_by_hand(&by_hand, delta);
        }
        assert_eq!(generic.sum(), (0..100).sum());
        assert_eq!(by_hand.sum(), generic.sum(), "indexed by {by}");
    }
}
