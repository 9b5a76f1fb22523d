//! The verb `doctor`: what this machine offers to the native world, and what would turn on what is
//! off.
//!
//! | module | holds |
//! |---|---|
//! | [`facts`] | what was found, as plain data in the shape of the JSON report |
//! | [`fast_paths`] | what coreline can do fast, why it does not, and what would change that |
//! | [`warnings`] | what makes good code slow here |
//! | [`advice`] | the changes that would help most |
//! | [`process`] | what another process could use |
//! | [`text`] | all of it for people |
//!
//! Nothing that is missing is an error: each line says what could not be read or had, and why.

mod advice;
mod facts;
mod fast_paths;
#[cfg(test)]
mod made_up;
mod process;
mod text;
mod warnings;

use std::path::Path;

use coreline_scenarios::CHANGES;
use coreline_topology::{CgroupLimits, CpuSet, allowed_cpus};
use coreline_world::native::{self, Probe};
use serde::Serialize;

use crate::host::Host;
use facts::{Futex, HugePages, Kernel, KernelChange, Limits, Membarrier, Processor, Rseq, Tree};
use fast_paths::FastPath;
pub(crate) use process::Process;

/// The report of `doctor`. The schema is `coreline.doctor/1`: keys may be added, and never change.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: &'static str,
    kernel: Kernel,
    topology: Tree,
    limits: Limits,
    rseq: Rseq,
    membarrier: Membarrier,
    futex: Futex,
    huge_pages: HugePages,
    processor: Processor,
    host: Host,
    warnings: Vec<String>,
    fast_paths: Vec<FastPath>,
    /// The changes that would help most.
    advice: Vec<String>,
    changes: Vec<KernelChange>,
    #[serde(skip)]
    found: Found,
}

/// The inputs of a report.
#[derive(Debug)]
struct Found {
    probe: Probe,
    /// The CPUs that this process may use, or why they are not known.
    allowed: Result<CpuSet, String>,
    /// The limits of control groups, or why they are not known.
    cgroup: Result<CgroupLimits, String>,
    host: Host,
}

impl Found {
    fn here() -> Found {
        let root = Path::new("/");
        let probe = native::probe();
        // A filter may refuse the call and admit the file.
        let allowed = probe.allowed.clone().or_else(|why| match allowed_cpus(root) {
            Ok(Some(cpus)) => Ok(cpus),
            Ok(None) => Err(why),
            Err(error) => Err(format!("{why}; {error}")),
        });
        let cgroup = CgroupLimits::read(root).map_err(|error| error.to_string());
        let host = Host::here(&probe.topology.set());
        Found { probe, allowed, cgroup, host }
    }
}

impl Report {
    /// Asks this machine.
    pub(crate) fn new() -> Report {
        Report::of(Found::here())
    }

    fn of(found: Found) -> Report {
        let Found { probe, allowed, cgroup, host } = &found;
        let fast_paths = fast_paths::of(probe);
        Report {
            schema: "coreline.doctor/1",
            kernel: Kernel::of(probe),
            topology: Tree::of(probe, allowed),
            limits: Limits::of(cgroup),
            rseq: Rseq::of(probe),
            membarrier: Membarrier::of(probe),
            futex: Futex { works: probe.futex },
            huge_pages: HugePages::of(probe),
            processor: Processor { wait_instructions: probe.wait_instructions.clone() },
            host: host.clone(),
            warnings: warnings::of(&found),
            advice: advice::of(&found, &fast_paths),
            fast_paths,
            changes: CHANGES.iter().map(|it| KernelChange::of(it, &probe.kernel)).collect(),
            found,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn json(found: Found) -> Value {
        serde_json::to_value(Report::of(found)).unwrap()
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn the_keys_are_stable() {
        for report in [json(made_up::all_on()), json(made_up::all_off()), json(Found::here())] {
            assert_eq!(report["schema"], "coreline.doctor/1");
            let parts = [
                ("kernel", "release cid_policy"),
                (
                    "topology",
                    "cpus cpu_limit allowed allowed_error cores l2 clusters nodes sockets caches \
                     memory_nodes kinds error",
                ),
                ("limits", "cpuset quota error"),
                (
                    "rseq",
                    "registered_by abi abi_remedy registered_bytes size feature_size align usable \
                     self_test mm_cid mm_cid_error slice_extension coreline_rseq",
                ),
                ("membarrier", "commands asymmetric_fences restartable_fence"),
                ("futex", "works"),
                ("huge_pages", "transparent pools"),
                ("processor", "wait_instructions"),
                (
                    "host",
                    "processor hypervisor hypervisor_known smt governors idle_states \
                     numa_balancing proc_error",
                ),
            ];
            for (part, expected) in parts {
                let expected: Vec<&str> = expected.split_whitespace().collect();
                assert_eq!(keys(&report[part]), expected, "{part}");
            }
            let mut all = vec!["schema"];
            all.extend(parts.map(|(part, _)| part));
            all.extend(["warnings", "fast_paths", "advice", "changes"]);
            assert_eq!(keys(&report), all);
            for path in report["fast_paths"].as_array().unwrap() {
                assert_eq!(keys(path), ["name", "on", "why", "remedy"]);
                assert_eq!(path["on"].as_bool().unwrap(), path["why"].is_null(), "{path}");
                assert!(path["why"].is_string() || path["remedy"].is_null(), "{path}");
            }
        }
    }

    #[test]
    fn what_is_there_has_its_value() {
        let report = json(made_up::all_on());
        assert_eq!(report["topology"]["cpus"], 16);
        assert_eq!(report["topology"]["caches"][1]["cpus"], "4-7,12-15");
        let node = &report["topology"]["memory_nodes"][1];
        assert_eq!((&node["id"], &node["memory"]), (&1.into(), &true.into()));
        assert_eq!(node["distances"]["0"], 20);
        assert_eq!(report["limits"]["cpuset"], "0-15");
        assert_eq!(report["limits"]["quota"], Value::Null);
        assert_eq!(report["rseq"]["registered_by"], "libc");
        assert_eq!((&report["rseq"]["abi"], &report["rseq"]["mm_cid"]), (&"V2".into(), &3.into()));
        assert_eq!(report["rseq"]["mm_cid_error"], Value::Null);
        assert_eq!(report["rseq"]["registered_bytes"], 33);
        assert_eq!(report["rseq"]["abi_remedy"], Value::Null);
        assert_eq!(report["huge_pages"]["pools"][0]["page_kib"], 2048);
        assert_eq!(report["processor"]["wait_instructions"][0], "WAITPKG");
    }

    #[test]
    fn what_is_missing_has_a_reason() {
        let report = json(made_up::all_off());
        assert_eq!(report["topology"]["allowed"], Value::Null);
        for (part, key) in [
            ("topology", "error"),
            ("topology", "allowed_error"),
            ("limits", "error"),
            ("rseq", "mm_cid_error"),
        ] {
            assert!(report[part][key].is_string(), "{part}.{key}");
        }
        let rseq = &report["rseq"];
        assert_eq!((&rseq["registered_by"], &rseq["abi"]), (&"none".into(), &Value::Null));
        assert_eq!((&rseq["usable"], &rseq["mm_cid"]), (&false.into(), &Value::Null));
        assert_eq!(report["huge_pages"]["transparent"], Value::Null);
    }

    #[test]
    fn a_quota_is_told_in_cpus() {
        let quota = &json(made_up::quota(1_500, 1_000))["limits"]["quota"];
        assert_eq!((&quota["cpus"], &quota["whole_cpus"]), (&1.5.into(), &2.into()));
        assert_eq!((&quota["time_us"], &quota["period_us"]), (&1_500.into(), &1_000.into()));
    }
}
