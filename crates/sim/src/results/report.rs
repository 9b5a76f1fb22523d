//! The cost of a run.

use core::fmt;
use core::panic::Location;

use coreline_topology::CpuId;
use serde::Serialize;

use crate::hardware::coherence;
use crate::hardware::overlap::Overlap;
use crate::results::false_sharing::{self, WordGroup};

/// The level of detail of the statistics on accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Statistics {
    /// Only totals of the whole run.
    #[default]
    Totals,
    /// Totals, and details by line, by source location and by CPU, which explain a result.
    /// Collecting these takes host time but no simulated time.
    Full,
}

/// The accesses of a run, counted by source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Transfers {
    /// The number of accesses served by the core's own cache.
    pub private: u64,
    /// The number of accesses served by another core's cache, or by the shared cache, under the
    /// same last-level cache.
    pub same_cache: u64,
    /// The number of accesses served from another last-level cache of the same node.
    pub same_node: u64,
    /// The number of accesses served from another node of the same socket.
    pub same_socket: u64,
    /// The number of accesses served from another socket.
    pub other_socket: u64,
    /// The number of accesses served by memory.
    pub memory: u64,
}

impl Transfers {
    /// Counts an access that was served from there.
    #[inline]
    pub(crate) fn count(&mut self, from: coherence::Origin) {
        *match from {
            coherence::Origin::Private => &mut self.private,
            coherence::Origin::CleanSameCache | coherence::Origin::SameCache => {
                &mut self.same_cache
            }
            coherence::Origin::SameNode => &mut self.same_node,
            coherence::Origin::SameSocket => &mut self.same_socket,
            coherence::Origin::OtherSocket => &mut self.other_socket,
            coherence::Origin::LocalMemory | coherence::Origin::RemoteMemory => &mut self.memory,
        } += 1;
    }

    /// Returns the count of each class with its name, nearest first.
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("private", self.private),
            ("same cache", self.same_cache),
            ("same node", self.same_node),
            ("same socket", self.same_socket),
            ("other socket", self.other_socket),
            ("memory", self.memory),
        ]
    }

    /// Returns the number of all accesses.
    pub fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of accesses that the core's own cache did not serve.
    pub fn misses(&self) -> u64 {
        self.total() - self.private
    }

    /// All counts, as [`by_name`](Transfers::by_name) orders them.
    fn counts(&mut self) -> [&mut u64; 6] {
        let Transfers { private, same_cache, same_node, same_socket, other_socket, memory } = self;
        [private, same_cache, same_node, same_socket, other_socket, memory]
    }

    /// Those that were counted since `before`.
    pub(crate) fn since(mut self, before: &Transfers) -> Transfers {
        for (count, (_, then)) in self.counts().into_iter().zip(before.by_name()) {
            *count = count.saturating_sub(then);
        }
        self
    }

    pub(crate) fn add(&mut self, other: &Transfers) {
        for (count, (_, more)) in self.counts().into_iter().zip(other.by_name()) {
            *count += more;
        }
    }
}

/// The cost of a run. The same machine, seed and program give the same cost on any host.
///
/// `Display` prints the totals. With [full statistics](Statistics::Full) it also prints the hottest
/// lines and the time of each CPU by activity. The fields of its JSON form (by serde) are listed in
/// `docs/json.md` in the repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// The simulated time from the start until the last thread ended, in nanoseconds.
    pub time_ns: u64,
    /// The number of engine steps, which the step limit bounds.
    pub steps: u64,
    /// The number of line accesses, by source.
    pub transfers: Transfers,
    /// The number of involuntary context switches.
    pub preemptions: u64,
    /// The number of migrations of threads to another CPU.
    pub migrations: u64,
    /// The number of restarts of restartable operations.
    pub restarts: u64,
    /// The details. They are `None` without [`Statistics::Full`].
    pub details: Option<Details>,
}

/// The cost of a run by line, by source location and by CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Details {
    /// All accessed lines, the most expensive first.
    pub lines: Vec<LineCost>,
    /// All source locations that accessed a line, the most expensive first.
    pub sites: Vec<SiteCost>,
    /// The time of each CPU by activity.
    pub cpus: Vec<CpuTime>,
}

/// The cost of accesses. Times of several CPUs add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct AccessCost {
    /// The number of accesses, by source.
    pub transfers: Transfers,
    /// The time in the queue at the line, in nanoseconds.
    pub queue_ns: u64,
    /// The time of the accesses, in nanoseconds. This includes the time in the queue.
    pub time_ns: u64,
}

/// A location in the source of the simulated program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SourceSite {
    /// The file, as given to the compiler. An absolute path is cut to the part that begins with the
    /// package's folder.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// A place in the source of the simulated program.
pub(crate) type Site = &'static Location<'static>;

impl SourceSite {
    pub(crate) fn of(site: Site) -> SourceSite {
        SourceSite { file: source(site.file()), line: site.line() }
    }

    /// A place in a file as a backtrace names it.
    pub(crate) fn named(file: &str, line: u32) -> SourceSite {
        SourceSite { file: source(file.trim_start_matches("./")), line }
    }
}

/// The file of a place. Packages of the workspace have relative paths; of an absolute one, which is
/// this host's alone, only what is from the package's folder on is left.
fn source(file: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in file.split('/') {
        match part {
            ".." if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    if !file.starts_with('/') {
        return parts.join("/");
    }
    let roots = ["src", "tests", "examples", "benches"];
    let root = parts.iter().rposition(|part| roots.contains(part)).unwrap_or(parts.len() - 1);
    parts[root.saturating_sub(1)..].join("/")
}

impl fmt::Display for SourceSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The cost of the accesses to one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LineCost {
    /// The line's address, as an offset into the machine's memory. The stacks of threads lie after
    /// that memory, ordered by thread number.
    pub address: u64,
    /// The [names](crate::name) of the objects that overlap the line. Several objects share the
    /// line.
    pub names: Vec<String>,
    /// The number of the thread on whose stack the line is. The compiler places values on a stack,
    /// so another build can place the same values on two lines.
    pub stack: Option<usize>,
    /// Whether the line belongs to the harness, the code of this crate that starts, joins and
    /// measures threads. More than nine tenths of such a line's time are accesses of the harness. A
    /// printed report leaves out such lines.
    pub of_harness: bool,
    /// The cost of all accesses.
    pub cost: AccessCost,
    /// The cost of the accesses to each word, by word and source location.
    pub words: Vec<WordCost>,
    /// The groups of words on the line that separate cores write, and the group of those that no
    /// core writes. If there are several groups, the line has false sharing, even if some cores
    /// read words of several groups. Otherwise the list is empty. A core that rarely misses on a
    /// word does not count as a user of the word, and a group that rarely misses is left out. A
    /// line whose memory was used for several purposes in turn may be reported by mistake.
    pub falsely_shared: Vec<WordGroup>,
}

/// The cost of the accesses from one source location to one word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WordCost {
    /// The word's offset in its line, in bytes.
    pub offset: u8,
    /// The [names](crate::name) of the objects that contain the word.
    pub names: Vec<String>,
    /// The source location of the accesses.
    pub site: SourceSite,
    /// The cost of the accesses.
    pub cost: AccessCost,
}

/// The cost of the accesses from one source location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SiteCost {
    /// The source location.
    pub site: SourceSite,
    /// Whether the location belongs to the harness: see [`LineCost::of_harness`].
    pub of_harness: bool,
    /// The cost of the accesses.
    pub cost: AccessCost,
}

/// The time of a CPU by activity, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuTime {
    /// The CPU.
    pub cpu: u32,
    /// The time for accesses that the core's own cache serves, and for putting stores into the
    /// buffer.
    pub hit_ns: u64,
    /// The time spent waiting for lines in transfer.
    pub miss_ns: u64,
    /// The time spent waiting in the queue at a line, for stores to leave the buffer, or for
    /// another CPU's store.
    pub queue_ns: u64,
    /// The time spent spinning on a word.
    pub spin_ns: u64,
    /// The time spent computing without accesses to shared memory.
    pub compute_ns: u64,
    /// The time in the kernel, including context switches.
    pub kernel_ns: u64,
    /// The remaining time, in which the CPU was idle.
    pub idle_ns: u64,
}

impl CpuTime {
    /// Returns the CPU.
    pub fn cpu(&self) -> CpuId {
        CpuId::new(self.cpu)
    }

    /// Returns the time of each activity with its name.
    pub fn by_name(&self) -> [(&'static str, u64); 7] {
        [
            ("hit", self.hit_ns),
            ("miss", self.miss_ns),
            ("queue", self.queue_ns),
            ("spin", self.spin_ns),
            ("compute", self.compute_ns),
            ("kernel", self.kernel_ns),
            ("idle", self.idle_ns),
        ]
    }
}

impl AccessCost {
    /// Whether the accesses missed more than once.
    fn is_hot(&self) -> bool {
        self.transfers.misses() > 1
    }

    pub(crate) fn add(&mut self, other: &AccessCost) {
        self.transfers.add(&other.transfers);
        self.queue_ns += other.queue_ns;
        self.time_ns += other.time_ns;
    }
}

/// How many lines and sites a printed report shows.
const MOST_PRINTED: usize = 10;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} simulated ns, {} steps", self.time_ns, self.steps)?;
        let Report { preemptions, migrations, restarts, .. } = self;
        writeln!(f, "{preemptions} preemptions, {migrations} migrations, {restarts} restarts")?;
        write!(f, "{} accesses:", self.transfers.total())?;
        let mut separator = "";
        for (name, count) in self.transfers.by_name() {
            write!(f, "{separator} {count} {name}")?;
            separator = ",";
        }
        match &self.details {
            Some(details) => write!(f, "\n{details}"),
            None => Ok(()),
        }
    }
}

/// The header of a table of costs, and its rows.
const HEADER: &str = "      ns    queue ns      hits    misses  ";

impl fmt::Display for AccessCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccessCost { transfers, queue_ns, time_ns } = self;
        let (hits, misses) = (transfers.private, transfers.misses());
        write!(f, "{time_ns:>8}  {queue_ns:>10}{hits:>10}{misses:>10}  ")
    }
}

/// What the rows that missed once or never have in common: a first access misses, which says
/// nothing.
const COLD: &str = "with one miss or none";

/// What the rows that say nothing about the program have in common.
const HARNESS: &str = "of the harness (threads, scopes, measurements)";

/// A row for all that are not shown each.
fn rest<'a>(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    why: &str,
    costs: impl Iterator<Item = &'a AccessCost>,
) -> fmt::Result {
    let mut all = AccessCost::default();
    let count = costs.inspect(|cost| all.add(cost)).count();
    if count > 0 { writeln!(f, "{all}{what} {why}: {count}") } else { Ok(()) }
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (harness, lines): (Vec<_>, Vec<_>) = self.lines.iter().partition(|it| it.of_harness);
        let hot: Vec<_> = lines.iter().copied().filter(|line| line.cost.is_hot()).collect();
        let told = hot.iter().map(|it| (it.address, it.cost.time_ns, &it.falsely_shared[..]));
        false_sharing::verdict(f, &told.collect::<Vec<_>>())?;
        writeln!(f, "\nhottest lines, and the accesses to them\n{HEADER}line")?;
        for line in hot.iter().take(MOST_PRINTED) {
            let LineCost { address, names, stack, cost, words, .. } = line;
            write!(f, "{cost}{address:#x}")?;
            if !names.is_empty() {
                write!(f, " {}", names.join(", "))?;
            }
            if let Some(thread) = stack {
                write!(f, " (stack of thread {thread})")?;
            }
            writeln!(f)?;
            for WordCost { offset, names, site, cost } in words.iter().filter(|it| it.cost.is_hot())
            {
                writeln!(f, "{cost}  +{offset} {} {site}", names.join(", "))?;
            }
            let cold = words.iter().filter(|word| !word.cost.is_hot());
            rest(f, "  places", COLD, cold.map(|word| &word.cost))?;
        }
        let cold = lines.iter().filter(|line| !line.cost.is_hot());
        rest(f, "lines", COLD, cold.map(|line| &line.cost))?;
        rest(f, "lines", HARNESS, harness.iter().map(|line| &line.cost))?;
        writeln!(f, "\nhottest places in the source\n{HEADER}site")?;
        let (harness, sites): (Vec<_>, Vec<_>) = self.sites.iter().partition(|it| it.of_harness);
        let hot = sites.iter().filter(|site| site.cost.is_hot());
        for SiteCost { site, cost, .. } in hot.take(MOST_PRINTED) {
            writeln!(f, "{cost}{site}")?;
        }
        let cold = sites.iter().filter(|site| !site.cost.is_hot());
        rest(f, "places", COLD, cold.map(|site| &site.cost))?;
        rest(f, "places", HARNESS, harness.iter().map(|site| &site.cost))?;
        write!(f, "\ntime of {} CPUs:", self.cpus.len())?;
        let kinds: Vec<_> = self.cpus.iter().map(CpuTime::by_name).collect();
        let all: u64 = kinds.iter().flatten().map(|(_, ns)| ns).sum();
        for kind in 0..kinds.first().map_or(0, |kinds| kinds.len()) {
            let ns: u64 = kinds.iter().map(|kinds| kinds[kind].1).sum();
            let share = 100.0 * ns as f64 / all.max(1) as f64;
            write!(f, " {share:.1} % {}", kinds[0][kind].0)?;
        }
        Ok(())
    }
}

/// The list of effects that the simulated machine does not model. Every result prints it.
///
/// [`not_modelled`] says what a run with another [`Overlap`] leaves out.
pub const NOT_MODELLED: &[&str] = &[
    "weak memory order: all CPUs see a store's value at once, and only its cost comes later",
    "stores of one buffer that fetch their lines at the same time",
    "a request that overtakes another CPU's store on its way to the same word",
    OF_SERIAL,
    "instruction fetch and execution time of plain code",
    "TLB and page walks, except the first in each page after a core has idled for long",
    "cache capacity",
    "bandwidth",
    "SMT resource sharing",
    "sleep states, and clocks that ramp up",
    "interrupts of devices; what a tick costs beyond its entry and exit",
    "the kernel's own memory and locks: a system call takes a fixed time",
    "priorities, and the choice of a CPU for a woken thread: it returns to its previous CPU",
    "prefetch beyond a declared pass over memory",
];

/// What a run without overlapping accesses leaves out.
const OF_SERIAL: &str = "misses of one thread that overlap, other than a declared pass over memory";

/// Returns what the model leaves out of a run with this overlap.
pub fn not_modelled(overlap: Overlap) -> impl Iterator<Item = &'static str> {
    let leaves_out = move |it: &&str| overlap == Overlap::Serial || *it != OF_SERIAL;
    NOT_MODELLED.iter().copied().filter(leaves_out)
}
