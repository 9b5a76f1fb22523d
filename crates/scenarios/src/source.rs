//! [`Source`]: where published figures and the changes that they are about come from.

use core::fmt;

/// A publication, with its author, title, year and link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The short name of the publication in rows and in files of published figures, such as `Guo
    /// 2024`.
    pub name: &'static str,
    /// The author of the publication.
    pub author: &'static str,
    /// The title of the publication, or our description if it has no title.
    pub title: &'static str,
    /// The year of the publication.
    pub year: u16,
    /// A link to the publication itself.
    pub link: &'static str,
}

/// All publications that scenarios cite, by year.
pub static SOURCES: [Source; 8] = [
    Source {
        name: "van Riel 2013",
        author: "Rik van Riel",
        title: "sched/x86: Optimize switch_mm() for multi-threaded workloads",
        year: 2013,
        link: "https://lore.kernel.org/r/20130731221421.616d3d20@annuminas.surriel.com",
    },
    Source {
        name: "Guzik 2023",
        author: "Mateusz Guzik",
        title: "kernel/fork: group allocation/free of per-cpu counters for mm struct",
        year: 2023,
        link: "https://lore.kernel.org/r/20230823050609.2228718-3-mjguzik@gmail.com",
    },
    Source {
        name: "Guzik 2023, in the discussion",
        author: "Mateusz Guzik",
        title: "a message on what execs wait for, in the discussion that Yoo 2025 cites",
        year: 2023,
        link: "https://lore.kernel.org/linux-mm/\
               CAGudoHFc+Km-3usiy4Wdm1JkM+YjCgD9A8dDKQ06pZP070f1ig@mail.gmail.com",
    },
    Source {
        name: "Guo 2024",
        author: "Guo Hui",
        title: "locking/osq_lock: Optimize osq_lock performance using per-NUMA",
        year: 2024,
        link: "https://lore.kernel.org/r/20240220073058.6435-1-guohui@uniontech.com",
    },
    Source {
        name: "Nayak 2024",
        author: "K Prateek Nayak",
        title: "Introducing TIF_NOTIFY_IPI flag",
        year: 2024,
        link: "https://lore.kernel.org/lkml/20240220171457.703-1-kprateek.nayak@amd.com",
    },
    Source {
        name: "Desnoyers 2024",
        author: "Mathieu Desnoyers",
        title: "sched: Improve cache locality of RSEQ concurrency IDs for intermittent workloads",
        year: 2024,
        link: "https://lore.kernel.org/lkml/\
               20240904013127.75064-2-mathieu.desnoyers@efficios.com",
    },
    Source {
        name: "Yoo 2025",
        author: "Harry Yoo",
        title: "kernel/fork: improve exec() throughput with slab ctor/dtor pair",
        year: 2025,
        link: "https://lore.kernel.org/r/20250424080755.272925-8-harry.yoo@oracle.com",
    },
    Source {
        name: "Gleixner 2025",
        author: "Thomas Gleixner",
        title: "sched: Rewrite MM CID management",
        year: 2025,
        link: "https://lore.kernel.org/r/20251015164952.694882104@linutronix.de",
    },
];

impl Source {
    /// Returns the source with this name.
    pub fn named(name: &str) -> Option<&'static Source> {
        SOURCES.iter().find(|source| source.name == name)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}, {}", self.author, self.title, self.year, self.link)
    }
}
