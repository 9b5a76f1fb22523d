//! [`Change`]: the five changes to Linux that the library brings to programs. Each names the
//! scenario that shows it, so that the program's first page, `coreline explain` and reports are
//! made of the same data.

use crate::{Scenario, Source};
use crate::{execstorm, filecopy, intermittent, ipistorm, switchstorm};

/// A change to the kernel, with the scenario runs that show its effect.
pub struct Change {
    /// The name of the change on command lines.
    pub name: &'static str,
    /// A short description of the change.
    pub title: &'static str,
    /// The name of the change's [`Source`].
    pub source: &'static str,
    /// The known facts about kernels, by release, the newest first.
    releases: &'static [((u32, u32), Has)],
    /// The architecture whose kernels may have it, if only one may.
    architecture: Option<&'static str>,
    /// A page of text, 80 columns wide: what the change does, which cache lines move, and whether
    /// Linux has it.
    pub text: &'static str,
    /// The simulated run that shows the change on the author's machine.
    pub shown: Shown,
    /// The native run that shows the change on any machine.
    pub natively: Natively,
    /// The library's types that have the same effect in a program.
    pub types: &'static str,
}

/// A selection of rows from a simulated run.
pub struct Shown {
    /// The scenario.
    pub scenario: &'static Scenario,
    /// The simulated machine, which is the author's machine, or the most similar machine.
    pub machine: &'static str,
    /// The name of the configuration, which selects CPUs of the machine.
    pub config: &'static str,
    /// The options whose value is not the default, or is one of several default values.
    pub values: &'static [(&'static str, &'static str)],
    /// The name of the compared metric.
    pub metric: &'static str,
    /// The variant without the change, and the variant with it.
    pub variants: [&'static str; 2],
    /// The name of the second variant's row in the comparison.
    pub comparison: &'static str,
}

/// A selection of rows from a native run.
pub struct Natively {
    /// The name of the compared metric.
    pub metric: &'static str,
    /// Two variants.
    pub variants: [&'static str; 2],
    /// The options whose value is not the default, or is one of several default values.
    pub values: &'static [(&'static str, &'static str)],
    /// Whether the effect appears only if some CPUs are farther apart than others.
    pub takes_distance: bool,
}

/// Whether a kernel has a change, judged by its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Has {
    /// The kernel has the change.
    Yes,
    /// The kernel does not have the change.
    No,
    /// The kernel has a later mechanism that replaced the change.
    Later,
    /// The release is unknown, or no kernel of this architecture has such a change.
    Unknown,
}

impl Has {
    /// Returns the answer in one word.
    pub fn word(self) -> &'static str {
        match self {
            Has::Yes => "yes",
            Has::No => "no",
            Has::Later => "newer",
            Has::Unknown => "?",
        }
    }
}

/// No release has it.
const NONE: &[((u32, u32), Has)] = &[((0, 0), Has::No)];

/// All five changes. The releases are the same as in `docs/concurrency-ids.md`. Only release 3.12
/// is from memory. Its patch is from 1 August 2013, after the merge window of 3.11.
pub static CHANGES: [Change; 5] = [
    Change {
        name: "recent-ids",
        title: "recent concurrency IDs",
        source: "Desnoyers 2024",
        releases: &[((6, 19), Has::Later), ((6, 13), Has::Yes), ((0, 0), Has::No)],
        architecture: None,
        text: include_str!("../changes/recent-ids.txt"),
        shown: Shown {
            scenario: &intermittent::SCENARIO,
            machine: "epyc-9654-2s",
            config: "192-core/24-L3",
            values: &[("delay", "10")],
            metric: "ns_per_burst",
            variants: ["first-fit", "recent"],
            comparison: "speedup",
        },
        natively: Natively {
            metric: "ns_per_burst",
            variants: ["cpu-id", "kernel-cid"],
            values: &[("delay", "10")],
            takes_distance: true,
        },
        types: "Domain, CidSpace",
    },
    Change {
        name: "notify-bit",
        title: "notify bit for idle CPUs",
        source: "Nayak 2024",
        releases: NONE,
        architecture: None,
        text: include_str!("../changes/notify-bit.txt"),
        shown: Shown {
            scenario: &ipistorm::SCENARIO,
            machine: "epyc-7003-2s",
            config: "256-thread/16-L3",
            values: &[("masked", "400"), ("scan", "socket")],
            metric: "call_ns",
            variants: ["kernel-resched", "kernel-notify"],
            comparison: "time_over_kernel_resched",
        },
        natively: Natively {
            metric: "call_ns",
            variants: ["resched", "notify"],
            values: &[("scan", "socket")],
            takes_distance: false,
        },
        types: "Workers",
    },
    Change {
        name: "constructed-objects",
        title: "constructed objects",
        source: "Yoo 2025",
        releases: NONE,
        architecture: None,
        text: include_str!("../changes/constructed-objects.txt"),
        shown: Shown {
            scenario: &execstorm::SCENARIO,
            machine: "epyc-7r13-2s",
            config: "192-thread/12-L3",
            values: &[("threads", "192"), ("outside", "105"), ("zero", "all")],
            metric: "lives",
            variants: ["global-mutex", "ctor-dtor"],
            comparison: "lives_over_global_mutex",
        },
        natively: Natively {
            metric: "lives",
            variants: ["global-mutex", "ctor-dtor"],
            values: &[("outside", "0"), ("zero", "all")],
            takes_distance: false,
        },
        types: "ObjectCache",
    },
    Change {
        name: "test-first",
        title: "test a mask's bit first",
        source: "van Riel 2013",
        releases: &[((3, 12), Has::Yes), ((0, 0), Has::No)],
        architecture: Some("x86_64"),
        text: include_str!("../changes/test-first.txt"),
        shown: Shown {
            scenario: &switchstorm::SCENARIO,
            machine: "ivybridge-ex-4s",
            config: "120-thread/4-L3",
            values: &[("wake", "barrier"), ("period", "25"), ("flush", "1000")],
            metric: "sampled_cycles",
            variants: ["always-set", "test-first"],
            comparison: "sampled_speedup",
        },
        natively: Natively {
            metric: "op_ns",
            variants: ["always-set", "test-first"],
            values: &[("wake", "barrier"), ("period", "25"), ("flush", "1000")],
            takes_distance: false,
        },
        types: "CpuMask",
    },
    Change {
        name: "numa-queue",
        title: "NUMA-aware queue lock",
        source: "Guo 2024",
        releases: NONE,
        architecture: None,
        text: include_str!("../changes/numa-queue.txt"),
        shown: Shown {
            scenario: &filecopy::SCENARIO,
            machine: "kunpeng920-96c-4n",
            config: "96-core/4-L3",
            values: &[("blocks", "1024x2000"), ("threads", "96")],
            metric: "copies",
            variants: ["fifo", "per-node"],
            comparison: "copies_over_fifo",
        },
        natively: Natively {
            metric: "copies",
            variants: ["fifo", "near"],
            values: &[("blocks", "1024x2000")],
            takes_distance: true,
        },
        types: "Mutex, RwLock",
    },
];

impl Change {
    /// Returns the change with this name, if there is one.
    pub fn named(name: &str) -> Option<&'static Change> {
        CHANGES.iter().find(|change| change.name == name)
    }

    /// Returns the change that a scenario shows, if it shows one.
    pub fn shown_by(scenario: &str) -> Option<&'static Change> {
        CHANGES.iter().find(|change| change.shown.scenario.name == scenario)
    }

    /// Returns the publication of the change.
    ///
    /// # Panics
    ///
    /// The call never panics, because a test looks up the source of every change.
    pub fn published(&self) -> &'static Source {
        Source::named(self.source).expect("a source of this name")
    }

    /// Returns whether a kernel has the change. An example of a release is `6.18.44-generic`, and
    /// an example of an architecture is `x86_64`.
    pub fn of_kernel(&self, release: &str, architecture: &str) -> Has {
        let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().ok());
        let version = numbers.next().flatten().zip(numbers.next().flatten());
        let applies = self.architecture.is_none_or(|it| it == architecture);
        let since = |version| self.releases.iter().find(|(since, _)| *since <= version);
        let known = version.filter(|_| applies).and_then(since);
        known.map_or(Has::Unknown, |(_, has)| *has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Made;

    #[test]
    fn what_a_change_names_is_there() {
        for change in &CHANGES {
            let Change { shown, natively, .. } = change;
            assert_eq!(change.published().name, change.source);
            let scenario = shown.scenario;
            let metric = |name| scenario.figures.iter().find(|it| it.metric.name == name);
            assert!(metric(shown.metric).is_some() && metric(natively.metric).is_some());
            let compared = metric(shown.comparison).unwrap();
            let (Made::Over(_, before) | Made::Under(_, before)) = compared.made else {
                panic!("{} compares nothing", shown.comparison);
            };
            assert_eq!(before, shown.variants[0], "{}", change.name);
            for (natively, variants) in [(false, shown.variants), (true, natively.variants)] {
                let has = scenario.variants(natively);
                assert!(variants.iter().all(|it| has.contains(it)), "{}: {has:?}", change.name);
            }
            for (name, value) in shown.values.iter().chain(natively.values) {
                assert!(scenario.param(name).parse(value).is_some(), "{name} {value}");
            }
        }
    }

    #[test]
    fn texts_fit_a_page_and_draw_something() {
        for Change { name, text, .. } in &CHANGES {
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{name}");
            assert!(text.lines().any(|line| line.starts_with("  ")), "{name} draws nothing");
            assert!(text.contains("What became of it: "), "{name}");
        }
    }

    #[test]
    fn a_release_says_what_its_kernel_has() {
        let has = |name: &str, release, architecture| {
            Change::named(name).unwrap().of_kernel(release, architecture)
        };
        for (release, expected) in [
            ("6.18.44-generic", Has::Yes),
            ("6.19", Has::Later),
            ("7.0.1", Has::Later),
            ("6.12.9", Has::No),
            ("5.10.0-43-amd64", Has::No),
            ("", Has::Unknown),
            ("linux", Has::Unknown),
        ] {
            assert_eq!(has("recent-ids", release, "x86_64"), expected, "{release}");
        }
        assert_eq!(has("test-first", "6.18", "x86_64"), Has::Yes);
        assert_eq!(has("test-first", "6.18", "aarch64"), Has::Unknown, "it keeps no such mask");
        assert_eq!(has("test-first", "3.10.0", "x86_64"), Has::No);
        assert_eq!(has("notify-bit", "7.3", "aarch64"), Has::No);
    }
}
