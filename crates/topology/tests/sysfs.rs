//! Trees read from sysfs folders: whole, partly missing, broken, and made of any bytes.

mod common;

use std::path::Path;

use common::{Files, Root, without};
use coreline_topology::{
    CacheId, Cpu, CpuId, Distance, FileError, MAX_CPUS, NodeId, Shape, SysfsError, Topology,
};
use proptest::prelude::*;

/// A folder for sysfs; paths are below `devices/system`.
fn root(test: &str, files: &Files) -> Root {
    Root::new(test, "devices/system", files)
}

fn read(test: &str, files: &Files) -> Result<Topology, SysfsError> {
    Topology::from_sysfs(root(test, files).path())
}

/// The files that a kernel would show for this machine.
fn files_of(machine: &Topology) -> Files {
    let mut files = Files::new();
    let mut write = |path: String, content: String| {
        files.insert(path, format!("{content}\n").into_bytes());
    };
    write("cpu/online".into(), machine.set().to_string());
    write("cpu/possible".into(), format!("0-{}", machine.cpu_limit() - 1));
    for node in machine.nodes() {
        let list = machine.cpus_of_node(node).to_string();
        write(format!("node/node{}/cpulist", node.get()), list);
    }
    let cores_of_socket = (machine.core_count() / machine.socket_count()) as u32;
    for &Cpu { id, core, cache, socket, .. } in machine.cpus() {
        let dir = format!("cpu/cpu{}", id.get());
        write(format!("{dir}/topology/physical_package_id"), socket.to_string());
        write(format!("{dir}/topology/core_id"), (core % cores_of_socket).to_string());
        write(format!("{dir}/cache/index0/level"), "3".to_owned());
        write(format!("{dir}/cache/index0/type"), "Unified".to_owned());
        let list = machine.cpus_of_cache(cache).to_string();
        write(format!("{dir}/cache/index0/shared_cpu_list"), list);
    }
    files
}

/// Two sockets of one node each, two cores a node, two threads a core: CPUs 0-1,4-5 and 2-3,6-7.
fn two_nodes() -> Topology {
    let shape = Shape { sockets: 2, cores_per_cache: 2, threads_per_core: 2, ..Shape::default() };
    Topology::uniform(shape).unwrap()
}

#[test]
fn reads_back_regular_machines() {
    for [sockets, nodes_per_socket, caches_per_node, cores_per_cache, threads_per_core] in
        [[1, 1, 1, 1, 1], [2, 2, 2, 2, 2], [1, 2, 1, 3, 1], [3, 1, 2, 1, 2]]
    {
        let machine = Topology::uniform(Shape {
            sockets,
            nodes_per_socket,
            caches_per_node,
            cores_per_cache,
            threads_per_core,
        })
        .unwrap();
        assert_eq!(read("regular", &files_of(&machine)).unwrap(), machine);
    }
}

#[test]
fn offline_cpus_and_sparse_nodes_keep_their_numbers() {
    let mut files = without(files_of(&two_nodes()), "cpu/cpu4/");
    files.insert("cpu/online".into(), b"0-3,5-7\n".into());
    files.insert("cpu/possible".into(), b"0-15\n".into());
    let list = files.remove("node/node1/cpulist").unwrap();
    files.insert("node/node4/cpulist".into(), list);
    let machine = read("offline", &files).unwrap();

    assert_eq!(machine.cpu_count(), 7);
    assert_eq!(machine.cpu_limit(), 16);
    assert!(machine.cpu(CpuId::new(4)).is_none());
    assert_eq!(machine.distance(CpuId::new(0), CpuId::new(4)), None);
    assert_eq!(machine.core_count(), 4);
    assert_eq!(machine.cpus_of_cache(CacheId::new(0)).to_string(), "0-1,5");
    assert_eq!(machine.node_count(), 2);
    assert!(machine.nodes().eq([NodeId::new(0), NodeId::new(4)]));
    assert_eq!(machine.cpus_of_node(NodeId::new(4)).to_string(), "2-3,6-7");
    assert_eq!(machine.cpus_of_node(NodeId::new(1)).to_string(), "");
}

#[test]
fn the_last_level_is_the_highest_that_holds_data() {
    let mut files = files_of(&two_nodes());
    let mut cache = |index: u32, level: &str, kind: &str, list: &str| {
        for (file, content) in [("level", level), ("type", kind), ("shared_cpu_list", list)] {
            files.insert(format!("cpu/cpu1/cache/index{index}/{file}"), content.into());
        }
    };
    cache(0, "1", "Data", "1,5");
    cache(1, "3", "Unified", "0-1,4-5");
    cache(2, "2", "Unified", "1,5");
    cache(3, "4", "Instruction", "1,5");
    let machine = read("last-level", &files).unwrap();
    assert_eq!(machine, two_nodes());
}

#[test]
fn missing_files_have_the_documented_fallbacks() {
    let whole = files_of(&two_nodes());
    let read = |gone| read("missing", &without(whole.clone(), gone)).unwrap();

    assert_eq!(read("cpu/online"), two_nodes());
    let unlimited = read("cpu/possible");
    assert_eq!((unlimited.cpu_limit(), unlimited.cpu_limit_is_stated()), (8, false));
    assert_eq!(unlimited.with_limit_at_least(8), two_nodes());
    assert_eq!(read("node/").cpus_of_node(NodeId::new(0)).len(), 8);

    let no_cores = read("core_id");
    assert_eq!((no_cores.core_count(), no_cores.socket_count()), (8, 2));

    let flat = read("/topology/");
    assert_eq!((flat.core_count(), flat.socket_count(), flat.cache_count()), (8, 1, 2));
    assert_eq!(flat.distance(CpuId::new(0), CpuId::new(4)), Some(Distance::SameCache));
}

#[test]
fn without_caches_a_socket_is_one_domain() {
    let shape = Shape { sockets: 2, caches_per_node: 2, ..Shape::default() };
    let files = files_of(&Topology::uniform(shape).unwrap());
    for gone in ["/cache/", "/level", "/type", "/shared_cpu_list"] {
        let machine = read("no-caches", &without(files.clone(), gone)).unwrap();
        assert_eq!(machine.cache_count(), 2, "without {gone}");
        assert_eq!(machine.cpus_of_cache(CacheId::new(1)).to_string(), "2-3", "without {gone}");
    }
}

#[test]
fn a_cpu_that_no_node_lists_counts_to_the_lowest_that_lists_any() {
    let mut files = without(files_of(&two_nodes()), "node/");
    files.insert("node/node2/cpulist".into(), b"\n".into());
    files.insert("node/node4/cpulist".into(), b"2-3\n".into());
    files.insert("node/node6/cpulist".into(), b"6-7\n".into());
    let machine = read("unlisted", &files).unwrap();
    assert_eq!(machine.cpus_of_node(NodeId::new(4)).to_string(), "0-5");
    assert_eq!(machine.node_count(), 2);
}

#[test]
fn negative_numbers_mean_unknown() {
    let mut files = files_of(&two_nodes());
    for (path, content) in &mut files {
        if path.contains("/topology/") {
            *content = b"-1\n".into();
        }
    }
    let machine = read("negative", &files).unwrap();
    assert_eq!((machine.core_count(), machine.socket_count()), (8, 1));
}

#[test]
fn dies_number_their_cores_apart() {
    let mut files = files_of(&two_nodes());
    for cpu in 0..8 {
        let topology = format!("cpu/cpu{cpu}/topology");
        files.insert(format!("{topology}/physical_package_id"), b"0\n".into());
        files.insert(format!("{topology}/die_id"), format!("{}\n", cpu / 2 % 2).into());
    }
    let machine = read("dies", &files).unwrap();
    assert_eq!((machine.core_count(), machine.socket_count()), (4, 1));
}

#[test]
fn a_limit_is_the_highest_that_is_known() {
    let mut files = without(files_of(&two_nodes()), "cpu/possible");
    files.insert("cpu/kernel_max".into(), b"63\n".into());
    let machine = read("kernel-max", &files).unwrap();
    assert_eq!((machine.cpu_limit(), machine.cpu_limit_is_stated()), (64, true));
    assert_eq!(machine.clone().with_limit_at_least(10).cpu_limit(), 64);
    assert_eq!(machine.with_limit_at_least(128).cpu_limit(), 128);
    files.insert("cpu/possible".into(), b"0-3\n".into());
    assert_eq!(read("kernel-max", &files).unwrap().cpu_limit(), 8, "CPU 7 is online");
}

#[test]
fn lists_of_threads_come_before_core_numbers() {
    let mut files = files_of(&two_nodes());
    for cpu in 0..8 {
        let (low, high) = (cpu / 2 * 2, cpu / 2 * 2 + 1);
        let list = format!("{low}-{high}\n");
        files.insert(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), list.into());
    }
    let machine = read("threads", &files).unwrap();
    assert_eq!((machine.core_count(), machine.l2_count()), (4, 4));
    assert_eq!(machine.distance(CpuId::new(2), CpuId::new(3)), Some(Distance::SameCore));
    assert!(machine.cpus().all(|cpu| cpu.thread == cpu.id.get() % 2));

    for cpu in [0, 1] {
        let list = format!("{cpu}\n");
        files.insert(format!("cpu/cpu{cpu}/topology/core_cpus_list"), list.into());
    }
    assert_eq!(read("threads", &files).unwrap().core_count(), 5);
}

#[test]
fn parts_that_do_not_hold_the_smaller_part_do_not_count() {
    // What arm64 shows of threads where there are no clusters, and of a cache that firmware does
    // not describe.
    let mut files = files_of(&two_nodes());
    for cpu in 0..8 {
        let (core, own) = (cpu % 4, format!("{cpu}\n").into_bytes());
        let list = format!("{core},{}\n", core + 4).into_bytes();
        files.insert(format!("cpu/cpu{cpu}/topology/core_cpus_list"), list);
        files.insert(format!("cpu/cpu{cpu}/topology/cluster_cpus_list"), own.clone());
        for (file, content) in
            [("level", b"2".into()), ("type", b"Unified".into()), ("shared_cpu_list", own)]
        {
            files.insert(format!("cpu/cpu{cpu}/cache/index1/{file}"), content);
        }
    }
    assert_eq!(read("smaller", &files).unwrap(), two_nodes());
}

#[test]
fn errors_name_the_file_and_what_is_wrong() {
    let broken = |path: &str, content: &[u8]| {
        let mut files = files_of(&two_nodes());
        files.insert(path.into(), content.into());
        let root = root("broken", &files);
        let error = Topology::from_sysfs(root.path()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(root.file(path).to_str().unwrap()), "{text}");
        let SysfsError::File(error) = error else { panic!("{error:?}") };
        (error, text)
    };
    for list in [
        "cpu/online",
        "cpu/possible",
        "cpu/cpu2/topology/core_cpus_list",
        "cpu/cpu2/topology/cluster_cpus_list",
        "cpu/cpu2/cache/index0/shared_cpu_list",
        "node/node1/cpulist",
        "node/has_memory",
    ] {
        let (error, text) = broken(list, b"0-1,4-x\n");
        assert!(matches!(error, FileError::CpuList { .. }), "{error:?}");
        assert!(text.contains("\"4-x\""), "{text}");
    }
    for (path, content) in [
        ("cpu/cpu3/topology/core_id", "three"),
        ("cpu/cpu3/topology/core_id", "4294967296"),
        ("cpu/cpu3/cpu_capacity", "fast"),
        // Lists that leave out the CPU whose they are.
        ("cpu/cpu3/topology/thread_siblings_list", "1-2"),
        ("cpu/cpu3/cache/index0/shared_cpu_list", "4-7"),
        // There are two nodes.
        ("node/node0/distance", "10"),
        ("node/node0/distance", "10 20 20"),
        ("node/node1/distance", "20 -10"),
    ] {
        let (error, text) = broken(path, content.as_bytes());
        assert!(matches!(error, FileError::Malformed { .. }), "{error:?}");
        assert!(text.contains(&format!("{content:?}")), "{text}");
    }
    let (error, _) = broken("cpu/online", b"\xff\xfe");
    assert!(matches!(error, FileError::Read { .. }), "{error:?}");
    let (error, _) = broken("cpu/cpu0/cache/index0/type", &vec![b' '; (16 << 20) + 1]);
    assert!(matches!(error, FileError::TooLong { .. }), "{error:?}");
}

#[test]
fn what_is_no_file_is_an_error() {
    let mut files = without(files_of(&two_nodes()), "cpu/online");
    files.insert("cpu/online/uevent".into(), vec![]);
    let error = read("folder", &files).unwrap_err();
    assert!(matches!(error, SysfsError::File(FileError::Read { .. })), "{error:?}");
}

#[test]
fn numbers_are_bounded() {
    let found = |files: &Files| match read("bounded", files).unwrap_err() {
        SysfsError::File(FileError::Malformed { found, .. }) => found,
        error => panic!("{error:?}"),
    };
    let mut files = without(files_of(&two_nodes()), "cpu/online");
    files.insert("cpu/cpu65536/uevent".into(), vec![]);
    assert_eq!(found(&files), "cpu65536");
    let mut files = without(files_of(&two_nodes()), "cpu/possible");
    files.insert("cpu/kernel_max".into(), b"4294967295\n".into());
    assert_eq!(found(&files), "4294967295");
    files.insert("cpu/kernel_max".into(), b"65536\n".into());
    assert_eq!(found(&files), "65536");
    files.insert("cpu/kernel_max".into(), b"65535\n".into());
    assert_eq!(read("bounded", &files).unwrap().cpu_limit(), MAX_CPUS as usize);
}

#[test]
fn nodes_have_the_memory_that_the_kernel_names_first() {
    let memory = |files: &Files| -> Vec<u32> {
        read("memory", files).unwrap().memory_nodes().map(NodeId::get).collect()
    };
    let mut files = files_of(&two_nodes());
    assert_eq!(memory(&files), [0, 1], "without a list all nodes have memory");
    files.insert("node/has_normal_memory".into(), b"0\n".into());
    assert_eq!(memory(&files), [0], "older kernels have this list alone");
    // Node 1 has only memory that can be moved, so it is in one of the lists.
    files.insert("node/has_memory".into(), b"0-1\n".into());
    assert_eq!(memory(&files), [0, 1]);
}

#[test]
fn a_folder_without_cpus_is_an_error() {
    let missing = Topology::from_sysfs(Path::new("no-such-folder")).unwrap_err();
    assert!(matches!(missing, SysfsError::NoCpus { .. }), "{missing:?}");
    let files = Files::from([("cpu/online".into(), b"\n".into())]);
    let empty = read("empty", &files).unwrap_err();
    assert!(matches!(empty, SysfsError::NoCpus { .. }), "{empty:?}");
}

/// What may stand in a file: often something plausible, so that reading gets past it.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[0-7]\n".prop_map(String::into_bytes),
        6 => "[0-3](-[4-7])?([, ][0-9])?\n".prop_map(String::into_bytes),
        2 => "(Unified|Data|Instruction|-1|)\n".prop_map(String::into_bytes),
        1 => "[0-9,-]{0,12}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..24),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        "cpu/(online|possible|kernel_max)",
        "cpu/cpu[0-7]/(topology/(core_id|die_id|physical_package_id)|cpu_capacity)",
        "cpu/cpu[0-7]/topology/(core_cpus|thread_siblings|cluster_cpus)_list",
        "cpu/cpu[0-3]/cache/index[0-1]/(level|type|shared_cpu_list)",
        "(cpu|node)/(cpu|node)[0-9]{0,6}/(cpulist|distance)",
        "node/has_(normal_)?memory",
        r"\.\./cpu_(core|atom|lowpower)/cpus",
    ]
}

proptest! {
    // A quarter of the default: every case writes and removes dozens of files.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_give_a_whole_tree_or_an_error(
        changes in proptest::collection::btree_map(path(), content(), 0..12),
        from_nothing in any::<bool>(),
    ) {
        let whole = Shape { sockets: 2, threads_per_core: 2, ..Shape::default() };
        let whole = Topology::uniform(whole).unwrap();
        let mut files = if from_nothing { Files::new() } else { files_of(&whole) };
        files.extend(changes);
        let root = root("any", &files);
        let machine = match Topology::from_sysfs(root.path()) {
            Ok(machine) => machine,
            Err(error) => {
                prop_assert!(error.to_string().contains(root.path().to_str().unwrap()));
                return Ok(());
            }
        };
        prop_assert!(machine.cpu_count() > 0);
        prop_assert_eq!(machine.cpus().count(), machine.cpu_count());
        prop_assert_eq!(machine.set().len(), machine.cpu_count());
        prop_assert!(machine.cpus().is_sorted_by(|a, b| a.id < b.id));
        prop_assert!(machine.cpus().all(|cpu| cpu.id.index() < machine.cpu_limit()));
        prop_assert!(machine.cpus().all(|cpu| machine.cpu(cpu.id) == Some(cpu)));
        let caches = (0..machine.cache_count() as u32).map(CacheId::new);
        let of_caches: Vec<_> = caches.map(|cache| machine.cpus_of_cache(cache)).collect();
        let of_nodes: Vec<_> = machine.nodes().map(|node| machine.cpus_of_node(node)).collect();
        prop_assert_eq!(of_nodes.len(), machine.node_count());
        let kinds = machine.kinds();
        let of_kinds = kinds.iter().map(|&kind| machine.cpus_of_kind(kind)).collect();
        for parts in [of_caches, of_nodes, of_kinds] {
            prop_assert!(parts.iter().all(|part| !part.is_empty()));
            let total: usize = parts.iter().map(|part| part.len()).sum();
            prop_assert_eq!(total, machine.cpu_count());
        }
        for node in machine.nodes() {
            let nearest = machine.nearest_memory(node);
            prop_assert!(nearest.is_none_or(|near| machine.memory_nodes().any(|it| it == near)));
            prop_assert_eq!(nearest.is_none(), machine.memory_nodes().next().is_none());
        }
    }
}
