//! All primitives at once: with thousands of threads that come and go, and with threads whose CPUs
//! are taken away.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use coreline::domain::{Domain, DomainLocal, DomainOptions, Domains, Exclusive, LeaseError};
use coreline::mask::{Entry, PresenceOptions};
use coreline::percpu::Word64;
use coreline::{CounterSet, IndexBy, PerCpu, PerCpuCounter};

use crate::domain::storm;

/// Threads that live at the same time, and how often there are so many.
const AT_ONCE: usize = 500;
const CROWDS: usize = 6;
/// Threads that live one after the other, in each of so many rows of them.
const IN_A_ROW: usize = 500;
const ROWS: usize = 4;

/// What each thread uses.
struct Everything {
    counter: PerCpuCounter,
    batched: PerCpuCounter,
    set: CounterSet<2>,
    by_cpu: PerCpu<Word64>,
    /// Where the kernel keeps concurrency IDs.
    by_cid: Option<PerCpu<Word64>>,
    domain: Domain,
    tenant: DomainLocal<Word64>,
    held: DomainLocal<Exclusive<[u64; 2]>>,
    lived: AtomicU64,
    leased: AtomicU64,
}

impl Everything {
    fn new() -> Everything {
        // Fewer seats than threads: a thread that finds none works without.
        let options = DomainOptions::new().presence(PresenceOptions::new().seats(256));
        let domain = Domains::global().unwrap().domain(options);
        Everything {
            counter: PerCpuCounter::new().unwrap(),
            batched: PerCpuCounter::new().unwrap().batched(8),
            set: CounterSet::new().unwrap(),
            by_cpu: PerCpu::words(IndexBy::Cpu).unwrap(),
            by_cid: PerCpu::words(IndexBy::KernelCid).ok(),
            tenant: domain.local(|| Word64::new(0)).unwrap(),
            held: domain.local(|| Exclusive::new([0; 2])).unwrap(),
            domain,
            lived: AtomicU64::new(0),
            leased: AtomicU64::new(0),
        }
    }

    fn live(&self) {
        self.counter.add(1);
        self.batched.add(-3);
        self.set.add(1, 2);
        self.by_cpu.add(1);
        self.by_cid.iter().for_each(|words| words.add(1));
        let mut member = self.domain.join();
        let (mut inside, _) = member.enter();
        self.tenant.add(1);
        match self.domain.lease() {
            Ok(mut lease) => {
                let values = lease.get_mut(&self.held).unwrap();
                assert_eq!(values[0], values[1], "a lease has two holders");
                values[0] += 1;
                self.by_cpu.add(1);
                values[1] += 1;
                // Relaxed, here and below: counts, read once the threads have been joined.
                self.leased.fetch_add(1, Ordering::Relaxed);
            }
            Err(LeaseError::Exhausted { .. }) => self.by_cpu.add(1),
            Err(other) => panic!("{other}"),
        }
        let _: Entry = inside.poll();
        self.lived.fetch_add(1, Ordering::Relaxed);
    }

    /// That nothing was lost, and that nothing is held.
    fn check(mut self) {
        let lived = self.lived.into_inner();
        let times = lived.cast_signed();
        assert_eq!(self.counter.read_exact(), times);
        assert_eq!(self.batched.read_exact(), -3 * times);
        assert_eq!(self.set.read_exact(), [0, 2 * times]);
        assert_eq!(self.by_cpu.sum(), 2 * lived);
        assert!(self.by_cid.is_none_or(|words| words.sum() == lived), "lost by concurrency ID");
        assert_eq!(self.tenant.sum(), lived);
        let held: u64 = self.held.iter_mut().map(|values| values.get_mut()[1]).sum();
        assert_eq!(held, self.leased.into_inner(), "what was done under a lease is lost");
        let usage = self.domain.usage();
        assert_eq!((usage.users, usage.leased), (0, 0));
    }
}

#[test]
fn thousands_of_threads_come_and_go() {
    let everything = Everything::new();
    for _ in 0..CROWDS {
        let all_lived = Barrier::new(AT_ONCE);
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    everything.live();
                    all_lived.wait();
                    everything.live();
                });
            }
            for _ in 0..10 {
                everything.domain.shootdown(|| ()).unwrap();
            }
        });
    }
    thread::scope(|scope| {
        for _ in 0..ROWS {
            scope.spawn(|| {
                for _ in 0..IN_A_ROW {
                    thread::scope(|scope| scope.spawn(|| everything.live()).join().unwrap());
                }
            });
        }
    });
    // Relaxed: the threads were joined.
    let lived = everything.lived.load(Ordering::Relaxed);
    assert_eq!(lived, (2 * CROWDS * AT_ONCE + ROWS * IN_A_ROW) as u64);
    everything.check();
}

#[test]
fn nothing_is_lost_while_cpus_are_taken_away() {
    let everything = Everything::new();
    storm(|_| everything.live());
    everything.check();
}
