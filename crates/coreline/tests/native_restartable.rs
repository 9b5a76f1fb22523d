//! Restartable operations on the real machine, disturbed in every way that a program can arrange.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

#[path = "laws/memory/slots/in_rows.rs"]
mod in_rows;

use core::ffi::c_int;
use core::fmt::Display;
use core::mem;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::mpsc;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use coreline::percpu::{Indexing, ResizableStack, Slot, Slots};
use coreline::{IndexBy, PerCpu};
use coreline_topology::CpuId;
use coreline_world::{Fences, Native, native};
use in_rows::SlotsInRows;

const WORKERS: usize = 8;
const ADDS: u64 = 10_000_000;
const ADDS_MIN: u64 = 200_000;
const ROUNDS: usize = 200;
/// Values that each worker begins with.
const OWN: usize = 4;
const ALL: usize = WORKERS * OWN;

/// What nothing writes to.
const BESIDE: u32 = 0xa5a5_a5a5;

/// What lies in a slot.
struct Row {
    word: AtomicU64,
    /// The same count, and beside it a word that nothing writes to.
    half: [AtomicU32; 2],
    /// All values may be on it, or none.
    stack: ResizableStack<u8, ALL, Native>,
    pointer: AtomicPtr<u8>,
}

// SAFETY: a struct: every value has the same live fields in the same places.
unsafe impl Slot for Row {}

type Rows<I> = Slots<Row, Native, I>;

impl Row {
    fn new() -> Self {
        Row {
            word: AtomicU64::new(0),
            half: [0, BESIDE].map(AtomicU32::new),
            stack: ResizableStack::with_capacity(1),
            pointer: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

fn rows(by: IndexBy) -> Option<PerCpu<Row>> {
    PerCpu::new_in(by, Row::new).ok()
}

/// What the signal handler does.
static WORK: AtomicPtr<&(dyn Fn() + Sync)> = AtomicPtr::new(ptr::null_mut());
/// How often the signal handler ran.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// The handler is the process's: one test at a time.
static HANDLER: Mutex<()> = Mutex::new(());

extern "C" fn on_signal(_signal: c_int) {
    // Acquire pairs with the release that published the work.
    let work = WORK.load(Ordering::Acquire);
    // SAFETY: the work outlives the threads that signals are sent to.
    unsafe { (*work)() };
    // Relaxed: joining the threads orders this before the count is read.
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Works on the memory that the interrupted thread works on, as a profiler's handler would.
fn interfere<I: Indexing<Native>>(rows: &Rows<I>) {
    rows.field(|row| &row.word).add(1);
    rows.field(|row| &row.half[0]).add(1);
    let pointer = rows.field(|row| &row.pointer);
    // Until the slot was empty: the thread may have been moved, and others put theirs there.
    let mut taken = pointer.exchange(ptr::null_mut());
    while !taken.is_null() {
        taken = pointer.exchange(taken);
    }
    let stack = rows.field(|row| &row.stack);
    let capacity = stack.resize(0);
    let mut values = [None; 2];
    let count = stack.pop_batch(&mut values);
    for value in values[..count].iter().copied().chain([stack.pop()]).flatten() {
        while stack.push(value).is_err() {
            stack.resize(ALL);
        }
    }
    stack.resize(capacity);
}

/// Has signals do this work, for as long as the guard lives.
fn handle_signals(work: &&(dyn Fn() + Sync)) -> MutexGuard<'static, ()> {
    let guard = HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
    // Release pairs with the handler's acquire.
    WORK.store((&raw const *work).cast_mut().cast(), Ordering::Release);
    HANDLED.store(0, Ordering::Relaxed);
    // SAFETY: the handler is async-signal-safe: restartable operations and relaxed atomics.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
    }
    guard
}

/// A thread to disturb, by its number.
struct Victim(libc::pid_t);

impl Victim {
    fn me() -> Self {
        // SAFETY: asks for a number.
        Victim(unsafe { libc::gettid() })
    }

    fn signal(&self) {
        // SAFETY: the thread runs until it is told to stop, so its number is its own.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGUSR1) };
    }

    /// Moves the thread to this CPU, wherever it stands.
    fn migrate(&self, cpu: usize) {
        // SAFETY: the set is live, and zeros are the empty one. The kernel checks the rest.
        unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(self.0, mem::size_of_val(&set), &raw const set);
        }
    }
}

fn allowed() -> Vec<usize> {
    native::probe().allowed.unwrap().iter().map(CpuId::index).collect()
}

/// Runs `work` on each of the workers, while they are disturbed, once a round also by `more`, until
/// it has seen the end come.
fn disturbed<R: Send>(
    work: impl Fn(usize, &AtomicBool) -> R + Sync,
    mut more: impl FnMut(),
) -> Vec<R> {
    let allowed = allowed();
    let (over, (register, victims)) = (AtomicBool::new(false), mpsc::channel());
    thread::scope(|scope| {
        let (work, over) = (&work, &over);
        let start = |number| {
            let register = register.clone();
            scope.spawn(move || {
                register.send(Victim::me()).unwrap();
                work(number, over)
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        let victims: Vec<Victim> = victims.iter().take(WORKERS).collect();
        for round in 0..ROUNDS {
            for (number, victim) in victims.iter().enumerate() {
                victim.signal();
                victim.migrate(allowed[(round + number) % allowed.len()]);
            }
            more();
            thread::sleep(Duration::from_micros(50));
        }
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

/// Slots of indexes in rows, of which there are fewer than CPUs, if there are several of these.
fn in_rows() -> SlotsInRows<Row, Native> {
    let cpus = allowed();
    let rows = SlotsInRows::new_in((cpus.len() - 1).clamp(1, 4), Row::new);
    for (index, &cpu) in (0..rows.indexes()).zip(&cpus) {
        // SAFETY: each index is one CPU's.
        unsafe { rows.give(cpu, Some(index)) };
    }
    rows
}

/// Lets the CPUs pass on their indexes: the next to the first, and so on. Where sections cannot be
/// fenced they keep them.
fn pass_on(rows: &SlotsInRows<Row, Native>) {
    let cpus = allowed();
    let mut given: Vec<_> = cpus.iter().map(|&cpu| rows.given(cpu)).collect();
    // SAFETY: no CPU has an index while the fence runs, and no other thread writes rows.
    unsafe {
        cpus.iter().for_each(|&cpu| rows.give(cpu, None));
        if Native::fence_restartable().is_ok() {
            given.rotate_left(1);
        }
        cpus.iter().zip(given).for_each(|(&cpu, index)| rows.give(cpu, index));
    }
}

fn no_addition_is_lost<I: Indexing<Native>>(rows: &Rows<I>, by: impl Display, more: impl FnMut()) {
    let interfere: &(dyn Fn() + Sync) = &|| interfere(rows);
    let _handler = handle_signals(&interfere);
    let work = |_, over: &AtomicBool| {
        let mut added = 0;
        // Relaxed: carries nothing but itself.
        while added < ADDS_MIN || !over.load(Ordering::Relaxed) {
            for _ in 0..1_000 {
                rows.field(|row| &row.word).add(2);
                rows.field(|row| &row.half[0]).add(2);
            }
            added += 1_000;
        }
        2 * added
    };
    let added: u64 = disturbed(work, more).into_iter().sum();
    let handled = HANDLED.load(Ordering::Relaxed);
    assert!(handled > 0, "no signal was handled");
    let sum = rows.field(|row| &row.word).sum();
    assert_eq!(sum, added + handled, "{by}: {handled} of them in handlers");
    assert_eq!(rows.field(|row| &row.half[0]).sum(), sum as u32, "{by}: of 32 bits");
    // Relaxed: the threads are gone.
    let mut beside = rows.iter().map(|row| row.half[1].load(Ordering::Relaxed));
    assert!(beside.all(|word| word == BESIDE), "{by}: an addition was wider than its word");
}

fn no_addition_is_lost_by(by: IndexBy) {
    if let Some(rows) = rows(by) {
        no_addition_is_lost(&rows, by, || ());
    }
}

#[test]
fn signals_and_migrations_lose_no_addition_by_cpu() {
    no_addition_is_lost_by(IndexBy::Cpu);
}

#[test]
fn signals_and_migrations_lose_no_addition_by_cid() {
    no_addition_is_lost_by(IndexBy::KernelCid);
}

#[test]
fn signals_migrations_and_indexes_that_move_lose_no_addition() {
    let rows = in_rows();
    no_addition_is_lost(&rows, "rows", || pass_on(&rows));
}

#[test]
fn eighty_million_additions_under_signals_at_a_kilohertz_lose_nothing() {
    let rows = rows(IndexBy::Cpu).unwrap();
    let interfere: &(dyn Fn() + Sync) = &|| interfere(&rows);
    let _handler = handle_signals(&interfere);
    let (register, victims) = mpsc::channel();
    let (finished, end) = (AtomicUsize::new(0), Barrier::new(WORKERS + 1));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            let (register, rows, finished, end) = (register.clone(), &rows, &finished, &end);
            scope.spawn(move || {
                register.send(Victim::me()).unwrap();
                for _ in 0..ADDS {
                    rows.field(|row| &row.word).add(1);
                }
                finished.fetch_add(1, Ordering::Relaxed);
                end.wait();
            });
        }
        let victims: Vec<Victim> = victims.iter().take(WORKERS).collect();
        while finished.load(Ordering::Relaxed) < WORKERS {
            victims.iter().for_each(Victim::signal);
            thread::sleep(Duration::from_millis(1));
        }
        end.wait();
    });
    let handled = HANDLED.load(Ordering::Relaxed);
    assert!(handled > 0, "no signal was handled");
    assert_eq!(rows.field(|row| &row.word).sum(), WORKERS as u64 * ADDS + handled);
}

fn value(number: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(number + 1)).unwrap()
}

fn unvalue(value: NonNull<u8>) -> usize {
    value.addr().get() - 1
}

fn own(worker: usize) -> core::ops::Range<usize> {
    worker * OWN..(worker + 1) * OWN
}

fn is_all(mut found: Vec<usize>) -> bool {
    found.sort_unstable();
    found.into_iter().eq(0..ALL)
}

type Values = Vec<NonNull<u8>>;

/// All rows' stacks and pointers, emptied.
fn drain<I: Indexing<Native>>(rows: &Rows<I>) -> Values {
    let mut values = vec![];
    rows.with_all_stopped(|slots| {
        for slot in slots {
            let mut into = [None; ALL];
            let count = slot.field(|row| &row.stack).pop_batch(&mut into);
            values.extend(into[..count].iter().flatten());
            values.extend(NonNull::new(slot.field(|row| &row.pointer).replace(ptr::null_mut())));
        }
    })
    .unwrap();
    values
}

fn nothing_is_lost_or_doubled<I: Indexing<Native>>(
    rows: &Rows<I>,
    by: impl Display,
    more: impl FnMut(),
) {
    if rows.with_all_stopped(|_| ()).is_err() {
        return;
    }
    let interfere: &(dyn Fn() + Sync) = &|| interfere(rows);
    let _handler = handle_signals(&interfere);
    let work = |worker, over: &AtomicBool| {
        let (pointer, stack) = (rows.field(|row| &row.pointer), rows.field(|row| &row.stack));
        let mut held: Vec<_> = own(worker).map(value).collect();
        for turn in 0_usize.. {
            // Relaxed: carries nothing but itself.
            if turn > 20_000 && over.load(Ordering::Relaxed) {
                break;
            }
            let mine = held.pop().map_or(ptr::null_mut(), NonNull::as_ptr);
            held.extend(NonNull::new(pointer.exchange(mine)));
            match turn % 6 {
                0 => _ = stack.resize(turn % (ALL + 2)),
                1 => _ = held.drain(..stack.push_batch(&held)),
                2 => held.extend(stack.pop()),
                3 => {
                    let mut into = [None; OWN];
                    let count = stack.pop_batch(&mut into);
                    held.extend(into[..count].iter().flatten());
                }
                _ => {
                    let last = held.pop();
                    held.extend(last.filter(|&value| stack.push(value).is_err()));
                }
            }
        }
        held.into_iter().map(unvalue).collect::<Vec<_>>()
    };
    let hands = disturbed(work, more);
    assert!(HANDLED.load(Ordering::Relaxed) > 0, "no signal was handled");
    let left = drain(rows).into_iter().map(unvalue);
    let found = hands.into_iter().flatten().chain(left).collect();
    assert!(is_all(found), "{by}: values were lost or doubled");
}

fn nothing_is_lost_or_doubled_by(by: IndexBy) {
    if let Some(rows) = rows(by) {
        nothing_is_lost_or_doubled(&rows, by, || ());
    }
}

#[test]
fn handlers_that_push_and_pop_lose_and_double_nothing_by_cpu() {
    nothing_is_lost_or_doubled_by(IndexBy::Cpu);
}

#[test]
fn handlers_that_push_and_pop_lose_and_double_nothing_by_cid() {
    nothing_is_lost_or_doubled_by(IndexBy::KernelCid);
}

#[test]
fn handlers_that_push_and_pop_lose_and_double_nothing_while_indexes_move() {
    let rows = in_rows();
    nothing_is_lost_or_doubled(&rows, "rows", || pass_on(&rows));
}

/// Sections with a trap behind every instruction.
///
/// The kernel forgets a section when it aborts it, so a section that starts over must arm itself
/// again. If it did not, its second try alone would be exposed, and chance hardly ever disturbs a
/// thread twice within a few instructions. A section that is stepped through is aborted at each
/// step, and so ends only when the steps do. (On aarch64 no thread can step through itself.)
#[cfg(target_arch = "x86_64")]
mod stepped {
    use core::arch::asm;
    use core::ffi::{c_int, c_void};
    use core::sync::atomic::{AtomicU64, Ordering};
    use core::{mem, ptr};

    use coreline::IndexBy;
    use coreline::percpu::Indexing;
    use coreline_world::{Native, Restartable};

    use super::{
        ALL, HANDLED, OWN, Rows, Victim, allowed, drain, handle_signals, in_rows, interfere,
        is_all, on_signal, rows, unvalue, value,
    };

    /// More than an operation has instructions, each run once.
    const STEPS: u64 = 500;

    const TRAP_FLAG: i32 = 1 << 8;

    /// How many steps are left.
    static LEFT: AtomicU64 = AtomicU64::new(0);

    extern "C" fn on_step(signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
        // Relaxed, as all here: the handler runs on the thread that it interrupts.
        if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: the kernel passes this to the handler of a signal with `SA_SIGINFO`.
            let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
            context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !i64::from(TRAP_FLAG);
        }
        on_signal(signal);
    }

    fn handle_steps() {
        // SAFETY: the handler is as async-signal-safe as `on_signal` is.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_step as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()), 0);
        }
    }

    /// Steps through an operation. The steps must end before it does.
    fn step<R>(steps: u64, operation: impl FnOnce() -> R) -> R {
        LEFT.store(steps, Ordering::Relaxed);
        // SAFETY: the flag is the thread's own, and its traps are handled.
        unsafe {
            asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG);
        }
        let result = operation();
        // SAFETY: the flag is the thread's own.
        unsafe {
            asm!("pushfq", "and qword ptr [rsp], {others}", "popfq", others = const !TRAP_FLAG);
        }
        let left = LEFT.load(Ordering::Relaxed);
        assert_eq!(left, 0, "a section was not aborted at each step");
        result
    }

    fn every_step_aborts<I: Indexing<Native>>(rows: &Rows<I>) {
        if !Native::runs_sections(rows.section()) {
            return;
        }
        // The slots of a CPU are made before they are met in a step.
        Victim::me().migrate(allowed()[0]);
        let word = rows.field(|row| &row.word);
        let half = rows.field(|row| &row.half[0]);
        let (pointer, stack) = (rows.field(|row| &row.pointer), rows.field(|row| &row.stack));
        // Two fewer than there are values: those are in the pointer, and in hand.
        stack.resize(ALL);
        let mut in_hand = value(0).as_ptr();
        pointer.exchange(value(1).as_ptr());
        (2..ALL).for_each(|number| stack.push(value(number)).unwrap());
        let interfere: &(dyn Fn() + Sync) = &|| interfere(rows);
        let _handler = handle_signals(&interfere);
        handle_steps();
        // The last steps fall on several instructions.
        for steps in STEPS..STEPS + 8 {
            step(steps, || word.add(1));
            step(steps, || half.add(1));
            in_hand = step(steps, || pointer.exchange(in_hand));
            assert_eq!(step(steps, || stack.resize(ALL + 1)), ALL);
            let popped = step(steps, || stack.pop()).unwrap();
            step(steps, || stack.push(popped)).unwrap();
            let mut into = [None; OWN];
            let count = step(steps, || stack.pop_batch(&mut into));
            let values: Vec<_> = into.into_iter().flatten().collect();
            assert_eq!(step(steps, || stack.push_batch(&values)), count);
        }
        assert_eq!(word.sum(), 8 + HANDLED.load(Ordering::Relaxed));
        assert_eq!(half.sum(), word.sum() as u32);
        let mut values = drain(rows);
        values.extend(ptr::NonNull::new(in_hand));
        assert!(is_all(values.into_iter().map(unvalue).collect()), "values were lost or doubled");
    }

    #[test]
    fn a_section_that_is_stepped_through_is_aborted_at_each_step() {
        every_step_aborts(&rows(IndexBy::Cpu).unwrap());
    }

    #[test]
    fn a_section_in_rows_that_is_stepped_through_is_aborted_at_each_step() {
        every_step_aborts(&in_rows());
    }
}
