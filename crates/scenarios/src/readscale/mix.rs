//! [`Mix`]: the locks that one operation takes, as a program that counts a process's locks finds
//! them.
//!
//! In a replay line, a mix is a name of [`MIXES`], or a word of parts with `+` between them:
//!
//! | part | meaning |
//! |---|---|
//! | `w500` | an operation computes for 500 ns without a lock |
//! | `l4x1r0w` | four locks, each of which is read once and never written |
//! | `c1x2` | one count, which an operation increases and decreases twice, without a lock |
//!
//! In a file it is TOML, in which zeros may be left out:
//!
//! ```toml
//! work = 500
//! [[lock]]
//! locks = 4
//! reads = 1
//! writes = 0
//! [[count]]
//! counts = 1
//! pairs = 2
//! ```
//!
//! Each of this many counts or locks has this many pairs, reads or writes in each operation.

use std::fmt;

use serde::Deserialize;

/// Names, and the mixes for which they stand.
pub const MIXES: &[(&str, &str)] =
    &[("one", "w500+l1x1r0w"), ("openssl", "w420+l1x4r0w+l4x1r0w+c1x1"), ("tls", TLS)];

/// A handshake of TLS 1.3, both ends, with a certificate of the curve P-256, in OpenSSL 3.0.22 of
/// Debian 12. `docs/appendix/readscale.md` says how it was counted and timed.
const TLS: &str = "w906000+l1x1810r0w+l1x722r0w+l1x720r0w+l1x132r0w+l1x129r0w+l2x25r0w+l1x12r0w\
                   +l1x9r0w+l1x8r0w+l1x6r1w+l1x6r0w+l1x3r0w+l1x2r0w+l1x1r0w\
                   +l1x0r58w+l1x0r16w+l2x0r12w+l1x0r6w+l2x0r2w+l2x0r1w\
                   +c1x216+c1x80+c1x24+c1x21+c1x16+c1x11+c1x10+c1x5+c4x4+c22x2";

/// The most of anything in a mix.
const MOST: u64 = 1_000_000_000;

/// The most locks, and the most times that an operation takes locks or counts.
const MOST_STEPS: u64 = 100_000;

/// The locks that one operation takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Nanoseconds that an operation computes without a lock.
    pub work: u64,
    /// The locks, by how they are taken.
    #[serde(default, rename = "lock")]
    pub locks: Vec<Locks>,
    /// The counts that are changed without a lock.
    #[serde(default, rename = "count")]
    pub counts: Vec<Counts>,
}

/// Locks that an operation takes equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locks {
    /// The number of such locks.
    pub locks: u64,
    /// How often an operation reads each of them.
    #[serde(default)]
    pub reads: u64,
    /// How often an operation writes each of them.
    #[serde(default)]
    pub writes: u64,
}

/// Counts that an operation changes equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// The number of such counts.
    pub counts: u64,
    /// How often an operation increases and then decreases each of them.
    pub pairs: u64,
}

/// A step of an operation, with the number of a lock or count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reads a lock.
    Read(usize),
    /// Writes a lock.
    Write(usize),
    /// Increases a count.
    Add(usize),
    /// Decreases a count.
    Subtract(usize),
}

impl Mix {
    /// Parses a mix: a name of [`MIXES`], or a word. Returns `None` if it is neither, or if an
    /// operation would take no lock or too many.
    pub fn parse(text: &str) -> Option<Mix> {
        let named = MIXES.iter().find(|(name, _)| *name == text);
        let mut mix = Mix { work: 0, locks: Vec::new(), counts: Vec::new() };
        let parts = named.map_or(text, |(_, word)| word).split('+');
        for (place, part) in parts.enumerate() {
            let (kind, rest) = part.split_at_checked(1)?;
            match kind {
                "w" if place == 0 => mix.work = number(rest)?,
                "l" => {
                    let (locks, rest) = rest.split_once('x')?;
                    let (reads, writes) = rest.strip_suffix('w')?.split_once('r')?;
                    let [locks, reads, writes] = [number(locks)?, number(reads)?, number(writes)?];
                    mix.locks.push(Locks { locks, reads, writes });
                }
                "c" => {
                    let (counts, pairs) = rest.split_once('x')?;
                    mix.counts.push(Counts { counts: number(counts)?, pairs: number(pairs)? });
                }
                _ => return None,
            }
        }
        mix.is_possible().then_some(mix)
    }

    /// Parses a mix in TOML.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub fn of_toml(text: &str) -> Result<Mix, String> {
        let mix: Mix = toml::from_str(text).map_err(|error| error.to_string())?;
        let needs = "an operation of a mix takes locks 1 to 100,000 times, and a mix has at most \
                     100,000 locks and counts";
        if mix.is_possible() { Ok(mix) } else { Err(needs.to_owned()) }
    }

    fn is_possible(&self) -> bool {
        let taken: u64 = self.locks.iter().map(|it| it.times()).sum();
        let changed: u64 =
            self.counts.iter().map(|it| it.counts.saturating_mul(2 * it.pairs)).sum();
        let kinds =
            self.locks.iter().map(|it| it.locks).chain(self.counts.iter().map(|it| it.counts));
        let [locks, steps] = [kinds.sum::<u64>(), taken.saturating_add(changed)];
        taken > 0 && self.work <= MOST && locks <= MOST_STEPS && steps <= MOST_STEPS
    }

    /// Returns the mix without its counts.
    pub fn without_counts(self) -> Mix {
        Mix { counts: Vec::new(), ..self }
    }

    /// Returns the number of locks.
    pub fn locks(&self) -> usize {
        self.locks.iter().map(|it| it.locks as usize).sum()
    }

    /// Returns the number of counts.
    pub fn counts(&self) -> usize {
        self.counts.iter().map(|it| it.counts as usize).sum()
    }

    /// Returns how often an operation takes a lock.
    pub fn takes(&self) -> usize {
        self.locks.iter().map(|it| it.times() as usize).sum()
    }

    /// Returns the steps of an operation. The times that it takes a lock are spread evenly over the
    /// operation, and so are the changes of a count.
    pub fn steps(&self) -> Vec<Step> {
        let mut at: Vec<(f64, Step)> = Vec::new();
        let mut spread = |times: u64, phase: f64, step: Step| {
            let place = |time: u64| (time as f64 + phase) / times as f64;
            at.extend((0..times).map(|time| (place(time), step)));
        };
        let mut lock = 0;
        for kind in &self.locks {
            for _ in 0..kind.locks {
                spread(kind.reads, 0.5, Step::Read(lock));
                spread(kind.writes, 0.5, Step::Write(lock));
                lock += 1;
            }
        }
        let mut count = 0;
        for kind in &self.counts {
            for _ in 0..kind.counts {
                spread(kind.pairs, 0.25, Step::Add(count));
                spread(kind.pairs, 0.75, Step::Subtract(count));
                count += 1;
            }
        }
        at.sort_by(|one, other| one.0.total_cmp(&other.0));
        at.into_iter().map(|(_, step)| step).collect()
    }
}

impl Locks {
    fn times(self) -> u64 {
        self.locks.saturating_mul(self.reads.saturating_add(self.writes))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}", self.work)?;
        for Locks { locks, reads, writes } in &self.locks {
            write!(f, "+l{locks}x{reads}r{writes}w")?;
        }
        for Counts { counts, pairs } in &self.counts {
            write!(f, "+c{counts}x{pairs}")?;
        }
        Ok(())
    }
}

fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number <= MOST && number.to_string() == text).then_some(number)
}
