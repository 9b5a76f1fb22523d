//! Which reads count, and how soon after one another.

use super::*;

/// Two threads on two CPUs read in turn, so many times in all, and never meet. Each read begins so
/// long after the one before. Returns whether the lock is biased then.
fn reads_in_turn(count: u32, apart: Duration, between: fn(&RawBiasedRwLock<Sim>, u32)) -> bool {
    simulated(move || {
        let turn = <Sim as Words>::U32::new_in(0);
        let shared = Arc::new((RawBiasedRwLock::<Sim>::new_in(), turn));
        let threads = [0, 1].map(|cpu| {
            let shared = Arc::clone(&shared);
            on(cpu, move || {
                let (lock, turn) = &*shared;
                for mine in (cpu..count).step_by(2) {
                    // Acquire: pairs with the Release below.
                    turn.wait_until(Ordering::Acquire, |turn| turn == mine);
                    Sim::work(apart);
                    between(lock, mine);
                    reads(lock, 1);
                    // Release: pairs with the Acquire above.
                    turn.store(mine + 1, Ordering::Release);
                }
            })
        });
        threads.into_iter().for_each(JoinHandle::join);
        shared.0.is_biased()
    })
}

/// A read that finds no reader, and comes after one of another thread, has waited for the line.
#[test]
fn a_lock_is_biased_after_so_many_reads_of_threads_in_turn() {
    let often = Duration::from_nanos(100);
    assert!(!reads_in_turn(PAYS, often, |_, _| ()));
    assert!(reads_in_turn(PAYS + 1, often, |_, _| ()));
    let write = |lock: &RawBiasedRwLock<Sim>, time: u32| {
        if time.is_multiple_of(PAYS - 1) {
            writes(lock);
        }
    };
    assert!(!reads_in_turn(4 * PAYS, often, write), "a write begins the count again");
}

/// The last half of the reads that count must come within `SPAN`: 128 reads that are 60 us apart
/// do, and those that are 140 us apart never do.
#[test]
fn reads_that_seldom_count_leave_a_lock_as_it_is() {
    let span = Duration::from_nanos(1 << SPAN);
    let apart = |parts: u32| span / (PAYS / 2) * parts / 100;
    assert!(reads_in_turn(PAYS + 1, apart(90), |_, _| ()));
    assert!(!reads_in_turn(8 * PAYS, apart(210), |_, _| ()));
}

/// A lock that became busy counts half of the reads again.
#[test]
fn a_lock_that_was_used_seldom_is_biased_when_it_is_used_often() {
    simulated(|| {
        let lock = RawBiasedRwLock::<Sim>::new_in();
        lock.read();
        for _ in 0..PAYS {
            reads(&lock, 1);
            Sim::work(Duration::from_nanos(1 << SPAN) / 40);
        }
        reads(&lock, PAYS / 2);
        assert!(!lock.is_biased());
        reads(&lock, 1);
        assert!(lock.is_biased());
        // SAFETY: taken above.
        unsafe { lock.unlock() };
    });
}
