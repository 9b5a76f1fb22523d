//! False sharing: different cores use different words of one line.

use core::fmt;
use std::collections::BTreeMap;

use serde::Serialize;

/// A group of words of one line, whose cores use no other word of the line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WordGroup {
    /// The [names](crate::name) of the words. A word without a name is listed by its offset in the
    /// line. A word of a [lock](crate::locks) is also listed by the source location where the lock
    /// was first used.
    pub words: Vec<String>,
    /// The number of cores that use the words.
    pub cores: usize,
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

/// How often each core missed on a word, by the word's offset in its line and the core.
pub(crate) type Misses = BTreeMap<u8, BTreeMap<u32, u64>>;

/// A core that misses no more than this often on a word made it, or looked at it in the end.
const FIRST_AND_LAST: u64 = 2;

/// Nor does a core use a word if another misses this many times as often on it.
const RARELY: u64 = 10;

/// The groups of a line's words, of which `word` tells by their offsets; none if there are not
/// several. Words that one core uses are in one group.
pub(crate) fn groups(misses: &Misses, word: impl Fn(u8) -> Word) -> Vec<WordGroup> {
    let mut groups: Vec<(Vec<u8>, BTreeMap<u32, u64>)> = Vec::new();
    for (&offset, cores) in misses {
        let most = cores.values().max().copied().unwrap_or(0);
        let is_user =
            |&(_, &count): &(&u32, &u64)| count > FIRST_AND_LAST && count * RARELY >= most;
        let users: BTreeMap<u32, u64> =
            cores.iter().filter(is_user).map(|(&core, &count)| (core, count)).collect();
        if users.is_empty() {
            continue;
        }
        // All groups that share a core with this word become one with it.
        let mut group = (vec![offset], users);
        for (offsets, theirs) in std::mem::take(&mut groups) {
            if theirs.keys().all(|core| !group.1.contains_key(core)) {
                groups.push((offsets, theirs));
                continue;
            }
            group.0.extend(offsets);
            for (core, count) in theirs {
                *group.1.entry(core).or_default() += count;
            }
        }
        groups.push(group);
    }
    if groups.len() < 2 {
        return Vec::new();
    }
    groups.sort_by_key(|(offsets, _)| offsets.iter().min().copied());
    let group = |(mut offsets, cores): (Vec<u8>, BTreeMap<u32, u64>)| {
        offsets.sort_unstable();
        let known: Vec<_> = offsets.iter().map(|&offset| (offset, word(offset))).collect();
        let mut words: Vec<_> = known.iter().map(|(offset, word)| word.called(*offset)).collect();
        words.dedup();
        let mut locks: Vec<_> =
            known.iter().filter_map(|(_, word)| Some(word.lock.as_ref()?.0)).collect();
        locks.dedup();
        WordGroup { words, cores: cores.len(), misses: cores.values().sum(), locks }
    };
    groups.into_iter().map(group).collect()
}

impl fmt::Display for WordGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cores == 1 { "" } else { "s" };
        write!(f, "{} ({} core{plural})", self.words.join(", "), self.cores)
    }
}

/// How many lines, and groups of a line, the verdict names.
const MOST_NAMED: usize = 4;

/// A hot line: its address, how long accesses to it took, and its groups.
pub(crate) type Hot<'a> = (u64, u64, &'a [WordGroup]);

/// Says in words which of these lines are falsely shared; nothing if none is.
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

    fn misses(words: &[(u8, &[(u32, u64)])]) -> Misses {
        words.iter().map(|&(offset, cores)| (offset, cores.iter().copied().collect())).collect()
    }

    fn found(words: &[(u8, &[(u32, u64)])]) -> Vec<(Vec<String>, usize, u64)> {
        let groups = groups(&misses(words), |_| Word::default());
        groups.into_iter().map(|group| (group.words, group.cores, group.misses)).collect()
    }

    #[test]
    fn words_of_different_cores_are_falsely_shared() {
        let expected = vec![(vec!["+0".to_owned()], 1, 90), (vec!["+8".to_owned()], 1, 80)];
        assert_eq!(found(&[(0, &[(1, 90)]), (8, &[(2, 80)])]), expected);
        // One that made both, and one that looks at both now and then, make no difference.
        let looked = [(0, &[(0, 2), (1, 90), (5, 8)][..]), (8, &[(0, 2), (2, 80), (5, 7)])];
        assert_eq!(found(&looked), expected);
    }

    #[test]
    fn words_with_a_core_in_common_are_not() {
        assert_eq!(found(&[(0, &[(1, 90), (2, 90)]), (8, &[(2, 80), (3, 80)])]), []);
        assert_eq!(found(&[(0, &[(1, 90), (2, 90)])]), [], "a word that two contend for");
        // The third word is what the first two have in common.
        assert_eq!(found(&[(0, &[(1, 90)]), (8, &[(2, 80)]), (16, &[(1, 50), (2, 50)])]), []);
        assert_eq!(found(&[(0, &[(1, 2)]), (8, &[(2, 2)])]), [], "first accesses");
    }
}
