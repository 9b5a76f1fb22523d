//! Machines as short texts, and the files that a Linux kernel would show for them.
//!
//! A text has one statement on each line; `#` starts a comment. CPU lists are the kernel's, and
//! `LIST xN +S` stands for N lists, each S higher than the one before.
//!
//! | statement | says |
//! |---|---|
//! | `possible LIST`, `online LIST` | the CPUs; all possible ones are online by default |
//! | `package LISTS`, and `die`, `cluster`, `core` alike | what the topology files say |
//! | `cache LEVEL TYPE LISTS` | the caches of one level and type |
//! | `node NUMBER LIST` | a memory node; the list is `-` where it has no CPU |
//! | `memory LIST` | the nodes with memory |
//! | `distance D D ...` | the next node's distances to all nodes |
//! | `capacity N LIST` | what `cpu_capacity` says |
//! | `file PATH TEXT` | a file by itself, from the root of all files; `\n` starts a new line |
//! | `without TEXT` | no files whose paths contain this |

use std::collections::BTreeMap;
use std::path::Path;

use coreline_topology::{CpuId, CpuSet};

use super::Files;

/// The files of the machine that is described in `tests/fixtures`, from the root of all files.
pub(crate) fn fixture(name: &str) -> Files {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let text = std::fs::read_to_string(dir.join(name).with_extension("txt")).unwrap();
    let mut machine = Machine::default();
    let statements = text.lines().map(|line| line.split('#').next().unwrap().trim());
    for statement in statements.filter(|statement| !statement.is_empty()) {
        machine.read(statement);
    }
    machine.files()
}

#[derive(Default)]
struct Machine {
    possible: CpuSet,
    online: Option<CpuSet>,
    /// By the name of the level.
    parts: BTreeMap<String, Vec<CpuSet>>,
    caches: Vec<(String, String, Vec<CpuSet>)>,
    nodes: Vec<(String, String)>,
    memory: Option<String>,
    distances: Vec<String>,
    capacities: Vec<(String, CpuSet)>,
    files: Vec<(String, String)>,
    without: Vec<String>,
}

/// `LIST xN +S`.
fn lists(words: &[&str]) -> Vec<CpuSet> {
    let first: CpuSet = words[0].parse().unwrap();
    let number = |at: usize, sign| {
        let word: Option<&&str> = words.get(at);
        word.map(|word| word.strip_prefix(sign).unwrap().parse::<u32>().unwrap())
    };
    let (count, step) = (number(1, 'x').unwrap_or(1), number(2, '+').unwrap_or(0));
    let shifted = |by: u32| first.iter().map(|cpu| CpuId::new(cpu.get() + by)).collect();
    (0..count).map(|part| shifted(part * step)).collect()
}

/// The number and the CPUs of the part that holds this CPU.
fn part_of(parts: &[CpuSet], cpu: CpuId) -> Option<(usize, &CpuSet)> {
    parts.iter().enumerate().find(|(_, part)| part.contains(cpu))
}

impl Machine {
    fn read(&mut self, statement: &str) {
        let words: Vec<&str> = statement.split_whitespace().collect();
        let own = |word: &str| word.to_owned();
        match *words.as_slice() {
            ["possible", list] => self.possible = list.parse().unwrap(),
            ["online", list] => self.online = Some(list.parse().unwrap()),
            ["cache", level, kind, ..] => {
                self.caches.push((own(level), own(kind), lists(&words[3..])));
            }
            ["node", number, list] => self.nodes.push((own(number), own(list))),
            ["memory", list] => self.memory = Some(own(list)),
            ["distance", ..] => self.distances.push(words[1..].join(" ")),
            ["capacity", number, list] => {
                self.capacities.push((own(number), list.parse().unwrap()));
            }
            ["file", path, ..] => {
                let text = statement.split_once(path).unwrap().1.trim();
                self.files.push((own(path), text.replace("\\n", "\n").replace("\\t", "\t")));
            }
            ["without", gone] => self.without.push(own(gone)),
            [level @ ("package" | "die" | "cluster" | "core"), ..] => {
                self.parts.entry(own(level)).or_default().extend(lists(&words[1..]));
            }
            _ => panic!("what does {statement:?} mean?"),
        }
    }

    fn files(&self) -> Files {
        let mut files = Files::new();
        let mut write = |path: String, content: &dyn std::fmt::Display| {
            files.insert(path, format!("{content}\n").into_bytes());
        };
        let online = self.online.as_ref().unwrap_or(&self.possible);
        let cpus = "sys/devices/system/cpu";
        write(format!("{cpus}/possible"), &self.possible);
        write(format!("{cpus}/present"), &self.possible);
        write(format!("{cpus}/online"), online);
        write(format!("{cpus}/kernel_max"), &8191);
        for cpu in online.iter() {
            let dir = format!("{cpus}/cpu{}", cpu.get());
            self.topology_files(cpu, online, |file, content| {
                write(format!("{dir}/topology/{file}"), content);
            });
            let caches = self.caches.iter().filter_map(|(level, kind, parts)| {
                Some((level, kind, part_of(parts, cpu)?.1.intersection(online)))
            });
            for (index, (level, kind, list)) in caches.enumerate() {
                let dir = format!("{dir}/cache/index{index}");
                write(format!("{dir}/level"), level);
                write(format!("{dir}/type"), kind);
                write(format!("{dir}/shared_cpu_list"), &list);
            }
            if let Some((capacity, _)) = self.capacities.iter().find(|(_, of)| of.contains(cpu)) {
                write(format!("{dir}/cpu_capacity"), capacity);
            }
        }
        let nodes = "sys/devices/system/node";
        for (number, list) in &self.nodes {
            let list = if list == "-" { "" } else { list };
            write(format!("{nodes}/node{number}/cpulist"), &list);
        }
        for ((number, _), row) in self.nodes.iter().zip(&self.distances) {
            write(format!("{nodes}/node{number}/distance"), row);
        }
        if let Some(memory) = &self.memory {
            write(format!("{nodes}/has_memory"), memory);
            write(format!("{nodes}/has_normal_memory"), memory);
        }
        for (path, text) in &self.files {
            write(path.clone(), text);
        }
        files.retain(|path, _| !self.without.iter().any(|gone| path.contains(gone)));
        files
    }

    /// The files in the folder `topology` of one CPU, but for lists that say what others say. The
    /// kernel numbers cores and clusters anew in each package.
    fn topology_files(
        &self,
        cpu: CpuId,
        online: &CpuSet,
        mut write: impl FnMut(&str, &dyn std::fmt::Display),
    ) {
        let parts = |level| self.parts.get(level).map_or(&[][..], Vec::as_slice);
        let part = |level| part_of(parts(level), cpu);
        let package = part("package").map(|(_, package)| package);
        let first = |level| {
            let start = package.and_then(CpuSet::first).unwrap_or(cpu);
            part_of(parts(level), start).map_or(0, |(number, _)| number)
        };
        for (level, id, lists) in [
            ("package", "physical_package_id", &[][..]),
            ("die", "die_id", &[]),
            ("cluster", "cluster_id", &["cluster_cpus_list"]),
            ("core", "core_id", &["core_cpus_list", "thread_siblings_list"]),
        ] {
            let Some((number, list)) = part(level) else {
                continue;
            };
            let number = if level == "package" { number } else { number - first(level) };
            write(id, &number);
            for file in lists {
                write(file, &list.intersection(online));
            }
        }
    }
}
