//! Results of `coreline run`, read back from what `--json` printed.

use std::collections::BTreeMap;
use std::path::Path;

use coreline_scenarios::metric::Better;
use coreline_scenarios::param::Value;
use coreline_sim::{Arbitration, Overlap};
use serde::Deserialize;

use crate::error::Error;
use crate::run::result::{RunResult, read_back};
use crate::run::verdict::{self, Verdict};

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Run {
    pub(super) scenario: String,
    pub(super) world: String,
    pub(super) machine_digest: Option<String>,
    pub(super) here: Option<Here>,
    pub(super) program: Program,
    pub(super) quick: bool,
    pub(super) spans: String,
    pub(super) seed: u64,
    /// Empty natively, and in results of older programs, whose lines were first-come.
    #[serde(default)]
    pub(super) arbitrations: Vec<String>,
    /// None natively, and in results of older programs, where accesses did not overlap.
    pub(super) overlap: Option<String>,
    pub(super) not_modelled: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// The machine of a native result.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Here {
    pub(super) processor: String,
    pub(super) kernel: String,
    pub(super) day: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Program {
    pub(super) version: String,
    pub(super) commit: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Row {
    pub(super) config: String,
    pub(super) params: BTreeMap<String, Value>,
    pub(super) variant: String,
    pub(super) metric: String,
    pub(super) value: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    pub(super) points: Vec<Option<f64>>,
    pub(super) samples: Option<usize>,
    pub(super) discarded: Option<u32>,
    pub(super) unit: String,
    pub(super) derived: bool,
    pub(super) better: Better,
    pub(super) published: Option<f64>,
    pub(super) source: Option<String>,
    pub(super) verdict: Verdict,
    pub(super) times: Option<f64>,
    pub(super) why: Option<String>,
}

impl Run {
    pub(super) fn file(path: &Path) -> Result<Run, Error> {
        read_back(path).map(|(_, run)| run)
    }

    /// A result of this process.
    pub(super) fn of(outcome: &RunResult) -> Run {
        let value = serde_json::to_value(outcome).and_then(serde_json::from_value);
        value.expect("what is printed can be read back")
    }

    pub(super) fn is_native(&self) -> bool {
        self.world == "native"
    }

    /// The scenario and its machine: `shootdown on epyc-9654-2s`.
    pub(super) fn title(&self) -> String {
        match &self.here {
            Some(_) => format!("{} on this host", self.scenario),
            None => format!("{} on {}", self.scenario, self.world),
        }
    }

    pub(super) fn machine(&self) -> String {
        let Program { version, commit } = &self.program;
        let commit = commit.as_ref().and_then(|it| it.get(..12)).unwrap_or("unknown");
        let by = format!("coreline {version}, commit {commit}");
        match &self.here {
            Some(Here { processor, kernel, day }) => {
                format!("measured on {processor}, Linux {kernel}, {day}; {by}")
            }
            None => format!("simulated machine {}; {by}", self.world),
        }
    }

    fn is_band(&self) -> bool {
        self.spans == "whole-band"
    }

    /// That of the default point.
    pub(super) fn arbitration(&self) -> Option<Arbitration> {
        self.arbitrations.first()?.parse().ok()
    }

    /// Whether independent accesses of a thread overlap.
    pub(super) fn overlap(&self) -> Overlap {
        self.overlap.as_deref().and_then(|it| it.parse().ok()).unwrap_or_default()
    }

    fn has_usual_arbitrations(&self) -> bool {
        let usual = if self.is_band() { &Arbitration::ALL[..] } else { &[Arbitration::default()] };
        self.arbitrations.iter().map(|it| it.parse().ok()).eq(usual.iter().copied().map(Some))
    }

    /// The span of whiskers.
    pub(super) fn span(&self) -> &'static str {
        match &*self.spans {
            "samples" => "whiskers over the samples",
            "whole-band" if self.arbitrations.len() > 1 => {
                "whiskers over 16 seeds, three request shares, two arbitrations and moved costs"
            }
            "whole-band" => "whiskers over 16 seeds, three request shares and moved costs",
            "point" => "no whiskers, because a quick run has no range",
            _ => "whiskers over three request shares",
        }
    }

    /// The command that gives the same rows, where no option of the scenario was given.
    pub(super) fn command(&self) -> String {
        let Run { scenario, world, seed, .. } = self;
        let [scenario, world] = [scenario, world].map(|it| quoted(it));
        let mut command = format!("coreline run {scenario} --world {world} --seed {seed}");
        command += if self.is_band() { " --band" } else { "" };
        if let Some(alone) = self.arbitration().filter(|_| !self.has_usual_arbitrations()) {
            command += &format!(" --arbitration {alone}");
        }
        let overlap = Some(self.overlap()).filter(|&it| it != Overlap::default());
        overlap.iter().for_each(|it| command += &format!(" --overlap {it}"));
        command += if self.quick { " --quick" } else { "" };
        command
    }
}

impl Row {
    /// The configuration and the parameters: `8-core/1-L3, delay_ms 10`.
    pub(super) fn place(&self) -> String {
        let params = self.params.iter().map(|(name, value)| format!("{name} {value}"));
        [self.config.clone()].into_iter().chain(params).collect::<Vec<_>>().join(", ")
    }

    /// The verdict in words; empty where there is none.
    pub(super) fn said(&self) -> String {
        verdict::said(self.verdict, self.times)
    }

    /// The value with its unit, and its span.
    pub(super) fn figure(&self) -> String {
        let Some(value) = self.value else {
            return "not measured: other programs disturbed all samples".to_owned();
        };
        match (self.low, self.high) {
            (Some(low), Some(high)) => {
                format!("{} {} ({} to {})", number(value), self.unit, number(low), number(high))
            }
            _ => format!("{} {}", number(value), self.unit),
        }
    }
}

/// A word of a command line, as a shell takes it: names come from files.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:,".contains(char);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// With as many decimals as say something, and thousands apart.
pub(super) fn number(value: f64) -> String {
    let decimals = if value.abs() < 1.0 { 3 } else { usize::from(value.abs() < 1000.0) * 2 };
    let text = format!("{value:.decimals$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    let groups: Vec<_> = groups.iter().map(|it| String::from_utf8_lossy(it)).collect();
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{part}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_command() {
        for (word, written) in [
            ("8-core/1-L3", "8-core/1-L3"),
            ("a; b", "'a; b'"),
            ("a'$(b)", "'a'\\''$(b)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), written);
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, shown) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (12.5, "12.5"),
            (1_518_000.0, "1,518,000"),
            (-1234.5, "-1,234"),
            (999.999, "1,000"),
        ] {
            assert_eq!(number(value), shown, "{value}");
        }
    }
}
