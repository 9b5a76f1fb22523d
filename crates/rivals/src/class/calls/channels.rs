//! Channels: questions go through one, answers come back through another.

use std::sync::mpsc;

use tokio::sync::oneshot;

use super::super::wait_until;
use super::{Caller, LOOKS, Way, Worker, function};

/// How many messages fit into a bounded channel.
const PLACES: usize = 64;

const OPEN: &str = "the other end stays";

/// Channels whose ends are `$Sender` and `$Receiver` with the methods of std's.
macro_rules! ways {
    ($($Way:ident, $Caller:ident, $Worker:ident: $Sender:ty, $Receiver:ty, $make:expr;)*) => {$(
        pub(super) struct $Way;

        pub(super) struct $Caller {
            questions: $Sender,
            answers: $Receiver,
        }

        pub(super) struct $Worker {
            questions: $Receiver,
            answers: $Sender,
        }

        impl Way for $Way {
            type Caller = $Caller;
            type Worker = $Worker;

            fn new() -> ($Caller, $Worker) {
                let ((questions, asked), (given, answers)) = ($make, $make);
                let worker = $Worker { questions: asked, answers: given };
                ($Caller { questions, answers }, worker)
            }
        }

        impl Caller for $Caller {
            #[inline(always)]
            fn call(&mut self, question: u64) -> u64 {
                self.questions.send(question).expect(OPEN);
                wait_until(LOOKS, || there(self.answers.try_recv()))
            }
        }

        impl Worker for $Worker {
            #[inline(always)]
            fn serve<const SLEEPS: bool>(&mut self) {
                let question = if SLEEPS {
                    self.questions.recv().expect(OPEN)
                } else {
                    wait_until(LOOKS, || there(self.questions.try_recv()))
                };
                self.answers.send(function(question)).expect(OPEN);
            }
        }
    )*};
}

ways! {
    Std, StdCaller, StdWorker:
        mpsc::Sender<u64>, mpsc::Receiver<u64>, mpsc::channel();
    Crossbeam, CrossbeamCaller, CrossbeamWorker:
        crossbeam_channel::Sender<u64>, crossbeam_channel::Receiver<u64>,
        crossbeam_channel::bounded(PLACES);
    Flume, FlumeCaller, FlumeWorker:
        flume::Sender<u64>, flume::Receiver<u64>, flume::bounded(PLACES);
    Kanal, KanalCaller, KanalWorker:
        kanal::Sender<u64>, kanal::Receiver<u64>, kanal::bounded(PLACES);
}

/// The result of checking a channel.
trait Looked {
    fn there(self) -> Option<u64>;
}

/// An error is an empty channel: none is ever closed.
impl<E> Looked for Result<u64, E> {
    #[inline(always)]
    fn there(self) -> Option<u64> {
        self.ok()
    }
}

/// kanal says by itself that a channel is empty.
impl<E> Looked for Result<Option<u64>, E> {
    #[inline(always)]
    fn there(self) -> Option<u64> {
        self.ok().flatten()
    }
}

#[inline(always)]
fn there(looked: impl Looked) -> Option<u64> {
    looked.there()
}

/// Each question brings the channel for its answer.
pub(super) struct Tokio;

struct Asked {
    question: u64,
    answer: oneshot::Sender<u64>,
}

pub(super) struct TokioCaller(tokio::sync::mpsc::Sender<Asked>);

pub(super) struct TokioWorker(tokio::sync::mpsc::Receiver<Asked>);

impl Way for Tokio {
    type Caller = TokioCaller;
    type Worker = TokioWorker;

    fn new() -> (TokioCaller, TokioWorker) {
        let (questions, asked) = tokio::sync::mpsc::channel(PLACES);
        (TokioCaller(questions), TokioWorker(asked))
    }
}

impl Caller for TokioCaller {
    #[inline(always)]
    fn call(&mut self, question: u64) -> u64 {
        let (answer, mut answered) = oneshot::channel();
        // It is never full: one call is under way.
        assert!(self.0.try_send(Asked { question, answer }).is_ok(), "{OPEN}");
        wait_until(LOOKS, || answered.try_recv().ok())
    }
}

impl Worker for TokioWorker {
    #[inline(always)]
    fn serve<const SLEEPS: bool>(&mut self) {
        let Asked { question, answer } = if SLEEPS {
            self.0.blocking_recv().expect(OPEN)
        } else {
            wait_until(LOOKS, || self.0.try_recv().ok())
        };
        answer.send(function(question)).expect(OPEN);
    }
}
