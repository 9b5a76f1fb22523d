//! [`Load`]: an operation in two forms, as sequences of accesses to words of cache lines.
//!
//! In a replay line, a load is a name of [`LOADS`], or a word such as `w50+ga0+da0/w50+aa0+da0`:
//! the steps of the form `base`, a slash, and the steps of the form `changed`, with `+` between
//! steps. A line has a letter, and its words have the numbers 0 to 5.
//!
//! | step | meaning |
//! |---|---|
//! | `w50` | computes for about 50 ns |
//! | `ra0` | reads word 0 of line `a` |
//! | `sa0` | reads the word, and stores it increased by 1, in two accesses |
//! | `aa0`, `da0` | adds 1 to the word, or subtracts 1, by one atomic operation |
//! | `ga0`, `pa0` | the same by a compare-exchange, which repeats until it succeeds |
//! | `la` ... `ua` | takes the line's queued spin lock, and releases it |
//! | `ka` ... `ua` | the same with interrupts masked |
//! | `i50` | interrupts the CPUs of all other threads, which each compute for 50 ns, and waits |
//!
//! Inside one lock, an operation may take that of a line with a later letter. It interrupts no CPUs
//! while it masks interrupts. If it interrupts CPUs while it has a lock, it masks interrupts
//! nowhere: the target of an interrupt could wait for that lock.
//!
//! Before the steps, kinds of lines may stand, with a colon after the last: `b512+nn+pt:...` says
//! that there are 512 lines `b`, of which each operation uses a random one, a line `n` for each
//! memory node, and a line `p` for each thread. All other lines exist once.
//!
//! In a file, a load is TOML:
//!
//! ```toml
//! lines = ["b512"]
//! base = ["w50", "gb0", "db0"]
//! changed = ["w50", "ab0", "db0"]
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

/// `FUTEX_WAIT` with a value that differs, in one of this many buckets.
macro_rules! futex {
    ($buckets:literal) => {
        concat!(
            "b",
            $buckets,
            "+pt:w110+rb1+sp0+ab0+lb+w15+ub+db0+rb1+sp0+w110/w110+ab0+lb+w15+ub+db0+w110"
        )
    };
}

/// 16 pages are filled and given back.
macro_rules! give_back {
    ($drain:literal, $flush:literal) => {
        concat!("w12800+ka+w1000+ua+i500+w500/w12800+", $drain, "+", $flush, "+w500")
    };
}

/// Names, and the loads for which they stand. `docs/validate/blind/lines.md` says what they model.
pub const LOADS: &[(&str, &str)] = &[
    ("fget", "w50+ga0+w190+da0+w50/w50+aa0+w190+da0+w50"),
    ("fget-read", "w50+ga0+w60+ra1+w130+da0+w50/w50+aa0+w60+ra1+w130+da0+w50"),
    ("dentry", "w340+ra0+w20+ra0+w10+ga1+w330+pa1+w50/w340+ra0+w20+ra0+w10+gb0+w330+pb0+w50"),
    ("futex-16384", futex!("16384")),
    ("futex-512", futex!("512")),
    ("futex-256", futex!("256")),
    ("futex-nodes", "bn:w110+aa0+la+w15+ua+da0+w110/w110+ab0+lb+w15+ub+db0+w110"),
    ("futex-list", "a256+b256:w110+aa0+la+sa1+w15+ua+da0+w110/w110+aa0+la+sb1+w15+ua+da0+w110"),
    ("give-back-unlocked", give_back!("w1000", "i500")),
    ("give-back-broadcast", give_back!("ka+w1000+ua", "w1000")),
    ("give-back-both", give_back!("w1000", "w1000")),
];

/// The number of words of a line, beside its lock.
pub const WORDS: usize = 6;

/// The longest computation, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;

/// The most lines of one kind, and the most steps of a form.
const MOST_LINES: u64 = 65_536;
const MOST_STEPS: usize = 1000;

/// How many lines of a kind there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// This many, of which each operation uses a random one.
    Random(usize),
    /// One for each memory node.
    Nodes,
    /// One for each thread.
    Threads,
}

/// A word: the kind of its line, as an index of [`Load::lines`], and its number in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The kind of line.
    pub line: usize,
    /// The word of the line.
    pub word: usize,
}

/// A step of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Computes for about this many nanoseconds.
    Work(u64),
    /// Reads a word.
    Read(At),
    /// Reads a word and stores its successor.
    Store(At),
    /// Adds to a word: 1, or -1 modulo 2^64.
    Add(At, u64),
    /// Adds to a word by a compare-exchange.
    Exchange(At, u64),
    /// Takes a line's lock for some steps.
    Hold {
        /// The kind of line.
        line: usize,
        /// Whether interrupts are masked while the thread waits for the lock and has it.
        is_masked: bool,
        /// The steps in between.
        steps: Vec<Step>,
    },
    /// Interrupts all other threads' CPUs, which compute for this many nanoseconds.
    Interrupt(u64),
}

/// An operation in two forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The kinds of lines.
    pub lines: Vec<Copies>,
    /// The steps of the forms `base` and `changed`.
    pub forms: [Vec<Step>; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    lines: Vec<String>,
    base: Vec<String>,
    changed: Vec<String>,
}

impl Load {
    /// Parses a load: a name of [`LOADS`], or a word. Returns `None` if it is neither.
    pub fn parse(text: &str) -> Option<Load> {
        let named = LOADS.iter().find(|(name, _)| *name == text);
        let text = named.map_or(text, |(_, word)| word);
        let (kinds, steps) = text.split_once(':').unwrap_or(("", text));
        let mut lines = Lines::default();
        for kind in kinds.split('+').filter(|_| !kinds.is_empty()) {
            let (letter, copies) = kind.split_at_checked(1)?;
            let copies = match copies {
                "n" => Copies::Nodes,
                "t" => Copies::Threads,
                _ => Copies::Random(number(copies, 1, MOST_LINES)? as usize),
            };
            lines.add(letter, copies)?;
        }
        let (base, changed) = steps.split_once('/')?;
        let forms = [lines.steps(base)?, lines.steps(changed)?];
        Some(Load { lines: lines.kinds, forms })
    }

    /// Converts a load in TOML to a word.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub fn of_toml(text: &str) -> Result<String, String> {
        let File { lines, base, changed } =
            toml::from_str(text).map_err(|error| error.to_string())?;
        let colon = if lines.is_empty() { "" } else { ":" };
        let [lines, base, changed] = [lines, base, changed].map(|steps| steps.join("+"));
        let word = format!("{lines}{colon}{base}/{changed}");
        match Load::parse(&word) {
            Some(_) => Ok(word),
            None => {
                Err(format!("{word} is not a load; `coreline run lineops --help` has the form"))
            }
        }
    }
}

/// The kinds of lines that were named until now.
#[derive(Default)]
struct Lines {
    kinds: Vec<Copies>,
    letters: BTreeMap<u8, usize>,
}

impl Lines {
    fn add(&mut self, letter: &str, copies: Copies) -> Option<usize> {
        let &[letter @ b'a'..=b'z'] = letter.as_bytes() else { return None };
        let line = self.kinds.len();
        self.kinds.push(copies);
        self.letters.insert(letter, line).is_none().then_some(line)
    }

    fn line(&mut self, letter: &str) -> Option<usize> {
        let known = letter.as_bytes().first().and_then(|letter| self.letters.get(letter));
        known.copied().or_else(|| self.add(letter, Copies::Random(1)))
    }

    fn steps(&mut self, text: &str) -> Option<Vec<Step>> {
        // The steps that are not inside a lock, then those inside each lock that is held.
        let mut nest = vec![Vec::new()];
        let mut held: Vec<(&str, bool)> = Vec::new();
        let (mut masks, mut interrupts_with_lock) = (false, false);
        let parts: Vec<&str> = text.split('+').collect();
        (parts.len() <= MOST_STEPS).then_some(())?;
        for part in parts {
            let (kind, rest) = part.split_at_checked(1)?;
            let step = match kind {
                "w" => Step::Work(number(rest, 0, LONGEST)?),
                "i" => {
                    interrupts_with_lock |= !held.is_empty();
                    Step::Interrupt(number(rest, 0, LONGEST)?)
                }
                "l" | "k" => {
                    self.line(rest)?;
                    // In one order only, so that no two threads wait for each other.
                    held.last().is_none_or(|(outer, _)| *outer < rest).then_some(())?;
                    held.push((rest, kind == "k"));
                    masks |= kind == "k";
                    nest.push(Vec::new());
                    continue;
                }
                "u" => {
                    let (letter, is_masked) = held.pop().filter(|(letter, _)| *letter == rest)?;
                    let (line, steps) = (self.line(letter)?, nest.pop()?);
                    Step::Hold { line, is_masked, steps }
                }
                _ => self.access(kind, rest)?,
            };
            nest.last_mut()?.push(step);
        }
        // Thread 1: has lock `a`, interrupts CPU 2 and waits.
        // Thread 2: has masked interrupts on CPU 2, and waits for `a`, or for a thread that does.
        // This covers interrupts from a masked section, too, because that has a lock.
        if masks && interrupts_with_lock {
            return None;
        }
        nest.pop().filter(|_| nest.is_empty())
    }

    fn access(&mut self, kind: &str, rest: &str) -> Option<Step> {
        let (letter, word) = rest.split_at_checked(1)?;
        let word = number(word, 0, WORDS as u64 - 1)? as usize;
        let at = At { line: self.line(letter)?, word };
        Some(match kind {
            "r" => Step::Read(at),
            "s" => Step::Store(at),
            "a" => Step::Add(at, 1),
            "d" => Step::Add(at, u64::MAX),
            "g" => Step::Exchange(at, 1),
            "p" => Step::Exchange(at, u64::MAX),
            _ => return None,
        })
    }
}

fn number(text: &str, from: u64, to: u64) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    ((from..=to).contains(&number) && number.to_string() == text).then_some(number)
}
