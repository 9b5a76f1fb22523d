//! [`CpuSet`], a set of CPUs that is as wide as its highest member, and its text form.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::ids::{CpuId, MAX_CPUS};

const BITS: usize = u64::BITS as usize;

/// A set of CPUs.
///
/// The set uses one bit for each CPU number up to the highest member. Its text form is the CPU list
/// of the Linux kernel: numbers and inclusive ranges, ascending, separated by commas. The empty set
/// is the empty string.
///
/// ```
/// use coreline_topology::{CpuId, CpuSet};
///
/// let set: CpuSet = "0-3,8".parse()?;
/// assert_eq!(set.len(), 5);
/// assert!(set.contains(CpuId::new(8)));
/// assert_eq!(set.to_string(), "0-3,8");
/// # Ok::<(), coreline_topology::ParseCpuListError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Bit `n % 64` of word `n / 64` says whether CPU `n` is a member. The last word is never zero,
    /// so equal sets have equal words.
    words: Vec<u64>,
}

impl CpuSet {
    /// Creates an empty set, without an allocation.
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Adds a CPU. Returns whether it was absent. The call may grow the set to `cpu / 8` bytes.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        let (word, bit) = position(cpu);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let absent = self.words[word] & bit == 0;
        self.words[word] |= bit;
        absent
    }

    /// Adds `low` to `high`, both included and in this order, a word at a time: lists from outside
    /// may repeat wide ranges.
    fn insert_range(&mut self, low: u32, high: u32) {
        let ((first, low_bit), (last, high_bit)) =
            (position(CpuId::new(low)), position(CpuId::new(high)));
        if last >= self.words.len() {
            self.words.resize(last + 1, 0);
        }
        for word in first..=last {
            let from = if word == first { low_bit.wrapping_neg() } else { u64::MAX };
            let to = if word == last { high_bit | (high_bit - 1) } else { u64::MAX };
            self.words[word] |= from & to;
        }
    }

    /// Removes a CPU. Returns whether it was present.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        let present = self.contains(cpu);
        if present {
            let (word, bit) = position(cpu);
            self.words[word] &= !bit;
            self.trim();
        }
        present
    }

    /// Returns whether the CPU is a member.
    pub fn contains(&self, cpu: CpuId) -> bool {
        let (word, bit) = position(cpu);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Returns whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> {
        self.words.iter().zip(0u32..).flat_map(|(&word, index)| {
            std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)))
                .take_while(|&rest| rest != 0)
                .map(move |rest| CpuId::new(index * u64::BITS + rest.trailing_zeros()))
        })
    }

    /// Returns the lowest member.
    pub fn first(&self) -> Option<CpuId> {
        self.iter().next()
    }

    /// Returns the highest member.
    pub fn last(&self) -> Option<CpuId> {
        self.iter().last()
    }

    /// Returns the CPUs that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Returns the CPUs that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        let mut both = Self { words };
        both.trim();
        both
    }

    /// Returns whether every member is also a member of the other set.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.len() <= other.words.len()
            && self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// Restores the invariant that the last word is not zero.
    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

/// The word of a CPU and its bit there.
fn position(cpu: CpuId) -> (usize, u64) {
    (cpu.index() / BITS, 1 << (cpu.index() % BITS))
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        let mut set = Self::new();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().map(CpuId::get).peekable();
        let mut separator = "";
        while let Some(low) = cpus.next() {
            let mut high = low;
            while let Some(next) = cpus.next_if(|&cpu| cpu == high + 1) {
                high = next;
            }
            write!(f, "{separator}{low}")?;
            if high > low {
                write!(f, "-{high}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuListError;

    /// Reads a CPU list. White space around the list is ignored, as sysfs ends it with a newline;
    /// CPU numbers are below [`MAX_CPUS`].
    fn from_str(list: &str) -> Result<Self, ParseCpuListError> {
        let list = list.trim();
        let mut set = Self::new();
        if list.is_empty() {
            return Ok(set);
        }
        for part in list.split(',') {
            let wrong = |problem| ParseCpuListError { part: part.to_owned(), problem };
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high) = (number(low).map_err(wrong)?, number(high).map_err(wrong)?);
            if low > high {
                return Err(wrong(CpuListProblem::Reversed));
            }
            set.insert_range(low, high);
        }
        Ok(set)
    }
}

/// A CPU number, or what is wrong with it.
pub(crate) fn number(text: &str) -> Result<u32, CpuListProblem> {
    // `u32::from_str` alone would also take a leading plus sign.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListProblem::NotANumber);
    }
    text.parse().ok().filter(|&cpu| cpu < MAX_CPUS).ok_or(CpuListProblem::TooLarge)
}

/// The error for a text that is not a CPU list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{part:?} in the CPU list {problem}; write numbers and ranges as in \"0-3,8\"")]
pub struct ParseCpuListError {
    /// The comma-separated part that is wrong.
    pub part: String,
    /// The reason.
    pub problem: CpuListProblem,
}

/// The reason why a part of a CPU list is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CpuListProblem {
    /// A CPU number is missing, or other text is in its place.
    #[error("is neither a number nor a range")]
    NotANumber,
    /// A range ends below its start.
    #[error("is a range that ends below its start")]
    Reversed,
    /// A CPU number is not below [`MAX_CPUS`].
    #[error("names a CPU that is not below {MAX_CPUS}")]
    TooLarge,
}
