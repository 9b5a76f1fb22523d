//! Counts of this process for `coreline stat`, which another process of the same user runs.
//!
//! [`publish`] makes the locks of the process count their slow paths, and writes the counts to a
//! file in memory, once per second. The program adds its workers, caches and counts of its own.
//! `coreline stat` shows them, also as JSON and for Prometheus.
//!
//! ```no_run
//! use std::sync::LazyLock;
//!
//! use coreline::stat::{Stats, Values};
//! use coreline::{ObjectCache, PerCpuCounter, Workers};
//!
//! static REQUESTS: PerCpuCounter = PerCpuCounter::const_new();
//! static BUFFERS: LazyLock<ObjectCache<Vec<u8>>> = LazyLock::new(|| {
//!     ObjectCache::builder("buffers").build(|| Ok::<_, String>(Vec::new())).expect("memory")
//! });
//!
//! /// What the program counts itself.
//! struct Requests;
//!
//! impl Stats for Requests {
//!     const KIND: &'static str = "server";
//!
//!     fn put(&self, to: &mut Values<'_>) {
//!         to.count("requests", REQUESTS.read_exact().unsigned_abs());
//!     }
//! }
//!
//! let workers = Workers::new()?;
//! // A server serves without being watched, too.
//! let published = coreline::stat::publish("my-server")
//!     .inspect_err(|error| eprintln!("no counts for `coreline stat`: {error}"))
//!     .ok();
//! if let Some(published) = &published {
//!     published.workers("workers", &workers);
//!     published.add("buffers", || Some(BUFFERS.stats()));
//!     published.add("http", || Some(Requests));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it costs
//!
//! Fast paths cost the same as without a publication, because they do not count. A slow path of a
//! lock adds 1 to a word of its CPU for each event. A thread named `coreline-stat` wakes once per
//! second, reads what was added, and writes one file of at most 131,200 bytes.
//!
//! # Where the file is
//!
//! In the folder that `CORELINE_STAT_DIR` names, or else in `$XDG_RUNTIME_DIR/coreline` if that is
//! the user's, or else in `/dev/shm/coreline-UID`. A program with the rights of another user
//! ignores the variables. Only the user can read the file. [`page`] has its form. A process that
//! ends without dropping the [`Published`] leaves its file. The next process that publishes removes
//! it.
//!
//! **Fork**: the child does not publish. It can call [`publish`], and its locks go on counting in a
//! copy of its parent's counts.

pub mod page;

use core::fmt;
use core::mem;
use core::num::NonZeroU32;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::Arc;

use coreline_world::native::{Publication, PublicationError};
use coreline_world::{
    Clock, JoinHandle, Native, Ordering, Parked, Placement, Signals, Sleep, SpawnError,
    ThreadOptions, Threads, Word, Words,
};

use crate::call::{WorkerStats, Workers};
use crate::lock::{LockStats, Mutex};
use crate::object::CacheStats;
use crate::panics::quietly;
use page::{Page, Row};

/// How often the values are read and written.
const EVERY: Duration = Duration::from_secs(1);

/// How long the thread sleeps where the kernel refuses to let it wait.
const PAUSE: Duration = Duration::from_millis(10);

/// The reason why a process cannot publish. Nothing was published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The name cannot be shown.
    #[error("{0:?} is no name for a process; give it a character, and no control characters")]
    Name(String),
    /// The file cannot be created, or the process publishes already.
    #[error(transparent)]
    Publication(#[from] PublicationError),
    /// The thread that reads the values cannot be started.
    #[error(transparent)]
    Thread(#[from] SpawnError),
}

/// Counts that can be published: a snapshot of an object's values.
///
/// It is implemented for the counts of this library. Implement it for counts of your own.
pub trait Stats {
    /// The kind of object, in at most 16 bytes.
    const KIND: &'static str;

    /// Puts each value.
    fn put(&self, to: &mut Values<'_>);
}

/// Receives the values of an object.
#[derive(Debug)]
pub struct Values<'a> {
    kind: &'static str,
    object: &'a str,
    rows: &'a mut Vec<Row>,
}

impl Values<'_> {
    /// Puts a count, which only grows. Names have at most 48 bytes. The rest is cut.
    pub fn count(&mut self, name: &str, value: u64) {
        self.row(name, value, false);
    }

    /// Puts a level, which may fall.
    pub fn level(&mut self, name: &str, value: u64) {
        self.row(name, value, true);
    }

    fn row(&mut self, name: &str, value: u64, is_level: bool) {
        let (kind, object) = (shown(self.kind), self.object.to_owned());
        self.rows.push(Row { kind, object, name: shown(name), value, is_level });
    }
}

/// The text without control characters, which readers refuse.
fn shown(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).collect()
}

impl Stats for LockStats {
    const KIND: &'static str = "locks";

    fn put(&self, to: &mut Values<'_>) {
        to.count("waits", self.waits);
        to.count("sleeps", self.sleeps);
        to.count("wakes", self.wakes);
        to.count("timeouts", self.timeouts);
        to.count("same_cache", self.same_cache);
        to.count("same_node", self.same_node);
        to.count("other_node", self.other_node);
    }
}

impl Stats for WorkerStats {
    const KIND: &'static str = "workers";

    fn put(&self, to: &mut Values<'_>) {
        to.count("calls", self.calls);
        to.count("queued", self.queued);
        to.count("tasks", self.tasks);
        to.count("searches", self.searches);
        to.count("steals", self.steals);
        to.count("sleeps", self.sleeps);
        to.count("spurious", self.spurious);
        to.count("spared", self.spared);
        to.level("depth", self.depth);
    }
}

impl Stats for CacheStats {
    const KIND: &'static str = "cache";

    fn put(&self, to: &mut Values<'_>) {
        to.level("live", self.live as u64);
        to.level("idle", self.idle as u64);
        to.level("quarantined", self.quarantined as u64);
        to.level("bytes", self.bytes as u64);
        to.count("gets", self.gets);
        to.count("constructed", self.constructed);
        to.count("destroyed", self.destroyed);
        to.count("discarded", self.discarded);
        to.count("failed", self.failed);
        to.count("refills", self.refills);
        to.count("flushes", self.flushes);
    }
}

/// Appends the rows of an object; returns false if the object is gone.
type Source = Box<dyn FnMut(&mut Vec<Row>) -> bool + Send>;

struct State {
    publication: Publication,
    sources: Vec<Source>,
    page: Page,
}

struct Shared {
    /// 1: the thread must end. Written when the [`Published`] is dropped.
    end: <Native as Words>::U32,
    state: Mutex<State>,
}

/// The publication of this process: see the [module](self). Dropping it ends the publication, and
/// waits for the thread that reads the values, which writes them a last time.
#[must_use = "dropping it ends the publication"]
pub struct Published {
    shared: Arc<Shared>,
    thread: Option<<Native as Threads>::JoinHandle<()>>,
    generation: NonZeroU32,
}

/// Publishes counts of this process under a name, of which 64 bytes are shown. The locks of the
/// process [count](LockStats::begin) from now on, until it ends.
///
/// # Errors
///
/// [`PublishError`], for example if the process publishes already.
///
/// ```no_run
/// let published = coreline::stat::publish("my-program")?;
/// assert!(coreline::stat::publish("my-program").is_err());
/// drop(published);
/// # Ok::<(), coreline::stat::PublishError>(())
/// ```
pub fn publish(name: &str) -> Result<Published, PublishError> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(PublishError::Name(name.to_owned()));
    }
    let publication = Publication::new()?;
    LockStats::begin();
    let page = Page { pid: publication.pid(), name: name.to_owned(), ..Page::default() };
    let locks = source("", LockStats::read);
    let mut state = State { publication, sources: vec![locks], page };
    // Before the thread runs, so that a reader finds a whole page.
    state.refresh()?;
    let shared = Arc::new(Shared { end: Word::new_in(0), state: Mutex::new(state) });
    let theirs = Arc::clone(&shared);
    let options = ThreadOptions { name: "coreline-stat", ..ThreadOptions::default() };
    // The thread inherits the mask: handlers of the program expect threads of the program.
    let start = || Native::spawn_with(options, Placement::Anywhere, move || serve(&theirs));
    let thread = held::<Native, _>(start)?;
    Ok(Published { shared, thread: Some(thread), generation: Native::generation() })
}

/// Calls a function while signals are held. A world without signals holds nothing.
fn held<W: Signals, R>(f: impl FnOnce() -> R) -> R {
    let _held = W::hold();
    f()
}

/// What the thread does.
fn serve(shared: &Shared) {
    // Acquire pairs with the release in `drop`: the last look sees what was counted before.
    let ends = || shared.end.load(Ordering::Acquire) != 0;
    loop {
        let next = Native::now() + EVERY;
        while !ends() && Native::now() < next {
            let parked = Native::park(&shared.end, 0, Some(next));
            if parked == Parked::Woken && !ends() {
                // No thread woke it: a filter may refuse the wait.
                Native::sleep(PAUSE);
            }
        }
        // Before the look, which is the last one if the end was asked for.
        let is_last = ends();
        // No memory for the page: a later look may find some.
        quietly(|| _ = shared.state.lock().refresh());
        if is_last {
            return;
        }
    }
}

fn source<S: Stats>(object: &str, mut read: impl FnMut() -> Option<S> + Send + 'static) -> Source {
    let object = shown(object);
    Box::new(move |rows| {
        let Some(stats) = read() else { return false };
        stats.put(&mut Values { kind: S::KIND, object: &object, rows });
        true
    })
}

impl State {
    fn refresh(&mut self) -> Result<(), PublicationError> {
        let rows = &mut self.page.rows;
        rows.clear();
        self.sources.retain_mut(|source| {
            let before = rows.len();
            let is_there = catch_unwind(AssertUnwindSafe(|| source(rows)));
            is_there.unwrap_or_else(|panic| {
                // The hook for panics has reported it. Its destructor might panic again.
                mem::forget(panic);
                rows.truncate(before);
                false
            })
        });
        self.page.nanos = Native::now().as_nanos();
        self.page.looks += 1;
        self.publication.write(&self.page.to_bytes())
    }
}

impl Published {
    /// Adds the sum of the counts of these workers, under a name. The rows go when the workers are
    /// dropped. In a forked child the call does nothing.
    pub fn workers(&self, name: &str, workers: &Workers) {
        self.add(name, workers.later_stats());
    }

    /// Adds the values that `read` returns, under a name. They are first shown at the next look.
    /// In a forked child the call does nothing.
    ///
    /// The thread of the publication calls `read` once per second. It ends if `read` returns
    /// `None`, or panics, and then the rows go. `read` must not use this publication.
    pub fn add<S: Stats>(&self, name: &str, read: impl FnMut() -> Option<S> + Send + 'static) {
        if self.is_ours() {
            self.shared.state.lock().sources.push(source(name, read));
        }
    }

    /// Reads and writes all values now. In a forked child the call does nothing.
    ///
    /// # Errors
    ///
    /// [`PublicationError`] if there is no memory for the file, or it may not grow.
    pub fn refresh(&self) -> Result<(), PublicationError> {
        if self.is_ours() { self.shared.state.lock().refresh() } else { Ok(()) }
    }

    /// Whether the caller runs in the process that published. In a forked child, the lock may be
    /// held by a thread that is not there.
    fn is_ours(&self) -> bool {
        self.generation == Native::generation()
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.is_ours() {
            // A thread of the parent, and a lock that the thread may hold.
            mem::forget((thread, Arc::clone(&self.shared)));
            return;
        }
        // Release pairs with the acquire in `serve`: what was counted and added is shown.
        self.shared.end.store(1, Ordering::Release);
        Native::wake(&raw const self.shared.end, 1);
        // The last values are written after the end was asked for. A function that the thread calls
        // may have been the last owner; the thread cannot wait for itself.
        thread.into_iter().filter(|thread| !thread.is_current()).for_each(JoinHandle::join);
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Published").finish_non_exhaustive()
    }
}
