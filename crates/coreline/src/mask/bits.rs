//! Bits in two levels: what masks and presence are made of.
//!
//! ```text
//! summary   |trimming|..leaves that may have a bit..|     one word for each 63 leaves
//! leaf      |named|version 30..0|bits 31..0|  x 8         one line, 256 bits of the mask
//! position  |leaf|word: 3 bits|bit: 5 bits|               number of the bit among all bits
//! ```
//!
//! Bits of one leaf share a line; bits of different leaves never do. So whoever owns the bits of
//! one leaf (the CPUs under one last-level cache) writes no line that others write, but for the
//! summary, which is written when a leaf gets its first bit and when it is trimmed.
//!
//! # State of a leaf's word
//!
//! | `named` | a bit | the bit is |
//! |---|---|---|
//! | 0 | 0 | clear |
//! | 0 | 1 | being set: whoever looks for bits counts it, whoever sets it helps |
//! | 1 | 0 | clear, and one locked operation sets it |
//! | 1 | 1 | set, and the summary says so for its leaf |
//!
//! `version` counts how often a trim took `named` away.
//!
//! A set bit is found by one load. That is what `named` is for: were there the bit only, this could
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
//! set:  sets its bit, finds the word named, is done
//! look: must not believe the summary                       <- trimming says so
//! trim: finds the bit, puts the summary's bit back, clears trimming
//! ```
//!
//! Whoever names a leaf says so in the word only if no trim took `named` away since it set its bit:
//!
//! ```text
//! A:    sets its bit, finds the leaf in the summary, is preempted
//! B:    sets the same bit, clears it
//! trim: takes the empty leaf out
//! C:    sets the same bit, is preempted before the summary's
//! A:    finds the bit as it left it, and goes on as a member   <- the version says that it is not
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

/// In a leaf's word: all bits of the mask.
const BITS: u64 = (1 << PER_WORD) - 1;

/// In a leaf's word: the summary names the leaf. The sign, so that looking at it and at a bit takes
/// no mask of both.
const NAMED: u64 = 1 << 63;

/// In a leaf's word: one version. It wraps after 2^31 trims, within which a setter must come on.
const VERSION: u64 = 1 << PER_WORD;

/// Where a bit lies: its number among all bits of all leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(u32);

const _: () = assert!(MOST_LEAVES * PER_LEAF as usize <= Position::NONE.0 as usize);

impl Position {
    /// Where no bit lies: behind all leaves that there can be.
    pub(super) const NONE: Position = Position(u32::MAX);

    pub(super) fn new(leaf: usize, bit: usize) -> Position {
        debug_assert!(leaf < MOST_LEAVES && bit < PER_LEAF as usize, "{leaf}, {bit}");
        Position((leaf * PER_LEAF as usize + bit) as u32)
    }

    pub(super) fn leaf(self) -> usize {
        (self.0 / PER_LEAF) as usize
    }

    /// Which bit of its leaf.
    pub(super) fn bit(self) -> usize {
        (self.0 % PER_LEAF) as usize
    }

    fn word(self) -> usize {
        (self.0 / PER_WORD) as usize % WORDS
    }

    fn mask(self) -> u64 {
        1 << (self.0 % PER_WORD)
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
    /// The bytes that belong to it, beside its own.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.leaves) + size_of_val(&*self.used) + size_of_val(&*self.summary)
    }

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
        Some(!is_set(word, at) && self.set_clear(word, at))
    }

    /// Sets a bit that was clear a moment ago.
    #[cold]
    #[inline(never)]
    fn set_clear(&self, word: &W::U64, at: Position) -> bool {
        // AcqRel: Release pairs with the Acquire of who looks; Acquire with the Release of `name`
        // (the summary names the leaf) and of `trim` (it does not any more), and with that of who
        // cleared the bit.
        let value = word.fetch_or(at.mask(), Ordering::AcqRel);
        if value & NAMED == 0 {
            self.name(word, at.leaf(), value);
        }
        value & at.mask() == 0
    }

    /// Names the leaf in the summary, and says so in its word, which was `before` when the caller
    /// set its bit.
    fn name(&self, word: &W::U64, leaf: usize, before: u64) {
        let (summary, bit) = self.summary_of(leaf);
        // Relaxed: the caller has acquired what the last trim of the word did to the summary. If it
        // misses what the next one does, that one finds the caller's bit in the word and puts the
        // leaf back, or finds it cleared and changes the version.
        if summary.load(Ordering::Relaxed) & bit == 0 {
            // Release: pairs with the Acquire of who looks, who then sees the caller's bit.
            summary.fetch_or(bit, Ordering::Release);
        }
        // Relaxed, also on failure: only the word itself is looked at.
        let mut value = word.load(Ordering::Relaxed);
        // With another version, a trim found the word empty: somebody cleared the caller's bit.
        while value & NAMED == 0 && value / VERSION == before / VERSION {
            // Release: pairs with the Acquire in `is_set` and `set_clear`: what we know of the
            // summary.
            let named = value | NAMED;
            match word.compare_exchange(value, named, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => value = now,
            }
        }
    }

    /// Clears the bit; returns whether it was set, `None` if there is no such bit. A clear bit
    /// costs one load.
    #[inline]
    pub(super) fn clear(&self, at: Position) -> Option<bool> {
        let word = self.word(at)?;
        // Relaxed: nothing follows from a bit that is clear.
        if word.load(Ordering::Relaxed) & at.mask() == 0 {
            return Some(false);
        }
        // AcqRel: Acquire pairs with the Release of who set it, Release with the Acquire of who
        // sets it next and finds it clear: what each did with the bit in hand stays in order.
        Some(word.fetch_and(!at.mask(), Ordering::AcqRel) & at.mask() != 0)
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
            let mut left = word.load(Ordering::Acquire) & BITS;
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
                let clear = !word.load(Ordering::Relaxed) & BITS;
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
            while empty != 0 {
                if !self.take_named(first + empty.trailing_zeros() as usize) {
                    // Release: as in `name`; `take_named` has acquired the bit that it found.
                    word.fetch_or(empty & empty.wrapping_neg(), Ordering::Release);
                }
                empty &= empty - 1;
            }
            // Release: whoever finds it clear finds what was put back before.
            word.fetch_and(!TRIMMING, Ordering::Release);
        }
    }

    /// Takes `named` from a leaf's empty words; returns whether all are.
    fn take_named(&self, leaf: usize) -> bool {
        let mut empty = true;
        for word in self.words(leaf) {
            // Acquire, also below: pairs with the Release of who set the bit.
            let mut value = word.load(Ordering::Acquire);
            while value & BITS == 0 {
                // Also if it is not named: whoever sets its bit from here on knows that the summary
                // does not name the leaf. Release: pairs with the Acquire in `set_clear`, for that.
                let next = (value & !NAMED).wrapping_add(VERSION) & !NAMED;
                match word.compare_exchange(value, next, Ordering::Release, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(now) => value = now,
                }
            }
            empty &= value & BITS == 0;
        }
        empty
    }

    /// Whether no bit of a leaf is set or being set.
    fn is_empty(&self, leaf: usize) -> bool {
        // Relaxed: the look that counts is `take_named`'s.
        self.words(leaf).iter().all(|word| word.load(Ordering::Relaxed) & BITS == 0)
    }
}

/// Whether a bit of this word is set.
#[inline]
fn is_set(word: &impl Word<Value = u64>, at: Position) -> bool {
    // Acquire: pairs with the Release of the exchange in `name`, so that whoever finds the word
    // named has also seen to the summary. Without it the setter's word for the summary would not be
    // ours to pass on to a looker.
    let value = word.load(Ordering::Acquire);
    value & NAMED != 0 && value as u32 & at.mask() as u32 != 0
}
