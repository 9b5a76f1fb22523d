//! The changes that would help most.

use super::Found;
use super::fast_paths::FastPath;
use super::warnings;
use crate::text;

const MOST: usize = 3;

/// A core that takes longer to wake is asleep when the work comes, in microseconds.
const LONG_EXIT_US: u64 = 100;

/// Those that apply here, the one that helps most first: what stops threads, what takes the place
/// of a fast path, and what makes times uneven.
pub(super) fn of(found: &Found, fast_paths: &[FastPath]) -> Vec<String> {
    let mut advice = Vec::new();
    let Found { probe, allowed, cgroup, host } = found;
    let quota = cgroup.as_ref().ok().and_then(|limits| limits.quota);
    if let Some((quota, allowed)) = quota.zip(allowed.as_ref().ok())
        && warnings::throttles(quota, allowed.len())
    {
        advice.push("raise the quota of CPU time, or keep fewer threads busy".to_owned());
    }
    // Several paths may wait for one thing.
    let remedies = fast_paths.iter().filter(|path| !path.on).filter_map(|path| {
        let remedy = path.remedy.as_ref()?;
        Some((path.name, remedy))
    });
    let mut seen: Vec<&String> = Vec::new();
    for (name, remedy) in remedies {
        if !seen.contains(&remedy) {
            seen.push(remedy);
            advice.push(format!("{remedy}; this turns on {name}"));
        }
    }
    let slow =
        |it: &&crate::host::Governor| it.name == "powersave" && !it.driver.contains("pstate");
    if let Some(governor) = host.governors.iter().find(slow) {
        advice.push(format!(
            "use a governor other than powersave on {}: powersave keeps the lowest clock (cpupower \
             frequency-set -g schedutil)",
            text::cpus(&governor.cpus)
        ));
    }
    let enabled = host.idle_states.iter().filter(|state| !state.disabled);
    if let Some(deepest) = enabled.max_by_key(|state| state.exit_us)
        && deepest.exit_us > LONG_EXIT_US
    {
        advice.push(format!(
            "disable the idle state {} if wake-ups matter: a core takes {} us to leave it \
             (cpupower idle-set -D {LONG_EXIT_US})",
            deepest.name, deepest.exit_us
        ));
    }
    if host.numa_balancing.is_some_and(|it| it != 0) && probe.topology.node_count() > 1 {
        advice.push(
            "turn off NUMA balancing for pinned threads: its page faults find out what is already \
             known (sysctl kernel.numa_balancing=0)"
                .to_owned(),
        );
    }
    advice.truncate(MOST);
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{fast_paths, made_up};
    use crate::host::{Governor, IdleState};

    fn advice(found: &Found) -> Vec<String> {
        of(found, &fast_paths::of(&found.probe))
    }

    #[test]
    fn a_good_machine_needs_none() {
        assert_eq!(advice(&made_up::all_on()), [""; 0]);
    }

    #[test]
    fn what_stops_threads_comes_first_and_three_are_enough() {
        let all = advice(&made_up::quota(1_500, 1_000));
        assert_eq!(all, ["raise the quota of CPU time, or keep fewer threads busy"]);
        let all = advice(&made_up::all_off());
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].starts_with("let the system call rseq through"), "{all:?}");
        assert!(all[1].contains("membarrier"), "one remedy once: {all:?}");
    }

    #[test]
    fn power_and_balancing_are_told() {
        let mut found = made_up::all_on();
        let state =
            |name: &str, exit_us, disabled| IdleState { name: name.to_owned(), exit_us, disabled };
        found.host.idle_states = vec![state("C2", 350, false), state("C6", 800, true)];
        found.host.governors = vec![Governor {
            name: "powersave".to_owned(),
            driver: "acpi-cpufreq".to_owned(),
            cpus: "0-15".to_owned(),
        }];
        found.host.numa_balancing = Some(1);
        let all = advice(&found);
        assert!(all[0].contains("powersave on CPUs 0-15"), "{all:?}");
        assert!(all[1].contains("the idle state C2") && all[1].contains("350 us"), "{all:?}");
        assert!(all[2].contains("kernel.numa_balancing=0"), "{all:?}");
        // A driver that decides itself is no slower for that name.
        found.host.governors[0].driver = "amd-pstate-epp".to_owned();
        found.probe.topology = made_up::one_node();
        assert_eq!(advice(&found).len(), 1);
    }
}
