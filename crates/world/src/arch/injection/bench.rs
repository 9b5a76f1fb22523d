//! Slots with one of everything, and what can be done to them: by sections, and by definition.

use core::array;
use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::interpreter::Interpreter;
use super::trapped::Trapped;
use crate::arch::{Gated, InRow, Index, MM_CID, Section, SlotsAt};
use crate::restartable::definition::{
    Add, AddIf, Exchange, Load, StackPop, StackPopBatch, StackPush, StackPushBatch, StackResize,
    StoreIfEqual,
};
use crate::restartable::rows::PER_LINE;
use crate::restartable::{At, Ended, Gate, Operation, ResizableStack, Rows};
use crate::{IndexBy, Line, Native, Restartable};

pub(super) const STACK: usize = 5;
/// A row that shows no index.
pub(super) const NO_INDEX: u32 = 5 << 16;

type Stack = ResizableStack<u8, STACK, Native>;

/// The content of a slot.
#[repr(C)]
struct Everything {
    half: AtomicU32,
    /// The neighbour that an access to `half` reads or writes if it is too wide: never 0.
    beside: AtomicU32,
    whole: AtomicU64,
    size: AtomicUsize,
    pointer: AtomicPtr<u8>,
    stack: Stack,
}

/// The word, by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordKind {
    Half,
    Whole,
    Size,
    Pointer,
}

/// The operations on it. Numbers stand for values on a stack, and for pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Add(WordKind, u64),
    Load(WordKind),
    Exchange(WordKind, u64),
    StoreIfEqual(WordKind, u64, u64),
    AddIf(WordKind, u64, u64),
    StackPush(usize),
    StackPop,
    StackPushBatch(usize),
    StackPopBatch(usize),
    Resize(usize),
    /// From now on sections find no slot.
    Stop,
    /// From now on all rows say this.
    Show(u32),
}

/// The answer of an operation: `None` for no slot.
pub(super) type Answer = Option<Result<Vec<u64>, u64>>;

/// The slots, and all else that operations use.
pub(super) struct Bench {
    memory: NonNull<u8>,
    /// How many slots there are.
    indexes: usize,
    /// Whether all slots are one and the same memory.
    aliased: bool,
    /// As arrays have them by CPU number or by rows, and by concurrency ID: the limit of both.
    by_cpu: Gate<Native>,
    by_cid: Gate<Native>,
    /// Whether a section learns from them where slot 0 lies.
    is_gated: bool,
    /// The rows, if indexes are in rows, and their first contents.
    rows: Option<(Rows<Native>, Vec<Option<u32>>)>,
}

/// Makes an operation of an [`Op`], has it run on its field of the bench by `$run`, and says what
/// came of it.
macro_rules! perform {
    ($bench:expr, $op:expr, |$operation:ident, $at:ident| $run:expr) => {{
        let bench = $bench;
        macro_rules! run {
            ($given:expr, $field:ident: $type:ty) => {{
                let ($operation, $at) = ($given, bench.at::<$type>(offset_of!(Everything, $field)));
                $run
            }};
        }
        /// On the word of this kind, by an operation that is given a `V`; and what that says.
        macro_rules! word {
            ($kind:expr, $given:expr, $answer:expr) => {
                match $kind {
                    WordKind::Pointer => {
                        type V = *mut u8;
                        $answer(run!($given, pointer: AtomicPtr<u8>))
                    }
                    kind => integer!(kind, $given, $answer),
                }
            };
        }
        macro_rules! integer {
            ($kind:expr, $given:expr, $answer:expr) => {
                match $kind {
                    WordKind::Half => {
                        type V = u32;
                        $answer(run!($given, half: AtomicU32))
                    }
                    WordKind::Whole => {
                        type V = u64;
                        $answer(run!($given, whole: AtomicU64))
                    }
                    WordKind::Size => {
                        type V = usize;
                        $answer(run!($given, size: AtomicUsize))
                    }
                    WordKind::Pointer => unreachable!("pointers are not added to"),
                }
            };
        }
        match $op {
            Op::Add(kind, delta) => {
                integer!(kind, Add(V::of(delta)), |()| Ok(vec![]))
            }
            #[allow(unused, reason = "a load is given nothing")]
            Op::Load(kind) => word!(kind, Load, |value| Ok(vec![Number::number(value)])),
            Op::Exchange(kind, new) => {
                word!(kind, Exchange(V::of(new)), |old| Ok(vec![Number::number(old)]))
            }
            Op::StoreIfEqual(kind, expected, new) => word!(
                kind,
                StoreIfEqual { expected: V::of(expected), new: V::of(new) },
                |stored: Result<(), _>| stored.map(|()| vec![]).map_err(Number::number)
            ),
            Op::AddIf(kind, delta, fixed) => integer!(
                kind,
                AddIf { delta: V::of(delta), fixed: V::of(fixed) },
                |added: Result<_, _>| added
                    .map(|sum| vec![Number::number(sum)])
                    .map_err(Number::number)
            ),
            Op::StackPush(number) => {
                let pushed = run!(StackPush(value(number)), stack: Stack);
                pushed.map(|()| vec![]).map_err(|_| 0)
            }
            Op::StackPop => Ok(run!(StackPop, stack: Stack).map(address).into_iter().collect()),
            Op::StackPushBatch(count) => {
                let pushed = run!(StackPushBatch(&values(count)), stack: Stack);
                Ok(vec![pushed as u64])
            }
            Op::StackPopBatch(count) => {
                let into = vec![Cell::new(None); count];
                let count = run!(StackPopBatch(&into), stack: Stack);
                // One that was popped meanwhile, where the kernel is not told of sections, is null.
                Ok(into[..count].iter().map(|value| value.get().map_or(0, address)).collect())
            }
            Op::Resize(capacity) => {
                let old = run!(StackResize(capacity), stack: Stack);
                Ok(vec![old as u64])
            }
            Op::Stop | Op::Show(_) => unreachable!("not an operation of its own"),
        }
    }};
}

impl Bench {
    /// Slots for indexes below `indexes`: each of its own, or all of them one and the same memory,
    /// so that the slot stays the same while the kernel moves the thread or changes its ID.
    pub(super) fn new(indexes: usize, aliased: bool) -> Bench {
        let length = indexes * Native::STRIDE;
        // SAFETY: maps new memory, and parts of a new file over it. Slots are smaller than a page.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(ptr::null_mut(), length, access, private, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            if aliased {
                let file = libc::memfd_create(c"slot".as_ptr(), libc::MFD_CLOEXEC);
                assert_eq!(libc::ftruncate(file, Native::STRIDE as libc::off_t), 0);
                for index in 0..indexes {
                    let slot = memory.byte_add(index * Native::STRIDE);
                    let shared = libc::MAP_SHARED | libc::MAP_FIXED;
                    let mapped = libc::mmap(slot, Native::STRIDE, access, shared, file, 0);
                    assert_eq!(mapped, slot);
                }
                libc::close(file);
            }
            memory
        };
        let bench = Bench {
            memory: NonNull::new(memory.cast()).unwrap(),
            indexes,
            aliased,
            by_cpu: Gate::new_in(),
            by_cid: Gate::new_in(),
            is_gated: false,
            rows: None,
        };
        bench.reset(0, &[]);
        bench
    }

    /// Like [`new`](Bench::new), with a gate that says where they are.
    pub(super) fn gated(indexes: usize, aliased: bool) -> Bench {
        let mut bench = Bench::new(indexes, aliased);
        bench.is_gated = true;
        bench
    }

    /// Slots for indexes below `indexes`, each of its own, and a row for each CPU that says this;
    /// where it is to say nothing it has no line, or shows [`NO_INDEX`] if others have that line.
    pub(super) fn with_rows(indexes: usize, shown: Vec<Option<u32>>) -> Bench {
        let rows = Rows::new_in(shown.len() as u32);
        for (number, cpus) in shown.chunks(PER_LINE).enumerate() {
            if cpus.iter().any(Option::is_some) {
                let line = Line(array::from_fn(|_| AtomicU32::new(NO_INDEX)));
                // SAFETY: a line that stays until the bench is dropped.
                unsafe { rows.put(number, NonNull::from(Box::leak(Box::new(line)))) }.unwrap();
            }
        }
        // In the last line, what is behind the last CPU's row looks like a row with an index.
        let last = shown.len() - 1;
        // SAFETY: no section looks there yet.
        if let Some(row) = unsafe { rows.at(last) } {
            for beyond in 1..PER_LINE - last % PER_LINE {
                // SAFETY: in the same line, and nothing else refers to this part of it.
                unsafe {
                    (*ptr::from_ref::<AtomicU32>(row).add(beyond)).store(0, Ordering::Relaxed)
                };
            }
        }
        let mut bench = Bench::new(indexes, false);
        bench.rows = Some((rows, shown));
        bench
    }

    /// Whether indexes are in rows.
    pub(super) fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    fn rows(&self) -> Option<&Rows<Native>> {
        self.rows.as_ref().map(|(rows, _)| rows)
    }

    /// Empties all slots, and runs a program on that of one index; of this CPU's, if it has a row.
    pub(super) fn reset(&self, index: usize, setup: &[Op]) {
        for index in 0..self.indexes {
            // SAFETY: in the memory of `new`. Zeros are an empty slot, with no room in the stack.
            unsafe {
                self.slot(index).cast::<u8>().write_bytes(0, size_of::<Everything>());
                (*self.slot(index)).beside.store(0xa5a5_a5a5, Ordering::Relaxed);
            }
        }
        if let Some((rows, shown)) = &self.rows {
            // SAFETY: no section runs now, and all slots are there.
            let row = |cpu| unsafe { rows.at(cpu) };
            let rows = (0..).map_while(|cpu| Some((row(cpu), shown.get(cpu)?)));
            for (row, shown) in rows.filter_map(|(row, shown)| Some((row?, shown))) {
                row.store(shown.unwrap_or(NO_INDEX), Ordering::Relaxed);
            }
        }
        self.set_limit(self.indexes as u32);
        self.run(setup, |op| Interpreter::undisturbed(index).complete(self, op));
    }

    fn set_limit(&self, limit: u32) {
        self.by_cpu.open(IndexBy::Cpu, self.memory.as_ptr(), limit);
        self.by_cid.open(IndexBy::KernelCid, self.memory.as_ptr(), limit);
    }

    /// Runs a program without interruption.
    pub(super) fn run(&self, program: &[Op], execute: impl Fn(Op) -> Answer) -> Vec<Answer> {
        let step = |op: &Op| match *op {
            Op::Stop => {
                self.set_limit(0);
                None
            }
            Op::Show(word) => {
                let rows = self.rows().expect("indexes are in rows");
                // SAFETY: all slots are there, and the bench has one thread.
                let row = |cpu| unsafe { rows.at(cpu as usize) };
                let rows = (0..rows.cpus()).filter_map(row);
                rows.for_each(|row| row.store(word, Ordering::Release));
                None
            }
            op => execute(op),
        };
        program.iter().map(step).collect()
    }

    /// All bytes of the slots.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let slots = if self.aliased { 0..1 } else { 0..self.indexes };
        // SAFETY: all bytes were written, and no thread writes now.
        let slots = slots.flat_map(|index| unsafe {
            let slot = self.slot(index).cast::<u8>().cast_const();
            core::slice::from_raw_parts(slot, size_of::<Everything>())
        });
        slots.copied().collect()
    }

    fn slot(&self, index: usize) -> *mut Everything {
        assert!(index < self.indexes);
        // SAFETY: in the memory of `new`.
        unsafe { self.memory.as_ptr().add(index * Native::STRIDE).cast() }
    }

    /// The word of 32 bits, for a section.
    pub(super) fn half(&self, index: Index) -> SlotsAt<Index, AtomicU32> {
        self.slots_at(index, self.at(offset_of!(Everything, half)))
    }

    /// The word of 64 bits, for a section.
    pub(super) fn whole(&self, index: Index) -> SlotsAt<Index, AtomicU64> {
        self.slots_at(index, self.at(offset_of!(Everything, whole)))
    }

    /// The content of the stack of slot 0, with the last pushed value last. The length is what the
    /// stack itself says.
    pub(super) fn on_stack(&self) -> Vec<u64> {
        // SAFETY: the slot is there, and no other thread looks at it.
        let Everything { stack, .. } = unsafe { &*self.slot(0) };
        let values = stack.entries[..stack.len()].iter();
        values.map(|entry| entry.load(Ordering::Relaxed).addr() as u64).collect()
    }

    /// For a section that reads this field.
    fn slots_at<F>(&self, index: Index, at: At<'_, F, Native>) -> SlotsAt<Index, F> {
        SlotsAt { index, limits: ptr::from_ref(self.gate(index)).cast(), first: at.first() }
    }

    /// For a section that reads this field, and where slot 0 lies.
    fn slots_behind<F>(&self, index: Index, at: At<'_, F, Native>) -> Option<SlotsAt<Gated, F>> {
        let (_, offset) = at.gate()?;
        let limits = ptr::from_ref(self.gate(index)).cast();
        Some(SlotsAt { index: Gated(index), limits, first: ptr::without_provenance_mut(offset) })
    }

    fn gate(&self, index: Index) -> &Gate<Native> {
        if index.field == MM_CID { &self.by_cid } else { &self.by_cpu }
    }

    /// For a section that reads a row.
    fn slots_by_row<F>(&self, index: InRow, at: At<'_, F, Native>) -> SlotsAt<InRow, F> {
        SlotsAt { index, limits: ptr::from_ref(&self.by_cpu).cast(), first: at.first() }
    }

    /// A field of slot 0.
    fn first<F>(&self, offset: usize) -> NonNull<F> {
        // SAFETY: offsets are those of fields of a slot.
        unsafe { self.memory.byte_add(offset).cast() }
    }

    fn at<F>(&self, offset: usize) -> At<'_, F, Native> {
        // SAFETY: the slots below the limit are live, and written to by operations alone.
        unsafe {
            match self.is_gated {
                true => At::behind(&self.by_cpu, offset),
                false => At::new(self.by_cpu.limits(), self.first(offset)).by_rows(self.rows()),
            }
        }
    }

    /// The operation by its definition.
    pub(super) fn define(&self, op: Op, steps: &mut Interpreter) -> Result<Answer, Ended> {
        let answer = perform!(self, op, |operation, at| operation.attempt(steps, at)?);
        Ok(Some(answer))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for (_, line) in self.rows().iter().flat_map(|rows| rows.made()) {
            // SAFETY: a box of `with_rows`, and no section runs any more.
            drop(unsafe { Box::from_raw(line.as_ptr()) });
        }
        // SAFETY: the memory of `new`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.indexes * Native::STRIDE) };
    }
}

/// The content of a word, as the tests write it.
trait Number {
    /// The last bits of the number.
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
}

macro_rules! numbers {
    ($($value:ty)+) => {$(
        impl Number for $value {
            fn of(number: u64) -> Self {
                number as Self
            }

            fn number(self) -> u64 {
                self as u64
            }
        }
    )+};
}

numbers!(u32 u64 usize);

impl Number for *mut u8 {
    fn of(number: u64) -> Self {
        ptr::without_provenance_mut(number as usize)
    }

    fn number(self) -> u64 {
        self.addr() as u64
    }
}

pub(super) fn value(number: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(0x1000 + number)).unwrap()
}

pub(super) fn values(count: usize) -> Vec<NonNull<u8>> {
    (0..count).map(|number| value(0x100 * (count + 1) + number)).collect()
}

fn address(value: NonNull<u8>) -> u64 {
    value.addr().get() as u64
}

/// An operation as a section of one kind, by the index in this field of the thread's area, with a
/// gate or without, or by the row of the CPU that it says.
macro_rules! by_sections {
    ($name:ident, $section:ident) => {
        pub(super) fn $name(bench: &Bench, field: Index, op: Op) -> Answer {
            let rows = bench.rows().map(|rows| ptr::from_ref(rows).cast());
            let in_row = rows.map(|rows| InRow { cpu: field, rows });
            // SAFETY: as for the definitions, the slots below the limit are live.
            Some(perform!(bench, op, |operation, at| unsafe {
                match (in_row, bench.slots_behind(field, at)) {
                    (_, Some(behind)) => $section::run(operation, behind)?,
                    (None, None) => $section::run(operation, bench.slots_at(field, at))?,
                    (Some(index), _) => $section::run(operation, bench.slots_by_row(index, at))?,
                }
            }))
        }
    };
}

by_sections!(by_section, Section);
by_sections!(by_trapped_section, Trapped);
