//! What stores cost without HTTP, which takes a thousand times as long: nanoseconds of a request,
//! and bytes of a tenant.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use std::{fs, io, thread};

use coreline::CpuId;
use coreline::world::{JoinHandle, Native, Place, Placement, Threads};
use serde::{Deserialize, Serialize};

use crate::store::{Buffer, Outcome, Served, Store};

/// Draws tenants, all equally often: xorshift.
#[derive(Debug)]
pub struct Tenants {
    count: u64,
    state: u64,
}

impl Tenants {
    /// Of this many.
    pub fn new(count: usize, seed: u64) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Tenants { count: count as u64, state }
    }

    /// The next one.
    pub fn draw(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        // The upper half of a product: as a remainder, without a division.
        ((u128::from(self.state) * u128::from(self.count)) >> 64) as usize
    }
}

/// What is timed of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// One counter.
    CountOne,
    /// All counts: four counters.
    Count,
    /// A buffer is taken and given back.
    Lease,
    /// Both: a buffer is taken, four counters are added to, and it is given back.
    Request,
}

/// As the service has them.
const ANSWERED: Served = Served { outcome: Outcome::Answered, received: 512, sent: 512, busy: 99 };

impl Work {
    /// All of them.
    pub const ALL: [Work; 4] = [Work::CountOne, Work::Count, Work::Lease, Work::Request];

    fn run<S: Store>(self, store: &S, tenant: usize) {
        match self {
            Work::CountOne => {
                store.count(tenant, Served { received: 0, sent: 0, busy: 0, ..ANSWERED });
            }
            Work::Count => store.count(tenant, ANSWERED),
            Work::Lease => drop(lease_now(store, tenant)),
            Work::Request => {
                let mut buffer = lease_now(store, tenant);
                store.count_with(tenant, &mut buffer, ANSWERED);
            }
        }
    }
}

/// A buffer, once there is one: with more CPUs than buffers a thread waits for another's.
fn lease_now<S: Store>(store: &S, tenant: usize) -> S::Buffer {
    let mut lease = pin!(store.lease(tenant));
    loop {
        match lease.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(buffer) => return buffer.expect("there is memory"),
            Poll::Pending => thread::yield_now(),
        }
    }
}

/// Runs `f` on each of the CPUs that this process may use, at the same time; it gets the CPU's
/// number among them. What it returned.
fn on_all_cpus<R: Send + 'static>(f: impl Fn(usize) -> R + Send + Sync + 'static) -> Vec<R> {
    // Those that a thread can be put on.
    let usable = |cpu: &CpuId| Native::spawn(Placement::On(*cpu), || ()).is_ok();
    let cpus: Vec<_> = Native::topology().cpus().map(|cpu| cpu.id).filter(usable).collect();
    let (f, ready) = (Arc::new(f), Arc::new(Barrier::new(cpus.len())));
    let spawn = |(number, cpu)| {
        let (f, ready) = (Arc::clone(&f), Arc::clone(&ready));
        let body = move || {
            ready.wait();
            f(number)
        };
        Native::spawn(Placement::On(cpu), body).expect("there is room for threads")
    };
    let threads: Vec<_> = cpus.into_iter().enumerate().map(spawn).collect();
    threads.into_iter().map(JoinHandle::join).collect()
}

/// Nanoseconds that a thread on each CPU takes for this work on tenants that it draws, on average,
/// while all of them do it `times` times. With one tenant all CPUs work on that.
pub fn time<S: Store>(store: &Arc<S>, tenants: usize, work: Work, times: u32) -> f64 {
    let store = Arc::clone(store);
    let each = on_all_cpus(move |number| {
        let mut tenants = Tenants::new(tenants, number as u64 + 1);
        // What the thread before had in the caches.
        (0..times / 4).for_each(|_| work.run(&*store, tenants.draw()));
        let begun = Instant::now();
        (0..times).for_each(|_| work.run(&*store, tenants.draw()));
        begun.elapsed().as_nanos() as f64 / f64::from(times)
    });
    each.iter().sum::<f64>() / each.len() as f64
}

/// What a tenant takes, in bytes: all of it divided by the number of tenants.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Memory {
    /// Of the heap, once every CPU has counted.
    pub heap: f64,
    /// Of memory altogether: with memory by CPU, and what the heap itself needs.
    pub resident: f64,
    /// Of the heap, once every CPU has had a buffer, too, and put `lines` in.
    pub heap_with_buffers: f64,
    /// Of memory altogether, then.
    pub resident_with_buffers: f64,
    /// What the store itself says, if it says anything: of the first.
    pub stated: Option<f64>,
    /// The same with buffers, except for what is in them.
    pub stated_with_buffers: Option<f64>,
}

impl Memory {
    /// Of a store; the process should have done nothing before. `heap` says how many bytes are
    /// allocated.
    ///
    /// # Panics
    ///
    /// If the store cannot be had.
    pub fn measure<S: Store>(tenants: usize, lines: &[u8], heap: fn() -> usize) -> Memory {
        let each = move |work: Box<dyn Fn(usize) + Send + Sync>| {
            on_all_cpus(move |_| (0..tenants).for_each(&*work));
        };
        // Threads, and what is made once.
        let warm = Arc::new(S::new(1, 1).expect("a store"));
        let all = Arc::clone(&warm);
        on_all_cpus(move |_| all.count(0, ANSWERED));
        drop(lease_now(&*warm, 0));
        let before = [heap() as f64, resident() as f64];
        let store = Arc::new(S::new(tenants, 64).expect("a store"));
        let all = Arc::clone(&store);
        each(Box::new(move |tenant| all.count(tenant, ANSWERED)));
        let counted = [heap() as f64, resident() as f64];
        let stated = |store: &S| -> Option<f64> {
            let bytes: Option<usize> = (0..tenants).map(|tenant| store.bytes(tenant)).sum();
            bytes.map(|bytes| bytes as f64 / tenants as f64)
        };
        let stated_of_counted = stated(&store);
        let (all, lines) = (Arc::clone(&store), lines.to_vec());
        each(Box::new(move |tenant| {
            let mut buffer = lease_now(&*all, tenant);
            buffer.lines().clear();
            buffer.lines().push(&lines);
            buffer.lines().sort();
        }));
        let leased = [heap() as f64, resident() as f64];
        let of = |after: [f64; 2], which: usize| (after[which] - before[which]) / tenants as f64;
        Memory {
            heap: of(counted, 0),
            resident: of(counted, 1),
            heap_with_buffers: of(leased, 0),
            resident_with_buffers: of(leased, 1),
            stated: stated_of_counted,
            stated_with_buffers: stated(&store),
        }
    }
}

/// Bytes of memory that this process has; 0 where the kernel does not say.
fn resident() -> usize {
    let text: io::Result<String> = fs::read_to_string("/proc/self/smaps_rollup");
    let text = text.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// The middle of some figures; the upper one of two. `NaN` of none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{OnDomains, OnShards};

    /// As with one CPU more than there are buffers.
    fn waits_for_another<S: Store>() {
        let store = S::new(1, 1).expect("a store");
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..200).for_each(|_| Work::Request.run(&store, 0)));
            }
        });
        assert_eq!((store.totals(0).requests, store.leased(0)), (600, 0));
    }

    #[test]
    fn a_thread_waits_where_all_buffers_are_taken() {
        waits_for_another::<OnDomains>();
        waits_for_another::<OnShards>();
    }
}
