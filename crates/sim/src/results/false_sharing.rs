//! False sharing: different cores use different words of one line.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// A group of words of one line that the same cores write, or that only other cores read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WordGroup {
    /// The [names](crate::name) of the words. A word without a name is listed by its offset in the
    /// line. A word of a [lock](crate::locks) is also listed by the source location where the lock
    /// was first used.
    pub words: Vec<String>,
    /// The number of cores that use the words.
    pub cores: usize,
    /// The cores that write the words.
    pub writers: Vec<u32>,
    /// The cores that only read the words.
    pub readers: Vec<u32>,
    /// The number of misses of those cores on the words.
    pub misses: u64,
    /// The addresses of the locks to which the words belong, as in
    /// [`LockReport::lock`](crate::LockReport::lock).
    pub locks: Vec<u64>,
}

/// The known facts about a word.
#[derive(Debug, Default)]
pub(crate) struct Word {
    /// The names of the objects that it is part of.
    pub(crate) names: Vec<String>,
    /// The lock that it is part of: its address, and where it was first used.
    pub(crate) lock: Option<(u64, String)>,
}

impl Word {
    /// The name of the word at this offset of its line.
    fn called(&self, offset: u8) -> String {
        match (&self.names[..], &self.lock) {
            ([], None) => format!("+{offset}"),
            ([], Some((_, site))) => format!("+{offset} lock first used at {site}"),
            (names, _) => names.join(", "),
        }
    }
}

/// How often a core missed on a word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

impl Missed {
    fn all(self) -> u64 {
        self.reads + self.writes
    }

    pub(crate) fn add(&mut self, other: Missed) {
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

/// How often each core missed on a word, by the word's offset in its line and the core.
pub(crate) type Misses = BTreeMap<u8, BTreeMap<u32, Missed>>;

/// A core that misses no more than this often on a word made it, or looked at it in the end.
const FIRST_AND_LAST: u64 = 2;

/// Nor does a core use a word if another misses so many times as often on it, or write it if
/// another writes it so many times as often. Nor does a group matter if another has so many times
/// its misses.
const RARELY: u64 = 10;

/// Words that belong together, and the misses of the cores that use them.
struct Group {
    offsets: Vec<u8>,
    users: BTreeMap<u32, Missed>,
    /// The cores that write one of the words.
    writers: BTreeSet<u32>,
}

impl Group {
    /// The word at this offset, if a core uses it.
    fn of_word(offset: u8, cores: &BTreeMap<u32, Missed>) -> Option<Group> {
        let often = |of: fn(Missed) -> u64| {
            let most = cores.values().map(|&missed| of(missed)).max().unwrap_or(0);
            move |missed: Missed| of(missed) > FIRST_AND_LAST && of(missed) * RARELY >= most
        };
        let (uses, writes) = (often(Missed::all), often(|missed| missed.writes));
        let each = || cores.iter().map(|(&core, &missed)| (core, missed));
        let users: BTreeMap<_, _> = each().filter(|&(_, missed)| uses(missed)).collect();
        let writers = each().filter(|&(core, missed)| writes(missed) && users.contains_key(&core));
        let writers = writers.map(|(core, _)| core).collect();
        (!users.is_empty()).then_some(Group { offsets: vec![offset], users, writers })
    }

    /// Whether a line for each would save little. So it is if a core writes both, or if only
    /// writers of the other read what no core writes: they need the line in any case. A core that
    /// only reads both misses on what no core writes for no reason.
    fn belongs_to(&self, other: &Group) -> bool {
        match self.writers.is_empty() {
            false => !self.writers.is_disjoint(&other.writers),
            true if other.writers.is_empty() => true,
            true => self.users.keys().all(|core| other.writers.contains(core)),
        }
    }

    fn join(&mut self, other: Group) {
        self.offsets.extend(other.offsets);
        self.writers.extend(other.writers);
        for (core, missed) in other.users {
            self.users.entry(core).or_default().add(missed);
        }
    }

    fn misses(&self) -> u64 {
        self.users.values().map(|missed| missed.all()).sum()
    }
}

/// The groups of a line's words. `word` returns the data of a word by its offset. Returns none if
/// there is only one group. Words that a core writes are in one group, whatever cores read them.
pub(crate) fn groups(misses: &Misses, word: impl Fn(u8) -> Word) -> Vec<WordGroup> {
    let mut groups: Vec<Group> = Vec::new();
    let words = misses.iter().filter_map(|(&offset, cores)| Group::of_word(offset, cores));
    let (written, read): (Vec<_>, Vec<_>) = words.partition(|group| !group.writers.is_empty());
    for mut group in written.into_iter().chain(read) {
        // All groups to which this word belongs become one with it.
        for other in std::mem::take(&mut groups) {
            match group.belongs_to(&other) {
                true => group.join(other),
                false => groups.push(other),
            }
        }
        groups.push(group);
    }
    let most = groups.iter().map(Group::misses).max().unwrap_or(0);
    groups.retain(|group| group.misses() * RARELY >= most);
    if groups.len() < 2 {
        return Vec::new();
    }
    groups.sort_by_key(|group| group.offsets.iter().min().copied());
    let group = |group: Group| {
        let misses = group.misses();
        let Group { mut offsets, users, writers } = group;
        offsets.sort_unstable();
        let known: Vec<_> = offsets.iter().map(|&offset| (offset, word(offset))).collect();
        let mut words: Vec<_> = known.iter().map(|(offset, word)| word.called(*offset)).collect();
        words.dedup();
        let mut locks: Vec<_> =
            known.iter().filter_map(|(_, word)| Some(word.lock.as_ref()?.0)).collect();
        locks.dedup();
        let readers = users.keys().copied().filter(|core| !writers.contains(core)).collect();
        let (cores, writers) = (users.len(), writers.into_iter().collect());
        WordGroup { words, cores, writers, readers, misses, locks }
    };
    groups.into_iter().map(group).collect()
}

impl fmt::Display for WordGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.words.join(", "))?;
        let mut separator = "";
        for (cores, does, do_) in
            [(&self.writers, "writes", "write"), (&self.readers, "reads", "read")]
        {
            match cores[..] {
                [] => continue,
                [core] => write!(f, "{separator}core {core} {does}")?,
                _ => write!(f, "{separator}{} cores {do_}", cores.len())?,
            }
            separator = ", ";
        }
        write!(f, ")")
    }
}

/// How many lines, and groups of a line, the verdict names.
const MOST_NAMED: usize = 4;

/// A hot line: its address, how long accesses to it took, and its groups.
pub(crate) type Hot<'a> = (u64, u64, &'a [WordGroup]);

/// Says in words which of these lines are falsely shared. Empty if no line is.
pub(crate) fn verdict(f: &mut fmt::Formatter<'_>, lines: &[Hot<'_>]) -> fmt::Result {
    let shared: Vec<&Hot<'_>> = lines.iter().filter(|(.., groups)| !groups.is_empty()).collect();
    if shared.is_empty() {
        return Ok(());
    }
    let (count, plural) = (shared.len(), if shared.len() == 1 { "" } else { "s" });
    let of: u64 = shared.iter().map(|line| line.1).sum();
    let all: u64 = lines.iter().map(|line| line.1).sum();
    let share = 100.0 * of as f64 / all.max(1) as f64;
    writeln!(f, "\nfalse sharing on {count} line{plural}, {share:.0} % of the time of hot lines:")?;
    writeln!(f, "cores use different words of one line; give each a line of its own")?;
    for (address, _, groups) in shared.into_iter().take(MOST_NAMED) {
        if let Some(locks) = several_locks(groups) {
            writeln!(f, "  {address:#x}  {locks} locks of different threads on one line")?;
            for group in groups.iter().take(MOST_NAMED) {
                writeln!(f, "    {group}")?;
            }
            if let more @ 1.. = groups.len().saturating_sub(MOST_NAMED) {
                writeln!(f, "    {more} more")?;
            }
            continue;
        }
        let named: Vec<_> = groups.iter().take(MOST_NAMED).map(WordGroup::to_string).collect();
        write!(f, "  {address:#x}  {}", named.join("; "))?;
        match groups.len().saturating_sub(MOST_NAMED) {
            0 => writeln!(f)?,
            more => writeln!(f, "; {more} more")?,
        }
    }
    Ok(())
}

/// How many groups have a lock, in words, if several do. Their cores are different ones and miss
/// again and again, so it is different threads that take these locks.
fn several_locks(groups: &[WordGroup]) -> Option<String> {
    match groups.iter().filter(|group| !group.locks.is_empty()).count() {
        0 | 1 => None,
        2 => Some("two".to_owned()),
        3 => Some("three".to_owned()),
        4 => Some("four".to_owned()),
        more => Some(more.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Misses by word: a core's reads and writes.
    type Words<'a> = &'a [(u8, &'a [(u32, u64, u64)])];

    fn misses(words: Words<'_>) -> Misses {
        let of_core = |&(core, reads, writes): &(u32, u64, u64)| (core, Missed { reads, writes });
        let of_word = |&(offset, cores): &(u8, &[(u32, u64, u64)])| {
            (offset, cores.iter().map(of_core).collect())
        };
        words.iter().map(of_word).collect()
    }

    fn found(words: Words<'_>) -> Vec<(String, usize, u64)> {
        let groups = groups(&misses(words), |_| Word::default());
        groups.iter().map(|group| (group.to_string(), group.cores, group.misses)).collect()
    }

    #[test]
    fn words_of_different_writers_are_falsely_shared() {
        let expected = vec![
            ("+0 (core 1 writes)".to_owned(), 1, 90),
            ("+8 (core 2 writes)".to_owned(), 1, 80),
        ];
        assert_eq!(found(&[(0, &[(1, 0, 90)]), (8, &[(2, 0, 80)])]), expected);
        // One that made both, and one that looks at both now and then, make no difference.
        let looked = [
            (0, &[(0, 0, 2), (1, 0, 90), (5, 8, 0)][..]),
            (8, &[(0, 0, 2), (2, 0, 80), (5, 7, 0)]),
        ];
        assert_eq!(found(&looked), expected);
    }

    #[test]
    fn a_reader_of_both_words_hides_nothing() {
        // A ring: the producer writes the tail and reads the head, the consumer the other way.
        let ring = found(&[(0, &[(1, 40, 60), (2, 90, 0)]), (8, &[(1, 80, 0), (2, 30, 60)])]);
        assert_eq!(
            ring.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>(),
            ["+0 (core 1 writes, core 2 reads)", "+8 (core 2 writes, core 1 reads)"]
        );
        // A link that all follow, beside an epoch that its owner writes and all read.
        let list = found(&[(0, &[(2, 90, 0), (3, 90, 0)]), (24, &[(1, 0, 90), (2, 9, 0)])]);
        assert_eq!(list[0].0, "+0 (2 cores read)");
        assert_eq!(list[1].0, "+24 (core 1 writes, core 2 reads)");
    }

    #[test]
    fn words_with_a_writer_in_common_are_not() {
        let one = [(0, &[(1, 0, 90), (2, 0, 90)][..]), (8, &[(2, 0, 80), (3, 0, 80)])];
        assert_eq!(found(&one), []);
        assert_eq!(found(&one[..1]), [], "a word that two contend for");
        // The third word is what the first two have in common.
        let third = [(0, &[(1, 0, 90)][..]), (8, &[(2, 0, 80)]), (16, &[(1, 0, 50), (2, 0, 50)])];
        assert_eq!(found(&third), []);
        // A flag beside a lock that both of its readers take.
        assert_eq!(found(&[(0, one[0].1), (4, &[(1, 20, 0), (2, 20, 0)])]), []);
        assert_eq!(found(&[(0, &[(1, 0, 2)]), (8, &[(2, 0, 2)])]), [], "first accesses");
        assert_eq!(found(&[(0, &[(1, 9, 0)]), (8, &[(2, 9, 0)])]), [], "only reads");
        let seldom = [(0, &[(1, 0, 900), (2, 0, 900)][..]), (8, &[(3, 60, 0)])];
        assert_eq!(found(&seldom), [], "a word that hardly misses");
    }
}
