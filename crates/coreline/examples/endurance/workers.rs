//! Calls, replies and tasks of sets of workers, which are closed and replaced meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use coreline::Workers;
use coreline::call::{CallError, Reply};
use coreline::topology::{CpuId, CpuSet};
use coreline::world::{Clock, Native};

use crate::{Hand, Settings, crew, panicked, panics};

/// How many functions there are.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// How many have run.
static RAN: AtomicU64 = AtomicU64::new(0);

/// Counts itself while it is there. A function has one.
struct Ticket(u64);

impl Ticket {
    fn new(number: u64) -> Self {
        LIVE.fetch_add(1, Ordering::Relaxed);
        Ticket(number)
    }

    /// What a function does on a worker of the set: on that of `cpu`, if there is one.
    fn run(self, set: &Set, cpu: Option<CpuId>, spins: u64) -> u64 {
        let own = set.workers.current().expect("a worker");
        assert_eq!(own, cpu.unwrap_or(own), "a function is on another worker");
        let index = set.cpus.iter().position(|cpu| *cpu == own).expect("a CPU of the set");
        // Relaxed, both: all that a worker runs is on one thread.
        assert!(!set.busy[index].swap(true, Ordering::Relaxed), "two functions at once on {own}");
        (0..spins).for_each(|_| std::hint::spin_loop());
        set.busy[index].store(false, Ordering::Relaxed);
        RAN.fetch_add(1, Ordering::Relaxed);
        answer(self.0)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 7
}

/// A set, its CPUs, and which of them run a function.
struct Set {
    workers: Workers,
    cpus: Vec<CpuId>,
    busy: Vec<AtomicBool>,
}

fn start() -> Arc<Set> {
    let workers = Workers::new().expect("workers");
    let cpus: Vec<_> = workers.cpus().collect();
    let busy = cpus.iter().map(|_| AtomicBool::new(false)).collect();
    Arc::new(Set { workers, cpus, busy })
}

/// A refusal is all right where the set is closed, or the mailbox full.
fn is_usual(why: CallError) {
    assert!(matches!(why, CallError::Closed | CallError::Busy), "{why}");
}

/// What a thread has waited for, or knows that it has not run.
#[derive(Default)]
struct Done {
    /// So many functions have run.
    ran: u64,
    /// So many may have run or not.
    open: u64,
}

/// Uses a reply in one of the possible ways.
fn settle(mut reply: Reply<u64>, expected: u64, hand: &mut Hand, done: &mut Done) {
    let found = match hand.below(8) {
        kind @ 0..2 => {
            if kind == 0 {
                drop(reply);
                done.open += 1;
            } else {
                reply.detach();
                done.ran += 1;
            }
            return;
        }
        2 => match reply.withdraw() {
            Ok(()) => return,
            Err(begun) => begun.wait(),
        },
        3 => match Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => reply.wait(),
        },
        4..6 => loop {
            match reply.wait_by(hand.deadline()) {
                Ok(found) => break found,
                Err(pending) => reply = pending,
            }
        },
        _ => reply.wait(),
    };
    assert_eq!(found, expected);
    done.ran += 1;
}

/// The name of a use of this kind.
fn name(kind: u64) -> &'static str {
    match kind {
        0..40 => "call_on",
        40..45 => "try_call_on",
        45..65 => "call_async",
        65..75 => "spawn",
        75..80 => "spawn_on",
        80..86 => "call_many",
        86..92 => "nested call",
        92..95 => "call that panics",
        95..98 => "task that serves",
        _ => "call that spawns",
    }
}

/// One use of a set.
fn uses(kind: u64, set: &Arc<Set>, hand: &mut Hand, done: &mut Done) {
    let cpu = set.cpus[hand.below(set.cpus.len() as u64) as usize];
    let (number, spins) = (hand.below(u64::MAX), hand.below(200));
    let ticket = Ticket::new(number);
    let expected = answer(number);
    let (workers, theirs) = (&set.workers, Arc::clone(set));
    match kind {
        0..40 => match workers.call_on(cpu, || ticket.run(set, Some(cpu), spins)) {
            Ok(found) => {
                assert_eq!(found, expected);
                done.ran += 1;
            }
            Err(refused) => is_usual(refused.why),
        },
        40..45 => match workers.try_call_on(cpu, || ticket.run(set, Some(cpu), spins)) {
            Ok(found) => {
                assert_eq!(found, expected);
                done.ran += 1;
            }
            Err(refused) => is_usual(refused.why),
        },
        45..65 => match workers.call_async(cpu, move || ticket.run(&theirs, Some(cpu), spins)) {
            Ok(reply) => settle(reply, expected, hand, done),
            Err(refused) => is_usual(refused.why),
        },
        65..75 => match workers.spawn(move || ticket.run(&theirs, None, spins)) {
            Ok(reply) => settle(reply, expected, hand, done),
            Err(refused) => is_usual(refused.why),
        },
        75..80 => match workers.spawn_on(cpu, move || ticket.run(&theirs, Some(cpu), spins)) {
            Ok(reply) => settle(reply, expected, hand, done),
            Err(refused) => is_usual(refused.why),
        },
        80..86 => {
            let all: CpuSet = set.cpus.iter().copied().collect();
            match workers.call_many(&all, |cpu| Ticket::new(number).run(set, Some(cpu), spins)) {
                Ok(values) => {
                    assert_eq!(values.len(), set.cpus.len());
                    assert!(values.iter().all(|(_, found)| *found == expected));
                    done.ran += values.len() as u64;
                }
                Err(why) => {
                    is_usual(why);
                    done.open += set.cpus.len() as u64;
                }
            }
        }
        86..92 => {
            // A call that calls the next worker.
            let next = set.cpus[hand.below(set.cpus.len() as u64) as usize];
            let run = || Ticket::new(number).run(set, Some(next), spins);
            let inner = || match workers.call_on(next, run) {
                Ok(found) => {
                    assert_eq!(found, expected);
                    1
                }
                Err(refused) => {
                    is_usual(refused.why);
                    0
                }
            };
            match workers.call_on(cpu, || (inner(), ticket.run(set, Some(cpu), spins))) {
                Ok((ran, found)) => {
                    assert_eq!(found, expected);
                    done.ran += ran + 1;
                }
                Err(refused) => is_usual(refused.why),
            }
        }
        92..95 => {
            let fails = || {
                let _ticket = ticket;
                panics()
            };
            let mut is_refused = false;
            let has_panicked = panicked(|| {
                if let Err(refused) = workers.call_on::<(), _>(cpu, fails) {
                    is_usual(refused.why);
                    is_refused = true;
                }
            });
            assert_ne!(has_panicked, is_refused, "a caller sees the panic of its call");
        }
        95..98 => {
            // A long task, which serves calls.
            let task = move || {
                let end = Native::now() + Duration::from_micros(500);
                while Native::now() < end {
                    if theirs.workers.need_resched() {
                        theirs.workers.serve();
                    }
                }
                // Theirs may be the last handle of the set, which a worker may drop.
                ticket.run(&theirs, Some(cpu), spins)
            };
            match workers.spawn_on(cpu, task) {
                Ok(reply) => settle(reply, expected, hand, done),
                Err(refused) => is_usual(refused.why),
            }
        }
        _ => {
            // A call that queues a task and does not wait.
            let call = move || {
                let task = move || ticket.run(&theirs, None, spins);
                workers.spawn(task).map(Reply::detach).is_ok()
            };
            match workers.call_on(cpu, call) {
                Ok(is_queued) => done.ran += u64::from(is_queued),
                Err(refused) => is_usual(refused.why),
            }
        }
    }
}

pub(crate) fn run(settings: &Settings) {
    let current = RwLock::new(start());
    let all = crew(settings, |mut hand| {
        let mut done = Done::default();
        while hand.goes_on() {
            let set = Arc::clone(&current.read().expect("no panic under it"));
            for _ in 0..20 {
                let kind = hand.below(100);
                hand.step(name(kind), |hand| uses(kind, &set, hand, &mut done));
            }
            if hand.number == 0 && hand.one_in(200) {
                hand.step("new set", |_| {
                    let old = std::mem::replace(&mut *current.write().expect("no panic"), start());
                    assert!(old.workers.close_and_wait());
                });
            }
            if hand.one_in(10) {
                hand.step("work", Hand::work);
            }
        }
        done
    });
    drop(current);
    let (least, open) = all.iter().fold((0, 0), |sum, done| (sum.0 + done.ran, sum.1 + done.open));
    // Sets may have been dropped by their workers, which still end.
    for _ in 0..500 {
        if LIVE.load(Ordering::Relaxed) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let live = LIVE.load(Ordering::Relaxed);
    assert_eq!(live, 0, "functions are lost");
    let ran = RAN.load(Ordering::Relaxed);
    assert!(
        (least..=least + open).contains(&ran),
        "{ran} ran, {least} to {} expected",
        least + open
    );
    println!("workers: {ran} functions ran, {least} were waited for, none lost");
}
