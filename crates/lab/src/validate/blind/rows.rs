//! The rows of predictions, as data.

/// The rows of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Set {
    /// Paths of the kernel; `docs/validate/blind/predictions.toml`.
    Kernel,
    /// Operations as accesses to words of cache lines; `docs/validate/blind/lines.toml`.
    Lines,
}

/// Twice a word of `lineops`: filling takes `fill` nanoseconds, draining a batch `hold`, and the
/// handler of an interrupt `handle`.
macro_rules! give_back {
    ($fill:literal, $hold:literal, $handle:literal, unlocked, interrupts) => {
        give_back!(@ $fill, $hold, $handle, "w", $hold, "+i", $handle)
    };
    ($fill:literal, $hold:literal, $handle:literal, locked, broadcast) => {
        give_back!(@ $fill, $hold, $handle, "ka+w", $hold, "+ua", "+w1000")
    };
    ($fill:literal, $hold:literal, $handle:literal, unlocked, broadcast) => {
        give_back!(@ $fill, $hold, $handle, "w", $hold, "+w1000")
    };
    (@ $fill:literal, $hold:literal, $handle:literal, $($changed:literal),*) => {
        [concat!(
            "w", $fill, "+ka+w", $hold, "+ua+i", $handle, "+w500/w", $fill, "+", $($changed,)*
            "+w500"
        ); 2]
    };
}

/// The load of this name, and the loads with other times.
macro_rules! give_backs {
    ($name:literal, $($form:ident),*) => {
        &[
            [$name; 2],
            give_back!("3200", "1000", "500", $($form),*),
            give_back!("51200", "1000", "500", $($form),*),
            give_back!("12800", "300", "500", $($form),*),
            give_back!("12800", "3000", "500", $($form),*),
            give_back!("12800", "1000", "200", $($form),*),
            give_back!("12800", "1000", "2000", $($form),*),
        ]
    };
}

/// A curve: what is predicted at each number of threads.
pub(super) struct Row {
    pub(super) set: Set,
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) machine: &'static str,
    /// `{at}`, `{load}`, `{rest}` and `{variant}` are filled in.
    pub(super) program: &'static str,
    /// The loads of the variant and of the one beside it. Those after the first belong to the
    /// widest band.
    pub(super) loads: &'static [[&'static str; 2]],
    pub(super) variant: &'static str,
    pub(super) beside: &'static str,
    pub(super) at: &'static [u64],
    pub(super) seen: &'static str,
    pub(super) decides: &'static str,
}

const NOT_BLIND: &str = "not blind: the author had read figures of this row elsewhere, before the \
                         model was made, and remembers them in part; no cost or parameter was set \
                         or changed because of them";

const OWN_NOTES: &str = "not blind: figures of this row are in the research notes of this project, \
                         which the author had to read first; no cost or parameter was set or \
                         changed because of them";

pub(super) const ROWS: &[Row] = &[
    Row {
        set: Set::Kernel,
        name: "a",
        what: "context_switch1_threads of will-it-scale: a slot for each CPU, compared with \
               reference counts",
        machine: "epyc-9654-2s",
        program: "lazymm config=384-thread/24-L3 tasks={at} rest={rest} variant={variant} \
                  window=4000",
        loads: &[["", ""]],
        variant: "slots",
        beside: "refcounted",
        at: &[1, 12, 24, 48, 96, 192, 384, 768],
        seen: NOT_BLIND,
        decides: "how long a round of a pair takes without the count, and how many additions to \
                  one line the machine serves; from two pairs per core on, that no CPU idles",
    },
    Row {
        set: Set::Kernel,
        name: "b",
        what: "context_switch1_threads of will-it-scale: shootdown, compared with reference counts",
        machine: "power8-16s",
        program: "lazymm config=1536-thread/16-L3 tasks={at} rest={rest} variant={variant} \
                  window=10000",
        loads: &[["", ""]],
        variant: "shootdown",
        beside: "refcounted",
        at: &[1, 12, 48, 192],
        seen: OWN_NOTES,
        decides: "as in row a; the cost of a transfer between drawers of the machine, which is a \
                  guess",
    },
    OPEN_ROW,
    Row {
        name: "c-lock",
        what: "lock2_threads of will-it-scale: CNA, compared with the queued spin lock",
        program: "kernlock config=144-thread/4-L3 load=lock threads={at} rest={rest} \
                  variant={variant} window=12000",
        seen: "not quite blind: the author had read figures of such benchmarks, and does not \
               remember those of this one; no cost or parameter was set or changed because of them",
        decides: "as in row c-open; the lock object, which moves from its inserter to its deleter",
        ..OPEN_ROW
    },
    WRITE_ROW,
    Row {
        name: "d-write-packed",
        what: "a semaphore taken for writing, threads on as few sockets as can be: bits, compared \
               with biases",
        program: "rwsem config=240-thread/8-L3 load=write threads={at} place=packed rest={rest} \
                  variant={variant} window=2000",
        decides: "as in row d-write",
        ..WRITE_ROW
    },
    Row {
        name: "d-read",
        what: "a semaphore taken for reading: bits, compared with biases",
        program: "rwsem config=240-thread/8-L3 load=read threads={at} place=spread rest={rest} \
                  variant={variant} window=2000",
        decides: "nothing: readers do the same in both, by construction",
        ..WRITE_ROW
    },
    Row {
        name: "fget",
        what: "fstat of one file by threads of a process: a reference by fetch_add, compared with \
               one by compare-exchange",
        machine: "epyc-9754-2s",
        program: "lineops config=512-thread/32-L3 load={load} threads={at} place=packed \
                  rest={rest} variant={variant} window=300",
        loads: &[["fget", "fget"], ["fget-read", "fget-read"]],
        at: &[1, 8, 64, 256, 512],
        seen: "not quite blind: the author believes, from memory, that a change of this kind \
               gained a few percent; no cost or parameter was set or changed because of it",
        decides: "how often a compare-exchange fails because the line left between its read and \
                  the exchange",
        ..FUTEX_ROW
    },
    Row {
        name: "dentry",
        what: "stat of one file: the lock and count of its dentry in a line of their own, compared \
               with the line of the words that a look-up reads",
        machine: "sapphire-rapids-2s",
        program: "lineops config=112-core/2-L3 load={load} threads={at} place=packed rest={rest} \
                  variant={variant} window=200",
        loads: &[["dentry", "dentry"]],
        at: &[1, 8, 20],
        seen: "not blind: the author believes, from memory, that such a change gained about half; \
               no cost or parameter was set or changed because of it",
        decides: "whether the read fetches the line for the exchange that follows it",
        ..FUTEX_ROW
    },
    FUTEX_ROW,
    Row { name: "futex-512", loads: &[["futex-512", "futex-512"]], ..FUTEX_ROW },
    Row { name: "futex-256", loads: &[["futex-256", "futex-256"]], ..FUTEX_ROW },
    Row {
        name: "futex-buckets",
        what: "FUTEX_WAIT that returns at once, on 1,024 futexes of each thread: 512 buckets, \
               compared with 16,384, with the pointer",
        loads: &[["futex-512", "futex-16384"]],
        variant: "base",
        decides: "how often two threads want one bucket at the same time",
        ..FUTEX_ROW
    },
    Row {
        name: "futex-nodes",
        what: "FUTEX_WAIT that returns at once: a bucket for each node, compared with one for both",
        machine: "ivybridge-ep-2s",
        program: "lineops config=20-core/2-L3 load={load} threads={at} place=spread rest={rest} \
                  variant={variant} window=500",
        loads: &[["futex-nodes", "futex-nodes"]],
        at: &[2, 20],
        seen: BLIND,
        decides: "that the bucket's line moves only inside a socket",
        ..FUTEX_ROW
    },
    Row {
        name: "futex-list",
        what: "an operation that changes the list of one of 256 buckets: the list's head in a line \
               of its own, compared with the lock's line",
        machine: "epyc-9754-2s",
        program: "lineops config=256-core/32-L3 load={load} threads={at} place=spread rest={rest} \
                  variant={variant} window=60",
        loads: &[["futex-list", "futex-list"]],
        at: &[1, 176],
        seen: BLIND,
        decides: "a second line for each operation, and whether threads that arrive take the \
                  line from the holder",
        ..FUTEX_ROW
    },
    Row { loads: give_backs!("give-back-unlocked", unlocked, interrupts), ..GIVE_BACK_ROW },
    Row {
        name: "give-back-broadcast",
        what: "pages that are filled and given back: a broadcast instruction, compared with \
               interrupts",
        loads: give_backs!("give-back-broadcast", locked, broadcast),
        ..GIVE_BACK_ROW
    },
    Row {
        name: "give-back-both",
        what: "pages that are filled and given back: no lock and a broadcast instruction, compared \
               with a lock and interrupts",
        loads: give_backs!("give-back-both", unlocked, broadcast),
        ..GIVE_BACK_ROW
    },
];

const C_THREADS: &[u64] = &[1, 2, 4, 8, 16, 32, 36, 72, 108, 142];
const D_THREADS: &[u64] = &[1, 2, 4, 8, 16];

const BLIND: &str = "blind: the author knew no figure of this row, and looked none up";

const OPEN_ROW: Row = Row {
    set: Set::Kernel,
    name: "c-open",
    what: "open1_threads of will-it-scale: CNA, compared with the queued spin lock",
    machine: "haswell-ex-4s",
    program: "kernlock config=144-thread/4-L3 load=open threads={at} rest={rest} \
              variant={variant} window=12000",
    loads: &[["", ""]],
    variant: "near",
    beside: "queued",
    at: C_THREADS,
    seen: OWN_NOTES,
    decides: "that CNA keeps the lock and the lines it guards on a socket; how much of a round is \
              outside the lock, where the credentials' count moves between CPUs",
};

const WRITE_ROW: Row = Row {
    set: Set::Kernel,
    name: "d-write",
    what: "a semaphore taken for writing, threads on one socket after the other: bits, compared \
           with biases",
    machine: "ivybridge-ex-8s",
    program: "rwsem config=240-thread/8-L3 load=write threads={at} place=spread rest={rest} \
              variant={variant} window=2000",
    loads: &[["", ""]],
    variant: "bits",
    beside: "biases",
    at: D_THREADS,
    seen: NOT_BLIND,
    decides: "the addition that a writer makes in vain and takes back, which hinders others",
};

const FUTEX_ROW: Row = Row {
    set: Set::Lines,
    name: "futex-16384",
    what: "FUTEX_WAIT that returns at once, on 1,024 futexes of each thread: no pointer in the \
           bucket's line, compared with one that is loaded twice",
    machine: "skylake-2s",
    program: "lineops config=112-thread/2-L3 load={load} threads={at} place=packed rest={rest} \
              variant={variant} window=100",
    loads: &[["futex-16384", "futex-16384"]],
    variant: "changed",
    beside: "base",
    at: &[1, 28, 112],
    seen: BLIND,
    decides: "whether the load before the lock fetches the line for the addition that follows \
              it, and whether the load after the release misses",
};

const GIVE_BACK_ROW: Row = Row {
    name: "give-back-unlocked",
    what: "pages that are filled and given back: no lock, compared with a lock of all threads",
    machine: "epyc-7003-2s",
    program: "lineops config=256-thread/16-L3 load={load} threads={at} place=siblings \
              rest={rest} variant={variant} window=1500",
    loads: &[],
    at: &[1, 8, 72],
    seen: BLIND,
    decides: "which of two limits is lower: turns of the lock, or interrupts that a CPU handles",
    ..FUTEX_ROW
};
