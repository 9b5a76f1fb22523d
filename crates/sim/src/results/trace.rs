//! [`Trace`]: a timeline of a run, for a timeline viewer.

use core::fmt::Write as _;
use std::collections::BTreeSet;
use std::io;

use crate::hardware::coherence::Origin;
use crate::results::report::{Site, SourceSite};
use crate::results::statistics::Names;

/// An event on a CPU, a line or a lock, with its beginning and end in picoseconds.
#[derive(Debug, Clone, Copy)]
struct Event {
    what: EventKind,
    cpu: u32,
    from: u64,
    to: u64,
}

#[derive(Debug, Clone, Copy)]
enum EventKind {
    Ran {
        thread: usize,
    },
    Missed {
        site: Site,
        /// The word, as an offset in the machine's memory.
        address: u64,
        from: Origin,
        /// The CPU that had the line for itself.
        owner: Option<usize>,
        /// Whether the CPU stood still meanwhile; not for what leaves a store buffer, or comes
        /// ahead in a pass over memory.
        waits: bool,
    },
    Waited {
        lock: u64,
        thread: usize,
    },
    Held {
        lock: u64,
        thread: usize,
    },
}

/// A miss, as the engine has it.
pub(crate) struct Miss {
    pub(crate) site: Site,
    pub(crate) address: u64,
    pub(crate) from: Origin,
    pub(crate) owner: Option<usize>,
    pub(crate) waits: bool,
}

/// The events of a machine while it runs.
pub(crate) struct Tracer {
    events: Vec<Event>,
    dropped: u64,
    /// For each CPU: the thread that runs there, and since when.
    running: Vec<Option<(usize, u64)>>,
}

/// How many events are kept: some hundred megabytes of text.
const MOST_EVENTS: usize = 2_000_000;

impl Tracer {
    pub(crate) fn new(cpus: usize) -> Tracer {
        Tracer { events: Vec::new(), dropped: 0, running: vec![None; cpus] }
    }

    fn push(&mut self, what: EventKind, cpu: usize, from: u64, to: u64) {
        match self.events.len() < MOST_EVENTS {
            true => self.events.push(Event { what, cpu: cpu as u32, from, to }),
            false => self.dropped += 1,
        }
    }

    pub(crate) fn begins(&mut self, cpu: usize, thread: usize, at: u64) {
        self.running[cpu] = Some((thread, at));
    }

    pub(crate) fn ends(&mut self, cpu: usize, at: u64) {
        if let Some((thread, since)) = self.running[cpu].take() {
            self.push(EventKind::Ran { thread }, cpu, since, at);
        }
    }

    pub(crate) fn missed(&mut self, cpu: usize, miss: Miss, from: u64, to: u64) {
        let Miss { site, address, from: source, owner, waits } = miss;
        self.push(EventKind::Missed { site, address, from: source, owner, waits }, cpu, from, to);
    }

    pub(crate) fn waited(&mut self, cpu: usize, (lock, thread): (u64, usize), from: u64, to: u64) {
        self.push(EventKind::Waited { lock, thread }, cpu, from, to);
    }

    pub(crate) fn held(&mut self, cpu: usize, (lock, thread): (u64, usize), from: u64, to: u64) {
        self.push(EventKind::Held { lock, thread }, cpu, from, to);
    }

    /// The trace of the events so far on a machine with this name.
    pub(crate) fn trace(&self, machine: &str, names: &Names) -> Trace {
        let mut slices: Vec<Slice> = self.events.iter().map(|it| it.slice(names)).collect();
        // What begins with another and ends later is around it.
        slices.sort_by_key(|it| (it.begin_ps, core::cmp::Reverse(it.end_ps)));
        Trace { machine: machine.to_owned(), slices, dropped: self.dropped }
    }
}

impl Event {
    fn slice(&self, names: &Names) -> Slice {
        let called = |address: u64| match names.of(address, 1) {
            names if names.is_empty() => format!("{address:#x}"),
            names => names.join(", "),
        };
        let (track, name, detail) = match self.what {
            EventKind::Ran { thread } => (Track::Cpu, format!("thread {thread}"), None),
            EventKind::Missed { site, address, from, owner, waits } => {
                let track = if waits { Track::Cpu } else { Track::Beside };
                let site = SourceSite::of(site);
                let detail = Detail { from: source(from), site, owner: owner.filter(|_| waits) };
                (track, format!("miss {}", called(address)), Some(detail))
            }
            EventKind::Waited { lock, thread } => {
                (Track::Waits(lock), format!("thread {thread} waits"), None)
            }
            EventKind::Held { lock, thread } => {
                (Track::Lock(lock, called(lock)), format!("thread {thread}"), None)
            }
        };
        Slice { track, cpu: self.cpu, name, begin_ps: self.from, end_ps: self.to, detail }
    }
}

fn source(from: Origin) -> &'static str {
    match from {
        Origin::Private => "private",
        Origin::CleanSameCache | Origin::SameCache => "same cache",
        Origin::SameNode => "same node",
        Origin::SameSocket => "same socket",
        Origin::OtherSocket => "other socket",
        Origin::LocalMemory | Origin::RemoteMemory => "memory",
    }
}

/// A record of a run: the thread that ran on each CPU, each miss and the source of its line, and
/// the threads that waited for or held each lock. [`Run::trace`](crate::Run::trace) contains it if
/// [`Machine::trace`](crate::Machine::trace) was set.
///
/// [`write_json`](Trace::write_json) writes the record in the Trace Event Format, which Perfetto
/// and other viewers open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    machine: String,
    slices: Vec<Slice>,
    dropped: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Slice {
    track: Track,
    cpu: u32,
    name: String,
    begin_ps: u64,
    end_ps: u64,
    detail: Option<Detail>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Detail {
    from: &'static str,
    site: SourceSite,
    owner: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Track {
    /// The slice's CPU.
    Cpu,
    /// An operation for which the CPU does not wait.
    Beside,
    /// A lock, with its name.
    Lock(u64, String),
    /// Those that wait for that lock: several at a time.
    Waits(u64),
}

/// The groups of tracks. In the trace format, each group is a process.
const CPUS: u32 = 1;
const LOCKS: u32 = 2;

impl Trace {
    /// Returns the number of slices.
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Returns whether the trace has no slices.
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Returns the number of dropped slices. The trace keeps the first two million slices that
    /// ended.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes the trace as JSON in the Trace Event Format: one process with a track for each CPU,
    /// and one with a track for each lock. Times are simulated. A transfer from a CPU that owned
    /// the line is a flow from that CPU. Asynchronous slices show buffered stores and passes over
    /// memory, for which no CPU waits. They also show threads that wait for a lock.
    ///
    /// # Errors
    ///
    /// The I/O errors of `to`.
    pub fn write_json(&self, mut to: impl io::Write) -> io::Result<()> {
        let Trace { machine, dropped, .. } = self;
        let head = format!("\"machine\":{},\"dropped\":{dropped}", quoted(machine));
        write!(to, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{{head}}},\"traceEvents\":[")?;
        let mut text = String::new();
        name_track(&mut text, "process_name", CPUS, 0, &format!("CPUs of {machine}"));
        name_track(&mut text, "process_name", LOCKS, 0, "locks");
        let cpus: BTreeSet<u32> = self.slices.iter().map(|it| it.cpu).collect();
        for cpu in cpus {
            name_track(&mut text, "thread_name", CPUS, cpu, &format!("CPU {cpu}"));
        }
        let mut locks: Vec<u64> = Vec::new();
        for slice in &self.slices {
            if let Track::Lock(lock, name) = &slice.track
                && !locks.contains(lock)
            {
                name_track(&mut text, "thread_name", LOCKS, locks.len() as u32, name);
                locks.push(*lock);
            }
        }
        to.write_all(text.trim_end_matches(",\n").as_bytes())?;
        for (id, slice) in self.slices.iter().enumerate() {
            text.clear();
            slice.write(&mut text, id, &locks);
            to.write_all(text.as_bytes())?;
        }
        writeln!(to, "]}}")
    }
}

// Writing to a string does not fail, in all of these.

fn name_track(text: &mut String, kind: &str, process: u32, track: u32, name: &str) {
    let name = quoted(name);
    let place = format!("\"pid\":{process},\"tid\":{track}");
    let name = format!("\"name\":\"{kind}\",\"args\":{{\"name\":{name}}}");
    let _ = writeln!(text, "{{\"ph\":\"M\",{place},{name}}},");
}

impl Slice {
    fn write(&self, text: &mut String, id: usize, locks: &[u64]) {
        let Slice { cpu, begin_ps, end_ps, detail, .. } = self;
        let index = |lock: &u64| locks.iter().position(|it| it == lock).unwrap_or(locks.len());
        let (process, track, category) = match &self.track {
            Track::Cpu => (CPUS, *cpu as usize, None),
            Track::Beside => (CPUS, *cpu as usize, Some("beside")),
            Track::Lock(lock, _) => (LOCKS, index(lock), None),
            Track::Waits(lock) => (LOCKS, index(lock), Some("waits")),
        };
        let place = format!("\"pid\":{process},\"tid\":{track}");
        let mut arguments = format!("\"cpu\":{cpu}");
        if let Some(Detail { from, site, .. }) = detail {
            let site = quoted(&site.to_string());
            let _ = write!(arguments, ",\"from\":\"{from}\",\"site\":{site}");
        }
        let name = quoted(&self.name);
        let (begin, end) = (microseconds(*begin_ps), microseconds(*end_ps));
        let event = |text: &mut String, kind: &str, at: &str, rest: &str| {
            let _ = write!(text, ",\n{{\"ph\":\"{kind}\",\"ts\":{at},{rest}}}");
        };
        match category {
            None => {
                let length = microseconds(end_ps - begin_ps);
                let rest =
                    format!("\"dur\":{length},{place},\"name\":{name},\"args\":{{{arguments}}}");
                event(text, "X", &begin, &rest);
            }
            Some(category) => {
                let rest = format!("{place},\"cat\":\"{category}\",\"id\":{id},\"name\":{name}");
                event(text, "b", &begin, &format!("{rest},\"args\":{{{arguments}}}"));
                event(text, "e", &end, &rest);
            }
        }
        if let Some(Detail { owner: Some(owner), .. }) = detail {
            let rest = format!("\"cat\":\"line\",\"id\":{id},\"name\":\"line\"");
            event(text, "s", &begin, &format!("\"pid\":{CPUS},\"tid\":{owner},{rest}"));
            event(text, "f", &end, &format!("\"bp\":\"e\",{place},{rest}"));
        }
    }
}

/// The format's unit.
fn microseconds(ps: u64) -> String {
    format!("{}.{:06}", ps / 1_000_000, ps % 1_000_000)
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if control < ' ' => _ = write!(quoted, "\\u{:04x}", control as u32),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
