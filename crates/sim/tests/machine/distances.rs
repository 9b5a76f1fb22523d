//! What a machine file may say beyond classes: nodes that are nearer or farther than others of
//! their class, and hardware threads of one core.

use std::sync::Arc;

use coreline_sim::{Class, Machine, Sim, Spec};
use coreline_topology::{CpuId, NodeId};
use coreline_world::{Clock, Integer, JoinHandle, Line, Memory, Ordering, Word};

use crate::common::{U64, machine, on};
use crate::ping_pong;

/// The text of `host-2c` with another tree, and tables of its own at the end.
fn text(nodes: u32, threads: u32, tables: &str) -> String {
    let text = include_str!("../../machines/host-2c.toml");
    let text = text.replacen("name = \"host-2c\"", "name = \"mine\"", 1);
    let text = text.replacen("nodes_per_socket = 1", &format!("nodes_per_socket = {nodes}"), 1);
    let threads = format!("threads_per_core = {threads}");
    let text = text.replacen("threads_per_core = 1", &threads, 1);
    // Nodes of a socket: 100 ns; memory: 118 and 220.
    let socket = "[cost.same_socket]\nping_pong_ns = ";
    let text = text.replacen(&format!("{socket}27.0"), &format!("{socket}100.0"), 1);
    let other = "[cost.other_socket]\nping_pong_ns = ";
    let text = text.replacen(&format!("{other}27.0"), &format!("{other}100.0"), 1);
    let remote = "[cost.memory_remote]\nns = ";
    let text = text.replacen(&format!("{remote}118.0"), &format!("{remote}220.0"), 1);
    text + tables
}

fn spec(nodes: u32, threads: u32, tables: &str) -> Spec {
    Spec::parse("mine.toml", &text(nodes, threads, tables)).unwrap()
}

/// Four nodes in a row of two, of which 0 and 1 are near and 0 and 3 far.
const NODES: &str = "\n[[distance]]\nnodes = [1, 0]\nping_pong_ns = 60.0\nmemory_ns = 150.0\n\
                     source = \"made up\"\n\
                     \n[[distance]]\nnodes = [0, 3]\nping_pong_ns = 140.0\nsource = \"made up\"\n";

const SIBLINGS: &str = "\n[cost.same_core]\nping_pong_ns = 12.0\nsource = \"made up\"\n";

/// What a program that plays between two CPUs sees, one way, in nanoseconds.
fn one_way(spec: &Spec, cpus: [u32; 2], share: u32) -> f64 {
    let machine = Machine::new(spec.clone()).seed(3).request_percent(share);
    ping_pong(machine, cpus) as f64 / 4000.0
}

/// What a read of a line takes, in nanoseconds, that lies in a node's memory and in no cache.
fn read(spec: &Spec, cpu: u32, node: u32) -> f64 {
    const LINES: usize = 256;
    let run = Machine::new(spec.clone()).seed(3).run(move || {
        let reader = on(cpu, move || {
            let words: Box<[Line<U64>]> = (0..LINES).map(|_| Line(U64::new_in(0))).collect();
            let at = std::ptr::NonNull::from(&*words).cast();
            // SAFETY: it is memory of the machine, and stays mapped.
            unsafe { Sim::place(at, size_of_val(&*words), NodeId::new(node)) }.unwrap();
            let start = Sim::now();
            for word in &words {
                assert_eq!(word.load(Ordering::Relaxed), 0);
            }
            (Sim::now() - start).as_nanos() as f64 / LINES as f64
        });
        reader.join()
    });
    run.unwrap().value
}

fn near(found: f64, stated: f64) -> bool {
    (found - stated).abs() <= 0.03 * stated
}

#[test]
fn a_program_sees_what_the_file_says_of_two_nodes() {
    let spec = spec(4, 1, NODES);
    // Two CPUs to a node.
    for share in Machine::REQUEST_BAND {
        for (cpus, ns) in
            [([0, 2], 60.0), ([3, 1], 60.0), ([0, 4], 100.0), ([7, 1], 140.0), ([0, 1], 27.0)]
        {
            let found = one_way(&spec, cpus, share);
            assert!(near(found, ns), "{cpus:?} at {share} %: {found} ns, not {ns}");
        }
    }
    for (cpu, node, ns) in [(0, 0, 118.0), (0, 1, 150.0), (2, 0, 150.0), (0, 3, 220.0)] {
        let found = read(&spec, cpu, node);
        assert!(near(found, ns), "CPU {cpu}, node {node}: {found} ns, not {ns}");
    }
    let far = |a, b| spec.topology().node_distance(NodeId::new(a), NodeId::new(b));
    assert_eq!([far(0, 0), far(0, 1), far(1, 0), far(0, 3)], [10, 13, 13, 19].map(Some));
}

#[test]
fn of_two_copies_a_read_takes_that_of_the_nearer_node() {
    // CPU 0 reads what these have read.
    let read_after = |holders: &'static [u32]| {
        let run = Machine::new(spec(4, 1, NODES)).seed(3).run(|| {
            let word = Arc::new(Line(U64::new_in(0)));
            let read = |cpu| {
                let word = Arc::clone(&word);
                let reader = on(cpu, move || {
                    let start = Sim::now();
                    word.load(Ordering::Relaxed);
                    (Sim::now() - start).as_nanos() as f64
                });
                reader.join()
            };
            holders.iter().for_each(|&cpu| _ = read(cpu));
            read(0)
        });
        run.unwrap().value
    };
    let [near, far, both, also] =
        [read_after(&[2]), read_after(&[4]), read_after(&[4, 2]), read_after(&[2, 4])];
    assert!(far > 1.2 * near, "{near} and {far} ns");
    for both in [both, also] {
        assert!((0.9 * near..1.1 * near).contains(&both), "{both} of {near} and {far} ns");
    }
}

#[test]
fn siblings_see_what_the_file_says_of_them() {
    let [stated, unstated] = [SIBLINGS, ""].map(|tables| spec(1, 2, tables));
    for share in Machine::REQUEST_BAND {
        // CPU 2 is the second thread of CPU 0's core.
        let found = one_way(&stated, [0, 2], share);
        assert!(near(found, 12.0), "{found} ns at {share} %");
        assert!(one_way(&unstated, [0, 2], share) < 6.0, "hits");
        let [one, other] = [&stated, &unstated].map(|spec| one_way(spec, [0, 1], share));
        assert!(near(one, 27.0) && one == other, "{one} and {other} ns between cores");
    }
    assert_eq!((stated.costs().same_core, unstated.costs().same_core), (12_000, 0));
    assert_eq!(machine("power8-16s", 1).spec().costs().same_core, 0, "no source is known");
}

/// What a sibling wrote costs the first look at it, and no further one.
#[test]
fn only_news_of_a_sibling_cost_more_than_a_hit() {
    let run = Machine::new(spec(1, 2, SIBLINGS)).seed(3).run(|| {
        let word = Arc::new(Line(U64::new_in(0)));
        let on = |cpu, writes| {
            let word = Arc::clone(&word);
            let part = on(cpu, move || {
                let start = Sim::now();
                for _ in 0..1000 {
                    if writes {
                        word.fetch_add(1, Ordering::Relaxed);
                    } else {
                        word.load(Ordering::Relaxed);
                    }
                }
                (Sim::now() - start).as_nanos()
            });
            part.join()
        };
        let [write, read, again] = [on(0, true), on(2, false), on(0, false)];
        assert_eq!(word.load(Ordering::Relaxed), 1000);
        [write, read, again]
    });
    let [write, read, again] = run.unwrap().value;
    // 1.1 ns for a hit, one more for a locked operation, and up to three for the only news.
    assert!((2000..2500).contains(&write), "{write} ns");
    assert!((1100..1200).contains(&read) && (1100..1200).contains(&again), "{read} {again} ns");
}

#[test]
fn a_band_moves_pairs_with_what_they_stand_for() {
    let mut spec = spec(4, 1, NODES);
    spec.scale("same_socket", 150).unwrap();
    spec.scale("memory_remote", 50).unwrap();
    let transfers = Machine::new(spec.clone()).calibration().unwrap();
    let pair = |[a, b]: [u32; 2]| Some([a, b].map(NodeId::new));
    let found: Vec<_> = transfers.iter().map(|it| (it.class, it.nodes, it.published)).collect();
    let expected = [
        (Class::SameCache, None, 27_000),
        (Class::SameSocket, None, 150_000),
        (Class::SameSocket, pair([1, 0]), 90_000),
        (Class::SameSocket, pair([0, 3]), 210_000),
    ];
    assert_eq!(found, expected);
    assert!(transfers.iter().all(|it| it.reached), "{transfers:?}");
    assert!(near(read(&spec, 0, 1), 75.0), "{}", read(&spec, 0, 1));
    spec.scale("same_socket", 100).unwrap();
    assert!(near(one_way(&spec, [0, 2], 30), 60.0));
}

#[test]
fn a_class_whose_every_pair_is_stated_does_not_occur() {
    let both = "\n[[distance]]\nnodes = [0, 1]\nping_pong_ns = 60.0\nsource = \"made up\"\n";
    let transfers = Machine::new(spec(2, 1, both)).calibration().unwrap();
    let nodes: Vec<_> = transfers.iter().map(|it| it.nodes.map(|it| it.map(NodeId::get))).collect();
    assert_eq!(nodes, [None, Some([0, 1])]);
    assert_eq!(Class::SameSocket.pair(spec(2, 1, both).topology()), Some([0, 2].map(CpuId::new)));
}

#[test]
fn a_mistake_is_answered_with_what_is_wrong() {
    let pair = |nodes: &str, rest: &str| {
        format!("\n[[distance]]\nnodes = {nodes}\n{rest}\nsource = \"made up\"\n")
    };
    for (tables, reason) in [
        (pair("[0, 4]", "ping_pong_ns = 60.0"), "no node 4: the machine has 4, numbered from 0"),
        (pair("[2, 2]", "ping_pong_ns = 60.0"), "2 and 2 are the same node"),
        (pair("[0]", "ping_pong_ns = 60.0"), "[0] are not two nodes"),
        (pair("[0, 1, 2]", "ping_pong_ns = 60.0"), "[0, 1, 2] are not two nodes"),
        (pair("[0, 1]", "ping_pong_ns = 0.0"), "must take time"),
        (pair("[0, 1]", "ping_pong_ns = 20.0"), "less than the 27 of same_node"),
        (pair("[0, 1]", "ping_pong_ns = 60.0\nmemory_ns = 90.0"), "less than the 118 of memory"),
        (pair("[0, 1]", "memory_ns = 150.0"), "ping_pong_ns"),
        (pair("[0, 1]", "ping_pong_ns = 60.0\nfar = 3"), "far"),
        (NODES.replace("[0, 3]", "[0, 1]"), "occur twice"),
        (NODES.replace("made up", " "), "has no source"),
        (SIBLINGS.replace("12.0", "28.0"), "less than the 28 of same_core"),
        (SIBLINGS.replace("ping_pong_ns", "ns"), "is the one-way latency"),
    ] {
        let error = Spec::parse("mine.toml", &text(4, 2, &tables)).unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains(reason), "{tables}: {error}");
    }
    let two_sockets = |tables: &str| {
        let text = text(2, 1, tables).replacen("sockets = 1", "sockets = 2", 1);
        Spec::parse("mine.toml", &text)
    };
    let far = pair("[0, 1]", "ping_pong_ns = 120.0");
    let error = two_sockets(&far).unwrap_err().to_string();
    assert!(error.contains("100 ns is less than the 120 of node 0 and node 1"), "{error}");
    assert!(two_sockets(&pair("[0, 2]", "ping_pong_ns = 120.0")).is_ok());
}
