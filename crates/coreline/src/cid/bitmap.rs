//! A set of small numbers that many threads change: which IDs are taken, which CPUs are allowed.

use core::ops::Range;

use coreline_world::{Integer, MapError, Ordering, Word, World};

use crate::heap;

const BITS: u32 = u64::BITS;

/// One bit for each number below the width.
pub(crate) struct Bitmap<W: World> {
    words: Box<[W::U64]>,
}

impl<W: World> Bitmap<W> {
    pub(crate) fn new_in(width: usize) -> Self {
        Bitmap { words: Self::absent(width).collect() }
    }

    /// The same, or an error if there is no memory.
    pub(crate) fn try_new_in(width: usize) -> Result<Self, MapError> {
        Ok(Bitmap { words: heap::slice(Self::absent(width))? })
    }

    fn absent(width: usize) -> impl ExactSizeIterator<Item = W::U64> {
        (0..width.div_ceil(BITS as usize)).map(|_| W::U64::new_in(0))
    }

    /// This is a hint: it may be out of date when it returns.
    pub(crate) fn contains(&self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        // Relaxed: a hint; a thread that relies on the answer inserts or removes.
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Returns whether the number was absent, and so belongs to the caller now. It reads the word
    /// before it writes.
    pub(crate) fn insert(&self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        // Relaxed: only a hint. Acquire: pairs with the Release in `remove`; without it, the new
        // holder of an ID could miss what the last one wrote to the ID's memory.
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Acquire) & bit == 0
    }

    /// Returns whether the number was present.
    pub(crate) fn remove(&self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        // Release: pairs with the Acquire in `insert`.
        word.fetch_and(!bit, Ordering::Release) & bit != 0
    }

    /// Inserts the lowest number of the range that is absent. Returns `None` if none is absent, or
    /// if another thread was faster: it never tries twice.
    pub(crate) fn insert_lowest(&self, range: Range<u32>) -> Option<u32> {
        let lowest = self.parts(range).find_map(|(word, first, mask)| {
            // Relaxed: `insert` decides.
            let absent = !self.words[word].load(Ordering::Relaxed) & mask;
            (absent != 0).then(|| first + absent.trailing_zeros())
        })?;
        self.insert(lowest).then_some(lowest)
    }

    /// How many numbers of the range are present. This is a hint.
    pub(crate) fn count(&self, range: Range<u32>) -> u32 {
        // Relaxed: a hint.
        let present = |word: usize| self.words[word].load(Ordering::Relaxed);
        self.parts(range).map(|(word, _, mask)| (present(word) & mask).count_ones()).sum()
    }

    /// The bytes of its words.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// The words that hold a range: their index, their first number, and the range's bits in them.
    fn parts(&self, range: Range<u32>) -> impl Iterator<Item = (usize, u32, u64)> {
        (range.start / BITS..range.end.div_ceil(BITS)).map(move |word| {
            let first = word * BITS;
            let above = u64::MAX << range.start.saturating_sub(first);
            let below = u64::MAX >> (first + BITS).saturating_sub(range.end);
            (word as usize, first, above & below)
        })
    }

    fn place(&self, number: u32) -> (&W::U64, u64) {
        (&self.words[(number / BITS) as usize], 1 << (number % BITS))
    }
}

#[cfg(test)]
mod tests {
    use coreline_world::Native;

    use super::*;

    #[test]
    fn a_range_may_begin_and_end_anywhere() {
        let bitmap = Bitmap::<Native>::new_in(200);
        let range = 60..131;
        let numbers: Vec<u32> =
            std::iter::from_fn(|| bitmap.insert_lowest(range.clone())).collect();
        assert_eq!(numbers, range.clone().collect::<Vec<_>>());
        assert_eq!(
            (bitmap.count(0..200), bitmap.count(64..128), bitmap.count(70..70)),
            (71, 64, 0)
        );
        assert!(bitmap.remove(128) && !bitmap.remove(131) && !bitmap.insert(127));
        assert_eq!(bitmap.insert_lowest(range), Some(128));
        assert_eq!(bitmap.insert_lowest(131..131), None);
    }
}
