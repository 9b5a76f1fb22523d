//! Laws of sections that find their index in the row of their CPU.

use std::sync::Arc;

use coreline_topology::CpuId;
use coreline_world::{JoinHandle, Ordering, Placement, Testbed, Word};

use super::in_rows::SlotsInRows;
use super::{Dice, rounds, spawn};

type Words<W> = SlotsInRows<<W as coreline_world::Words>::U64, W>;

/// How many indexes there are.
const INDEXES: usize = 2;
/// On how many CPUs threads add, if there are as many: more than there are indexes.
const CPUS: usize = 3;
/// How often a thread adds before it moves an index.
const ADDITIONS: u32 = 8;

/// Conservation: CPUs pass the indexes to each other, and no addition to their slots is lost.
pub(super) fn no_addition_is_lost_when_indexes_move<W: Testbed>() {
    exchange_indexes::<W>(|_| W::fence_restartable().is_ok());
}

/// The same, where only the two CPUs that are concerned are told.
pub(super) fn no_addition_is_lost_when_kicked_cpus_exchange_indexes<W: Testbed>() {
    exchange_indexes::<W>(|cpus| cpus.into_iter().all(|cpu| W::kick(cpu).is_ok()));
}

/// Has what two CPUs have under way start over. Whether that could be done.
type Fence = fn([CpuId; 2]) -> bool;

fn exchange_indexes<W: Testbed>(fence: Fence) {
    let words = Arc::new(Words::<W>::new_in(INDEXES, || Word::new_in(0)));
    let cpus: Arc<Vec<_>> = Arc::new(W::topology().cpus().map(|cpu| cpu.id).take(CPUS).collect());
    for (index, cpu) in (0..words.indexes()).zip(cpus.iter()) {
        // SAFETY: each index is one CPU's.
        unsafe { words.give(cpu.index(), Some(index)) };
    }
    let moving = Arc::new(W::U32::new_in(0));
    // Two to a CPU, so that they come between each other's steps as well.
    let crew = if W::RUNS { 2 * cpus.len() } else { 2 };
    let threads: Vec<_> = (0..crew)
        .map(|number| {
            let (words, cpus, moving) = (words.clone(), cpus.clone(), moving.clone());
            let on = Placement::On(cpus[number % cpus.len()]);
            let member = move || {
                let mut dice = Dice::new(number as u64);
                for round in 0..rounds::<W>() {
                    words.field(|word| word).add(1);
                    if round % ADDITIONS == 0 {
                        let mut cpu = || cpus[dice.roll(cpus.len() as u64) as usize];
                        exchange(&words, &moving, [cpu(), cpu()], fence);
                    }
                }
            };
            W::spawn(on, member.clone()).unwrap_or_else(|_| spawn::<W, _>(member))
        })
        .collect();
    threads.into_iter().for_each(JoinHandle::join);
    assert_eq!(words.field(|word| word).sum(), crew as u64 * u64::from(rounds::<W>()));
}

/// Gives each of two CPUs the other's index, unless another thread is at it.
fn exchange<W: Testbed>(words: &Words<W>, moving: &W::U32, cpus: [CpuId; 2], fence: Fence) {
    let [one, other] = cpus.map(CpuId::index);
    // Acquire pairs with the release below: the rows are as the last thread left them.
    let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
    if one == other || moving.compare_exchange(0, 1, acquire, relaxed).is_err() {
        return;
    }
    let (from_one, from_other) = (words.given(one), words.given(other));
    // SAFETY: the two CPUs' indexes are taken away before either is given to the other one, and
    // no other thread writes rows. Where the fence fails, both get back their own.
    unsafe {
        words.give(one, None);
        words.give(other, None);
        let fenced = fence(cpus);
        let (one_gets, other_gets) =
            if fenced { (from_other, from_one) } else { (from_one, from_other) };
        words.give(one, one_gets);
        words.give(other, other_gets);
    }
    moving.store(0, Ordering::Release);
}

/// What a thread adds is in the slot whose index its CPU's row shows; in the shared one if it shows
/// none, or the thread has no CPU number to look for it by.
pub(super) fn an_addition_lands_in_the_slot_that_the_row_shows<W: Testbed>() {
    let machine = W::topology();
    let mut placed = 0;
    for cpu in machine.cpus().map(|cpu| cpu.id) {
        let words = Arc::new(Words::<W>::new_in(INDEXES, || Word::new_in(0)));
        let (last, shared) = (words.indexes() - 1, words.indexes());
        let add = |delta| {
            let words = Arc::clone(&words);
            let thread = W::spawn(Placement::On(cpu), move || {
                words.field(|word| word).add(delta);
                W::index(words.section()) == cpu.index()
            });
            thread.ok().map(JoinHandle::join)
        };
        let mut expected = vec![0; shared + 1];
        for (index, delta) in [(None, 1), (Some(last), 10), (None, 100), (Some(shared), 1000)] {
            // SAFETY: no other CPU gets an index, and no thread adds now. The shared slot's index
            // is the limit, so that no section has it.
            unsafe { words.give(cpu.index(), index) };
            let Some(has_number) = add(delta) else { break };
            placed += 1;
            expected[index.filter(|_| has_number).unwrap_or(shared)] += delta;
            let found: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            assert_eq!(found, expected, "{cpu}: {index:?}");
        }
        // One CPU would not tell its row from a row that is always the same.
        if placed >= 8 {
            break;
        }
    }
    assert!(placed > 0, "a thread can run on some CPU");
}
