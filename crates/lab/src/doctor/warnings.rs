//! Warnings about conditions that make good code slow here, apart from fast paths.

use coreline_topology::{CpuSet, Quota};
use coreline_world::native::Probe;

use super::Found;
use crate::text::{counted, cpus};

pub(super) fn of(found: &Found) -> Vec<String> {
    let Found { probe, allowed, cgroup, host } = found;
    let mut warnings = Vec::new();
    if let Some(error) = probe.topology_error {
        warnings.push(format!(
            "sysfs could not be read, so the tree is a placeholder with the CPUs that this \
             process may use: {error}"
        ));
    }
    if let Some(error) = &host.proc_error {
        warnings.push(format!(
            "/proc cannot be read: {error}; so the report has no quotas and no waits for a CPU; \
             let the program read /proc"
        ));
    }
    if let Err(error) = allowed {
        warnings.push(format!(
            "the CPUs that this process may use are not known: {error}; so all CPUs of the machine \
             count as usable, and a program may start too many threads; let sched_getaffinity \
             through the system-call filter"
        ));
    }
    if let Ok(allowed) = allowed {
        if let Err(why) = &probe.allowed {
            warnings.push(format!(
                "sched_getaffinity is refused: {why}; this report has the usable CPUs from /proc, \
                 but a program that relies on sched_getaffinity, such as one that asks Rust's \
                 standard library, may start too many threads; let it through the system-call \
                 filter"
            ));
        }
        warnings.extend(hidden(probe));
        if allowed.len() == 1 {
            warnings.push(
                "this process may use only one CPU: a thread that spins keeps the thread that it \
                 waits for from running; give the process a second CPU by its affinity (taskset) \
                 or its cpuset"
                    .to_owned(),
            );
        }
        let quota = cgroup.as_ref().ok().and_then(|limits| limits.quota);
        warnings.extend(quota.and_then(|quota| throttling(quota, allowed.len())));
    }
    if let Some(value) = probe.switch.as_deref().filter(|value| *value != "off") {
        warnings.push(format!("CORELINE_RSEQ={value:?} does nothing; set it to off, or unset it"));
    }
    warnings
}

/// CPUs that the scheduler has and sysfs does not.
fn hidden(Probe { hidden, topology, .. }: &Probe) -> Option<String> {
    let named: CpuSet = topology.set().iter().filter(|&cpu| !hidden.contains(cpu)).collect();
    (!hidden.is_empty()).then(|| {
        format!(
            "this process may use {}, but /sys/devices/system/cpu does not list them as online; so \
             each counts as a core of its own in the first node; give a container the host's /sys \
             (read-only), or restrict the affinity of the process to {}",
            cpus(hidden.clone()),
            cpus(named)
        )
    })
}

/// Whether threads on this many CPUs use the quota up.
pub(super) fn throttles(quota: Quota, cpus: usize) -> bool {
    quota.cpus() < cpus as f64
}

fn throttling(quota: Quota, cpus: usize) -> Option<String> {
    if !throttles(quota, cpus) {
        return None;
    }
    let advice = match quota.time.as_micros() / quota.period.as_micros() {
        0 => "raise the quota: it is less than the time of one busy thread".to_owned(),
        1 => "keep no more than 1 thread busy, or raise the quota".to_owned(),
        whole => format!("keep no more than {whole} threads busy, or raise the quota"),
    };
    Some(format!(
        "the quota is the time of {:.2} CPUs, and this process may use {}: spinning threads use \
         the quota up, and then all threads stop until the next period ({:?}); {advice} (cpu.max \
         of control groups, cpu.cfs_quota_us in version 1)",
        quota.cpus(),
        counted(cpus, "CPU"),
        quota.period
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::made_up;

    fn only(found: &Found) -> String {
        let mut warnings = of(found);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        warnings.remove(0)
    }

    #[test]
    fn nothing_is_wrong_with_a_good_machine() {
        assert_eq!(of(&made_up::all_on()), [""; 0]);
    }

    #[test]
    fn a_quota_below_the_cpus_is_told() {
        // 16 CPUs may be used.
        for (time, advice) in [
            (15_900, "no more than 15 threads busy"),
            (1_500, "no more than 1 thread busy"),
            (500, "less than the time of one busy thread"),
        ] {
            let warning = only(&made_up::quota(time, 1_000));
            assert!(warning.contains(advice) && warning.contains("(1ms)"), "{warning}");
        }
        for time in [16_000, 100_000] {
            assert_eq!(of(&made_up::quota(time, 1_000)), [""; 0]);
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let mut found = made_up::all_on();
        found.allowed = Err("Operation not permitted".to_owned());
        assert!(only(&found).contains("may use are not known: Operation not permitted"));
        let mut found = made_up::all_on();
        found.host.proc_error = Some("Permission denied".to_owned());
        assert!(only(&found).starts_with("/proc cannot be read: Permission denied"));
    }

    #[test]
    fn a_call_that_is_refused_is_told_though_a_file_answers() {
        let mut found = made_up::all_on();
        found.probe.allowed = Err("Operation not permitted".to_owned());
        let warning = only(&found);
        assert!(
            warning.contains("is refused: Operation not permitted; this report has"),
            "{warning}"
        );
        // One warning, and not two, where nothing is known.
        found.allowed = found.probe.allowed.clone();
        assert!(only(&found).contains("may use are not known"));
    }

    #[test]
    fn cpus_that_sysfs_hides_are_told() {
        let mut found = made_up::all_on();
        found.probe.hidden = "2-15".parse().unwrap();
        let warning = only(&found);
        assert!(
            warning.starts_with("this process may use CPUs 2-15, but /sys/devices"),
            "{warning}"
        );
        assert!(warning.ends_with("restrict the affinity of the process to CPUs 0-1"), "{warning}");
        // Fewer may be used than there are: no warning.
        found.probe.hidden = CpuSet::default();
        found.allowed = Ok("0-1".parse().unwrap());
        assert_eq!(of(&found), [""; 0]);
    }

    #[test]
    fn one_cpu_is_told() {
        let mut found = made_up::all_on();
        found.allowed = Ok("7".parse().unwrap());
        assert!(only(&found).contains("only one CPU"));
    }

    #[test]
    fn a_value_without_effect_is_told() {
        let mut found = made_up::all_on();
        found.probe.switch = Some("0".to_owned());
        assert!(only(&found).contains("CORELINE_RSEQ=\"0\""));
        found.probe.switch = Some("off".to_owned());
        assert_eq!(of(&found), [""; 0]);
    }
}
