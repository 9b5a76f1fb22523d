//! A machine file's simulated ping-pongs say what its matrix says.

use super::*;
use crate::fields;
use crate::validate::core_to_core;

/// Figures of a public collection's matrix of two EPYC 9654, in rounded form
/// (<https://github.com/KCORES/core-to-core-latency-plus>, commit 264ea0a, licence MIT: 27.1 within
/// a cache, 99.3 within a socket, 191.6 between sockets), for fewer and differently numbered cores.
fn like_genoa(a: usize, b: usize) -> f64 {
    // Sockets take turns, and so do their caches.
    let socket = |cpu: usize| cpu % 2;
    let cache = |cpu: usize| cpu % 6;
    let off = 0.95 + 0.1 * ((a * 7919 + b * 104_729) % 101) as f64 / 100.0;
    off * match () {
        () if cache(a) == cache(b) => 27.1,
        () if socket(a) == socket(b) => 99.3,
        () => 191.6,
    }
}

fn choice(sockets: Option<u16>) -> Choice {
    Choice {
        matrix: "Two Good Ones, 24 cores.csv".into(),
        out: None,
        name: None,
        like: Spec::preset("host-2c").unwrap(),
        sockets,
        json: false,
    }
}

fn import(cpus: usize, ns: impl Fn(usize, usize) -> f64, sockets: Option<u16>) -> Imported {
    imported(&choice(sockets), &Matrix::of(cpus, ns)).unwrap()
}

fn shape(it: &Imported) -> [u32; 5] {
    [it.sockets, it.nodes_per_socket, it.caches_per_node, it.cores_per_cache, it.threads_per_core]
}

#[test]
fn a_simulated_ping_pong_of_the_machine_takes_what_the_matrix_says() {
    let matrix = Matrix::of(24, like_genoa);
    let made = import(24, like_genoa, None);
    assert_eq!((shape(&made), &*made.name), ([2, 1, 3, 4, 1], "two-good-ones-24-cores"));
    let spec = Spec::parse("mine", &made.text).unwrap();
    let played = core_to_core::of(&spec).unwrap();
    let classes: Vec<_> = made.classes.iter().map(|it| it.class).collect();
    assert_eq!(classes, ["same_cache", "same_node", "other_socket"]);
    for row in &made.classes {
        let played: Vec<_> = played.iter().filter(|it| it.class == row.class).collect();
        assert_eq!(played.len(), 3, "{}: at each request share", row.class);
        for it in played {
            assert!(it.reached && it.file_ns == row.median, "{it:?}");
            assert!((it.simulated_ns / row.median - 1.0).abs() < 0.01, "{it:?}");
        }
    }
    // Each pair of the matrix is of its class on the machine, by the numbers there.
    for (a, b) in (0..24).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let ids = [a, b].map(|cpu| coreline_topology::CpuId::new(cpu as u32));
        let class = crate::measure::matrix::class(spec.topology(), ids).unwrap();
        let row = made.classes.iter().find(|it| it.class == class.name()).unwrap();
        let ns = matrix.at(made.cpus[a], made.cpus[b]);
        assert!((ns / row.median - 1.0).abs() < 0.12, "{a} and {b}: {ns}, {row:?}");
    }
}

#[test]
fn all_else_is_named_as_the_other_machines() {
    let made = import(24, like_genoa, None);
    let spec = Spec::parse("mine", &made.text).unwrap();
    for (name, cost) in spec.sources() {
        let is_transfer = made.classes.iter().any(|it| it.class == name);
        let begins = match name {
            _ if is_transfer => "measured elsewhere: Two Good Ones, 24 cores.csv, ",
            "same_socket" => "does not occur here: ",
            _ => "as host-2c: ",
        };
        assert!(cost.source.starts_with(begins), "{name}: {}", cost.source);
    }
    let head = made.text.lines().take_while(|line| line.starts_with('#')).collect::<String>();
    assert!(head.contains("0, 6, 12, 18"), "the numbers in the matrix: {head}");
}

#[test]
fn groups_become_threads_caches_nodes_and_sockets() {
    // Cores of two threads; then groups by size and latency.
    let of = |levels: &'static [(usize, f64)]| {
        move |a: usize, b: usize| {
            let within = levels.iter().find(|(size, _)| a / size == b / size);
            within.map_or(180.0, |(_, ns)| *ns)
        }
    };
    let found = |cpus, levels, sockets| shape(&import(cpus, of(levels), sockets));
    let threads = &[(2, 9.0), (32, 45.0)];
    assert_eq!(found(32, threads, None), [1, 1, 1, 16, 2]);
    assert_eq!(found(64, threads, None), [2, 1, 1, 16, 2], "two large groups are sockets");
    assert_eq!(found(64, threads, Some(1)), [1, 1, 2, 16, 2]);
    let small = &[(8, 20.0)];
    assert_eq!(found(16, small, None), [1, 1, 2, 8, 1], "two small ones are caches");
    assert_eq!(found(16, small, Some(2)), [2, 1, 1, 8, 1]);
    let tiles = &[(2, 40.0)];
    assert_eq!(found(8, tiles, None), [1, 1, 4, 2, 1], "too far for threads of one core");
    let nodes = &[(2, 9.0), (8, 24.0), (16, 90.0), (32, 130.0)];
    assert_eq!(found(64, nodes, None), [2, 2, 2, 4, 2]);
    let error = |sockets| imported(&choice(Some(sockets)), &Matrix::of(64, of(nodes)));
    let told = error(3).unwrap_err().to_string();
    assert!(told.contains("3 sockets") && told.contains("2 of 32 CPUs"), "{told}");
    let told = error(1).unwrap_err().to_string();
    assert!(told.contains("4 levels") && told.contains("--sockets"), "{told}");
}

#[test]
fn classes_that_overlap_are_none() {
    // A chain: the ends of neighbouring groups are as near as cores of one group.
    let ns = |a: usize, b: usize| 30.0 + 3.0 * (a - b) as f64;
    let told = imported(&choice(None), &Matrix::of(16, ns)).unwrap_err().to_string();
    assert!(told.contains("same_cache and same_node overlap"), "{told}");
}

#[test]
fn what_is_shown_fits_and_the_page_of_json_lists_it() {
    let made = import(24, like_genoa, None);
    fields::assert_listed(&serde_json::to_value(&made).unwrap());
    for width in [40, 80, 120] {
        let mut text = Vec::new();
        made.show(Form { width, colour: false, unicode: false }, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
        assert!(text.contains("not numbered as") || width < 80, "{text}");
    }
}
