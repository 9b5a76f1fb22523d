//! Bits in two levels, the base of masks and presence.
//!
//! ```text
//! summary   |trimming|..leaves that may have a bit..|     one word for each 63 leaves
//! leaf      |named|version 30..0|bits 31..0|  x 8         one line, 256 bits of the mask
//! ```
//!
//! Bits of one leaf share a line; bits of different leaves never do. So the owners of the bits of
//! one leaf (the CPUs under one last-level cache) write no line that others write. The exception is
//! the summary, which is written when a leaf gets its first bit and when it is trimmed.
//!
//! # State of a leaf's word
//!
//! | `named` | a bit | the bit is |
//! |---|---|---|
//! | 0 | 0 | clear |
//! | 0 | 1 | being set: a look for bits counts it, another set of it helps |
//! | 1 | 0 | clear, and one locked operation sets it |
//! | 1 | 1 | set, and the summary says so for its leaf |
//!
//! `version` counts how often a trim took `named` away.
//!
//! One load finds a set bit. That is the purpose of `named`: with the bit alone, this could happen:
//!
//! ```text
//! A: sets the leaf's bit, and is preempted before the summary's
//! B: finds the bit set, and goes on as a member
//! C: looks for members, does not find the leaf in the summary, and misses B
//! ```
//!
//! # The summary only grows, except under `trimming`
//!
//! Clearing a bit does not change the summary, which may name empty leaves. [`Bits::trim`] removes
//! those. Meanwhile `trimming` makes every look read all leaves of the word:
//!
//! ```text
//! trim: sets trimming, clears the leaf's bit of the summary
//! set:  sets its bit, finds the word named, is done
//! look: must not believe the summary                       <- trimming says so
//! trim: finds the bit, puts the summary's bit back, clears trimming
//! ```
//!
//! A set that names a leaf marks the word only if no trim took `named` away since it set its bit:
//!
//! ```text
//! A:    sets its bit, finds the leaf in the summary, is preempted
//! B:    sets the same bit, clears it
//! trim: takes the empty leaf out
//! C:    sets the same bit, is preempted before the summary's
//! A:    finds the bit as it left it, and goes on as a member   <- the version says that it is not
//! ```
//!
//! # What orders what
//!
//! The summary names a leaf with no ordering. A thread's knowledge of the summary goes through the
//! leaves' words. A thread that has named a leaf, or removed it, says so in its words by a Release.
//! A thread that finds that there has acquired it. Only locked operations change the bits of a
//! summary's word and `trimming` in it, in one order for all threads. The same holds for the words
//! of leaves: a Release there reaches every Acquire of a later value. Why a look finds a bit:
//!
//! ```text
//! looker:  comes after a set, which came after `name` saw the leaf in the summary: so does it,
//!          or finds trimming, or something later, after a trim that took the leaf out for good
//! trim:    between setting and clearing trimming, it found the word without the bit
//! set:     so it came after the trim (its law: the bit was not cleared), and acquired its doing
//! name:    so it saw the leaf in the summary after the trim took it out    <- it is there again
//! ```
//!
//! A Release at the end of `trimming` says that a leaf was removed, for the law *gone*. After that,
//! no thread reads a word of the leaf that could say this.
//!
//! # Laws
//!
//! Found: a look finds a bit if its set was finished before the look began, and it was not cleared.
//! "Before" may come from a happens-before, or from a pair of fences: a setter passes a fence after
//! its set and then does not see what was published before the looker's fence.
//!
//! Published: everything that a thread wrote before it set a clear bit is visible to each thread
//! that finds the bit set, without a fence. A set that finds the bit set writes nothing, and so
//! publishes nothing.
//!
//! In turn: a clear of a set bit and the next set of it are ordered.
//!
//! Gone: everything that a thread did before it cleared a bit is visible to each thread that looks
//! after the set and does not find the bit, without a fence.
//!
//! In the repository, `tests/laws/calls/mask.rs` checks these laws.

use std::sync::Arc;

use coreline_topology::MAX_CPUS;
use coreline_world::{Integer, Line, Native, Ordering, Word, Words, World};

/// The bits of a leaf's word.
const PER_WORD: u32 = 32;

/// The words of a leaf: a line of them.
const WORDS: usize = 8;

/// The most bits of one leaf.
pub(super) const PER_LEAF: u32 = PER_WORD * WORDS as u32;

/// The leaves that one word of the summary covers: one bit is `TRIMMING`.
const PER_SUMMARY: usize = 63;

/// In a word of the summary: a trim is removing empty leaves, so do not rely on its other bits.
const TRIMMING: u64 = 1 << 63;

/// In a leaf's word: all bits of the mask.
const BITS: u64 = (1 << PER_WORD) - 1;

/// In a leaf's word: the summary names the leaf. It is the sign bit, so a look at it and at a bit
/// needs no mask of both.
const NAMED: u64 = 1 << 63;

/// In a leaf's word: one version. It wraps after 2^31 trims, within which a setter must finish.
const VERSION: u64 = 1 << PER_WORD;

/// The place of a bit, stored so that a look has nothing to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    /// The number of its word among those of all leaves.
    word: u32,
    /// The bit alone.
    mask: u32,
}

// The number of a word fits: a leaf is for one CPU at least.
const _: () = assert!(MAX_CPUS as usize * WORDS <= u32::MAX as usize);

impl Position {
    /// A place without a bit: a look there, in the first word, finds it clear.
    pub(super) const NONE: Position = Position { word: 0, mask: 0 };

    pub(super) fn new(leaf: usize, bit: usize) -> Position {
        debug_assert!(bit < PER_LEAF as usize, "{bit}");
        let word = leaf * WORDS + bit / PER_WORD as usize;
        Position { word: word as u32, mask: 1 << (bit % PER_WORD as usize) }
    }

    pub(super) fn leaf(self) -> usize {
        self.word as usize / WORDS
    }

    /// Which bit of its leaf.
    pub(super) fn bit(self) -> usize {
        self.index() * PER_WORD as usize + self.mask.trailing_zeros() as usize
    }

    /// Which word of its leaf.
    fn index(self) -> usize {
        self.word as usize % WORDS
    }

    fn mask(self) -> u64 {
        self.mask.into()
    }
}

/// The bits of one cache's CPUs, or of one group of members.
type Leaf<W> = Line<[<W as Words>::U64; WORDS]>;

const _: () = {
    assert!(size_of::<Leaf<Native>>() == 64);
    assert!(align_of::<Leaf<Native>>() == 64);
};

/// How many of their words leaves of these sizes use; each uses at most [`PER_LEAF`].
pub(super) fn used(sizes: &[usize]) -> Arc<[u8]> {
    sizes.iter().map(|size| size.div_ceil(PER_WORD as usize).min(WORDS) as u8).collect()
}

/// Bits in two levels.
pub(super) struct Bits<W: World> {
    leaves: Box<[Leaf<W>]>,
    summary: Box<[Line<W::U64>]>,
    /// For each leaf: how many of its words have bits.
    used: Arc<[u8]>,
}

impl<W: World> Bits<W> {
    /// The bytes that belong to it, besides its own. Memory that masks share is not counted.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.leaves) + size_of_val(&*self.summary)
    }

    /// Clear bits, in leaves that [use](used) this many of their words.
    pub(super) fn new_in(used: Arc<[u8]>) -> Self {
        const { assert!(!W::NATIVE_LAYOUT || size_of::<Leaf<W>>() == size_of::<Line<u8>>()) };
        let leaf = |_| Line(core::array::from_fn(|_| W::U64::new_in(0)));
        let word = |_| Line(W::U64::new_in(0));
        Bits {
            leaves: (0..used.len()).map(leaf).collect(),
            summary: (0..used.len().div_ceil(PER_SUMMARY)).map(word).collect(),
            used,
        }
    }

    /// The word of a bit.
    #[inline]
    fn word(&self, at: Position) -> &W::U64 {
        &self.leaves[at.leaf()][at.index()]
    }

    /// The same, without a check that there is one.
    ///
    /// # Safety
    ///
    /// The position lies in one of these leaves.
    #[inline]
    unsafe fn word_unchecked(&self, at: Position) -> &W::U64 {
        const { assert!(size_of::<Leaf<W>>() == WORDS * size_of::<W::U64>()) };
        debug_assert!(at.leaf() < self.leaves.len(), "{at:?}");
        // SAFETY: leaves are words without a gap, and the caller promises that it is one of these.
        unsafe { &*self.leaves.as_ptr().cast::<W::U64>().add(at.word as usize) }
    }

    /// The words of a leaf that have bits.
    fn words(&self, leaf: usize) -> &[W::U64] {
        &self.leaves[leaf][..usize::from(self.used[leaf])]
    }

    /// The word of the summary for a leaf, and the leaf's bit there.
    fn summary_of(&self, leaf: usize) -> (&W::U64, u64) {
        (&self.summary[leaf / PER_SUMMARY], 1 << (leaf % PER_SUMMARY))
    }

    /// Whether the bit is set.
    #[inline]
    pub(super) fn test(&self, at: Position) -> bool {
        is_set(self.word(at), &at)
    }

    /// The same in fewer instructions.
    ///
    /// # Safety
    ///
    /// The position lies in one of these leaves.
    #[inline]
    pub(super) unsafe fn test_unchecked(&self, at: &Position) -> bool {
        // SAFETY: the caller promises that the position lies in one of these leaves.
        is_set(unsafe { self.word_unchecked(*at) }, at)
    }

    /// Sets the bit; returns whether this call did. If the bit is set, this costs one load and
    /// writes nothing.
    #[inline]
    pub(super) fn set(&self, at: Position) -> bool {
        !self.test(at) && self.set_clear(at)
    }

    /// Sets a bit that was clear a moment ago; returns whether this call did.
    #[cold]
    #[inline(never)]
    pub(super) fn set_clear(&self, at: Position) -> bool {
        let word = self.word(at);
        // AcqRel: Release pairs with the Acquire of a look; Acquire with the Release of `name` (the
        // summary names the leaf) and of `trim` (it no longer does), and with that of the clear
        // before.
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
            // Relaxed: it goes to others with the exchange below. A look after this set sees both
            // words, and a look meanwhile may miss either.
            summary.fetch_or(bit, Ordering::Relaxed);
        }
        // Relaxed, also on failure: only the word itself is looked at.
        let mut value = word.load(Ordering::Relaxed);
        // With another version, a trim found the word empty: the caller's bit was cleared.
        while value & NAMED == 0 && value / VERSION == before / VERSION {
            let named = value | NAMED;
            // Release: pairs with the Acquire in `is_set` and `set_clear`: what we know of the
            // summary. Relaxed on failure: only the word itself is looked at.
            match word.compare_exchange(value, named, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => value = now,
            }
        }
    }

    /// Clears the bit; returns whether it was set. A clear bit costs one load.
    #[inline]
    pub(super) fn clear(&self, at: Position) -> bool {
        let word = self.word(at);
        // Relaxed: nothing follows from a bit that is clear.
        if word.load(Ordering::Relaxed) & at.mask() == 0 {
            return false;
        }
        // AcqRel: Acquire pairs with the Release of its set, Release with the Acquire of its next
        // set, of a look that finds it clear, and of a trim that takes its leaf out: what each did
        // with the bit in hand stays in order.
        word.fetch_and(!at.mask(), Ordering::AcqRel) & at.mask() != 0
    }

    /// Calls `f` with every bit that is set or being set. Reads only leaves that the summary names.
    pub(super) fn each(&self, mut f: impl FnMut(Position)) {
        for (first, word) in (0..).step_by(PER_SUMMARY).zip(&self.summary) {
            // Acquire: pairs with the Release at the end of `trim`: what was done before the clears
            // of bits that are not looked at, as their leaf is gone. For what is to be found it
            // need not be: that was done before we came, and so was its summary.
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
            // Acquire: pairs with the Release of the set.
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
                // Relaxed: a thread that wants the bit still has to set it.
                let clear = !word.load(Ordering::Relaxed) & BITS;
                let bit = index * PER_WORD as usize + clear.trailing_zeros() as usize;
                (clear != 0 && bit < limit).then(|| Position::new(leaf, bit))
            })
            .next()
    }

    /// Removes empty leaves from the summary, so that looks for bits need not read them. A look at
    /// the same time reads all leaves. If another thread is trimming, this does nothing.
    pub(super) fn trim(&self) {
        for (first, word) in (0..).step_by(PER_SUMMARY).zip(&self.summary) {
            // Relaxed: a leaf that is not named now is the next trim's.
            let named = word.load(Ordering::Relaxed);
            let leaves = (first..self.leaves.len()).take(PER_SUMMARY);
            let mut empty = leaves
                .filter(|leaf| named >> (leaf - first) & 1 == 1 && self.is_empty(*leaf))
                .fold(0, |empty, leaf| empty | 1 << (leaf - first));
            // Relaxed: the bits of the summary that change below are ordered after this one by
            // being in the same word, and a looker reads both at the same time.
            if empty == 0 || word.fetch_or(TRIMMING, Ordering::Relaxed) & TRIMMING != 0 {
                continue;
            }
            // Relaxed: ordered behind `trimming` by being in the same word.
            word.fetch_and(!empty, Ordering::Relaxed);
            while empty != 0 {
                if !self.take_named(first + empty.trailing_zeros() as usize) {
                    // Relaxed: a look that finds `trimming` clear finds this, in the same word.
                    word.fetch_or(empty & empty.wrapping_neg(), Ordering::Relaxed);
                }
                empty &= empty - 1;
            }
            // Release: pairs with the Acquire in `each`, which does not look at leaves that are
            // gone: what was done before the clears that `take_named` has acquired.
            word.fetch_and(!TRIMMING, Ordering::Release);
        }
    }

    /// Takes `named` from a leaf's empty words; returns whether all are.
    fn take_named(&self, leaf: usize) -> bool {
        let mut empty = true;
        for word in self.words(leaf) {
            // Relaxed, also on failure: what follows from a bit is that its leaf is put back, which
            // orders nothing.
            let mut value = word.load(Ordering::Relaxed);
            while value & BITS == 0 {
                let next = (value & !NAMED).wrapping_add(VERSION) & !NAMED;
                // Also if it is not named: a thread that sets its bit from here on knows that the
                // summary does not name the leaf. Release: pairs with the Acquire in `set_clear`,
                // for that. Acquire: pairs with the Release of the thread that cleared the bits,
                // for the end of `trim`. Relaxed on failure: the word is compared again.
                match word.compare_exchange(value, next, Ordering::AcqRel, Ordering::Relaxed) {
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
        // Relaxed: a hint; `take_named` looks again.
        self.words(leaf).iter().all(|word| word.load(Ordering::Relaxed) & BITS == 0)
    }
}

/// Whether a bit of this word is set.
#[inline]
fn is_set(word: &impl Word<Value = u64>, at: &Position) -> bool {
    // Acquire: pairs with the Release of the exchange in `name`: a thread that finds the word named
    // also sees the leaf in the summary. Without it, it could not pass on to a looker that the
    // summary names the leaf.
    let value = word.load(Ordering::Acquire);
    value & NAMED != 0 && value as u32 & at.mask != 0
}

#[cfg(test)]
mod tests {
    use coreline_world::Native;

    use super::*;

    /// Clear bits, in this many leaves of this many words.
    fn bits(leaves: usize, words: usize) -> Bits<Native> {
        Bits::new_in(used(&vec![words * PER_WORD as usize; leaves]))
    }

    /// The value of the word of a bit.
    fn value(bits: &Bits<Native>, at: Position) -> u64 {
        bits.word(at).load(Ordering::Relaxed)
    }

    /// A thread sets its bit in the leaf's word, and is preempted there.
    fn set_half(bits: &Bits<Native>, at: Position) -> u64 {
        bits.word(at).fetch_or(at.mask(), Ordering::Relaxed)
    }

    #[test]
    fn a_position_is_that_of_one_bit() {
        for (leaf, bit) in (0..3).flat_map(|leaf| (0..256).map(move |bit| (leaf, bit))) {
            let at = Position::new(leaf, bit);
            assert_eq!((at.leaf(), at.bit()), (leaf, bit));
        }
    }

    #[test]
    fn a_set_that_a_trim_overtook_names_nothing() {
        let (bits, at) = (bits(1, 1), Position::new(0, 0));
        for round in 0..4 {
            let before = set_half(&bits, at);
            assert!(!bits.set(at) && bits.clear(at), "another thread sets it, and clears it");
            bits.trim();
            set_half(&bits, at);
            bits.name(bits.word(at), 0, before);
            assert!(!bits.test(at), "the summary may not name its leaf, in round {round}");
            assert!(!bits.set(at) && bits.test(at) && bits.clear(at));
            bits.trim();
        }
    }

    #[test]
    fn a_version_that_wraps_names_nothing() {
        let (bits, at) = (bits(1, 1), Position::new(0, 0));
        assert!(bits.set(at));
        bits.word(at).store(!BITS, Ordering::Relaxed);
        bits.trim();
        assert_eq!(value(&bits, at), 0);
    }

    #[test]
    fn a_trim_takes_out_empty_leaves_and_leaves_the_others_alone() {
        let bits = bits(4, 2);
        let ends = |leaf| [0, 63].map(|bit| Position::new(leaf, bit));
        (0..3).flat_map(ends).for_each(|at| assert!(bits.set(at)));
        let kept = Position::new(1, 0);
        (0..3).flat_map(ends).filter(|at| *at != kept).for_each(|at| assert!(bits.clear(at)));
        bits.trim();
        assert_eq!(bits.summary[0].load(Ordering::Relaxed), 1 << kept.leaf());
        for leaf in 0..4 {
            let named = ends(leaf).map(|at| value(&bits, at) & NAMED != 0);
            // A word that stays named is set again by one locked operation.
            assert_eq!(named, [leaf == kept.leaf(); 2], "{leaf}");
        }
        assert_eq!(value(&bits, Position::new(3, 0)), 0, "it was not named");
    }

    #[test]
    fn a_look_beside_a_trim_reads_all_leaves() {
        let bits = bits(PER_SUMMARY + 2, 1);
        let set = [0, PER_SUMMARY - 1, PER_SUMMARY, PER_SUMMARY + 1].map(|at| Position::new(at, 5));
        set.iter().for_each(|&at| assert!(bits.set(at)));
        // As if the trim had just taken all of them out.
        bits.summary.iter().for_each(|word| word.store(TRIMMING, Ordering::Relaxed));
        let mut found = Vec::new();
        bits.each(|at| found.push(at));
        assert_eq!(found, set);
    }

    #[test]
    fn a_bit_that_is_being_set_is_cleared() {
        let (bits, at) = (bits(1, 1), Position::new(0, 0));
        set_half(&bits, at);
        assert!(bits.clear(at) && !bits.clear(at));
        assert_eq!(value(&bits, at), 0);
    }

    #[test]
    fn bytes_are_a_line_for_each_leaf_and_each_word_of_the_summary() {
        assert_eq!(bits(PER_SUMMARY + 2, 1).bytes(), (PER_SUMMARY + 2 + 2) * size_of::<Line<u8>>());
    }
}
