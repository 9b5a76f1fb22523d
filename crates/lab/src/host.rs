//! The kernel's text files about the machine, apart from its tree: the processor, the hypervisor,
//! how the machine saves power, and how memory is balanced.
//!
//! Each is `None`, or left out, where its file cannot be read: in a sandbox, or on a kernel without
//! it.

use std::collections::BTreeMap;

use coreline_topology::CpuSet;
use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Host {
    /// As the kernel names it, with its family and model, or parts.
    pub(crate) processor: Option<String>,
    /// The hypervisor, if this machine is virtual.
    pub(crate) hypervisor: Option<String>,
    /// Whether `None` there means that nothing shows this machine to be virtual.
    pub(crate) hypervisor_known: bool,
    /// `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    pub(crate) smt: Option<String>,
    /// The governors of the clock, and where they apply.
    pub(crate) governors: Vec<Governor>,
    /// The idle states of the first CPU.
    pub(crate) idle_states: Vec<IdleState>,
    /// The kernel's setting; 0: it moves no pages to the threads that use them.
    pub(crate) numa_balancing: Option<u32>,
    /// Why `/proc` cannot be read.
    pub(crate) proc_error: Option<String>,
}

/// A governor of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Governor {
    /// Such as `performance`.
    pub(crate) name: String,
    /// The name of the driver, such as `intel_pstate`.
    pub(crate) driver: String,
    /// As a CPU list.
    pub(crate) cpus: String,
}

/// A state of a CPU without work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct IdleState {
    /// Such as `C6`.
    pub(crate) name: String,
    /// Microseconds until it works again.
    pub(crate) exit_us: u64,
    /// Whether the kernel is told not to use it.
    pub(crate) disabled: bool,
}

/// Idle states are numbered from 0 on, and no driver has more.
const MOST_STATES: usize = 16;

impl Host {
    /// Asks this machine, which has these CPUs.
    pub(crate) fn here(cpus: &CpuSet) -> Host {
        Host::of(cpus, &|path| {
            std::fs::read_to_string(format!("/{path}")).map_err(|error| error.to_string())
        })
    }

    /// `read` reads a file, whose path is from the root on.
    pub(crate) fn of(cpus: &CpuSet, read: &dyn Fn(&str) -> Result<String, String>) -> Host {
        let line = |path: &str| {
            let text = read(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let cpu_info = read("proc/cpuinfo");
        let fields = cpu_info.as_deref().map(fields).unwrap_or_default();
        // A line of x86 alone: other processors do not say whether they are a virtual machine's.
        let flags = fields.get("flags");
        let is_virtual = flags.is_some_and(|it| it.split(' ').any(is_hypervisor));
        // Only a kernel that knows its hypervisor has this file.
        let by_type = line("sys/hypervisor/type");
        let named =
            || line("sys/class/dmi/id/product_name").unwrap_or_else(|| "unnamed".to_owned());
        let hypervisor = by_type.or_else(|| is_virtual.then(named));
        let of_cpu = |path: &str| line(&format!("sys/devices/system/cpu/{path}"));
        let mut governed: BTreeMap<(String, String), CpuSet> = BTreeMap::new();
        for cpu in cpus.iter() {
            let of = |file: &str| of_cpu(&format!("cpu{}/cpufreq/{file}", cpu.get()));
            if let Some(name) = of("scaling_governor") {
                let driver = of("scaling_driver").unwrap_or_default();
                governed.entry((name, driver)).or_default().insert(cpu);
            }
        }
        let governor = |((name, driver), cpus): ((String, String), CpuSet)| Governor {
            name,
            driver,
            cpus: cpus.to_string(),
        };
        let first = cpus.iter().next().map_or(0, |cpu| cpu.get());
        let idle_state = |state: usize| {
            let of = |file: &str| of_cpu(&format!("cpu{first}/cpuidle/state{state}/{file}"));
            let (name, exit_us) = (of("name")?, of("latency")?.parse().ok()?);
            Some(IdleState { name, exit_us, disabled: of("disable").is_some_and(|it| it != "0") })
        };
        Host {
            processor: processor(&fields),
            hypervisor_known: flags.is_some() || hypervisor.is_some(),
            hypervisor,
            smt: of_cpu("smt/control"),
            governors: governed.into_iter().map(governor).collect(),
            idle_states: (0..MOST_STATES).map_while(idle_state).collect(),
            numa_balancing: line("proc/sys/kernel/numa_balancing").and_then(|it| it.parse().ok()),
            proc_error: cpu_info.err(),
        }
    }
}

fn is_hypervisor(flag: &str) -> bool {
    flag == "hypervisor"
}

/// The fields of `/proc/cpuinfo` for the first CPU.
fn fields(text: &str) -> BTreeMap<&str, &str> {
    let mut fields = BTreeMap::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
        fields.entry(key.trim()).or_insert(value.trim());
    }
    fields
}

/// x86 has a name; arm64 has the numbers of who made it and of the part.
fn processor(fields: &BTreeMap<&str, &str>) -> Option<String> {
    let field = |key: &str| fields.get(key).copied();
    let all = |keys: [(&str, &str); 3]| {
        let known = keys.into_iter().filter_map(|(key, what)| Some((what, field(key)?)));
        let known: Vec<_> = known.map(|(what, value)| format!("{what} {value}")).collect();
        known.join(", ")
    };
    if let Some(name) = field("model name") {
        let numbers = all([("cpu family", "family"), ("model", "model"), ("stepping", "stepping")]);
        return Some(if numbers.is_empty() {
            name.to_owned()
        } else {
            format!("{name} ({numbers})")
        });
    }
    field("CPU part")?;
    let [by, part, variant] =
        [("CPU implementer", "implementer"), ("CPU part", "part"), ("CPU variant", "variant")];
    Some(format!("arm64 ({})", all([by, part, variant])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> Host {
        let cpus: CpuSet = "0-3".parse().unwrap();
        Host::of(&cpus, &|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "no such file".to_owned())
        })
    }

    const CPU: &str = "sys/devices/system/cpu";

    #[test]
    fn a_machine_of_ones_own() {
        let of_cpu = |path: &str| format!("{CPU}/{path}");
        let paths = [
            of_cpu("smt/control"),
            of_cpu("cpu0/cpufreq/scaling_governor"),
            of_cpu("cpu0/cpufreq/scaling_driver"),
            of_cpu("cpu1/cpufreq/scaling_governor"),
            of_cpu("cpu1/cpufreq/scaling_driver"),
            of_cpu("cpu3/cpufreq/scaling_governor"),
            of_cpu("cpu0/cpuidle/state0/name"),
            of_cpu("cpu0/cpuidle/state0/latency"),
            of_cpu("cpu0/cpuidle/state1/name"),
            of_cpu("cpu0/cpuidle/state1/latency"),
            of_cpu("cpu0/cpuidle/state1/disable"),
        ];
        let texts = [
            "on\n",
            "performance\n",
            "amd-pstate\n",
            "performance\n",
            "amd-pstate\n",
            "powersave\n",
            "POLL\n",
            "0\n",
            "C2\n",
            "350\n",
            "1\n",
        ];
        let info = "processor : 0\nmodel name : AMD EPYC 9654\ncpu family : 25\nmodel : 17\n\
                    stepping : 1\nflags : fpu sse2\n\nprocessor : 1\nmodel name : other\n";
        let mut files: Vec<_> = paths.iter().map(String::as_str).zip(texts).collect();
        files.extend([("proc/cpuinfo", info), ("proc/sys/kernel/numa_balancing", "1\n")]);
        let governor = |name: &str, driver: &str, cpus: &str| Governor {
            name: name.to_owned(),
            driver: driver.to_owned(),
            cpus: cpus.to_owned(),
        };
        let state =
            |name: &str, exit_us, disabled| IdleState { name: name.to_owned(), exit_us, disabled };
        let expected = Host {
            processor: Some("AMD EPYC 9654 (family 25, model 17, stepping 1)".to_owned()),
            hypervisor: None,
            hypervisor_known: true,
            smt: Some("on".to_owned()),
            governors: vec![
                governor("performance", "amd-pstate", "0-1"),
                governor("powersave", "", "3"),
            ],
            idle_states: vec![state("POLL", 0, false), state("C2", 350, true)],
            numa_balancing: Some(1),
            proc_error: None,
        };
        assert_eq!(host(&files), expected);
    }

    #[test]
    fn a_virtual_machine_says_what_runs_it_if_that_has_a_name() {
        let info = ("proc/cpuinfo", "model name : AMD EPYC\nflags : fpu hypervisor sse2\n");
        let product = ("sys/class/dmi/id/product_name", "KVM\n");
        assert_eq!(host(&[info, product]).hypervisor.as_deref(), Some("KVM"));
        let with_type = [info, product, ("sys/hypervisor/type", "xen\n")];
        assert_eq!(host(&with_type).hypervisor.as_deref(), Some("xen"));
        assert_eq!(host(&[info]).hypervisor.as_deref(), Some("unnamed"));
        assert!(host(&[info]).hypervisor_known);
        assert_eq!(host(&[info]).processor.as_deref(), Some("AMD EPYC"));
    }

    #[test]
    fn an_arm_processor_is_its_numbers() {
        let info = "processor : 0\nCPU implementer : 0x48\nCPU variant : 0x1\nCPU part : 0xd01\n";
        let info = ("proc/cpuinfo", info);
        let arm = host(&[info]);
        let expected = "arm64 (implementer 0x48, part 0xd01, variant 0x1)";
        assert_eq!(arm.processor.as_deref(), Some(expected));
        assert_eq!((arm.hypervisor, arm.hypervisor_known), (None, false));
        let xen = host(&[info, ("sys/hypervisor/type", "xen\n")]);
        assert_eq!((xen.hypervisor.as_deref(), xen.hypervisor_known), (Some("xen"), true));
    }

    #[test]
    fn a_sandbox_says_nothing() {
        let nothing = Host { proc_error: Some("no such file".to_owned()), ..Host::default() };
        assert_eq!(host(&[]), nothing);
    }
}
