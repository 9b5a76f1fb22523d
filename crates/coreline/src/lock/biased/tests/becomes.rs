//! How a lock becomes biased among threads that read at the same time.

use coreline_sim::Arbitration;

use super::super::raw::BIASED;
use super::super::slots::TURN;
use super::*;

/// Draws numbers below others, so that threads are not in step.
fn draws(cpu: u32) -> impl FnMut(u64) -> u64 {
    let mut state = u64::from(cpu);
    move |below| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    }
}

/// Threads on CPUs of their own read until the end, with so much time in the section and about as
/// much between two reads. Returns whether the lock is then biased.
fn is_biased_after(reads: u32, threads: u32, section: u64, between: u64) -> bool {
    let program = move || {
        let lock = Arc::new(RawBiasedRwLock::<Sim>::new_in());
        let threads = (0..threads).map(|cpu| {
            let lock = Arc::clone(&lock);
            on(cpu, move || {
                let mut draw = draws(cpu);
                for _ in 0..reads {
                    Sim::work(Duration::from_nanos(between / 2 + draw(between)));
                    lock.read();
                    Sim::work(Duration::from_nanos(section));
                    // SAFETY: taken just now.
                    unsafe { lock.unlock() };
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(JoinHandle::join);
        lock.is_biased()
    };
    Machine::preset("epyc-9654-2s").expect("a preset").run(program).expect("it ends").value
}

/// With short sections, a reader has gone before the next one gets the line of the lock. So no
/// reader finds another one, although each waits for the line.
#[test]
fn a_lock_whose_readers_come_after_one_another_is_biased() {
    for threads in [2, 8, 24] {
        assert!(is_biased_after(2 * PAYS, threads, 0, 300), "{threads} threads");
    }
}

/// Each read comes 0.2 ms after a read of another thread.
#[test]
fn threads_that_seldom_read_leave_a_lock_as_it_is() {
    assert!(!is_biased_after(4 * PAYS, 2, 0, 400_000));
}

/// Threads on all CPUs read. Returns how long it takes until each of them counts itself in a slot,
/// which it does when four of its reads in turn have not waited for the line of the lock.
fn until_all_have_slots(machine: Machine, threads: u32) -> Duration {
    let program = move || {
        let lock = Arc::new(RawBiasedRwLock::<Sim>::new_in());
        let begun = Sim::now();
        let end = begun + PATIENCE;
        let threads = (0..threads).map(|cpu| {
            let lock = Arc::clone(&lock);
            on(cpu, move || {
                let (mut draw, mut fast) = (draws(cpu), 0);
                while fast < 4 && Sim::now() < end {
                    Sim::work(Duration::from_nanos(250 + draw(500)));
                    let came = Sim::now();
                    lock.read();
                    let waited = Sim::now() - came;
                    Sim::work(Duration::from_nanos(100));
                    // SAFETY: taken just now.
                    unsafe { lock.unlock() };
                    fast = if waited < Duration::from_nanos(50) { fast + 1 } else { 0 };
                }
                let found = Sim::now();
                // Others that have no slot yet are not alone with the line.
                while Sim::now() < end {
                    Sim::work(Duration::from_nanos(250 + draw(500)));
                    reads(&lock, 1);
                }
                found
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(JoinHandle::join).max().expect("a thread") - begun
    };
    machine.run(program).expect("it ends").value
}

/// A machine that serves near requests first gives the line of the lock to the threads of one node
/// again and again. If these find no slot, and leave the line to no other, the thread that is to
/// open the gate to their slots never gets the line.
#[test]
fn near_readers_do_not_keep_away_the_thread_that_opens_the_gate() {
    for request in Machine::REQUEST_BAND {
        let machine = Machine::preset("kunpeng920-96c-4n").expect("a preset");
        let machine = machine.arbitration(Arbitration::Nearest).request_percent(request);
        let time = until_all_have_slots(machine.seed(1000), 96);
        assert!(time < PATIENCE / 2, "{time:?} at a share of {request} %");
    }
}

/// A thread that opens the gate takes 10 ms. Another thread reads for 2 ms of that; if `shares`, a
/// third one wants its CPU. Returns how long each read took.
fn reads_beside_an_opener(shares: bool) -> Vec<Duration> {
    simulated(move || {
        let shared = Arc::new((RawBiasedRwLock::<Sim>::new_in(), <Sim as Words>::U32::new_in(0)));
        meets(&shared.0, PAYS);
        writes(&shared.0);
        // Relaxed: no other thread is there. As the one that opens the gate does first.
        shared.0.state.fetch_or(BIASED, Ordering::Relaxed);
        let theirs = Arc::clone(&shared);
        let opener = on(1, move || {
            let slots = theirs.0.slots().expect("it was biased");
            theirs.0.open_gate(slots, || {
                Sim::work(10 * PATIENCE);
                false
            });
        });
        Sim::work(PATIENCE / 2);
        let theirs = Arc::clone(&shared);
        let other = on(0, move || {
            // Relaxed: a sign.
            while shares && theirs.1.load(Ordering::Relaxed) == 0 {
                Sim::work(Duration::from_micros(5));
            }
        });
        let theirs = Arc::clone(&shared);
        let reader = on(0, move || {
            let (end, mut took) = (Sim::now() + 2 * PATIENCE, vec![]);
            while Sim::now() < end {
                let came = Sim::now();
                reads(&theirs.0, 1);
                took.push(Sim::now() - came);
                Sim::work(Duration::from_nanos(100));
            }
            took
        });
        let took = reader.join();
        // Relaxed: a sign.
        shared.1.store(1, Ordering::Relaxed);
        other.join();
        opener.join();
        took
    })
}

/// A reader waits for the gate, and a writer may wait for that reader. If the reader yields, it
/// loses its CPU for a time slice.
#[test]
fn a_reader_that_waits_for_the_gate_keeps_its_cpu() {
    let took = reads_beside_an_opener(true);
    assert!(took.iter().any(|&took| took >= TURN), "none has waited");
    // Its own time slice may end, too.
    let late = took.iter().filter(|&&took| took > 2 * TURN).count();
    assert!(late <= 1, "{late} of {}", took.len());
}

/// Without a memory of waits in vain, each read waits for 20 us.
#[test]
fn readers_seldom_wait_in_vain_for_the_gate() {
    let took = reads_beside_an_opener(false);
    let waits = took.iter().filter(|&&took| took >= TURN / 2).count();
    assert!((2..=11).contains(&waits), "{waits} waits in 2 ms");
}
