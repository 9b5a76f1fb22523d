//! Bits in two levels: what masks and presence are made of.
//!
//! ```text
//! summary   |trimming|..leaves that may have a bit..|     one word for each 63 leaves
//! leaf      |ready 31..0|announced 31..0|  x 8            one line, 256 bits of the mask
//! position  |leaf|word: 3 bits|1|bit: 5 bits|              number of the ready bit
//! ```
//!
//! Bits of one leaf share a line; bits of different leaves never do. So whoever owns the bits of
//! one leaf (the CPUs under one last-level cache) writes no line that others write, but for the
//! summary, which is written when a leaf gets its first bit and when it is trimmed.
//!
//! # State of a bit
//!
//! | announced | ready | the bit is |
//! |---|---|---|
//! | 0 | 0 | clear |
//! | 1 | 0 | being set: whoever looks for bits counts it, whoever sets it helps |
//! | 1 | 1 | set, and the summary says so for its leaf |
//! | 0 | 1 | (never) |
//!
//! A set bit is found by one load. That is what `ready` is for: were there one bit only, this could
//! happen:
//!
//! ```text
//! A: sets the leaf's bit, and is preempted before the summary's
//! B: finds the bit set, and goes on as a member
//! C: looks for members, does not find the leaf in the summary, and misses B
//! ```
//!
//! # The summary only grows, except under `trimming`
//!
//! Clearing a bit leaves the summary: it may name empty leaves. [`Bits::trim`] takes those out.
//! While it is at it, `trimming` makes everybody look at all leaves of the word:
//!
//! ```text
//! trim: sets trimming, clears the leaf's bit of the summary
//! set:  announces its bit, saw the summary's bit before, is ready
//! look: must not believe the summary                       <- trimming says so
//! trim: finds the announced bit, puts the summary's bit back, clears trimming
//! ```
//!
//! # Law
//!
//! A bit whose set was finished before somebody begins to look, and which nobody cleared, is found
//! (`tests/laws/mask.rs`). "Before" may come from a happens-before, or from a pair of fences: a
//! setter that passes a fence after its set and then does not see what was published before the
//! looker's fence.

use coreline_world::{Integer, Line, Ordering, Word, Words, World};

/// The bits of a leaf's word.
const PER_WORD: u32 = 32;

/// The words of a leaf: a line of them.
const WORDS: usize = 8;

/// The most bits of one leaf.
pub(super) const PER_LEAF: u32 = PER_WORD * WORDS as u32;

/// The most leaves: a [`Position`] has room for them, and for none.
pub(super) const MOST_LEAVES: usize = u16::MAX as usize;

/// The leaves that one word of the summary covers: one bit is `TRIMMING`.
const PER_SUMMARY: usize = 63;

/// In a word of the summary: somebody takes empty leaves out, so believe none of its other bits.
const TRIMMING: u64 = 1 << 63;

/// In a leaf's word: all `announced` bits.
const ANNOUNCED: u64 = (1 << PER_WORD) - 1;

/// Where a bit lies: the number of its `ready` bit among all bits of all leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u32);

const _: () = assert!(MOST_LEAVES * WORDS * u64::BITS as usize <= Position::NONE.0 as usize);

impl Position {
    /// Where no bit lies: behind all leaves that there can be.
    pub(super) const NONE: Position = Position(u32::MAX);

    pub(super) fn new(leaf: usize, bit: usize) -> Position {
        debug_assert!(leaf < MOST_LEAVES && bit < PER_LEAF as usize, "{leaf}, {bit}");
        let word = leaf * WORDS + bit / PER_WORD as usize;
        Position(word as u32 * u64::BITS + PER_WORD + bit as u32 % PER_WORD)
    }

    pub(super) fn leaf(self) -> usize {
        self.0 as usize / (WORDS * u64::BITS as usize)
    }

    /// Which bit of its leaf.
    pub(super) fn bit(self) -> usize {
        self.word() * PER_WORD as usize + (self.0 % PER_WORD) as usize
    }

    fn word(self) -> usize {
        (self.0 / u64::BITS) as usize % WORDS
    }

    fn announced(self) -> u64 {
        self.ready() >> PER_WORD
    }

    fn ready(self) -> u64 {
        1 << (self.0 % u64::BITS)
    }
}

/// The bits of one cache's CPUs, or of one group of members.
type Leaf<W> = Line<[<W as Words>::U64; WORDS]>;

/// Bits in two levels.
pub(super) struct Bits<W: World> {
    leaves: Box<[Leaf<W>]>,
    /// By leaf: how many of its words have bits.
    used: Box<[u8]>,
    summary: Box<[Line<W::U64>]>,
}

impl<W: World> Bits<W> {
    /// Clear bits in leaves of these sizes, each at most [`PER_LEAF`]; at most [`MOST_LEAVES`].
    pub(super) fn new_in(sizes: impl Iterator<Item = usize>) -> Self {
        const { assert!(!W::NATIVE_LAYOUT || size_of::<Leaf<W>>() == size_of::<Line<u8>>()) };
        let used = |size: usize| size.div_ceil(PER_WORD as usize).min(WORDS) as u8;
        let used: Box<[u8]> = sizes.map(used).collect();
        let leaf = |_| Line(core::array::from_fn(|_| W::U64::new_in(0)));
        let word = |_| Line(W::U64::new_in(0));
        Bits {
            leaves: (0..used.len()).map(leaf).collect(),
            summary: (0..used.len().div_ceil(PER_SUMMARY)).map(word).collect(),
            used,
        }
    }

    /// The word of a bit; `None` if there is no such bit.
    #[inline]
    fn word(&self, at: Position) -> Option<&W::U64> {
        (at.leaf() < self.leaves.len()).then(|| &self.leaves[at.leaf()][at.word()])
    }

    /// The words of a leaf that have bits.
    fn words(&self, leaf: usize) -> &[W::U64] {
        &self.leaves[leaf][..usize::from(self.used[leaf])]
    }

    /// The word of the summary for a leaf, and the leaf's bit there.
    fn summary_of(&self, leaf: usize) -> (&W::U64, u64) {
        (&self.summary[leaf / PER_SUMMARY], 1 << (leaf % PER_SUMMARY))
    }

    /// Whether the bit is set; `None` if there is no such bit.
    #[inline]
    pub(super) fn test(&self, at: Position) -> Option<bool> {
        Some(is_set(self.word(at)?, at))
    }

    /// Sets the bit; returns whether this call did, `None` if there is no such bit. A bit that is
    /// set costs one load, and nothing is written.
    #[inline]
    pub(super) fn set(&self, at: Position) -> Option<bool> {
        let word = self.word(at)?;
        Some(!is_set(word, at) && self.announce(word, at))
    }

    /// Sets a bit that was clear a moment ago.
    #[cold]
    #[inline(never)]
    fn announce(&self, word: &W::U64, at: Position) -> bool {
        let (summary, leaf) = self.summary_of(at.leaf());
        loop {
            // Relaxed, and the loads of the summary: the fence orders them.
            let mut value = word.fetch_or(at.announced(), Ordering::Relaxed) | at.announced();
            // Pairs with the fence in `trim`. Without it `trim` could miss the announced bit while
            // we read the summary's bit that it is about to clear.
            W::fence(Ordering::SeqCst);
            if summary.load(Ordering::Relaxed) & leaf == 0 {
                // Release: pairs with the Acquire of who looks, who then sees the announced bit.
                summary.fetch_or(leaf, Ordering::Release);
            }
            while value & at.announced() != 0 {
                if value & at.ready() != 0 {
                    // Somebody else was faster with the same bit.
                    return false;
                }
                // Release: pairs with the Acquire in `is_set`: what we know of the summary. Acquire
                // on failure for the return above, which is an `is_set`.
                let ready = value | at.ready();
                match word.compare_exchange(value, ready, Ordering::Release, Ordering::Acquire) {
                    Ok(_) => return true,
                    Err(now) => value = now,
                }
            }
            // It was cleared meanwhile, and the leaf may have been trimmed: start over.
        }
    }

    /// Clears the bit; returns whether it was set, `None` if there is no such bit. A clear bit
    /// costs one load.
    #[inline]
    pub(super) fn clear(&self, at: Position) -> Option<bool> {
        let word = self.word(at)?;
        let both = at.announced() | at.ready();
        // Relaxed: nothing follows from a bit that is clear.
        if word.load(Ordering::Relaxed) & both == 0 {
            return Some(false);
        }
        // AcqRel: Acquire pairs with the Release of who set it, Release with the Acquire of who
        // sets it next and finds it clear: what each did with the bit in hand stays in order.
        Some(word.fetch_and(!both, Ordering::AcqRel) & at.ready() != 0)
    }

    /// Calls `f` with every bit that is set or being set. Reads only leaves that the summary names.
    pub(super) fn each(&self, mut f: impl FnMut(Position)) {
        for (first, word) in (0..).step_by(PER_SUMMARY).zip(&self.summary) {
            // Acquire: pairs with the Release of who named the leaf.
            let named = word.load(Ordering::Acquire);
            for offset in 0..PER_SUMMARY.min(self.leaves.len() - first) {
                if named & TRIMMING != 0 || named >> offset & 1 == 1 {
                    self.each_of(first + offset, &mut f);
                }
            }
        }
    }

    /// Calls `f` with every bit of a leaf that is set or being set.
    fn each_of(&self, leaf: usize, f: &mut impl FnMut(Position)) {
        for (index, word) in self.words(leaf).iter().enumerate() {
            // Acquire: pairs with the Release of who set the bit.
            let mut left = word.load(Ordering::Acquire) & ANNOUNCED;
            while left != 0 {
                let bit = index * PER_WORD as usize + left.trailing_zeros() as usize;
                left &= left - 1;
                f(Position::new(leaf, bit));
            }
        }
    }

    /// The first clear bit of a leaf below `limit`.
    pub(super) fn first_clear(&self, leaf: usize, limit: usize) -> Option<Position> {
        let words = self.words(leaf).iter().enumerate();
        words
            .filter_map(|(index, word)| {
                // Relaxed: whoever wants the bit still has to set it.
                let clear = !word.load(Ordering::Relaxed) & ANNOUNCED;
                let bit = index * PER_WORD as usize + clear.trailing_zeros() as usize;
                (clear != 0 && bit < limit).then(|| Position::new(leaf, bit))
            })
            .next()
    }

    /// Takes empty leaves out of the summary, so that who looks for bits need not read them.
    /// Whoever looks meanwhile reads all leaves; if somebody trims already, nothing happens.
    pub(super) fn trim(&self) {
        for (first, word) in (0..).step_by(PER_SUMMARY).zip(&self.summary) {
            // Relaxed: a leaf that is not named now is the next trim's.
            let named = word.load(Ordering::Relaxed);
            let leaves = (first..self.leaves.len()).take(PER_SUMMARY);
            let mut empty = leaves
                .filter(|leaf| named >> (leaf - first) & 1 == 1 && self.is_empty(*leaf))
                .fold(0, |empty, leaf| empty | 1 << (leaf - first));
            // Relaxed: the bits of the summary that change below are ordered after this one by
            // being in the same word, and a looker reads both at once.
            if empty == 0 || word.fetch_or(TRIMMING, Ordering::Relaxed) & TRIMMING != 0 {
                continue;
            }
            word.fetch_and(!empty, Ordering::Relaxed);
            // Pairs with the fence in `announce`: either we find the announced bit below, or its
            // setter finds the summary's bit clear and sets it.
            W::fence(Ordering::SeqCst);
            while empty != 0 {
                let leaf = first + empty.trailing_zeros() as usize;
                if !self.is_empty(leaf) {
                    // Release: as in `announce`; the fence makes the announced bit ours to pass on.
                    word.fetch_or(empty & empty.wrapping_neg(), Ordering::Release);
                }
                empty &= empty - 1;
            }
            // Release: whoever finds it clear finds what was put back before.
            word.fetch_and(!TRIMMING, Ordering::Release);
        }
    }

    /// Whether no bit of a leaf is set or being set.
    fn is_empty(&self, leaf: usize) -> bool {
        // Relaxed: `trim`'s fence orders the look that counts.
        self.words(leaf).iter().all(|word| word.load(Ordering::Relaxed) & ANNOUNCED == 0)
    }
}

/// Whether a bit of this word is set.
#[inline]
fn is_set(word: &impl Word<Value = u64>, at: Position) -> bool {
    // Acquire: pairs with the Release of the exchange in `announce`, so that whoever finds the bit
    // ready has also seen to the summary. Without it the setter's word for the summary would not be
    // ours to pass on to a looker.
    word.load(Ordering::Acquire) & at.ready() != 0
}
