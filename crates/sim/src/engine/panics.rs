//! The panics of simulated threads, and which of them a failure is about.
//!
//! A panic often has an earlier one as its cause: `join().unwrap()`, a scope, or a poisoned lock
//! passes on the panic of another thread. The one that a failure is about is the first of such a
//! chain.
//!
//! | a thread learns of another one's panic | and its own panic follows from that, if its message |
//! |---|---|
//! | by `join`, or as the owner of a scope | is the same, ends in `Any { .. }`, or is the scope's |
//! | by a poisoned lock | has `PoisonError` |

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write as _;
use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use super::{Engine, inside, with};
use crate::hardware::arena;
use crate::results::failure::{FailureKind, Panicked};

/// The message of a panic whose payload is of another type.
pub(super) const NOT_A_STRING: &str = "(not a string)";

/// The message of a scope whose thread panicked.
pub(crate) const OF_A_SCOPE: &str = "a scoped thread panicked";

/// The maximum number of remembered panics, because a program may panic and catch the panic without
/// end.
const MOST: usize = 64;

/// The number of a panic, in the order of their beginnings.
pub(crate) type PanicNumber = usize;

struct Noted {
    panic: Panicked,
    /// The panic from which it follows.
    cause: Option<PanicNumber>,
}

/// The panics of a run.
#[derive(Default)]
pub(super) struct Panics {
    /// The latest ones.
    noted: VecDeque<Noted>,
    /// The number of the first of these.
    first: PanicNumber,
    /// The latest that the hook saw, unless a thread's end has taken it.
    latest: Option<PanicNumber>,
    /// For each thread: the panic that ended it, if no other thread has learnt of it.
    unlearnt: BTreeMap<usize, PanicNumber>,
    /// For each thread: the panic that ended it.
    ended: BTreeMap<usize, PanicNumber>,
    /// For each thread: the last panic of another thread that it has learnt of.
    learnt: BTreeMap<usize, PanicNumber>,
    /// The panic that poisoned a lock, by address of the lock's mark.
    poisoned: BTreeMap<usize, PanicNumber>,
}

impl Panics {
    fn get(&self, number: PanicNumber) -> Option<&Noted> {
        self.noted.get(number.checked_sub(self.first)?)
    }

    /// The latest panic with a message, with its number.
    fn with_message(&self, message: &str) -> Option<PanicNumber> {
        let found = self.noted.iter().rposition(|noted| noted.panic.message == message)?;
        Some(self.first + found)
    }

    fn push(&mut self, panic: Panicked) -> PanicNumber {
        let message = panic.message.as_str();
        let passes_on = message.ends_with("Any { .. }")
            || message.contains("PoisonError")
            || message == OF_A_SCOPE;
        let cause = self.learnt.get(&panic.thread).copied().filter(|_| passes_on);
        self.noted.push_back(Noted { panic, cause });
        if self.noted.len() > MOST {
            self.noted.pop_front();
            self.first += 1;
        }
        self.first + self.noted.len() - 1
    }

    /// The failure of a run that a panic ends: the first of its chain.
    fn root(&self, mut number: PanicNumber) -> Option<FailureKind> {
        // A cause is older, so this ends.
        while let Some(cause) = self.get(number)?.cause.filter(|&cause| self.get(cause).is_some()) {
            number = cause;
        }
        let Panicked { thread, cpu, message, location } = self.get(number)?.panic.clone();
        Some(FailureKind::Panic { thread, cpu, message, location })
    }

    /// All that are remembered, in the order of their beginnings.
    pub(super) fn all(&self) -> Vec<Panicked> {
        self.noted.iter().map(|noted| noted.panic.clone()).collect()
    }
}

/// The panic that the running thread just caught at its end. The run fails with it if no thread
/// learns of it.
pub(crate) fn caught(payload: &(dyn Any + Send)) -> PanicNumber {
    inside(|engine| {
        let message = payload.downcast_ref::<String>().map(String::as_str);
        let message = message.or(payload.downcast_ref::<&'static str>().copied());
        let number = engine.panic_of(message.unwrap_or(NOT_A_STRING));
        let current = engine.current();
        engine.panics.unlearnt.insert(current, number);
        engine.panics.ended.insert(current, number);
        number
    })
}

/// Ends the run because of a panic. Does nothing outside of a machine.
pub(crate) fn fail_with(number: PanicNumber) {
    with(|engine| {
        if let Some(kind) = engine.panics.root(number) {
            engine.fail(kind);
        }
    });
}

/// Has panics in simulated code noted and not printed: such a panic becomes a
/// [`FailureKind::Panic`], or is caught by the program itself. A panic that cannot unwind ends the
/// process, so this prints all that a failure would say.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            // A panic of the engine itself, which has left the arena, is the host's.
            let simulated = arena::is_entered() && with(|engine| engine.note(info)).is_some();
            if !simulated {
                usual(info);
            }
        }));
    });
}

/// Whether the process ends after a panic. `PanicHookInfo::can_unwind` is not stable; its value is
/// a part of the stable `Debug`, in which a payload has no text.
fn is_last(info: &PanicHookInfo<'_>) -> bool {
    format!("{info:?}").contains("can_unwind: false")
}

impl Engine {
    /// The running thread begins to unwind.
    pub(crate) fn note_panic(&mut self) {
        let current = self.current();
        self.threads[current].panicked = true;
    }

    /// Whether the running thread is unwinding. The host counts the panics of all simulated threads
    /// as those of its one thread; while that count is zero, no thread unwinds.
    pub(crate) fn is_unwinding(&mut self) -> bool {
        let current = self.current();
        let thread = &mut self.threads[current];
        thread.panicked &= std::thread::panicking();
        thread.panicked
    }

    /// The hook has been called by the running thread.
    fn note(&mut self, info: &PanicHookInfo<'_>) {
        let panic = Panicked {
            thread: self.current(),
            cpu: self.cpu(),
            message: info.payload_as_str().unwrap_or(NOT_A_STRING).to_owned(),
            location: info.location().map(|at| format!("{}:{}", at.file(), at.line())),
        };
        if is_last(info) {
            self.say_last_words(&panic);
        }
        self.note_panic();
        self.panics.latest = Some(self.panics.push(panic));
    }

    /// The process ends: after the hook, Rust aborts. Not by `eprintln!`, whose text the test
    /// harness keeps for a test's end.
    fn say_last_words(&self, last: &Panicked) {
        let thread = last.thread;
        let mut text = format!(
            "coreline-sim: simulated thread {thread} panicked where Rust cannot unwind, so Rust \
             aborts the process\n"
        );
        let own = self.panics.noted.iter().filter(|noted| noted.panic.thread == thread);
        let (mut own, mut roots) = (own.collect::<Vec<_>>(), Vec::new());
        // The latest two: the one that unwinds, and the one in a destructor.
        own.drain(..own.len().saturating_sub(2));
        while let Some(cause) = own.first().and_then(|first| self.panics.get(first.cause?)) {
            own.insert(0, cause);
        }
        roots.extend(own.iter().map(|noted| &noted.panic));
        for (index, panic) in roots.into_iter().chain([last]).enumerate() {
            let before = if index == 0 { "  " } else { "  then " };
            text.push_str(&format!("{before}{panic}\n"));
        }
        text.push_str(&format!("  replay: {}\n", self.replay));
        // Nothing is left to do if stderr is closed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// The panic with this message that ends the running thread. One that was caught and raised
    /// again is the one that it was; one that was raised without the hook has no place.
    pub(super) fn panic_of(&mut self, message: &str) -> PanicNumber {
        let latest = self.panics.latest.take();
        let is_it = |&number: &PanicNumber| {
            self.panics.get(number).is_some_and(|noted| noted.panic.message == message)
        };
        let known = latest.filter(is_it).or_else(|| self.panics.with_message(message));
        known.unwrap_or_else(|| {
            let (thread, cpu) = (self.current(), self.cpu());
            let message = message.to_owned();
            self.panics.push(Panicked { thread, cpu, message, location: None })
        })
    }

    /// A panic with this message has ended the run.
    pub(super) fn fail_by_panic(&mut self, message: &str) {
        let number = self.panic_of(message);
        if let Some(kind) = self.panics.root(number) {
            self.fail(kind);
        }
    }

    /// The running thread has learnt of a thread's panic, if that panicked.
    pub(crate) fn learn_of(&mut self, thread: usize) {
        self.panics.unlearnt.remove(&thread);
        if let Some(&number) = self.panics.ended.get(&thread) {
            self.learn(number);
        }
    }

    /// The running thread has learnt of a panic.
    pub(crate) fn learn(&mut self, number: PanicNumber) {
        let current = self.current();
        self.panics.learnt.insert(current, number);
    }

    /// A panic is known to the owner of a scope, whichever thread that is.
    pub(crate) fn is_known(&mut self, number: PanicNumber) {
        self.panics.unlearnt.retain(|_, other| *other != number);
    }

    /// The running thread, which unwinds, poisons a lock.
    pub(crate) fn poisons(&mut self, mark: usize) {
        let current = self.current();
        let own = |noted: &Noted| noted.panic.thread == current;
        if let Some(at) = self.panics.noted.iter().rposition(own) {
            self.panics.poisoned.insert(mark, self.panics.first + at);
        }
    }

    /// The running thread finds a lock poisoned.
    pub(crate) fn finds_poison(&mut self, mark: usize) {
        if let Some(&number) = self.panics.poisoned.get(&mark) {
            self.learn(number);
        }
    }

    /// Fails if a thread panicked and no other thread learnt of the panic, although a handle to the
    /// thread is left: one that the program returned or forgot.
    pub(super) fn fail_if_unlearnt(&mut self) {
        if let Some((_, number)) = self.panics.unlearnt.pop_first()
            && let Some(kind) = self.panics.root(number)
        {
            self.fail(kind);
        }
    }

    /// The panic that makes a thread hang in a destructor, if there is one. Any other reason to
    /// stop the machine only follows from this panic.
    pub(super) fn stuck_panic(&mut self) -> Option<FailureKind> {
        let unwinding = std::thread::panicking() && !self.host_unwinds;
        let latest = self.panics.latest.take_if(|_| unwinding)?;
        self.panics.root(latest)
    }
}
