//! [`Granules`]: the map of allocated bytes of a stride, and the search for free ones.
//!
//! A bit represents [`GRANULE`] bytes. An item of `n` granules has a *place* where that many free
//! ones begin at a multiple of its alignment: that of its type, and small items do not lie across
//! two lines. So there are holes between items whose size is not a power of two. A search must not
//! read each granule, and must not visit the same holes again for each item:
//!
//! - It reads 64 granules at once. To find the starts of `n` free granules, it combines the free
//!   bits with shifted copies of themselves. A mask keeps the aligned starts.
//! - It begins where the last search for the same number of granules ended. A free moves this start
//!   back to the freed bytes, but only for sizes that fit there.
//!
//! The first place is taken. The cost of a search depends on the number of words that it reads. It
//! reads one or two words if items are allocated in sequence, and at most all words of the map,
//! natively 128.
//!
//! **Fork**: if a child was forked while another thread freed bytes, a search in the child may
//! begin behind these bytes, until [`forget`](Granules::forget).

use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;

/// Up to this many granules, lists of chunks and hints are of one size each.
pub(super) const EXACT: usize = 31;

/// The number of bytes that one bit represents.
pub(super) const GRANULE: usize = 8;
/// The bytes of a line: an item of this size or more lies on as few lines as it can.
const LINE: usize = 64;
/// The granules of the smallest page that a machine has.
pub(super) const PAGE: usize = 4096 / GRANULE;
/// The granules of a word of the map.
const BITS: usize = u64::BITS as usize;

/// How many granules an item of this layout takes, and what multiple of them it begins at. Small
/// items do not lie across two lines.
pub(super) fn granules(layout: Layout) -> (usize, usize) {
    let count = layout.size().max(1).div_ceil(GRANULE);
    (count, natural(count).max(layout.align() / GRANULE))
}

/// The alignment, in granules, of an item of `count` granules, unless its type asks for more.
fn natural(count: usize) -> usize {
    count.next_power_of_two().min(LINE / GRANULE)
}

/// The largest item that has a place in a run of free granules. A smaller one has a place there,
/// too, as its alignment divides that of the larger.
fn largest(begin: usize, end: usize) -> usize {
    let of_alignment = |align: usize| {
        let room = end.saturating_sub(begin.next_multiple_of(align));
        // Items that are aligned to a line may be longer than one.
        let fits = if align == LINE / GRANULE { room } else { room.min(align) };
        // Those of up to half as many granules are aligned to less.
        (room > align / 2).then_some(fits)
    };
    [8, 4, 2, 1].into_iter().find_map(of_alignment).unwrap_or(0)
}

/// The starts of this many free granules, which are at most 64.
fn beginnings(free: u128, count: usize) -> u128 {
    let (mut begin, mut known) = (free, 1);
    while known < count {
        let more = known.min(count - known);
        begin &= begin >> more;
        known += more;
    }
    begin
}

/// The words of these granules, and the granules' bits in each.
fn masks(begin: usize, end: usize) -> impl Iterator<Item = (usize, u64)> {
    (begin / BITS..end.div_ceil(BITS)).map(move |word| {
        let first = begin.saturating_sub(word * BITS);
        let behind = (word + 1) * BITS - end.min((word + 1) * BITS);
        (word, u64::MAX << first & u64::MAX >> behind)
    })
}

/// See the module. Written only under the pool's lock.
pub(super) struct Granules {
    /// One bit for each: whether an item has it, or a freed one that is still watched. It lies
    /// elsewhere in the chunk.
    taken: NonNull<[u64]>,
    /// No place for an item of `n + 1` granules, aligned as [`natural`] has it, begins below the
    /// word `tried[n]`.
    tried: [u16; EXACT],
    /// The same of the one size above those that was looked for last.
    long: Tried,
}

/// No place for an item of this many granules begins below this word.
#[derive(Clone, Copy)]
struct Tried {
    count: usize,
    word: u16,
}

impl Tried {
    const NEVER: Tried = Tried { count: 0, word: 0 };
}

impl Granules {
    /// All of them free.
    ///
    /// # Safety
    ///
    /// The words are zeros, live as long as this, and are used by nothing else.
    pub(super) unsafe fn new(taken: NonNull<[u64]>) -> Self {
        Granules { taken, tried: [0; EXACT], long: Tried::NEVER }
    }

    fn words(&self) -> usize {
        self.taken.len()
    }

    fn word(&self, at: usize) -> u64 {
        #[cfg(test)]
        tests::count_look();
        // SAFETY: the promise of `new`; written through `&mut self` only.
        let words = unsafe { self.taken.as_ref() };
        words[at]
    }

    fn taken_mut(&mut self) -> &mut [u64] {
        // SAFETY: the promise of `new`; `&mut self` keeps every other borrow of it away.
        unsafe { self.taken.as_mut() }
    }

    /// Takes this many granules, which begin at a multiple of `align`; returns which is the first.
    pub(super) fn take(&mut self, (count, align): (usize, usize)) -> Option<usize> {
        let begin = self.find(count, align)?;
        // Before the address is known: a child that is forked meanwhile loses these bytes and
        // cannot hand them out twice.
        let taken = self.taken_mut();
        masks(begin, begin + count).for_each(|(word, mask)| taken[word] |= mask);
        Some(begin)
    }

    /// Takes the first free ones from `from` on that are whole [`PAGE`]s; returns which.
    pub(super) fn take_pages(&mut self, from: usize) -> Option<Range<usize>> {
        let begin = self.find_long(from, PAGE, PAGE)?;
        let end = self.end_of_run(begin, usize::MAX) / PAGE * PAGE;
        let taken = self.taken_mut();
        masks(begin, end).for_each(|(word, mask)| taken[word] |= mask);
        Some(begin..end)
    }

    /// Whether these are granules, and all of them are taken.
    pub(super) fn are_taken(&self, begin: usize, count: usize) -> bool {
        let end = begin.saturating_add(count);
        end <= self.words() * BITS
            && masks(begin, end).all(|(word, mask)| self.word(word) & mask == mask)
    }

    /// Whether none is taken.
    pub(super) fn is_empty(&self) -> bool {
        (0..self.words()).all(|word| self.word(word) == 0)
    }

    /// Gives back granules that are taken; returns the largest item that has a place where they
    /// were.
    pub(super) fn give_back(&mut self, begin: usize, count: usize) -> usize {
        let taken = self.taken_mut();
        masks(begin, begin + count).for_each(|(word, mask)| taken[word] &= !mask);
        let (begin, end) = (self.begin_of_run(begin), self.end_of_run(begin + count, usize::MAX));
        let largest = largest(begin, end);
        // Others have no new place. A word's number has 16 bits: see `Chunk::map`.
        let word = (begin / BITS) as u16;
        for tried in &mut self.tried[..largest.min(EXACT)] {
            *tried = word.min(*tried);
        }
        if largest >= self.long.count {
            self.long.word = word.min(self.long.word);
        }
        largest
    }

    /// The largest item that has a place.
    pub(super) fn largest(&self) -> usize {
        let (mut best, mut word) = (0, usize::from(self.tried[0]));
        while let Some(begin) = self.find_from(word, best + 1, natural(best + 1)) {
            let end = self.end_of_run(begin, usize::MAX);
            best = largest(begin, end);
            // Places in this run that begin later are no larger.
            word = end / BITS;
        }
        best
    }

    /// Has the next searches look at all words.
    pub(super) fn forget(&mut self) {
        (self.tried, self.long) = ([0; EXACT], Tried::NEVER);
    }

    /// The first place of this many granules with this alignment.
    fn find(&mut self, count: usize, align: usize) -> Option<usize> {
        // Where fewer granules, aligned to no more, have no place, these have none.
        let of_fewer = self.tried[count.min(EXACT) - 1];
        let known = if count >= self.long.count { self.long.word } else { 0 };
        let found = self.find_from(usize::from(of_fewer.max(known)), count, align);
        if align == natural(count) {
            let word = found.map_or(self.words(), |begin| begin / BITS) as u16;
            match self.tried.get_mut(count - 1) {
                Some(tried) => *tried = word,
                None => self.long = Tried { count, word },
            }
        }
        found
    }

    /// The first place that begins in or after this word.
    fn find_from(&self, word: usize, count: usize, align: usize) -> Option<usize> {
        if count > BITS || align > BITS {
            return self.find_long(word * BITS, count, align);
        }
        // A bit at each multiple of `align`.
        let aligned = u64::MAX / (u64::MAX >> (BITS - align));
        (word..self.words()).find_map(|at| {
            let free = !self.word(at);
            if free == 0 {
                return None;
            }
            // What is no longer than its alignment ends in the word that it begins in.
            let may_cross = count > align && at + 1 < self.words() && free >> (BITS - 1) == 1;
            let next = if may_cross { !self.word(at + 1) } else { 0 };
            let window = u128::from(next) << BITS | u128::from(free);
            let begin = beginnings(window, count) as u64 & aligned;
            (begin != 0).then(|| at * BITS + begin.trailing_zeros() as usize)
        })
    }

    /// The first place from this granule on of what is longer than a word, or aligned to more than
    /// one. It begins behind all that is taken of its first word, if not at that word's beginning.
    fn find_long(&self, mut begin: usize, count: usize, align: usize) -> Option<usize> {
        loop {
            begin = begin.next_multiple_of(align);
            if begin + count > self.words() * BITS {
                return None;
            }
            let end = self.end_of_run(begin, begin + count);
            if end - begin >= count {
                return Some(begin);
            }
            let free = self.word(end / BITS).leading_zeros() as usize;
            begin = (end / BITS + 1) * BITS - free;
        }
    }

    /// Returns the start of the run of free granules right before this one.
    fn begin_of_run(&self, mut begin: usize) -> usize {
        while let Some(last) = begin.checked_sub(1) {
            let (word, bit) = (self.word(last / BITS), last % BITS);
            let free = ((word << (BITS - 1 - bit)).leading_zeros() as usize).min(bit + 1);
            begin -= free;
            if free <= bit {
                break;
            }
        }
        begin
    }

    /// Returns the end of the run of free granules from this one on, or a place at or behind
    /// `enough`.
    fn end_of_run(&self, mut end: usize, enough: usize) -> usize {
        while end < enough.min(self.words() * BITS) {
            let (bits, bit) = (BITS - end % BITS, end % BITS);
            let free = ((self.word(end / BITS) >> bit).trailing_zeros() as usize).min(bits);
            end += free;
            if free < bits {
                break;
            }
        }
        end
    }
}

#[cfg(test)]
pub(super) mod tests {
    use core::cell::Cell;

    use coreline_world::{Native, WorldLocal};

    use super::*;

    /// How many words of maps this thread has read.
    fn with_looks<R>(f: impl FnOnce(&Cell<usize>) -> R) -> R {
        static LOOKS: WorldLocal = WorldLocal::new("words looked at");
        LOOKS.with::<Native, _, _>(|| Cell::new(0), f)
    }

    pub(super) fn count_look() {
        with_looks(|looks| looks.set(looks.get() + 1));
    }

    /// How many words `f` looks at.
    pub(in crate::percpu) fn looked<R>(f: impl FnOnce() -> R) -> (R, usize) {
        let before = with_looks(Cell::get);
        let result = f();
        (result, with_looks(Cell::get) - before)
    }

    fn empty(words: usize) -> Granules {
        // SAFETY: zeros, that nothing else uses.
        unsafe { Granules::new(NonNull::from_mut(Box::leak(vec![0; words].into()))) }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    /// A model of the module, one granule after the other.
    struct Model(Vec<bool>);

    impl Model {
        fn find(&self, count: usize, align: usize) -> Option<usize> {
            let last = self.0.len().checked_sub(count)?;
            let is_free = |&begin: &usize| !self.0[begin..begin + count].contains(&true);
            (0..=last).step_by(align).find(is_free)
        }

        fn set(&mut self, begin: usize, count: usize, taken: bool) {
            self.0[begin..begin + count].fill(taken);
        }

        fn largest(&self) -> usize {
            let has_place = |&count: &usize| self.find(count, natural(count)).is_some();
            (1..=self.0.len()).rev().find(has_place).unwrap_or(0)
        }
    }

    /// A small generator of numbers: the test is the same each time.
    fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        }
    }

    #[test]
    fn the_first_place_is_found_as_by_a_look_at_every_granule() {
        for (seed, words) in [(1, 1), (2, 2), (3, 8), (4, 8), (5, 128)] {
            let (mut granules, mut number) = (empty(words), numbers(seed));
            let mut model = Model(vec![false; words * BITS]);
            let mut items = Vec::new();
            for _ in 0..3000 {
                if number(5) < 2 && !items.is_empty() {
                    let (begin, count) = items.swap_remove(number(items.len()));
                    assert!(granules.are_taken(begin, count));
                    granules.give_back(begin, count);
                    model.set(begin, count, false);
                    assert!(!granules.are_taken(begin, count));
                } else {
                    let longest = [9, 40, 200, words * BITS][number(4)];
                    let count = 1 + number(longest);
                    let align = natural(count) << [0, 0, 0, number(8)][number(4)];
                    let found = model.find(count, align);
                    assert_eq!(granules.take((count, align)), found, "{count}, aligned to {align}");
                    let Some(begin) = found else { continue };
                    model.set(begin, count, true);
                    items.push((begin, count));
                }
                if number(50) == 0 {
                    assert_eq!(granules.largest(), model.largest());
                    granules.forget();
                }
            }
            for (begin, count) in items {
                assert!(!granules.is_empty());
                granules.give_back(begin, count);
            }
            assert!(granules.is_empty());
        }
    }

    #[test]
    fn what_fits_into_a_run_is_what_has_a_place_there() {
        for begin in 0..20 {
            for end in begin..60 {
                let mut model = Model(vec![true; BITS]);
                model.set(begin, end - begin, false);
                assert_eq!(largest(begin, end), model.largest(), "{begin}..{end}");
            }
        }
    }

    #[test]
    fn no_search_comes_to_the_same_holes_again() {
        for size in (8..=1024).step_by(8) {
            let mut granules = empty(128);
            let take = || (0..).map_while(|_| granules.take(super::granules(layout(size)))).count();
            let (items, looked) = looked(take);
            assert!(items >= 128 * BITS * GRANULE / (size + 64), "{size} bytes: {items} items");
            // A few for each item, and for each word that it lies in; each word of the map twice.
            assert!(
                looked <= (4 + size / 256) * items + 2 * 128,
                "{size} bytes: {looked} for {items} items"
            );
        }
    }

    #[test]
    fn what_comes_back_is_found_by_the_sizes_that_fit_there() {
        for size in (8..=136).step_by(8) {
            let mut granules = empty(128);
            let all = super::granules(layout(size));
            let items: Vec<_> = (0..).map_while(|_| granules.take(all)).collect();
            let mut number = numbers(size as u64);
            // The first time, what is larger looks everywhere.
            assert_eq!(granules.take((40, 8)), None);
            for _ in 0..200 {
                let begin = items[number(items.len())];
                let (fits, words) = looked(|| {
                    let fits = granules.give_back(begin, all.0);
                    // What has no place there does not look there.
                    assert_eq!(granules.take((40, 8)), None);
                    fits
                });
                assert!(fits >= all.0 && words <= 8, "{size} bytes: {words} words");
                let (found, words) = looked(|| granules.take(all));
                assert_eq!(found, Some(begin));
                // From the last place on, past words that are full since, by one pass that may look
                // at the next word, too.
                assert!(words <= 2 * 128, "{size} bytes: {words} words to take");
            }
        }
    }

    #[test]
    fn the_largest_item_is_found_by_one_pass() {
        for size in (8..=1024).step_by(8) {
            let mut granules = empty(128);
            let all = super::granules(layout(size));
            let items: Vec<_> = (0..).map_while(|_| granules.take(all)).collect();
            items.iter().step_by(2).for_each(|&begin| {
                granules.give_back(begin, all.0);
            });
            let (largest, looked) = looked(|| granules.largest());
            assert!(largest >= all.0);
            assert!(looked <= 4 * 128, "{size} bytes: {looked} words");
        }
    }

    #[test]
    fn whole_pages_are_taken_one_run_after_the_other() {
        let mut granules = empty(128);
        let small = granules.take((5, 8)).unwrap();
        let long = granules.take((3 * PAGE, PAGE)).unwrap();
        assert_eq!((small, long), (0, PAGE));
        // Page 0 has an item; 1 to 3 another.
        assert_eq!(granules.take_pages(0), Some(4 * PAGE..128 * BITS));
        assert_eq!(granules.take_pages(0), None);
        assert_eq!(granules.give_back(long, 3 * PAGE), 4 * PAGE - 8);
        assert_eq!(granules.take_pages(0), Some(PAGE..4 * PAGE));
        granules.give_back(PAGE, 3 * PAGE);
        assert_eq!(granules.take_pages(2 * PAGE), Some(2 * PAGE..4 * PAGE));
        granules.give_back(2 * PAGE, 2 * PAGE);
        granules.give_back(4 * PAGE, 128 * BITS - 4 * PAGE);
        granules.give_back(small, 5);
        assert!(granules.is_empty());
    }

    #[test]
    fn long_items_are_found_by_one_pass() {
        let mut granules = empty(128);
        while granules.take((5, 8)).is_some() {}
        for (count, align) in [(65, 8), (100, 8), (4000, 8), (16, 128), (200, 256)] {
            let (found, looked) = looked(|| granules.take((count, align)));
            assert_eq!(found, None);
            assert!(looked <= 3 * 128, "{count} granules: {looked} words");
        }
    }
}
