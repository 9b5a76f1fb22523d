//! What a process may use: affinity and control groups of both versions.

mod common;

use std::time::Duration;

use common::{Files, Root, without};
use coreline_topology::{
    CgroupLimits, FileError, Quota, allowed_cpus, possible_cpus, resident_memory, thread_time,
};
use proptest::prelude::*;

/// A mount of version 2 and one of version 1, as the running system writes them.
const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1: &str = "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
     32 30 0:28 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset\n";

fn files<const N: usize>(files: [(&str, &str); N]) -> Files {
    files.map(|(path, content)| (path.to_owned(), content.as_bytes().to_owned())).into()
}

/// The limits of a process in these groups, where these mounts are, with these files of groups.
fn limits<const N: usize>(
    groups: &str,
    mounts: &str,
    files_of_groups: [(&str, &str); N],
) -> Result<CgroupLimits, FileError> {
    let mut all = files([("proc/self/cgroup", groups), ("proc/self/mountinfo", mounts)]);
    for (path, content) in files_of_groups {
        all.insert(format!("sys/fs/cgroup/{path}"), content.into());
    }
    CgroupLimits::read(Root::new("limits", "", &all).path())
}

fn quota(time: u64, period: u64) -> Option<Quota> {
    let [time, period] = [time, period].map(Duration::from_micros);
    Some(Quota { time, period })
}

fn cpus(limits: &CgroupLimits) -> String {
    limits.cpus.as_ref().map_or("none".to_owned(), ToString::to_string)
}

#[test]
fn the_tightest_quota_on_the_way_up_counts() {
    let found = limits(
        "0::/a.slice/b.scope\n",
        V2,
        [
            ("cpuset.cpus.effective", "0-7\n"),
            ("a.slice/cpuset.cpus.effective", "0-3\n"),
            ("a.slice/cpu.max", "150000 100000\n"),
            ("a.slice/b.scope/cpu.max", "90000 50000\n"),
            // Another group's.
            ("a.slice/c.scope/cpu.max", "1000 100000\n"),
        ],
    );
    let found = found.unwrap();
    assert_eq!(found.quota, quota(150_000, 100_000));
    assert_eq!(found.quota.map(|quota| (quota.cpus(), quota.whole_cpus())), Some((1.5, 2)));
    assert_eq!(cpus(&found), "0-3", "the controller is off in the lowest group");
}

#[test]
fn no_quota_is_none() {
    let groups = [("cpu.max", "max 100000\n"), ("a/cpu.max", "max 100000\n")];
    assert_eq!(limits("0::/a\n", V2, groups).unwrap(), CgroupLimits::default());
    let groups = [("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"), ("cpuset/cpuset.cpus", "\n")];
    let found = limits("3:cpuset:/\n2:cpu,cpuacct:/\n", V1, groups);
    assert_eq!(found.unwrap(), CgroupLimits::default());
}

#[test]
fn controllers_of_version_1_have_groups_of_their_own() {
    let found = limits(
        "12:cpuset:/docker/x\n5:cpuacct,cpu:/batch\n1:name=systemd:/y\n0::/z\n",
        &format!("{V2}{V1}"),
        [
            ("cpuset/cpuset.cpus", "0-63\n"),
            ("cpuset/docker/x/cpuset.cpus", "0-3\n"),
            ("cpuset/docker/x/cpuset.effective_cpus", "2-3\n"),
            ("cpu,cpuacct/batch/cpu.cfs_quota_us", "250000\n"),
            ("cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "1000\n"),
        ],
    );
    let found = found.unwrap();
    assert_eq!(cpus(&found), "2-3");
    assert_eq!(found.quota, quota(250_000, 100_000));
}

#[test]
fn containers_see_their_group_at_the_mount_point() {
    let here = [("cpu.max", "5000 10000\n"), ("docker/x/cpu.max", "1000 10000\n")];
    for (group, root, time) in [
        // A cgroup namespace.
        ("/", "/", Some(5000)),
        // None: the mount shows a part of the host's hierarchy.
        ("/docker/x", "/docker/x", Some(5000)),
        ("/docker/x", "/docker", Some(5000)),
        ("/docker/x (deleted)", "/docker/x", None),
        // Mounted outside of the namespace that the process is in.
        ("/", "/../..", Some(5000)),
        ("/x", "/..", Some(5000)),
        ("/../docker/x", "/..", Some(1000)),
        // The process, or the mount, is in another part of the hierarchy.
        ("/../docker/x", "/", None),
        ("/docker/x", "/docker/y", None),
        ("/docker/x", "/docker/x/y", None),
        ("/docker/xy", "/docker/x", None),
    ] {
        let mounts = V2.replace("0:26 / ", &format!("0:26 {root} "));
        let found = limits(&format!("0::{group}\n"), &mounts, here).unwrap();
        let expected = time.and_then(|time| quota(time, 10_000));
        assert_eq!(found.quota, expected, "{group} in {root}");
    }
}

#[test]
fn odd_names_are_read() {
    let mounts = V2.replace("/sys/fs/cgroup ", r"/sys/fs/cgroup/my\040groups\134040 ");
    let groups = [(r"my groups\040/cpu.max", "5000 10000")];
    let found = limits("0::/\n", &mounts, groups).unwrap();
    assert_eq!(found.quota, quota(5000, 10_000));

    // A user's mount whose name is no UTF-8.
    let mut all = files([("proc/self/cgroup", "0::/"), ("sys/fs/cgroup/cpu.max", "5000 10000")]);
    let mut mounts = b"40 23 0:40 / /mnt/\xff rw - tmpfs tmpfs rw\n".to_vec();
    mounts.extend(V2.bytes());
    all.insert("proc/self/mountinfo".into(), mounts);
    let found = CgroupLimits::read(Root::new("utf8", "", &all).path()).unwrap();
    assert_eq!(found.quota, quota(5000, 10_000));
}

#[test]
fn without_control_groups_there_is_no_limit() {
    let whole = files([
        ("proc/self/cgroup", "0::/"),
        ("proc/self/mountinfo", V2),
        ("sys/fs/cgroup/cpu.max", "5000 10000"),
    ]);
    for gone in ["self/cgroup", "self/mountinfo", "cpu.max", "/"] {
        let root = Root::new("no-groups", "", &without(whole.clone(), gone));
        assert_eq!(CgroupLimits::read(root.path()).unwrap(), CgroupLimits::default(), "{gone}");
    }
}

#[test]
fn the_line_of_the_status_is_found() {
    let allowed = |files: &Files| allowed_cpus(Root::new("status", "", files).path());
    let list = "Name:\ta\nCpus_allowed:\tff00,00000001\nCpus_allowed_list:\t0,40-47\nX:\t1\n";
    let found = allowed(&files([("proc/self/status", list)])).unwrap();
    assert_eq!(found.unwrap().to_string(), "0,40-47");
    assert_eq!(allowed(&files([("proc/self/status", "Name:\ta\n")])).unwrap(), None);
    assert_eq!(allowed(&Files::new()).unwrap(), None);
    // Processes name themselves, in any bytes.
    let named = [("proc/self/status".to_owned(), b"Name:\t\xff\nCpus_allowed_list:\t3\n".to_vec())];
    assert_eq!(allowed(&named.into()).unwrap().unwrap().to_string(), "3");
}

#[test]
fn memory_and_time_are_found_or_said_to_be_malformed() {
    const STATUS: &str = "proc/self/status";
    const SCHEDSTAT: &str = "proc/thread-self/schedstat";
    let read = |path, content| {
        let root = Root::new("used", "", &files([(path, content)]));
        (resident_memory(root.path()), thread_time(root.path()))
    };
    assert_eq!(read(STATUS, "Name:\ta\nVmRSS:\t    1840 kB\n").0.unwrap(), Some(1840 << 10));
    let (memory, time) = read(SCHEDSTAT, "1500000 73810 1\n");
    assert_eq!(memory.unwrap(), None);
    assert_eq!(time.unwrap(), Some(Duration::from_micros(1500)));
    for (path, content) in [(STATUS, "VmRSS:\tmuch\n"), (SCHEDSTAT, "soon\n")] {
        let (memory, time) = read(path, content);
        let error = memory.map(drop).and(time.map(drop)).unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
    }
}

#[test]
fn errors_name_the_file() {
    let whole = files([
        ("proc/self/status", "Cpus_allowed_list:\t0\n"),
        ("proc/self/cgroup", "4:cpuset:/\n3:cpu,cpuacct:/\n0::/\n"),
        ("proc/self/mountinfo", &format!("{V2}{V1}")),
    ]);
    for (path, content) in [
        ("proc/self/status", "Cpus_allowed_list:\t0-x\n"),
        ("proc/self/cgroup", "0:/\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/cpuset.cpus.effective", "7-4"),
        ("sys/fs/cgroup/cpuset/cpuset.cpus", "65536"),
        ("sys/fs/cgroup/cpu.max", "100000"),
        ("sys/fs/cgroup/cpu.max", "max"),
        ("sys/fs/cgroup/cpu.max", "0 100000"),
        ("sys/fs/cgroup/cpu.max", "100000 0"),
        ("sys/fs/cgroup/cpu.max", "-1 100000"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-2"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "99999999999999999999"),
    ] {
        let mut files = whole.clone();
        files.insert(path.into(), content.into());
        let root = Root::new("errors", "", &files);
        let error = allowed_cpus(root.path()).and(CgroupLimits::read(root.path())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(root.file(path).to_str().unwrap()), "{content:?}: {text}");
        let typed = matches!(error, FileError::CpuList { .. } | FileError::Malformed { .. });
        assert!(typed, "{error:?}");
    }
    let no_period = limits("3:cpu,cpuacct:/\n", V1, [("cpu,cpuacct/cpu.cfs_quota_us", "5000")]);
    let error = no_period.unwrap_err();
    assert!(error.to_string().contains("cpu.cfs_period_us"), "{error}");
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => "((max|-1|[0-9]{1,20}) )?[0-9]{1,20}\n".prop_map(String::into_bytes),
        2 => "[0-9](-[0-9])?(,[0-9])?\n".prop_map(String::into_bytes),
        1 => "Cpus_allowed_list:[ -~]{0,8}".prop_map(String::into_bytes),
        1 => "([0-4]:(cpu|cpuset)?:(/([.]{1,2}|a)){0,3}\n){1,3}".prop_map(String::into_bytes),
        1 => r"(1 2 0:3 (/([.]{1,2}|a)){1,3} /sys/fs/cgroup(\\040)? - cgroup2? x cpu\n){1,2}"
            .prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..24),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        "proc/self/(status|cgroup|mountinfo)",
        "sys/fs/cgroup/(a/)?(cpu[.]max|cpuset[.]cpus[.]effective)",
        "sys/fs/cgroup/cpuset/(a/)?cpuset[.](effective_)?cpus",
        "sys/fs/cgroup/cpu,cpuacct/(a/)?cpu[.]cfs_(quota|period)_us",
    ]
}

proptest! {
    #[test]
    fn any_bytes_give_limits_or_an_error(
        changes in proptest::collection::btree_map(path(), content(), 0..8),
    ) {
        let mut files = files([
            ("proc/self/cgroup", "4:cpuset:/a\n3:cpu,cpuacct:/a\n0::/a\n"),
            ("proc/self/mountinfo", &format!("{V2}{V1}")),
        ]);
        files.extend(changes);
        let root = Root::new("any", "", &files);
        let name = root.path().to_str().unwrap().to_owned();
        match CgroupLimits::read(root.path()) {
            Ok(limits) => {
                prop_assert!(limits.cpus.is_none_or(|cpus| !cpus.is_empty()));
                prop_assert!(limits.quota.is_none_or(|quota| quota.whole_cpus() > 0));
                prop_assert!(limits.quota.is_none_or(|quota| quota.cpus() > 0.0));
            }
            Err(error) => prop_assert!(error.to_string().contains(&name)),
        }
        if let Err(error) = allowed_cpus(root.path()) {
            prop_assert!(error.to_string().contains(&name));
        }
    }
}

#[test]
fn the_kernels_cpus_are_in_a_file_that_containers_leave() {
    let possible = |text: &str| {
        let files = files([("proc/softirqs", text)]);
        possible_cpus(Root::new("softirqs", "", &files).path())
    };
    let header = "                    CPU0       CPU1       CPU17      \n";
    let counts = "          HI:          0          0          4\n";
    let three = || Some("0-1,17".parse().unwrap());
    assert_eq!(possible(&format!("{header}{counts}")).unwrap(), three());
    assert_eq!(possible(header).unwrap(), three());
    assert_eq!(possible("").unwrap(), None);
    assert_eq!(possible_cpus(Root::new("softirqs", "", &files([])).path()).unwrap(), None);
    for wrong in ["HI: 0 0\n", "CPU0 CPU\n", "CPU-1\n", "CPU4294967296\n", "CPU65536\n"] {
        let error = possible(wrong).unwrap_err().to_string();
        assert!(error.contains("softirqs") && error.contains("CPU and a number"), "{error}");
    }
}
