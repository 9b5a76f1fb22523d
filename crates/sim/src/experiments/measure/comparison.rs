//! [`Comparison`]: compares the throughput of two programs at each number of threads.

use core::fmt;

use serde::{Serialize, Serializer};

use super::scaling::{Scaling, Spread, short};

/// Compares the results of two programs.
pub fn compare<'a>(first: &'a Scaling, second: &'a Scaling) -> Comparison<'a> {
    Comparison { first, second }
}

/// The comparison of two programs, from [`compare`]. It has a row for each number of threads that
/// both programs have.
///
/// `Display` prints a conclusion and a table.
#[derive(Debug, Clone, Copy)]
pub struct Comparison<'a> {
    first: &'a Scaling,
    second: &'a Scaling,
}

/// The faster of two programs over a whole band.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Faster {
    /// The first program is faster.
    First,
    /// The second program is faster.
    Second,
    /// No program is faster at all points of the band, or the programs have different bands.
    Undecided,
}

/// The comparison of two programs at one number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Side {
    /// The number of threads.
    pub threads: usize,
    /// The first program's throughput, divided by the second program's throughput.
    pub ratio: Spread,
    /// The faster program.
    pub faster: Faster,
}

impl<'a> Comparison<'a> {
    /// Returns the comparisons, ordered by number of threads.
    pub fn sides(&self) -> impl Iterator<Item = Side> + '_ {
        self.first.threads().iter().filter_map(|&threads| {
            let (own, other) = (self.first.rate(threads)?, self.second.rate(threads)?);
            let (low, high) = own.ratios(other);
            let ratio = Spread { value: own.value() / other.value(), low, high };
            let faster = match () {
                () if low > 1.0 => Faster::First,
                () if high < 1.0 => Faster::Second,
                () => Faster::Undecided,
            };
            Some(Side { threads, ratio, faster })
        })
    }

    fn called(&self, faster: Faster) -> &'a str {
        match faster {
            Faster::First => self.first.name(),
            Faster::Second => self.second.name(),
            Faster::Undecided => "undecided",
        }
    }

    /// The ranges in which each is faster, in the order of the numbers of threads, one line for
    /// each range.
    fn conclusion(&self) -> String {
        let mut sides: Vec<Side> = self.sides().collect();
        sides.sort_by_key(|side| side.threads);
        let runs = sides.chunk_by(|one, next| one.faster == next.faster).map(|run| {
            let (from, to) = (run[0].threads, run[run.len() - 1].threads);
            let at = if from == to { format!("{from}") } else { format!("{from} to {to}") };
            match run[0].faster {
                Faster::Undecided => format!("undecided with {at} threads\n"),
                faster => format!("{} is faster with {at} threads\n", self.called(faster)),
            }
        });
        let text: String = runs.collect();
        match text.is_empty() {
            true => "no number of threads was measured for both programs\n".to_owned(),
            false => text,
        }
    }
}

impl Serialize for Comparison<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.sides())
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = [self.first, self.second].map(Scaling::name);
        f.write_str(&self.conclusion())?;
        writeln!(f, "{first} relative to {second}, operations per second\n")?;
        writeln!(
            f,
            "{:>7}  {:>8}  {:>8}  {:>6}  {:>17}  faster",
            "threads", "first", "second", "ratio", "lowest to highest"
        )?;
        for Side { threads, ratio, faster } in self.sides() {
            let rate = |of: &Scaling| of.rate(threads).map_or(f64::NAN, |rate| rate.value());
            let [own, other] = [rate(self.first), rate(self.second)].map(short);
            let Spread { value, low, high } = ratio;
            let band = format!("{low:.2} to {high:.2}");
            let faster = self.called(faster);
            writeln!(f, "{threads:>7}  {own:>8}  {other:>8}  {value:>6.2}  {band:>17}  {faster}")?;
        }
        Ok(())
    }
}
