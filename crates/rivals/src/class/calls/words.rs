//! Words that two threads share: the floors, and workers that sleep by the bare means of the system
//! and of the standard library.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

use crossbeam_utils::CachePadded;

use super::super::wait_until;
use super::{Caller, LOOKS, Way, Worker, function};
use crate::native::{futex_wait, futex_wake};

/// One word goes forth and back: the question with 1 in its lowest bit, the answer with 0 there.
pub(super) struct PingPong;

pub(super) struct Ball(Arc<CachePadded<AtomicU64>>);

impl Way for PingPong {
    type Caller = Ball;
    type Worker = Ball;

    fn new() -> (Ball, Ball) {
        let word = Arc::default();
        (Ball(Arc::clone(&word)), Ball(word))
    }
}

impl Ball {
    #[inline(always)]
    fn wait(&self, bit: u64) -> u64 {
        // Relaxed, here and below: the word is all that is handed over.
        wait_until(LOOKS, || {
            let word = self.0.load(Ordering::Relaxed);
            (word & 1 == bit).then_some(word >> 1)
        })
    }
}

impl Caller for Ball {
    #[inline(always)]
    fn call(&mut self, question: u64) -> u64 {
        self.0.store(question << 1 | 1, Ordering::Relaxed);
        self.wait(0)
    }
}

impl Worker for Ball {
    #[inline(always)]
    fn serve<const SLEEPS: bool>(&mut self) {
        let question = self.wait(1);
        self.0.store(function(question) << 1, Ordering::Relaxed);
    }
}

/// There is a question.
const ASKED: u32 = 1;
/// There is an answer.
const ANSWERED: u32 = 2;

/// One place for a question and its answer.
#[derive(Default)]
struct Mailbox {
    /// `ASKED` or `ANSWERED`; neither at first. A worker may sleep on it.
    state: AtomicU32,
    question: AtomicU64,
    answer: AtomicU64,
    /// The worker of a sample, until its caller has looked.
    worker: Mutex<Option<Thread>>,
}

/// How a worker sleeps until there is a question, and is woken.
pub(super) trait Bell: Default + Send + 'static {
    /// The caller runs this before a sample. `worker` says which thread the worker is, when it has
    /// started.
    fn find(&mut self, _worker: impl FnMut() -> Option<Thread>) {}

    /// The caller's, when the state says that there is a question.
    fn ring(&self, state: &AtomicU32);

    /// The worker's: sleeps while the state is this; returns now and then without.
    fn sleep(state: &AtomicU32, seen: u32);
}

/// No worker sleeps.
#[derive(Default)]
pub(super) struct Never;

impl Bell for Never {
    #[inline(always)]
    fn ring(&self, _: &AtomicU32) {}

    fn sleep(_: &AtomicU32, _: u32) {
        unreachable!("the floors are for workers that poll");
    }
}

#[derive(Default)]
pub(super) struct OnState;

impl Bell for OnState {
    #[inline(always)]
    fn ring(&self, state: &AtomicU32) {
        futex_wake(state);
    }

    fn sleep(state: &AtomicU32, seen: u32) {
        futex_wait(state, seen);
    }
}

#[derive(Default)]
pub(super) struct Unpark(Option<Thread>);

impl Bell for Unpark {
    fn find(&mut self, worker: impl FnMut() -> Option<Thread>) {
        self.0 = Some(wait_until(LOOKS, worker));
    }

    #[inline(always)]
    fn ring(&self, _: &AtomicU32) {
        self.0.as_ref().expect("the worker was found before the sample").unpark();
    }

    fn sleep(_: &AtomicU32, _: u32) {
        thread::park();
    }
}

/// A mailbox whose worker sleeps by `B`.
pub(super) struct By<B>(PhantomData<B>);

/// One whose worker polls.
pub(super) type Slot = By<Never>;
/// One whose worker sleeps on the state word itself.
pub(super) type Futex = By<OnState>;
/// One whose worker sleeps as the standard library has it.
pub(super) type Park = By<Unpark>;

pub(super) struct Asking<B> {
    mailbox: Arc<CachePadded<Mailbox>>,
    bell: B,
}

pub(super) struct Answering<B> {
    mailbox: Arc<CachePadded<Mailbox>>,
    bell: PhantomData<B>,
}

impl<B: Bell> Way for By<B> {
    type Caller = Asking<B>;
    type Worker = Answering<B>;

    fn new() -> (Asking<B>, Answering<B>) {
        let mailbox: Arc<CachePadded<Mailbox>> = Arc::default();
        let worker = Answering { mailbox: Arc::clone(&mailbox), bell: PhantomData };
        (Asking { mailbox, bell: B::default() }, worker)
    }
}

impl<B: Bell> Caller for Asking<B> {
    fn begin(&mut self) {
        let worker = &self.mailbox.worker;
        self.bell.find(|| worker.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    #[inline(always)]
    fn call(&mut self, question: u64) -> u64 {
        let Mailbox { state, question: asked, answer, .. } = &**self.mailbox;
        // Relaxed: the state publishes it.
        asked.store(question, Ordering::Relaxed);
        // Release: pairs with the Acquire of `serve`, which reads the question.
        state.store(ASKED, Ordering::Release);
        self.bell.ring(state);
        wait_until(LOOKS, || {
            // Acquire: pairs with the Release of `serve`, which wrote the answer.
            let is_there = state.load(Ordering::Acquire) == ANSWERED;
            is_there.then(|| answer.load(Ordering::Relaxed))
        })
    }
}

impl<B: Bell> Worker for Answering<B> {
    fn begin(&mut self) {
        let mut worker = self.mailbox.worker.lock().unwrap_or_else(PoisonError::into_inner);
        *worker = Some(thread::current());
    }

    #[inline(always)]
    fn serve<const SLEEPS: bool>(&mut self) {
        let Mailbox { state, question, answer, .. } = &**self.mailbox;
        // Acquire: pairs with the Release of `call`, which wrote the question.
        let look = || state.load(Ordering::Acquire);
        if SLEEPS {
            loop {
                match look() {
                    ASKED => break,
                    seen => B::sleep(state, seen),
                }
            }
        } else {
            wait_until(LOOKS, || (look() == ASKED).then_some(()));
        }
        // Relaxed: the state publishes it.
        answer.store(function(question.load(Ordering::Relaxed)), Ordering::Relaxed);
        // Release: pairs with the Acquire of `call`, which reads the answer.
        state.store(ANSWERED, Ordering::Release);
    }
}
