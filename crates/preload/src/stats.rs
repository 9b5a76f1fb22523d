//! Counts of lock calls, for a process whose environment asks for them, and their text at exit.
//!
//! | table | a row for each | rows |
//! |---|---|---|
//! | `locks` | address of a lock | 4,096 |
//! | `callers` | address that a call returns to | 1,024 |
//!
//! Both are hash tables that threads fill without a lock. A call that finds no row is counted in
//! `beyond`. A child that a fork made counts from its first call on.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write as _;
use core::mem::{self, MaybeUninit};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use coreline_world::{Clock, Memory, Native, Signals};

use crate::images::place;
use crate::mode::{self, Mode};
use crate::{ALLOCATOR, uncancelled};

/// The place to write the counts. It is the path of a file, to which they are appended, or `-` for
/// the standard error of the time when the library was loaded, if it is still open.
const VARIABLE: &CStr = c"CORELINE_PRELOAD_STATS";

/// A call that took longer has waited, or its CPU did something else.
const WAIT_NANOS: u64 = 2_000;

/// How many rows of a table are printed.
const SHOWN: usize = 10;
/// How many places a row can have.
const TRIES: usize = 32;

/// The calls of one lock, or of one caller.
#[derive(Default)]
struct Row {
    key: AtomicUsize,
    reads: AtomicU64,
    writes: AtomicU64,
    waits: AtomicU64,
    wait_nanos: AtomicU64,
    longest_nanos: AtomicU64,
    /// How often it was found to have become biased.
    biased: AtomicU64,
    /// How often a writer found it biased.
    taken_back: AtomicU64,
    /// Its kind at the last call: one of [`KINDS`].
    kind: AtomicU32,
}

const KINDS: [&str; 3] = ["one word", "per CPU", "libc"];
const BIASED: u32 = 1;
const LIBC: u32 = 2;

struct Tables {
    /// The generation of the memory that these are counts of.
    generation: AtomicU32,
    /// The generation of the memory that the library was loaded into.
    loaded: u32,
    beyond: AtomicU64,
    /// The value of [`VARIABLE`] at the beginning. At exit, other threads may change the
    /// environment while this one reads it.
    output: [c_char; libc::PATH_MAX as usize],
    /// The file that standard error was at the beginning.
    errors: File,
    locks: [Row; 4096],
    callers: [Row; 1024],
}

/// Null until [`begin`].
static TABLES: AtomicPtr<Tables> = AtomicPtr::new(ptr::null_mut());

/// The device and the number of an open file. Both are zero if there was none.
#[derive(Default, PartialEq, Eq)]
struct File([u64; 2]);

impl File {
    fn of(descriptor: c_int) -> Self {
        let found = stat_of(descriptor);
        File([found.st_dev, found.st_ino])
    }
}

/// What the kernel says about an open file; zeros if there is none.
fn stat_of(descriptor: c_int) -> libc::stat {
    let mut found = MaybeUninit::zeroed();
    // SAFETY: writes what it is given, of which zeros are a value.
    unsafe {
        libc::fstat(descriptor, found.as_mut_ptr());
        found.assume_init()
    }
}

/// The value of [`VARIABLE`], unless it is empty, or longer than any path.
fn output() -> Option<&'static CStr> {
    // SAFETY: the name is a string. No other thread changes the environment yet.
    let found = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    // SAFETY: a string of the environment.
    let found = (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) });
    found.filter(|found| (1..libc::PATH_MAX as usize).contains(&found.count_bytes()))
}

/// Begins to count, if the environment asks for it and there is memory. The dynamic linker loads
/// this library, once.
pub(crate) fn begin() {
    let Some(output) = output() else { return };
    let layout = core::alloc::Layout::new::<Tables>();
    // Mapped memory is zero, which is an empty table.
    let Ok(memory) = Native::map(layout) else { return };
    let ours = memory.cast::<Tables>().as_ptr();
    // SAFETY: the memory has room for tables, and no other thread knows it. The string fits, and
    // its end is zero already.
    unsafe {
        (&raw mut (*ours).loaded).write(Native::generation().get());
        (&raw mut (*ours).errors).write(File::of(libc::STDERR_FILENO));
        let to = (&raw mut (*ours).output).cast::<c_char>();
        to.copy_from_nonoverlapping(output.as_ptr(), output.count_bytes());
    }
    // Release: pairs with the Acquire in `tables`.
    TABLES.store(ours, Ordering::Release);
    mode::set(Mode::Stats);
}

fn tables() -> Option<&'static Tables> {
    // SAFETY: null, or tables that `begin` has made, and that stay.
    let tables = unsafe { NonNull::new(TABLES.load(Ordering::Acquire))?.as_ref() };
    let (now, of) = (Native::generation().get(), &tables.generation);
    let seen = of.load(Ordering::Relaxed);
    let relaxed = Ordering::Relaxed;
    if seen != now && of.compare_exchange(seen, now, relaxed, relaxed).is_ok() && seen != 0 {
        tables.clear();
    }
    Some(tables)
}

impl Tables {
    /// Forgets the parent's calls. A child has one thread.
    fn clear(&self) {
        self.beyond.store(0, Ordering::Relaxed);
        for row in self.locks.iter().chain(&self.callers) {
            row.numbers().into_iter().for_each(|number| number.store(0, Ordering::Relaxed));
        }
    }
}

impl Row {
    fn numbers(&self) -> [&AtomicU64; 7] {
        [
            &self.reads,
            &self.writes,
            &self.waits,
            &self.wait_nanos,
            &self.longest_nanos,
            &self.biased,
            &self.taken_back,
        ]
    }

    fn calls(&self) -> u64 {
        get(&self.reads) + get(&self.writes)
    }

    /// The row of this key, which it may take.
    fn find(rows: &[Row], key: usize) -> Option<&Row> {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let relaxed = Ordering::Relaxed;
        (0..TRIES).map(|step| &rows[(hash + step) % rows.len()]).find(|row| {
            let seen = row.key.load(relaxed);
            let is_free = || match row.key.compare_exchange(0, key, relaxed, relaxed) {
                Ok(_) => true,
                Err(taken) => taken == key,
            };
            seen == key || seen == 0 && is_free()
        })
    }

    fn count(&self, want: Want, took: u64) {
        match want {
            Want::Read => add(&self.reads, 1),
            Want::Write => add(&self.writes, 1),
        }
        if took >= WAIT_NANOS {
            add(&self.waits, 1);
            add(&self.wait_nanos, took);
            self.longest_nanos.fetch_max(took, Ordering::Relaxed);
        }
    }

    /// Notes the present state of the lock.
    fn note(&self, kind: u32) {
        if self.kind.swap(kind, Ordering::Relaxed) != BIASED && kind == BIASED {
            add(&self.biased, 1);
        }
    }
}

fn get(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

fn add(number: &AtomicU64, more: u64) {
    number.fetch_add(more, Ordering::Relaxed);
}

/// The kind of access that a caller wants from a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// To read.
    Read,
    /// To write.
    Write,
}

/// A call that takes a lock.
pub(crate) struct Call<'a> {
    /// The lock's address.
    pub(crate) lock: usize,
    pub(crate) want: Want,
    /// The address to which it returns.
    pub(crate) caller: usize,
    /// Whether readers count themselves on each CPU. `None`: the lock is for the next library.
    pub(crate) is_biased: Option<&'a dyn Fn() -> bool>,
}

/// Makes the call, and counts it if calls are counted.
pub(crate) fn count(call: &Call<'_>, take: impl FnOnce() -> c_int) -> c_int {
    match mode::now() {
        Mode::Stats => count_in(tables(), call, take),
        _ => take(),
    }
}

fn count_in(tables: Option<&Tables>, call: &Call<'_>, take: impl FnOnce() -> c_int) -> c_int {
    let Some(tables) = tables else { return take() };
    let is_biased = || call.is_biased.is_some_and(|is_biased| is_biased());
    let row = Row::find(&tables.locks, call.lock);
    if call.want == Want::Write && is_biased() {
        row.inspect(|row| add(&row.taken_back, 1));
    }
    let begun = Native::now();
    let result = take();
    let took = (Native::now() - begun).as_nanos() as u64;
    // If another thread holds the lock, the caller may not even look at it.
    if result != 0 {
        return result;
    }
    let of_caller = Row::find(&tables.callers, call.caller);
    if row.is_none() || of_caller.is_none() {
        add(&tables.beyond, 1);
    }
    for counted in row.into_iter().chain(of_caller) {
        counted.count(call.want, took);
    }
    if let Some(row) = row {
        row.note(if call.is_biased.is_some() { u32::from(is_biased()) } else { LIBC });
    }
    result
}

/// Prints the counts. The C library calls it when the process ends by `exit` or by the end of
/// `main`.
#[used]
// SAFETY: the section holds pointers to functions that the C library calls at exit.
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = print;

extern "C" fn print() {
    let Some(tables) = tables() else { return };
    ALLOCATOR.end_limit();
    // More than the text, what is sorted for it, and the stack. The thread that ends the process
    // may have little stack.
    let text = if mode::has_memory(4 << 20) { mode::on_another_stack(text) } else { None };
    if let Some(text) = text.flatten() {
        // A pipe may have its pages for longer than this call lasts.
        let text = text.leak();
        uncancelled(|| quietly(|| write_all(tables, text.as_bytes())));
    }
}

/// Calls `f`, without the signals of a pipe that has no reader, of a file that is too large, and of
/// a terminal that is another process's: they would end or stop the process, whose exit status is
/// the program's.
fn quietly(f: impl FnOnce()) {
    // SAFETY: zeros are sets, which the calls fill, and a time. The calls get live values.
    unsafe {
        let [mut ours, mut before, mut pending] = [mem::zeroed::<libc::sigset_t>(); 3];
        for signal in SIGNALS {
            libc::sigaddset(&raw mut ours, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const ours, &raw mut before);
        libc::sigpending(&raw mut pending);
        f();
        for signal in SIGNALS {
            // What was pending is the program's.
            if libc::sigismember(&raw const pending, signal) == 1 {
                libc::sigdelset(&raw mut ours, signal);
            }
        }
        let now: libc::timespec = mem::zeroed();
        libc::sigtimedwait(&raw const ours, ptr::null_mut(), &raw const now);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
}

const SIGNALS: [c_int; 3] = [libc::SIGPIPE, libc::SIGXFSZ, libc::SIGTTOU];

/// How long the process waits at exit for a reader of a pipe, a socket or a terminal. What is not
/// written by then is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// A call that writes to a file, and never waits: other processes may take the room that `poll` has
/// seen.
type Write = fn(c_int, &[u8]) -> isize;

/// Writes to a file that does not wait, or only for its disk.
fn write(file: c_int, text: &[u8]) -> isize {
    // SAFETY: the text has this many bytes.
    unsafe { libc::write(file, text.as_ptr().cast(), text.len()) }
}

/// Writes to a socket.
fn send(file: c_int, text: &[u8]) -> isize {
    const HOW: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the text has this many bytes.
    unsafe { libc::send(file, text.as_ptr().cast(), text.len(), HOW) }
}

/// Writes to a pipe, which then has the pages of the text: it must not change any more.
fn splice(file: c_int, text: &[u8]) -> isize {
    let text = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    // SAFETY: the text has this many bytes, which the kernel reads.
    unsafe { libc::vmsplice(file, &raw const text, 1, libc::SPLICE_F_NONBLOCK) }
}

/// Writes the text. Does not wait for longer than [`PATIENCE`], and reports nothing: there is no
/// place for that.
fn write_all(tables: &Tables, mut text: &[u8]) {
    let Some((file, write)) = open(tables) else { return };
    let begun = Native::now();
    while !text.is_empty() {
        let Some(left) = PATIENCE.checked_sub(Native::now() - begun) else { return };
        let mut ready = libc::pollfd { fd: file, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one live value.
        match unsafe { libc::poll(&raw mut ready, 1, left.as_millis() as c_int) } {
            1 => {}
            0 => return,
            _ if is_again() => continue,
            _ => return,
        }
        match usize::try_from(write(file, text)) {
            Ok(written @ 1..) => text = &text[written..],
            Err(_) if is_again() => {}
            _ => return,
        }
    }
}

/// Whether the call that failed just now should be repeated.
fn is_again() -> bool {
    // SAFETY: the word is the thread's own.
    matches!(unsafe { *libc::__errno_location() }, libc::EINTR | libc::EAGAIN)
}

/// Opens the output. The file stays open, in a process that ends.
fn open(tables: &Tables) -> Option<(c_int, Write)> {
    // A FIFO without a reader is not waited for, a terminal does not become the process's, and
    // writes to either return at once.
    const HOW: c_int = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
    // SAFETY: `begin` has written a string.
    let output = unsafe { CStr::from_ptr(tables.output.as_ptr()) };
    let open = |path: &CStr, how| {
        // SAFETY: a string.
        let file = unsafe { libc::open(path.as_ptr(), HOW | how, 0o644) };
        (file >= 0).then_some((file, write as Write))
    };
    if output.to_bytes() != b"-" {
        return open(output, libc::O_CREAT | libc::O_APPEND);
    }
    let errors = libc::STDERR_FILENO;
    // The program may have closed it, and opened a file of its own, whose number is the same.
    if File::of(errors) != tables.errors {
        return None;
    }
    // Where it is open for reading alone, the other end of a pipe would be opened, and `vmsplice`
    // reads.
    // SAFETY: it takes no pointer.
    let flags = unsafe { libc::fcntl(errors, libc::F_GETFL) };
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return None;
    }
    // Other processes have the same open file, and do not expect that its writes return at once. So
    // this opens it again, if that is possible. A regular file would lose its position.
    let reopen = || open(c"/proc/self/fd/2", 0);
    match stat_of(errors).st_mode & libc::S_IFMT {
        libc::S_IFSOCK => Some((errors, send)),
        libc::S_IFIFO => reopen().or(Some((errors, splice))),
        libc::S_IFCHR => reopen(),
        libc::S_IFREG => Some((errors, write)),
        _ => None,
    }
}

/// The rows with the most waits, and of those with the most calls.
fn busiest(rows: &[Row]) -> (Vec<&Row>, usize) {
    let mut used: Vec<_> = rows.iter().filter(|row| row.calls() > 0).collect();
    // Each key once: other threads still count, and a key that changes would be no order.
    used.sort_by_cached_key(|row| core::cmp::Reverse((get(&row.waits), row.calls())));
    let all = used.len();
    used.truncate(SHOWN);
    (used, all)
}

/// `None`: no lock was taken.
fn text() -> Option<String> {
    let tables = tables()?;
    let (locks, all_locks) = busiest(&tables.locks);
    let (callers, all_callers) = busiest(&tables.callers);
    if locks.is_empty() {
        return None;
    }
    // SAFETY: a string of the C library, or what the program has put in its place.
    let name = unsafe {
        let name = program_invocation_short_name;
        if name.is_null() { c"" } else { CStr::from_ptr(name) }.to_string_lossy()
    };
    let is_child = tables.loaded != Native::generation().get();
    let place_of = |row: &Row| place(row.key.load(Ordering::Relaxed), &name, is_child);
    let process = std::process::id();
    let mut text = format!(
        "coreline: readers-writer locks of {name} (process {process}); the {} of {all_locks} locks \
         with the most waits\n",
        locks.len()
    );
    let ms = |nanos: &AtomicU64| get(nanos) as f64 / 1e6;
    let _ = writeln!(
        text,
        "{:>12} {:>10} {:>9} {:>11} {:>11}  {:<8} {:>10} {:>10}  lock",
        "reads", "writes", "waits", "waited ms", "longest ms", "is now", "biased", "taken back"
    );
    for row in locks {
        let _ = writeln!(
            text,
            "{:>12} {:>10} {:>9} {:>11.3} {:>11.3}  {:<8} {:>10} {:>10}  {}",
            get(&row.reads),
            get(&row.writes),
            get(&row.waits),
            ms(&row.wait_nanos),
            ms(&row.longest_nanos),
            KINDS[row.kind.load(Ordering::Relaxed) as usize],
            get(&row.biased),
            get(&row.taken_back),
            place_of(row),
        );
    }
    let _ = writeln!(text, "the {} of {all_callers} callers with the most waits", callers.len());
    let _ = writeln!(
        text,
        "{:>12} {:>10} {:>9} {:>11} {:>11}  returns to",
        "reads", "writes", "waits", "waited ms", "longest ms"
    );
    for row in callers {
        let _ = writeln!(
            text,
            "{:>12} {:>10} {:>9} {:>11.3} {:>11.3}  {}",
            get(&row.reads),
            get(&row.writes),
            get(&row.waits),
            ms(&row.wait_nanos),
            ms(&row.longest_nanos),
            place_of(row),
        );
    }
    match get(&tables.beyond) {
        0 => {}
        beyond => _ = writeln!(text, "{beyond} calls are missing from a table that was full"),
    }
    Some(text)
}

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}
