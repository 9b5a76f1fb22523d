//! Whether accesses of one thread overlap.

use core::fmt;
use core::str::FromStr;

/// Whether independent accesses of one thread overlap (memory-level parallelism).
///
/// Real cores overlap them. The simulator cannot tell how far for all programs. It recognises an
/// address that is computed from a pointer that was just loaded, but not one that is computed from
/// an index. So real machines lie between these two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// No overlap. Each access waits until the previous one is complete.
    #[default]
    Serial,
    /// An access starts without waiting for earlier accesses, unless its address is near a value
    /// that one of them loads. A core has as many misses in progress as it has `fill_buffers`.
    ///
    /// These wait for all accesses: a full fence, a full store buffer, a pause, a system call and
    /// computation. On a machine that is [weakly ordered](crate::Spec::is_weakly_ordered), an
    /// acquire waits for them, too. A locked operation executes, and a store leaves
    /// its buffer, after all accesses before it.
    ///
    /// A run under a [schedule](crate::Schedule) other than by time has no overlap.
    Independent,
}

impl Overlap {
    /// Both values, the default first.
    pub const ALL: [Overlap; 2] = [Overlap::Serial, Overlap::Independent];
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Overlap::Serial => "serial",
            Overlap::Independent => "independent",
        })
    }
}

/// The error for an unknown name of an overlap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{asked:?} is not an overlap; write serial or independent")]
pub struct ParseOverlapError {
    /// What was asked.
    asked: String,
}

impl FromStr for Overlap {
    type Err = ParseOverlapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Overlap::ALL
            .into_iter()
            .find(|overlap| overlap.to_string() == text)
            .ok_or_else(|| ParseOverlapError { asked: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_reads_back() {
        for overlap in Overlap::ALL {
            assert_eq!(overlap.to_string().parse(), Ok(overlap));
        }
        let error = "some".parse::<Overlap>().unwrap_err().to_string();
        assert!(error.contains("some") && error.contains("independent"), "{error}");
    }
}
