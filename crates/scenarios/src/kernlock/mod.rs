//! `kernlock`: threads of one process execute system calls that take the kernel's spin locks (row c
//! of `docs/validate/blind`).
//!
//! * `open` models the benchmark `open1_threads`, in which each thread opens and closes its own
//!   file. An iteration takes `file_lock` of the process's file table twice.
//! * `lock` models the benchmark `lock2_threads`, in which each thread locks and unlocks byte 0 of
//!   one file. Each iteration takes `flc_lock` of the file, and every second iteration takes
//!   `file_lock`.
//!
//! | variant | the locks |
//! |---|---|
//! | `queued` | the kernel's queued spin lock |
//! | `near` | the successor CNA, which serves waiters of the holder's memory node first |
//!
//! Thread `i` runs on core `i`. Once each core has a thread, further threads run on the cores'
//! second hardware threads (`main.c` of the benchmark).
//!
//! # Lines of `open` (`fs/file.c`, `fs/file_table.c`, `fs/namei.c`, Linux 5.13)
//!
//! These cache lines move between CPUs:
//!
//! * `files->file_lock` and `next_fd`, with the bitmaps of the descriptors if there are at most 64
//!   descriptors. Each open and close reads and writes them with the lock held.
//! * The bitmaps `open_fds` and `full_fds_bits` of a larger table. They are read and written with
//!   the lock held.
//! * `fd[]`, with eight descriptors per line. It is read with the lock held. `fd_install` writes it
//!   without the lock, and a close writes it with the lock held.
//! * `cred->usage`, which all threads share. `alloc_empty_file` increments it and `__fput`
//!   decrements it, both without the lock.
//!
//! These lines do not move: the file's own dentry and inode, `struct file`, the slabs, and per-CPU
//! counters. `fs->seq`, the mount, `/` and `/tmp` are looked up under RCU, so they are only read.
//!
//! # Lines of `lock` (`fs/locks.c`, `fs/fcntl.c`)
//!
//! All locks have the same owner, the file table. So no two locks conflict, and any thread may
//! unlock a byte that another thread has locked.
//!
//! * `ctx->flc_lock` and the head of `flc_posix`. The head is read with the lock held, and written
//!   if a file lock is inserted or deleted.
//! * The `struct file_lock` in the list, which takes two lines. The inserting thread writes it, all
//!   threads read it, and the deleting thread writes it.
//! * The list of locks of the inserting CPU, with its own spin lock. An insertion and a deletion
//!   write it.
//! * `files->file_lock` and `fd[]`. After a file lock was set, they are read to check that the
//!   descriptor is still the same.
//!
//! `i_flctx` is only read, and `file_rwsem` is a per-CPU lock.
//!
//! The rest of each call is modelled as time: [`OUTSIDE`] for each call, and [`HELD`] for each
//! lock. The parameter `rest` scales both.

pub mod queued;

use core::cell::UnsafeCell;
use core::time::Duration;
use std::sync::Arc;

use coreline_sim::Sim;
use coreline_topology::CpuId;
use coreline_world::{Integer, Line, Native, Ordering, Testbed, Word};

use queued::{Nodes, Queued};

use super::figure::Figure;
use super::figure::Made::{Number, Over};
use super::metric::FigureKind::{Gain, Rate};
use super::param::{Domain, Param};
use super::point::Setup;
use super::{RunError, Scenario, Variant, known};
use crate::crew::{Start, Window, about, first, least_over_most};

/// The numbers of a run, in this order: iterations in a second; those of the thread that had the
/// fewest over those of the one that had the most.
const RATE: usize = 0;
const SHARE: usize = 1;

/// The scenario with its parameters, figures and program.
pub static SCENARIO: Scenario = Scenario {
    params: &[
        Param::new("load", "The benchmark that runs", Domain::Names(LOADS))
            .usual(&["open", "lock"]),
        Param::new("threads", "The number of threads (-t of will-it-scale)", Domain::Cpus(4096))
            .depends(|it| it.threads(&[1], &[1, 2, 4, 8, 16, 32], &[4, 2, 1])),
        Param::number(
            "rest",
            "The times that do not depend on the variant, in percent of the usual ones",
            [1, 10_000],
        )
        .usual(&["100"]),
        Param::effort("window", 1_000_000).usual(&["5000"]).quick(&["500"]),
    ],
    variants: &[
        Variant::new("queued", "The kernel's queued spin lock"),
        Variant::new("near", "CNA: waiters of the holder's memory node first"),
    ],
    figures: &[
        Figure::new("iterations", Rate, Number(RATE)),
        Figure::new("share", Gain, Number(SHARE)),
        Figure::new("iterations_over_queued", Gain, Over(RATE, "queued"))
            .when(|it| it.variant != "queued"),
    ],
    ..Scenario::new(
        "kernlock",
        "System calls of threads that take the kernel's spin locks, with two kinds of lock \
         (will-it-scale)",
        [run::<Native>, run::<Sim>],
    )
};

const LOADS: &[(&str, &str)] = &[
    ("open", "open1_threads: each opens and closes a file of its own"),
    ("lock", "lock2_threads: each locks and unlocks byte 0 of one file"),
];

/// The time of a call without its locks, in nanoseconds: of `open`, of `close`, and of an `fcntl`
/// that sets a lock. The values are estimates from memory.
pub const OUTSIDE: [u64; 3] = [700, 500, 300];

/// The time for which a lock is held, in nanoseconds, without the time for moving lines. The value
/// is an estimate from memory.
pub const HELD: u64 = 20;

/// How long threads run before the window, so that lines are where they usually are.
const WARM_UP: Duration = Duration::from_micros(200);

/// Streams of the generator: one for each thread.
const THREAD: u128 = 0x4c6b;

/// Descriptors that a table has from the beginning; pointers to a line; standard streams, the pipe
/// and the shared file of the benchmark.
const EMBEDDED: usize = 64;
const PER_LINE: usize = 8;
const BEFORE: usize = 6;

/// The number of turns of a lock. The number is read when a turn begins, and written when the turn
/// ends. So if two threads hold the lock at the same time, a turn is lost. The count is in the
/// host's memory, because a simulated access would change the prediction.
#[derive(Default)]
pub struct Turns(UnsafeCell<u64>);

// SAFETY: `during` is called by the holder of one lock alone, as its callers promise.
unsafe impl Sync for Turns {}

impl Turns {
    /// Counts one turn, during which `turn` runs.
    ///
    /// # Safety
    ///
    /// No two threads of the host are in this function at the same time, and each thread sees the
    /// writes of the thread before. This holds if a lock is held, or if the threads are simulated.
    pub unsafe fn during<T>(&self, turn: impl FnOnce() -> T) -> T {
        // SAFETY: no other thread writes now, as the caller promises.
        let before = unsafe { self.0.get().read() };
        let came = turn();
        // SAFETY: the same.
        unsafe { self.0.get().write(before.wrapping_add(1)) };
        came
    }

    /// Returns the number of turns.
    ///
    /// # Safety
    ///
    /// All threads that counted were joined.
    pub unsafe fn count(&self) -> u64 {
        // SAFETY: no thread writes any more, as the caller promises.
        unsafe { self.0.get().read() }
    }
}

/// The written part of `struct files_struct`.
struct Files<W: Testbed> {
    lock: Queued<W>,
    next_fd: W::U32,
    /// `open_fds_init` and `full_fds_bits_init`.
    bits: [W::U64; 2],
    /// The turns of `lock` in which `next_fd` is not held.
    turns: Turns,
}

/// `struct file_lock_context`.
struct Context<W: Testbed> {
    lock: Queued<W>,
    /// The thread that inserted the lock which is there, from 1 on.
    inserted: W::U32,
    turns: Turns,
}

/// `struct file_lock`, and the list of its CPU.
struct Inserted<W: Testbed> {
    object: [Line<W::U64>; 2],
    list: Line<W::U32>,
}

struct Process<W: Testbed> {
    opens: bool,
    nodes: Nodes<W>,
    files: Line<Files<W>>,
    /// Bitmaps of a larger table.
    bits: Line<[W::U64; 2]>,
    fd: Vec<Line<[W::U64; PER_LINE]>>,
    credentials: Line<W::U64>,
    context: Line<Context<W>>,
    locks: Vec<Inserted<W>>,
    rest: u64,
    window: Window<W>,
}

fn run<W: Testbed>(setup: &Setup) -> Result<Vec<f64>, RunError> {
    known::<W>(&setup.cpus)?;
    let threads = setup.number("threads") as usize;
    let cpus = first(&setup.cpus, threads)?;
    let topology = W::topology();
    let place = |cpu: &CpuId| topology.cpu(*cpu).map_or(0, |cpu| cpu.node.get());
    let places: Vec<u32> = cpus.iter().map(place).collect();
    let word = |value| W::U64::new_in(value);
    let lock =
        |_| Inserted { object: [Line(word(0)), Line(word(0))], list: Line(W::U32::new_in(0)) };
    let files = Files {
        lock: Queued::new(),
        next_fd: W::U32::new_in(0),
        bits: [word(0), word(0)],
        turns: Turns::default(),
    };
    let turns = Turns::default();
    let context = Context { lock: Queued::new(), inserted: W::U32::new_in(0), turns };
    let process = Arc::new(Process::<W> {
        opens: setup.is("load", "open"),
        nodes: Nodes::new(&places, setup.variant == "near"),
        files: Line(files),
        bits: Line([word(0), word(0)]),
        fd: (0..(threads + BEFORE).div_ceil(PER_LINE))
            .map(|_| Line(core::array::from_fn(|_| word(0))))
            .collect(),
        credentials: Line(word(1)),
        context: Line(context),
        locks: (0..threads).map(lock).collect(),
        rest: setup.number("rest"),
        window: Window::new(setup, WARM_UP),
    });
    let counts = Start::crew(&process, |it| &it.window.start, cpus, Process::work)?;
    // Relaxed: all threads have been joined.
    let used = process.credentials.load(Ordering::Relaxed);
    // Relaxed: all threads have been joined.
    let turns = u64::from(process.files.next_fd.load(Ordering::Relaxed));
    let rounds: u64 = counts.iter().map(|count| count[1]).sum();
    if process.opens && (used, turns) != (1, 2 * rounds) {
        let found = format!(
            "in {rounds} rounds, the credentials have {used} users, not 1, or the lock of the \
             files had {turns} turns, not {}",
            2 * rounds
        );
        return Err(RunError::Check(found));
    }
    // SAFETY: all threads have been joined.
    let turns = unsafe { [process.context.turns.count(), process.files.turns.count()] };
    if !process.opens && turns != [2 * rounds, rounds] {
        let [of_context, of_files] = turns;
        let found = format!(
            "in {rounds} rounds, the lock of the context had {of_context} turns and the lock of \
             the files {of_files}, not {} and {rounds}",
            2 * rounds
        );
        return Err(RunError::Check(found));
    }
    let all = process.window.per_second(counts.iter().map(|count| count[0]).sum());
    Ok(vec![all, least_over_most(counts.iter().map(|count| count[0] as f64))])
}

impl<W: Testbed> Process<W> {
    /// A thread's part: iterations in the window, and all its rounds: each opens a file, or locks
    /// and unlocks.
    fn work(&self, thread: usize) -> [u64; 2] {
        self.window.repeat(THREAD + thread as u128, |dice| {
            let mut spend = |ns| W::work(Duration::from_nanos(about(dice, ns * self.rest / 100)));
            if self.opens {
                self.open_and_close(thread, &mut spend);
                1
            } else {
                self.lock_and_unlock(thread, &mut spend);
                2
            }
        })
    }

    /// The words of the bitmaps: those beside the lock, or those of a larger table.
    fn bits(&self) -> &[W::U64; 2] {
        let is_embedded = self.locks.len() + BEFORE <= EMBEDDED;
        if is_embedded { &self.files.bits } else { &self.bits }
    }

    fn open_and_close(&self, thread: usize, spend: &mut impl FnMut(u64)) {
        // Relaxed, all: a count of users; what the locks guard; and a descriptor's place, which is
        // its thread's while it is open.
        self.credentials.fetch_add(1, Ordering::Relaxed);
        spend(OUTSIDE[0]);
        let files = &*self.files;
        // Which descriptor is the lowest free one does not decide which line moves except for
        // `fd[]`: each thread has its own, as after the first round.
        let fd = &self.fd[(thread + BEFORE) / PER_LINE][(thread + BEFORE) % PER_LINE];
        files.lock.hold(&self.nodes, thread, || {
            self.change_bits(thread, true);
            // Relaxed: the descriptor is the thread's own while it is open.
            let _ = fd.load(Ordering::Relaxed);
            spend(HELD);
        });
        // Relaxed: `fd_install`, of a descriptor that is the thread's own.
        let _ = fd.load(Ordering::Relaxed);
        fd.store(thread as u64 + 1, Ordering::Relaxed);
        files.lock.hold(&self.nodes, thread, || {
            // Relaxed, both: the descriptor is the thread's own until it is closed here.
            let _ = fd.load(Ordering::Relaxed);
            fd.store(0, Ordering::Relaxed);
            self.change_bits(thread, false);
            spend(HELD);
        });
        spend(OUTSIDE[1]);
        // Relaxed: a count of users.
        self.credentials.fetch_sub(1, Ordering::Relaxed);
    }

    /// `next_fd` and the bitmaps, with the lock held. Here `next_fd` counts turns: two threads that
    /// have the lock at the same time lose each other's.
    fn change_bits(&self, thread: usize, opens: bool) {
        let [open, full] = self.bits();
        // Relaxed, all: guarded by the lock.
        let next = self.files.next_fd.load(Ordering::Relaxed);
        self.files.next_fd.store(next.wrapping_add(1), Ordering::Relaxed);
        let _ = full.load(Ordering::Relaxed);
        let bit = 1 << (thread % 64);
        let bits = open.load(Ordering::Relaxed);
        open.store(if opens { bits | bit } else { bits & !bit }, Ordering::Relaxed);
    }

    fn lock_and_unlock(&self, thread: usize, spend: &mut impl FnMut(u64)) {
        let (context, files) = (&*self.context, &*self.files);
        spend(OUTSIDE[2]);
        // Relaxed, all: guarded by the locks.
        let set = || {
            match context.inserted.load(Ordering::Relaxed) {
                0 => {
                    self.change(thread);
                    context.inserted.store(thread as u32 + 1, Ordering::Relaxed);
                }
                inserted => {
                    let object = &self.locks[inserted as usize - 1].object;
                    object.iter().for_each(|line| _ = line.load(Ordering::Relaxed));
                }
            }
            spend(HELD);
        };
        // SAFETY: these are turns of the lock that is held.
        context.lock.hold(&self.nodes, thread, || unsafe { context.turns.during(set) });
        let look = || {
            let fd = thread + BEFORE;
            // Relaxed: a descriptor that stays as it is.
            let _ = self.fd[fd / PER_LINE][fd % PER_LINE].load(Ordering::Relaxed);
        };
        // SAFETY: these are turns of the lock that is held.
        files.lock.hold(&self.nodes, thread, || unsafe { files.turns.during(look) });
        spend(OUTSIDE[2]);
        let clear = || {
            // Relaxed, both: guarded by the lock.
            let inserted = context.inserted.load(Ordering::Relaxed);
            if inserted != 0 {
                self.change(inserted as usize - 1);
                context.inserted.store(0, Ordering::Relaxed);
            }
            spend(HELD);
        };
        // SAFETY: these are turns of the lock that is held.
        context.lock.hold(&self.nodes, thread, || unsafe { context.turns.during(clear) });
    }

    /// Puts the `struct file_lock` of a thread into the lists, or takes it out.
    fn change(&self, thread: usize) {
        let Inserted { object, list } = &self.locks[thread];
        for line in object {
            // Relaxed, both: guarded by the lock.
            line.store(line.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        // Relaxed: a lock that no other thread wants at this time.
        list.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the release of a lock that no other thread wants at this time.
        list.store(0, Ordering::Relaxed);
    }
}
