//! Per-CPU memory that is allocated for each life, under one mutex, as in the kernel.
//!
//! The table lists the steps of `pcpu_alloc` and `free_percpu` in `mm/percpu.c`, in their order:
//!
//! | step | under the mutex | under the spin lock | here |
//! |---|---|---|---|
//! | take `pcpu_alloc_mutex` | | | `filecopy::Mutex` |
//! | find room in the map and take it | yes | yes, `pcpu_lock` | the lowest free cell |
//! | ensure that pages are present | yes | | they are |
//! | release the mutex | | | |
//! | zero the memory of every possible CPU | | | the same, word by word |
//! | free: clear the map | | yes | the same |
//!
//! So zeroing is outside both locks, and a free takes only the spin lock. The kernel works in the
//! same way. In the comparison, both properties make this memory faster.
//!
//! The model is simpler than the kernel in three respects. Its map takes only one or two lines,
//! while the kernel also has bounds, blocks, hints and lists. No time is charged for executing
//! code. Counters do not enter the list of all counters, which has a lock of its own.

use coreline::lock::{Fifo, Osq};
use coreline::percpu::PerCpu;
use coreline_topology::CpuId;
use coreline_world::{IndexBy, Line, Ordering, Testbed, Word};

use super::storm::{COUNTERS, Load};
use crate::RunError;
use crate::crew::{crew, nanos, pinned};
use crate::filecopy::Mutex;
use crate::lockscale::Lock;
use crate::lockscale::mcs::Mcs;

/// The memory of an allocation for each CPU: 32 bytes, two to a line. The kernel's are 16, so that
/// four share a line.
pub(super) type Cell<W> = [<W as coreline_world::Words>::U64; COUNTERS];

pub(super) struct Memory<W: Testbed> {
    mutex: Line<Mutex<W, Osq<Fifo, W>>>,
    /// The kernel's spin locks queue.
    lock: Line<Mcs<W>>,
    /// A bit for each cell. Under the lock.
    map: Line<Box<[W::U64]>>,
    cells: Box<[PerCpu<Cell<W>, W>]>,
    /// This many slots are zeroed.
    zeroed: usize,
    /// Whether the mutex is timed. Not where the clock would be a part of what is measured.
    is_timed: bool,
}

impl<W: Testbed> Memory<W> {
    /// With this many cells for each thread.
    pub(super) fn new_in(load: &Load<'_>, each: usize) -> Result<Self, RunError> {
        let threads = load.cpus.len();
        let cell = |_| {
            let zeros = || core::array::from_fn(|_| W::U64::new_in(0));
            let pool = coreline::percpu::PerCpuPool::global_in(IndexBy::Cpu)
                .map_err(|lacking| RunError::Lack(lacking.to_string()))?;
            pool.per_cpu(zeros).map_err(|error| RunError::Lack(error.to_string()))
        };
        let cells = (0..each * threads).map(cell).collect::<Result<Box<[_]>, _>>()?;
        let nodes = vec![0; threads];
        let words = cells.len().div_ceil(64);
        let memory = Memory {
            mutex: Line(Lock::new_in(&nodes)),
            lock: Line(Lock::new_in(&nodes)),
            map: Line((0..words).map(|_| W::U64::new_in(0)).collect()),
            cells,
            zeroed: if load.zeroes_all { W::topology().cpu_limit() } else { 0 },
            is_timed: load.outside > 0,
        };
        memory.populate(load.possible)
    }

    /// Makes the slots of all CPUs, as the kernel does: a thread on the last one adds to each cell.
    fn populate(self, cpus: &[CpuId]) -> Result<Self, RunError> {
        let last: Vec<CpuId> = cpus.iter().copied().max().into_iter().collect();
        let shared = std::sync::Arc::new(self);
        let touch = |memory: &Memory<W>, _| {
            memory.cells.iter().for_each(|cell| cell.field(|cell| &cell[0]).add(0));
        };
        crew::<W, _, _>(&shared, pinned(&last), touch, |_| ())?;
        Ok(std::sync::Arc::into_inner(shared).expect("its thread was joined"))
    }

    /// A cell whose memory is zero on this CPU and all others; `None` if all are taken.
    pub(super) fn allocate(&self, thread: usize, waited: &mut u64) -> Option<usize> {
        let before = self.is_timed.then(W::now);
        let mut found = None;
        self.mutex.hold(thread, || self.lock.hold(thread, || found = self.find()));
        if let Some(before) = before {
            *waited += nanos(before, W::now());
        }
        let number = found?;
        let cell = &self.cells[number];
        if self.zeroed == 0 {
            (0..COUNTERS).for_each(|word| _ = cell.field(|cell| &cell[word]).exchange(0));
        }
        for word in cell.iter().take(self.zeroed).flatten() {
            // Relaxed: the cell is this thread's, and no other CPU uses it.
            word.store(0, Ordering::Relaxed);
        }
        Some(number)
    }

    /// Takes the lowest free cell; under the lock.
    fn find(&self) -> Option<usize> {
        for (number, word) in self.map.iter().enumerate() {
            // Relaxed, both: under the lock.
            let taken = word.load(Ordering::Relaxed);
            let bit = taken.trailing_ones() as usize;
            if bit < 64 && number * 64 + bit < self.cells.len() {
                word.store(taken | 1 << bit, Ordering::Relaxed);
                return Some(number * 64 + bit);
            }
        }
        None
    }

    pub(super) fn free(&self, thread: usize, number: usize) {
        self.lock.hold(thread, || {
            let word = &self.map[number / 64];
            // Relaxed, both: under the lock.
            let taken = word.load(Ordering::Relaxed);
            word.store(taken & !(1 << (number % 64)), Ordering::Relaxed);
        });
    }

    pub(super) fn cell(&self, number: usize) -> &PerCpu<Cell<W>, W> {
        &self.cells[number]
    }
}
