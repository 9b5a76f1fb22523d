//! The form `callers`: threads that call one worker, and wait as its library has them wait.
//!
//! The worker is a thread of its own on the second CPU, so with two or more callers some are on its
//! CPU. A sample is a window of time. A program that hands requests to one thread,
//! an actor, is like that: the program does not tell the worker or its callers when to poll.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use coreline::{Lacking, Workers};
use coreline_topology::{CpuId, CpuSet};
use coreline_world::{JoinHandle, Native, Placement, Threads, Why};
use tokio::sync::oneshot;

use super::super::{Candidate, Form, Params, Role, Subject, Window};
use super::{OURS, function, lacking, second_cpu};

const REFERENCE: &str = "tokio mpsc+oneshot, blocking";

const WINDOW: Window = Window { length: Duration::from_millis(500), late: &[] };

/// The number of questions that fit into a bounded channel.
const PLACES: usize = 64;

const OPEN: &str = "the worker takes questions as long as a caller has the channel";

pub(super) fn form() -> Form {
    let ours = |name: &str, make| Candidate { name: name.to_owned(), role: Role::Ours, make };
    let rival = |name: &str, make| Candidate { name: name.to_owned(), role: Role::Rival, make };
    Form {
        title: "callers",
        threads: vec![1, 2, 16],
        window: Some(WINDOW),
        params: Params::default(),
        candidates: vec![
            ours(OURS, || called(None)),
            ours("coreline Workers, polling(0)", || called(Some(Duration::ZERO))),
            ours("coreline Workers, polling(1 s)", || called(Some(Duration::from_secs(1)))),
            rival(REFERENCE, asked::<Tokio>),
            rival("std mpsc, reply channel", asked::<Std>),
            rival("crossbeam-channel, reply channel", asked::<Crossbeam>),
        ],
        reference: REFERENCE.to_owned(),
        goals: Vec::new(),
    }
}

/// One that many threads may ask at the same time.
trait Asked: Send + Sync + 'static {
    /// Waits for the answer.
    fn ask(&self, question: u64) -> u64;
}

/// The measured times, and how many answers were right.
struct Callers<A> {
    worker: A,
    right: AtomicU64,
}

impl<A: Asked> Subject for Callers<A> {
    fn run(&self, _: usize, ops: u64) {
        let right = (0..ops).filter(|&it| self.worker.ask(it) == function(it)).count();
        // Relaxed: read when the threads have reported through a channel.
        self.right.fetch_add(right as u64, Ordering::Relaxed);
    }

    fn total(&self) -> Option<u64> {
        // Relaxed: see above.
        Some(self.right.load(Ordering::Relaxed))
    }
}

fn subject(worker: impl Asked) -> Arc<dyn Subject> {
    Arc::new(Callers { worker, right: AtomicU64::new(0) })
}

/// Ours, which polls for this long at most, or as it does by itself.
fn called(polling: Option<Duration>) -> Result<Arc<dyn Subject>, Lacking> {
    let cpu = second_cpu()?;
    let workers = Workers::builder().cpus(CpuSet::from_iter([cpu]));
    let workers = match polling {
        Some(polling) => workers.polling(polling),
        None => workers,
    };
    match workers.start() {
        Ok(workers) => Ok(subject((workers, cpu))),
        Err(why) => Err(lacking(Why::from(why.to_string()), "run the other candidates")),
    }
}

impl Asked for (Workers, CpuId) {
    fn ask(&self, question: u64) -> u64 {
        self.0.call_on(self.1, move || function(question)).expect(OPEN)
    }
}

/// A channel to a worker whose messages bring the way back.
trait Way: 'static {
    type Sender: Send + Sync + Clone + 'static;
    type Receiver: Send + 'static;

    fn new() -> (Self::Sender, Self::Receiver);

    fn ask(sender: &Self::Sender, question: u64) -> u64;

    /// Answers until the last caller has dropped its end.
    fn serve(receiver: Self::Receiver);
}

/// A worker that is asked through a channel. It ends when the channel does.
struct Channel<W: Way> {
    /// `None` when it has been closed.
    sender: Option<W::Sender>,
    thread: Option<<Native as Threads>::JoinHandle<()>>,
}

fn asked<W: Way>() -> Result<Arc<dyn Subject>, Lacking> {
    let (sender, receiver) = W::new();
    let thread = Native::spawn(Placement::On(second_cpu()?), || W::serve(receiver))
        .map_err(|why| lacking(Why::from(why.to_string()), "run the other candidates"))?;
    Ok(subject(Channel::<W> { sender: Some(sender), thread: Some(thread) }))
}

impl<W: Way> Asked for Channel<W> {
    fn ask(&self, question: u64) -> u64 {
        W::ask(self.sender.as_ref().expect(OPEN), question)
    }
}

impl<W: Way> Drop for Channel<W> {
    fn drop(&mut self) {
        self.sender = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// As tokio's documentation has it, without a runtime: the worker and its callers block.
struct Tokio;

impl Way for Tokio {
    type Sender = tokio::sync::mpsc::Sender<(u64, oneshot::Sender<u64>)>;
    type Receiver = tokio::sync::mpsc::Receiver<(u64, oneshot::Sender<u64>)>;

    fn new() -> (Self::Sender, Self::Receiver) {
        tokio::sync::mpsc::channel(PLACES)
    }

    fn ask(sender: &Self::Sender, question: u64) -> u64 {
        let (answer, answered) = oneshot::channel();
        sender.blocking_send((question, answer)).expect(OPEN);
        answered.blocking_recv().expect(OPEN)
    }

    fn serve(mut receiver: Self::Receiver) {
        while let Some((question, answer)) = receiver.blocking_recv() {
            // A caller that is gone needs no answer.
            let _ = answer.send(function(question));
        }
    }
}

/// Channels with std's methods. The expressions make the channel and the reply's channel, which
/// holds one value.
macro_rules! by_channel {
    ($($Way:ident: $Sender:ty, $Receiver:ty, $make:expr, $reply_make:expr;)*) => {$(
        struct $Way;

        impl Way for $Way {
            type Sender = $Sender;
            type Receiver = $Receiver;

            fn new() -> (Self::Sender, Self::Receiver) {
                $make
            }

            fn ask(sender: &Self::Sender, question: u64) -> u64 {
                let (answer, answered) = $reply_make;
                sender.send((question, answer)).expect(OPEN);
                answered.recv().expect(OPEN)
            }

            fn serve(receiver: Self::Receiver) {
                while let Ok((question, answer)) = receiver.recv() {
                    // A caller that is gone needs no answer.
                    let _ = answer.send(function(question));
                }
            }
        }
    )*};
}

by_channel! {
    Std: mpsc::SyncSender<(u64, mpsc::SyncSender<u64>)>,
        mpsc::Receiver<(u64, mpsc::SyncSender<u64>)>,
        mpsc::sync_channel(PLACES), mpsc::sync_channel(1);
    Crossbeam: crossbeam_channel::Sender<(u64, crossbeam_channel::Sender<u64>)>,
        crossbeam_channel::Receiver<(u64, crossbeam_channel::Sender<u64>)>,
        crossbeam_channel::bounded(PLACES), crossbeam_channel::bounded(1);
}
