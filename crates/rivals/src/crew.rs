//! The pinned threads that take one sample together.
//!
//! They are started once for each thread count and sleep between samples, so neither their start
//! nor their first touch of anything is in a sample. For a sample they are woken, meet at a
//! barrier that spins (a sleeping one would let them go one after the other, tens of microseconds
//! apart), and each times its own part.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use coreline_topology::CpuId;
use coreline_world::native::run_queue_wait;
use coreline_world::{JoinHandle, Native, Placement, SpawnError, Threads};
use crossbeam_utils::CachePadded;

use crate::class::{Account, Subject};
use crate::disturbance::{Kind, Lane, Sample};
use crate::native;

/// Some threads that wait for a sample to take.
pub(crate) struct Crew {
    workers: Vec<Worker>,
    cpus: Vec<CpuId>,
}

/// How long a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// This many operations of each thread, a multiple of [`ROUND`](crate::class::ROUND).
    Ops(u64),
    /// The number of operations that a thread gets done in this time.
    Window(Duration),
}

struct Worker {
    orders: Sender<Order>,
    lanes: Receiver<Lane>,
    thread: <Native as Threads>::JoinHandle<()>,
}

/// The work of a thread in one sample.
struct Order {
    subject: Arc<dyn Subject>,
    part: Part,
    barrier: Arc<Barrier>,
    /// The time from which other times are counted.
    epoch: Instant,
}

/// The amount of work of a thread in one sample.
#[derive(Clone)]
enum Part {
    Ops(u64),
    /// Until this is set. The line holds nothing else: it is read at each operation.
    Until(Arc<CachePadded<AtomicBool>>),
}

impl Crew {
    /// This many threads, thread i pinned to the i-th of `cpus`, modulo their number.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if a thread cannot be started, or not on its CPU.
    pub(crate) fn new(threads: usize, cpus: &[CpuId]) -> Result<Crew, SpawnError> {
        let worker = |(number, (cpu, &id))| {
            let (orders, to_do) = mpsc::channel();
            let (done, lanes) = mpsc::channel();
            let thread =
                Native::spawn(Placement::On(id), move || work(number, cpu, &to_do, &done))?;
            Ok(Worker { orders, lanes, thread })
        };
        let places = cpus.iter().enumerate().cycle().take(threads);
        let workers = places.enumerate().map(worker).collect::<Result<_, SpawnError>>()?;
        Ok(Crew { workers, cpus: cpus.to_vec() })
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len()
    }

    /// Whether some of them share a CPU.
    pub(crate) fn is_crowded(&self) -> bool {
        self.threads() > self.cpus.len()
    }

    /// Has each thread do operations for this long.
    ///
    /// # Panics
    ///
    /// If a thread did: a sample that waits for it would never end.
    pub(crate) fn sample(&self, subject: &Arc<dyn Subject>, span: Span) -> Sample {
        let stop = Arc::new(CachePadded::new(AtomicBool::new(false)));
        let (part, busy_before) = match span {
            Span::Ops(ops) => (Part::Ops(ops), None),
            Span::Window(_) => (Part::Until(Arc::clone(&stop)), native::busy_ns(&self.cpus)),
        };
        let barrier = Arc::new(Barrier::new(self.threads(), self.is_crowded()));
        let cpu_before = native::process_cpu_ns();
        let epoch = Instant::now();
        for worker in &self.workers {
            let (subject, barrier) = (Arc::clone(subject), Arc::clone(&barrier));
            let listens = worker.orders.send(Order { subject, part: part.clone(), barrier, epoch });
            listens.expect("a measuring thread listens until its orders end");
        }
        if let Span::Window(window) = span {
            thread::sleep(window);
            // Relaxed: the flag hands nothing over.
            stop.store(true, Ordering::Relaxed);
        }
        let lane = |worker: &Worker| worker.lanes.recv().expect("a measuring thread panicked");
        let lanes = self.workers.iter().map(lane).collect();
        let cpu_ns = native::process_cpu_ns().saturating_sub(cpu_before);
        let kind = match span {
            Span::Ops(_) => Kind::Ops,
            Span::Window(_) => {
                let both = busy_before.zip(native::busy_ns(&self.cpus));
                let since = |(before, after): (&u64, &u64)| after.saturating_sub(*before);
                Kind::Window {
                    busy: both
                        .map(|(before, after)| before.iter().zip(&after).map(since).collect()),
                }
            }
        };
        Sample { lanes, cpus: self.cpus.len(), kind, cpu_ns }
    }

    /// Ends the threads and waits for that.
    pub(crate) fn dismiss(self) {
        for Worker { orders, thread, .. } in self.workers {
            drop(orders);
            thread.join();
        }
    }
}

fn work(number: usize, cpu: usize, orders: &Receiver<Order>, done: &Sender<Lane>) {
    for Order { subject, part, barrier, epoch } in orders {
        let now = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Before the barrier: what makes a thread late to the others' start spoils the sample, too.
        let waited_before = run_queue_wait();
        let ran_at_order = native::thread_cpu_ns();
        barrier.wait();
        let ran_before = match part {
            Part::Ops(_) => native::thread_cpu_ns(),
            // What spinning at the barrier takes is in the busy time of the CPUs.
            Part::Until(_) => ran_at_order,
        };
        let start = now();
        let (done_ops, account) = match part {
            Part::Ops(ops) => (ops, subject.account(number, ops)),
            Part::Until(stop) => (subject.run_until(number, &stop), Account::default()),
        };
        let end = now();
        let ran = native::thread_cpu_ns().saturating_sub(ran_before);
        let Account { counted, waited: others_waited } = account;
        let waited = run_queue_wait()
            .zip(waited_before)
            .map(|(after, before)| after.saturating_sub(before) + others_waited);
        if done.send(Lane { cpu, start, end, ops: done_ops, ran, waited, counted }).is_err() {
            return;
        }
    }
}

/// Whether the kernel says how long a thread waited for its CPU.
pub(crate) fn knows_waits() -> bool {
    run_queue_wait().is_some()
}

/// A barrier: no thread passes before all threads have arrived. For one use.
struct Barrier {
    missing: AtomicUsize,
    /// Whether waiting threads may hold up missing ones: on the same CPU.
    yields: bool,
}

impl Barrier {
    fn new(threads: usize, yields: bool) -> Barrier {
        Barrier { missing: AtomicUsize::new(threads), yields }
    }

    fn wait(&self) {
        // Relaxed, twice: the barrier lines up times and hands no data over. Orders and lanes go
        // through channels.
        self.missing.fetch_sub(1, Ordering::Relaxed);
        while self.missing.load(Ordering::Relaxed) != 0 {
            if self.yields { Native::yield_now() } else { hint::spin_loop() }
        }
    }
}

#[cfg(test)]
mod tests {
    use coreline_world::native::probe;

    use super::*;

    /// Counts how much each thread ran.
    struct Tally(Vec<AtomicUsize>);

    impl Subject for Tally {
        fn run(&self, thread: usize, ops: u64) {
            // Relaxed: read after the lanes came in.
            self.0[thread].fetch_add(usize::try_from(ops).unwrap(), Ordering::Relaxed);
        }

        fn total(&self) -> Option<u64> {
            Some(self.0.iter().map(|done| done.load(Ordering::Relaxed) as u64).sum())
        }
    }

    #[test]
    fn a_window_counts_what_each_thread_did() {
        let cpus: Vec<_> = probe().allowed.unwrap().iter().collect();
        let crew = Crew::new(2 * cpus.len() + 1, &cpus).unwrap();
        let tally = Arc::new(Tally((0..crew.threads()).map(|_| AtomicUsize::new(0)).collect()));
        let subject: Arc<dyn Subject> = tally.clone();
        let sample = crew.sample(&subject, Span::Window(Duration::from_millis(5)));
        crew.dismiss();
        for (lane, done) in sample.lanes.iter().zip(&tally.0) {
            // Relaxed: the threads were joined.
            assert_eq!(lane.ops, done.load(Ordering::Relaxed) as u64);
        }
        assert_eq!(Some(sample.ops()), tally.total());
        assert!(matches!(sample.kind, Kind::Window { .. }));
    }

    #[test]
    fn every_thread_does_its_part_on_its_cpu() {
        let cpus: Vec<_> = probe().allowed.unwrap().iter().collect();
        for threads in [1, 2, 2 * cpus.len() + 1] {
            let crew = Crew::new(threads, &cpus).unwrap();
            let tally = Arc::new(Tally((0..threads).map(|_| AtomicUsize::new(0)).collect()));
            let subject: Arc<dyn Subject> = tally.clone();
            for _ in 0..3 {
                let sample = crew.sample(&subject, Span::Ops(5));
                let on: Vec<_> = sample.lanes.iter().map(|lane| lane.cpu).collect();
                let expected: Vec<_> = (0..threads).map(|number| number % cpus.len()).collect();
                assert_eq!(on, expected);
                assert!(sample.lanes.iter().all(|lane| lane.start <= lane.end));
                // Zeros of a kernel that keeps no figures are not mistaken for figures.
                assert!(sample.lanes.iter().all(|lane| lane.waited.is_some() == knows_waits()));
            }
            crew.dismiss();
            // Relaxed: the threads were joined.
            assert!(tally.0.iter().all(|done| done.load(Ordering::Relaxed) == 15));
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let error = Crew::new(1, &[CpuId::new(60_000)]).map(Crew::dismiss).unwrap_err();
        assert!(matches!(error, SpawnError::Cpu { .. }), "{error}");
    }
}
