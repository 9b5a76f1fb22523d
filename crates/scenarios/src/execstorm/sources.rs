//! The sources of objects, with one type for each variant. All variants have the same objects and
//! lives.

use coreline::object::{Object, ObjectCache};
use coreline::percpu::{PerCpu, PerCpuPool};
use coreline_world::{IndexBy, Line, Ordering, Slot, Testbed, Word};

use super::memory::Memory;
use super::storm::{COUNTERS, Life, Load, Mm, Source};
use crate::RunError;
use crate::lockscale::Lock;
use crate::lockscale::mcs::Mcs;

/// The memory that an object has for one CPU, in one block.
pub struct Unit<W: Testbed> {
    cid: W::U64,
    counters: [W::U64; COUNTERS],
}

// SAFETY: a struct, so every value has the same fields in the same places.
unsafe impl<W: Testbed> Slot for Unit<W> {}

impl<W: Testbed> Unit<W> {
    fn zero() -> Self {
        Unit { cid: W::U64::new_in(0), counters: core::array::from_fn(|_| W::U64::new_in(0)) }
    }
}

/// A constructed block of units, one for each CPU.
pub type Block<W> = PerCpu<Unit<W>, W>;

fn block<W: Testbed>() -> Result<Block<W>, coreline::percpu::PoolError> {
    PerCpuPool::global_in(IndexBy::Cpu)?.per_cpu(Unit::zero)
}

fn lack(error: impl core::fmt::Display) -> RunError {
    RunError::Lack(error.to_string())
}

/// The source of `ctor-dtor`: objects that stay constructed, in magazines.
pub struct Constructed<W: Testbed> {
    cache: ObjectCache<Block<W>, Life<W>, W>,
}

impl<W: Testbed> Source<W> for Constructed<W> {
    type Mm<'a> = Object<'a, Block<W>, Life<W>, W>;

    fn new_in(_: &Load<'_>) -> Result<Self, RunError> {
        let cache = ObjectCache::builder_in("mm_struct").build(block::<W>).map_err(lack)?;
        Ok(Constructed { cache })
    }

    fn take(&self, _: usize, _: &mut u64) -> Result<Self::Mm<'_>, RunError> {
        self.cache.get().map_err(lack)
    }

    fn give_back(&self, _: usize, mm: Self::Mm<'_>) {
        drop(mm);
    }
}

impl<W: Testbed> Mm<W> for Object<'_, Block<W>, Life<W>, W> {
    fn life(&self) -> &Life<W> {
        Object::life(self)
    }

    fn set_cid(&self, cid: u64) -> u64 {
        self.field(|unit| &unit.cid).exchange(cid)
    }

    fn add(&self, counter: usize, delta: u64) {
        self.field(|unit| &unit.counters[counter]).add(delta);
    }

    fn count(&self, counter: usize) -> u64 {
        self.field(|unit| &unit.counters[counter]).load()
    }
}

/// The source of `ctor-dtor-no-magazine`: objects that stay constructed, in one list under one
/// lock. The lock is a queue of spinning waiters, like the lock of the kernel's lists of slabs.
pub struct Listed<W: Testbed> {
    lock: Line<Mcs<W>>,
    /// The number of the first object, from 1 on; 0: none. Under the lock, as all `next`.
    first: Line<W::U32>,
    objects: Box<[Listable<W>]>,
}

struct Listable<W: Testbed> {
    next: W::U32,
    life: Life<W>,
    block: Block<W>,
}

/// An object that one thread has taken.
pub struct InHand<'a, W: Testbed> {
    number: u32,
    object: &'a Listable<W>,
}

impl<W: Testbed> Source<W> for Listed<W> {
    type Mm<'a> = InHand<'a, W>;

    /// With an object for each thread: none constructs one later.
    fn new_in(load: &Load<'_>) -> Result<Self, RunError> {
        let threads = load.cpus.len();
        let object = |number: usize| {
            let next = if number + 1 < threads { number as u32 + 2 } else { 0 };
            let block = block().map_err(lack)?;
            Ok(Listable { next: W::U32::new_in(next), life: Life::new(), block })
        };
        Ok(Listed {
            lock: Line(Lock::new_in(&vec![0; threads])),
            first: Line(W::U32::new_in(u32::from(threads > 0))),
            objects: (0..threads).map(object).collect::<Result<_, RunError>>()?,
        })
    }

    fn take(&self, thread: usize, _: &mut u64) -> Result<InHand<'_, W>, RunError> {
        let mut number = 0;
        self.lock.hold(thread, || {
            // Relaxed, all: under the lock.
            number = self.first.load(Ordering::Relaxed);
            if let Some(object) = self.object(number) {
                // Relaxed, both: under the lock.
                self.first.store(object.next.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        });
        self.in_hand(number)
    }

    fn give_back(&self, thread: usize, mm: InHand<'_, W>) {
        self.lock.hold(thread, || {
            // Relaxed, all: under the lock.
            mm.object.next.store(self.first.load(Ordering::Relaxed), Ordering::Relaxed);
            self.first.store(mm.number, Ordering::Relaxed);
        });
    }
}

impl<W: Testbed> Listed<W> {
    fn object(&self, number: u32) -> Option<&Listable<W>> {
        self.objects.get((number as usize).checked_sub(1)?)
    }

    /// Returns the object with this number, whether another thread has it or not.
    ///
    /// # Errors
    ///
    /// [`RunError::Check`] if there is no such object.
    pub fn in_hand(&self, number: u32) -> Result<InHand<'_, W>, RunError> {
        let object = self.object(number);
        let object = object.ok_or_else(|| {
            RunError::Check(
                "the list of constructed objects is empty, and should have one for each thread"
                    .to_owned(),
            )
        })?;
        Ok(InHand { number, object })
    }
}

impl<W: Testbed> Mm<W> for InHand<'_, W> {
    fn life(&self) -> &Life<W> {
        &self.object.life
    }

    fn set_cid(&self, cid: u64) -> u64 {
        self.object.block.field(|unit| &unit.cid).exchange(cid)
    }

    fn add(&self, counter: usize, delta: u64) {
        self.object.block.field(|unit| &unit.counters[counter]).add(delta);
    }

    fn count(&self, counter: usize) -> u64 {
        self.object.block.field(|unit| &unit.counters[counter]).load()
    }
}

/// `global-mutex`, with 2 allocations for each life: the row, and all counters; `ungrouped`, with
/// 5: the row, and each counter. Objects without their per-CPU memory come from a cache with
/// magazines, as the kernel's do.
pub(super) struct Global<W: Testbed, const ALLOCATIONS: usize> {
    cache: ObjectCache<(), Life<W>, W>,
    memory: Memory<W>,
}

/// An object, and what was allocated for its life.
pub(super) struct Furnished<'a, W: Testbed, const ALLOCATIONS: usize> {
    object: Object<'a, (), Life<W>, W>,
    memory: &'a Memory<W>,
    cells: [usize; ALLOCATIONS],
}

impl<W: Testbed, const ALLOCATIONS: usize> Source<W> for Global<W, ALLOCATIONS> {
    type Mm<'a> = Furnished<'a, W, ALLOCATIONS>;

    fn new_in(load: &Load<'_>) -> Result<Self, RunError> {
        let cache = ObjectCache::builder_in("mm_struct");
        let cache = cache.build(|| Ok::<(), RunError>(())).map_err(lack)?;
        Ok(Global { cache, memory: Memory::new_in(load, ALLOCATIONS)? })
    }

    fn take(&self, thread: usize, waited: &mut u64) -> Result<Self::Mm<'_>, RunError> {
        let object = self.cache.get().map_err(lack)?;
        let mut cells = [0; ALLOCATIONS];
        for cell in &mut cells {
            let found = self.memory.allocate(thread, waited);
            *cell = found.ok_or_else(|| {
                RunError::Check(
                    "all cells of the allocator are in use, and each life should find its own"
                        .to_owned(),
                )
            })?;
        }
        Ok(Furnished { object, memory: &self.memory, cells })
    }

    fn give_back(&self, thread: usize, mm: Self::Mm<'_>) {
        mm.cells.iter().for_each(|cell| self.memory.free(thread, *cell));
        drop(mm);
    }
}

impl<W: Testbed, const ALLOCATIONS: usize> Furnished<'_, W, ALLOCATIONS> {
    /// The place of a counter: the cell, and the word in it.
    fn at(&self, counter: usize) -> (usize, usize) {
        if ALLOCATIONS == 1 + COUNTERS {
            (self.cells[1 + counter], 0)
        } else {
            (self.cells[1], counter)
        }
    }
}

impl<W: Testbed, const ALLOCATIONS: usize> Mm<W> for Furnished<'_, W, ALLOCATIONS> {
    fn life(&self) -> &Life<W> {
        self.object.life()
    }

    fn set_cid(&self, cid: u64) -> u64 {
        self.memory.cell(self.cells[0]).field(|cell| &cell[0]).exchange(cid)
    }

    fn add(&self, counter: usize, delta: u64) {
        let (cell, word) = self.at(counter);
        self.memory.cell(cell).field(|cell| &cell[word]).add(delta);
    }

    fn count(&self, counter: usize) -> u64 {
        let (cell, word) = self.at(counter);
        self.memory.cell(cell).field(|cell| &cell[word]).load()
    }
}
