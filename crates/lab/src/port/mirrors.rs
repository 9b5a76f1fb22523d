//! The mirrored paths: where a path of the standard library leads in `coreline_sim`.

/// A module of std that has a mirror under the same path.
struct Mirror {
    module: &'static [&'static str],
    /// The names that are another type or function there.
    mirrored: &'static [&'static str],
    /// The names that are std's own there, so that they may stay as they are.
    same: &'static [&'static str],
}

/// Makes the table; in tests also code that imports every name of it, so that it is the truth.
macro_rules! mirrors {
    ($($module:ident $(:: $inner:ident)* {
        mirrored: $($mirrored:ident)*;
        same: $($same:ident)*;
    })*) => {
        const MIRRORS: &[Mirror] = &[$(Mirror {
            module: &[stringify!($module) $(, stringify!($inner))*],
            mirrored: &[$(stringify!($mirrored)),*],
            same: &[$(stringify!($same)),*],
        }),*];

        #[cfg(test)]
        #[allow(unused_imports, reason = "that they are there is the test")]
        mod there {
            $(const _: () = {
                use coreline_sim::$module $(:: $inner)* ::{$($mirrored,)* $($same),*};
            };)*
        }
    };
}

// The inner modules come first: the first one that a path begins with counts.
mirrors! {
    sync::atomic {
        mirrored: AtomicBool AtomicI8 AtomicU8 AtomicI16 AtomicU16 AtomicI32 AtomicU32 AtomicI64
            AtomicU64 AtomicIsize AtomicUsize AtomicPtr fence spin_loop_hint;
        same: Ordering compiler_fence;
    }
    sync::mpsc {
        mirrored: Sender SyncSender Receiver Iter TryIter IntoIter channel sync_channel;
        same: RecvError RecvTimeoutError SendError TryRecvError TrySendError;
    }
    sync {
        mirrored: Arc Weak Mutex MutexGuard RwLock RwLockReadGuard RwLockWriteGuard Condvar
            WaitTimeoutResult Once OnceState OnceLock LazyLock Barrier BarrierWaitResult;
        same: PoisonError TryLockError LockResult TryLockResult;
    }
    thread {
        mirrored: AccessError Builder JoinHandle LocalKey Scope ScopedJoinHandle Thread ThreadId
            available_parallelism current panicking park park_timeout scope sleep spawn yield_now;
        same: Result;
    }
    time {
        mirrored: Instant SystemTime SystemTimeError UNIX_EPOCH;
        same: Duration;
    }
    hint {
        mirrored: spin_loop;
        same: assert_unchecked black_box unreachable_unchecked;
    }
    collections::hash_map {
        mirrored: HashMap RandomState;
        same: DefaultHasher Drain Entry IntoIter IntoKeys IntoValues Iter IterMut Keys
            OccupiedEntry VacantEntry Values ValuesMut;
    }
    collections::hash_set {
        mirrored: HashSet;
        same: Difference Drain Intersection IntoIter Iter SymmetricDifference Union;
    }
    collections {
        mirrored: HashMap HashSet;
        same: BTreeMap BTreeSet BinaryHeap LinkedList TryReserveError VecDeque binary_heap
            btree_map btree_set linked_list vec_deque;
    }
}

/// Modules whose paths lead to nothing that threads share, though a module around them does.
const PLAIN: &[&[&str]] = &[
    &["collections", "binary_heap"],
    &["collections", "btree_map"],
    &["collections", "btree_set"],
    &["collections", "linked_list"],
    &["collections", "vec_deque"],
];

/// Names that lead around the mirrors, and what that means.
const AROUND: &[(&[&str], &str)] = &[
    (&["intrinsics"], "the compiler's own accesses are not charged"),
    (&["arch"], "instructions of a processor take no simulated time"),
];

/// Crates in which threads wait for each other, with a note on how a machine treats these waits.
const CRATES: &[(&str, &str)] = &[
    ("crossbeam", MEETS),
    ("crossbeam_channel", WAITS),
    ("crossbeam_deque", MEETS),
    ("crossbeam_epoch", MEETS),
    ("crossbeam_queue", MEETS),
    ("crossbeam_skiplist", MEETS),
    (
        "crossbeam_utils",
        "its `Backoff` spins without simulated time, and its `Parker` stops the host",
    ),
    ("arc_swap", MEETS),
    ("atomic_waker", MEETS),
    ("bytes", MEETS),
    ("concurrent_queue", MEETS),
    ("dashmap", WAITS),
    ("event_listener", WAITS),
    ("flume", WAITS),
    ("futures_util", MEETS),
    ("kanal", WAITS),
    ("once_cell", WAITS),
    ("parking", WAITS),
    ("parking_lot", WAITS),
    ("parking_lot_core", WAITS),
    ("portable_atomic", MEETS),
    ("rayon", WAITS),
    ("rayon_core", WAITS),
    ("scc", WAITS),
    ("sharded_slab", MEETS),
    ("spin", MEETS),
    ("thingbuf", WAITS),
    ("thread_local", MEETS),
    ("tokio", WAITS),
    ("triomphe", MEETS),
];

const MEETS: &str = "its accesses are not charged";
/// The note on packages in which a thread waits by the host's means.
pub(super) const WAITS: &str =
    "its accesses are not charged, and a thread that waits in it stops the host";

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// A path to an item that has a mirror under the same path.
    Mirrored,
    /// A path to an item that has a mirror under this path.
    To(&'static str),
    /// A path to an item that a mirror takes from std itself.
    Same,
    /// A path to state that threads share and no mirror has, and why this matters.
    Missing(&'static str),
    /// The path names plain shared data. The simulator charges nothing for it.
    Uncharged,
    /// A path to an item that an operating system adds to its threads. A simulated thread is not
    /// such a thread.
    HostThread,
    Elsewhere,
}

pub(super) fn is_std(root: &str) -> bool {
    matches!(root, "std" | "core" | "alloc")
}

/// The target of a path, without its root, which is a crate of the standard library. A path's last
/// name may be `*`. `keeps_arc`: a method of the package takes `self: Arc<Self>`.
pub(super) fn leads(path: &[&str], keeps_arc: bool) -> Leads {
    if keeps_arc && (path.starts_with(&["sync", "Arc"]) || path.starts_with(&["sync", "Weak"])) {
        let why = "only std's type can be a receiver, as in `self: Arc<Self>`; its counts are not \
                   charged";
        return Leads::Missing(why);
    }
    if path.starts_with(&["cell", "UnsafeCell"]) {
        return Leads::Uncharged;
    }
    if path.starts_with(&["hash", "RandomState"]) {
        return Leads::To("collections::hash_map::RandomState");
    }
    if path.first() == Some(&"os") && path.contains(&"thread") {
        return Leads::HostThread;
    }
    if path == ["thread_local"] {
        return Leads::Mirrored;
    }
    if PLAIN.iter().any(|plain| path.starts_with(plain)) {
        return Leads::Same;
    }
    if let Some((_, why)) = AROUND.iter().find(|(around, _)| path.starts_with(around)) {
        return Leads::Missing(why);
    }
    let Some(mirror) = MIRRORS.iter().find(|mirror| path.starts_with(mirror.module)) else {
        return Leads::Elsewhere;
    };
    match path.get(mirror.module.len()) {
        None | Some(&"*") => Leads::Mirrored,
        Some(name) if mirror.mirrored.contains(name) => Leads::Mirrored,
        Some(name) if mirror.same.contains(name) => Leads::Same,
        Some(_) => Leads::Missing("coreline-sim's version of this module does not have it"),
    }
}

/// The part of this crate that a machine sees, if threads wait for each other in it. Names may have
/// `-`.
pub(super) fn of_crate(name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_");
    CRATES.iter().find(|(it, _)| *it == name).map(|(_, why)| *why)
}

/// Whether a type of this name is shared between threads: a static of such a type has to be the
/// machine's.
pub(super) fn is_shared(name: &str) -> bool {
    let of = |module: &[&str]| {
        MIRRORS.iter().any(|mirror| mirror.module == module && mirror.mirrored.contains(&name))
    };
    of(&["sync", "atomic"]) || of(&["sync"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_a_mirror_to_std_itself_or_to_nothing() {
        for (path, leads_to) in [
            ("sync", Leads::Mirrored),
            ("sync::atomic", Leads::Mirrored),
            ("sync::atomic::*", Leads::Mirrored),
            ("sync::Arc::new", Leads::Mirrored),
            ("sync::atomic::AtomicUsize::new", Leads::Mirrored),
            ("sync::atomic::Ordering::*", Leads::Same),
            ("time::Duration", Leads::Same),
            ("time::Instant::now", Leads::Mirrored),
            ("collections::HashMap", Leads::Mirrored),
            ("collections::btree_map::Entry", Leads::Same),
            ("hash::RandomState::new", Leads::To("collections::hash_map::RandomState")),
            ("thread_local", Leads::Mirrored),
            ("cell::UnsafeCell::new", Leads::Uncharged),
            ("os::unix::thread::JoinHandleExt", Leads::HostThread),
            ("os::unix::io::RawFd", Leads::Elsewhere),
            ("cell::Cell", Leads::Elsewhere),
            ("fmt::Debug", Leads::Elsewhere),
            ("", Leads::Elsewhere),
        ] {
            let names: Vec<_> = path.split("::").filter(|name| !name.is_empty()).collect();
            assert_eq!(leads(&names, false), leads_to, "{path}");
        }
        for path in [["sync", "Exclusive"], ["thread", "sleep_ms"], ["arch", "x86_64"]] {
            assert!(matches!(leads(&path, false), Leads::Missing(_)), "{path:?}");
        }
    }
}
