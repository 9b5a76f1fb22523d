//! The costs of a machine, each number with its source.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::hardware::class::Class;
use crate::hardware::presets::SpecError;

/// One number of a machine file with its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// The value in picoseconds, or a plain number for the costs that are counts.
    pub value: u64,
    /// Whether [`value`](Cost::value) is a count.
    pub is_count: bool,
    /// The source of the number.
    pub source: String,
    /// Whether the number is uncertain. Claims must hold while an uncertain number varies by 30 %
    /// in both directions (the band).
    pub uncertain: bool,
}

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident: $unit:ident,)+) => {
        /// The costs of a machine, in picoseconds unless noted otherwise. The costs of transfers
        /// are the latencies of ping-pongs, from which a [`Machine`](crate::Machine) derives the
        /// cost of a transfer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub struct Costs {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Costs {
            /// The names of all costs, in the order of a machine file.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            pub(crate) fn build(
                file: &str,
                table: &BTreeMap<String, RawCost>,
            ) -> Result<(Costs, BTreeMap<&'static str, Cost>), SpecError> {
                let mut sources = BTreeMap::new();
                let costs = Costs {
                    $($name: {
                        let cost = RawCost::take(file, table, stringify!($name), Unit::$unit)?;
                        let value = cost.as_ref().map_or(0, |cost| cost.value);
                        sources.extend(cost.map(|cost| (stringify!($name), cost)));
                        value
                    },)+
                };
                Ok((costs, sources))
            }

            pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

costs! {
    /// An access that the core's private cache serves.
    private_hit: Time,
    /// A clean line that another core under the same last-level cache holds.
    cache_hit: Time,
    /// The one-way latency of a ping-pong between hardware threads of one core. If a machine file
    /// leaves it out, it is 0, and a line that one of them wrote is a hit for the other.
    same_core: Siblings,
    /// The same latency between cores under the same last-level cache.
    same_cache: PingPong,
    /// The same latency between last-level caches of a node.
    same_node: PingPong,
    /// The same latency between nodes of a socket.
    same_socket: PingPong,
    /// The same latency between sockets.
    other_socket: PingPong,
    /// A line that no cache holds, in the memory of the CPU's own node.
    memory_local: Time,
    /// A line that no cache holds, in the memory of another node.
    memory_remote: Time,
    /// The time that an atomic read-modify-write adds to a store.
    locked: Time,
    /// The time for which one of many readers occupies the home of a line.
    directory: Time,
    /// The time from a load to the next independent load, if the core's private cache serves both.
    /// If a machine file leaves it out, it equals `store_issue`.
    load_issue: TimeIfKnown,
    /// A count: the maximum number of misses of a core that are in progress at one time. If a
    /// machine file leaves it out, it equals `stream_loads`.
    fill_buffers: CountIfKnown,
    /// The time that a plain store takes to enter the store buffer.
    store_issue: Time,
    /// A count: the number of stores that the store buffer holds.
    store_queue: Count,
    /// A spin loop's pause.
    pause: Time,
    /// A count: the number of misses of a sequential read that overlap.
    stream_loads: Count,
    /// A count: the number of ownership requests of a sequential update that overlap.
    stream_stores: Count,
    /// The time from one thread to the next on a CPU.
    switch: Time,
    /// The time from a wake-up until the woken thread runs, on an idle CPU.
    wake: Time,
    /// A system call that does nothing.
    syscall: Time,
    /// Reading the clock.
    clock: Time,
    /// The time from spawning a thread until it runs.
    spawn: Time,
    /// The time slice: how long a thread runs before another one that wants the CPU gets it.
    slice: Time,
    /// A fence that interrupts all running threads.
    broadcast: Time,
    /// The time from sending an interrupt to another CPU until it arrives there.
    ipi: Time,
    /// The time from an interrupt's arrival until its handler runs.
    irq_entry: Time,
    /// The time from the end of an interrupt's handler until the interrupted code continues.
    irq_exit: Time,
    /// The time from the end of a monitored wait until the CPU executes.
    mwait_exit: Time,
    /// The time from one timer tick of a busy CPU to the next.
    tick: Time,
    /// The minimum idle time after which a core's own caches and translations are empty.
    idle_flush: Time,
    /// A page-table walk, for a core whose translations are empty.
    page_walk: Time,
    /// A copy-on-write fault: the first write to a page that was only read.
    first_write: Time,
    /// The additional time of such a fault for each other CPU that ran the process and has switched
    /// since the faulting core last checked it. The core checks whether it must interrupt that CPU.
    first_write_visit: Time,
}

impl Costs {
    /// Times up to a second, ping-pongs up to ten microseconds, counts up to a thousand: more is
    /// taken for a typing mistake.
    pub(crate) const MOST_NS: f64 = 1e9;
    pub(crate) const MOST_PING_PONG_NS: f64 = 1e4;
    const MOST: u64 = 1000;

    /// The time between two independent loads that hit.
    pub(crate) fn load_issue(&self) -> u64 {
        if self.load_issue > 0 { self.load_issue } else { self.store_issue }
    }

    /// How many misses of a core are under way at most.
    pub(crate) fn fill_buffers(&self) -> u64 {
        if self.fill_buffers > 0 { self.fill_buffers } else { self.stream_loads }
    }

    /// Returns the latency of a ping-pong between cores at this distance. In a running machine, it
    /// returns the cost of a transfer instead.
    pub fn of(&self, class: Class) -> u64 {
        match class {
            Class::SameCore => self.same_core,
            Class::SameCache => self.same_cache,
            Class::SameNode => self.same_node,
            Class::SameSocket => self.same_socket,
            Class::OtherSocket => self.other_socket,
        }
    }
}

/// How a cost is given in a machine file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Given as `ns`.
    Time,
    /// Given as `ping_pong_ns`, half of a round trip.
    PingPong,
    /// The same, or not given.
    Siblings,
    /// Given as `count`.
    Count,
    /// Given as `ns`, or not given.
    TimeIfKnown,
    /// Given as `count`, or not given.
    CountIfKnown,
}

impl Unit {
    fn may_lack(self) -> bool {
        matches!(self, Unit::Siblings | Unit::TimeIfKnown | Unit::CountIfKnown)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCost {
    ns: Option<f64>,
    ping_pong_ns: Option<f64>,
    count: Option<u64>,
    source: String,
    #[serde(default)]
    uncertain: bool,
}

/// The engine's unit of time.
const LEAST_NS: f64 = 0.001;

/// A time of a machine file; or why it cannot be one.
pub(crate) fn picoseconds(key: &str, ns: f64, most: f64) -> Result<u64, String> {
    if !(LEAST_NS..=most).contains(&ns) {
        return Err(format!(
            "{key} = {ns} is not between {LEAST_NS} and {most}: every cost must take time, so \
             that time passes for a CPU that spins"
        ));
    }
    // In range, so the rounded picoseconds fit, and are at least 1.
    Ok((ns * 1000.0).round() as u64)
}

/// A line that comes from further away takes no less time: what is nearer, and why, if one does.
pub(crate) fn check_distances(costs: &Costs) -> Result<(), (&'static str, String)> {
    let transfers = Class::ALL.map(|class| (class.name(), costs.of(class)));
    let memory = [("memory_local", costs.memory_local), ("memory_remote", costs.memory_remote)];
    for pair in transfers.windows(2).chain(memory.windows(2)) {
        let [(near, less), (far, more)] = pair else { continue };
        if more < less {
            let [less, more] = [less, more].map(|ps| *ps as f64 / 1000.0);
            let why = format!("{more} ns is less than the {less} of {near}, which is nearer");
            return Err((far, why));
        }
    }
    Ok(())
}

impl RawCost {
    fn take(
        file: &str,
        table: &BTreeMap<String, RawCost>,
        name: &str,
        unit: Unit,
    ) -> Result<Option<Cost>, SpecError> {
        let wrong = |why: String| SpecError::Value {
            file: file.to_owned(),
            key: format!("cost.{name}"),
            why,
        };
        let Some(raw) = table.get(name) else {
            return if unit.may_lack() { Ok(None) } else { Err(wrong("is missing".to_owned())) };
        };
        if raw.source.trim().is_empty() {
            return Err(wrong(
                "has no source; say where it is from, or \"from memory\"".to_owned(),
            ));
        }
        let value = match (unit, raw.ns, raw.ping_pong_ns, raw.count) {
            (Unit::Time | Unit::TimeIfKnown, Some(ns), None, None) => {
                picoseconds("ns", ns, Costs::MOST_NS).map_err(wrong)?
            }
            (Unit::PingPong | Unit::Siblings, None, Some(ns), None) => {
                picoseconds("ping_pong_ns", ns, Costs::MOST_PING_PONG_NS).map_err(wrong)?
            }
            (Unit::Count | Unit::CountIfKnown, None, None, Some(count))
                if (1..=Costs::MOST).contains(&count) =>
            {
                count
            }
            (Unit::Count | Unit::CountIfKnown, None, None, Some(count)) => {
                return Err(wrong(format!("count = {count} is not between 1 and {}", Costs::MOST)));
            }
            (Unit::Time | Unit::TimeIfKnown, ..) => {
                return Err(wrong("is a time: give `ns` and nothing else".to_owned()));
            }
            (Unit::PingPong | Unit::Siblings, ..) => {
                return Err(wrong(
                    "is the one-way latency of a ping-pong: give `ping_pong_ns` and nothing else"
                        .to_owned(),
                ));
            }
            (Unit::Count | Unit::CountIfKnown, ..) => {
                return Err(wrong("is a count: give `count` and nothing else".to_owned()));
            }
        };
        let is_count = matches!(unit, Unit::Count | Unit::CountIfKnown);
        Ok(Some(Cost { value, is_count, source: raw.source.clone(), uncertain: raw.uncertain }))
    }
}
