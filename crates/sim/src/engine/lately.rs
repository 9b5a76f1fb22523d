//! What a machine did lately: what tells a livelock from slow progress.
//!
//! From time to time, and before the step limit, the machine watches what the threads do. That
//! costs host time, so it watches [`WINDOW`] steps and not more.

use super::{Engine, Site};
use crate::results::failure::{FailureKind, Lately};
use crate::results::statistics::Ledger;

/// How many steps the machine watches.
const WINDOW: u64 = 1_000_000;

/// After how many steps it looks whether the threads get anywhere; then again and again.
const CHECK: u64 = 500_000_000;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Watch {
    accesses: u64,
    changes: u64,
    /// The acquisitions of locks before.
    acquired: u64,
    /// By CPU: the latest word written, and what it held before.
    written: Vec<Option<(usize, u64)>>,
    /// By thread: where its latest access is in the source.
    sites: Vec<Option<Site>>,
}

impl Watch {
    /// Where a thread's latest access is in the source.
    pub(super) fn site(&self, thread: usize) -> Option<Site> {
        self.sites.get(thread).copied().flatten()
    }
}

/// How many steps a machine with this limit watches at its end.
fn window(limit: u64) -> u64 {
    WINDOW.min(limit / 2)
}

/// The first step at which a machine with this limit begins to watch.
pub(super) fn first(limit: u64) -> u64 {
    let end = limit.min(CHECK);
    end - window(end)
}

impl Engine {
    /// The machine has come to the step at which it begins or stops to watch.
    #[cold]
    #[inline(never)]
    pub(super) fn look(&mut self) {
        let steps = self.report.steps - 1;
        let Some(watch) = &self.watch else {
            let acquired = self.locks.acquisitions();
            self.watch = Some(Box::new(Watch { acquired, ..Watch::default() }));
            if self.ledger.is_none() {
                self.ledger = Some(Box::new(Ledger::new(self.cpus.len(), None)));
            }
            let end = self.step_limit.min((steps / CHECK + 1) * CHECK);
            self.look_at = end;
            return;
        };
        let lately = Lately {
            steps: window(steps.min(self.step_limit)),
            accesses: watch.accesses,
            changes: watch.changes,
            acquisitions: self.locks.acquisitions() - watch.acquired,
        };
        if steps >= self.step_limit || !lately.is_progress() {
            self.fail(FailureKind::Livelock { steps, lately });
            return;
        }
        self.watch = None;
        if !self.is_full {
            self.ledger = None;
        }
        let end = self.step_limit.min((steps / CHECK + 1) * CHECK);
        self.look_at = end - window(end).min(end - steps);
    }

    /// Notes an access of a CPU, before it takes effect.
    pub(super) fn watch_access(&mut self, cpu: usize, address: usize, writes: bool, site: Site) {
        self.watch_change(cpu);
        let thread = self.cpus[cpu].current;
        let word = address & !7;
        let value = (writes && self.line_of(word).is_some()).then(|| peek(word));
        let Some(watch) = &mut self.watch else { return };
        watch.accesses += 1;
        if let Some(thread) = thread {
            resize(&mut watch.sites, thread)[thread] = Some(site);
        }
        resize(&mut watch.written, cpu)[cpu] = value.map(|value| (word, value));
    }

    /// Whether the word that a CPU wrote last has changed since.
    fn watch_change(&mut self, cpu: usize) {
        let written = self.watch.as_mut().and_then(|watch| watch.written.get_mut(cpu)?.take());
        // A stack may be gone by now.
        if let Some((word, before)) = written.filter(|&(word, _)| self.line_of(word).is_some())
            && peek(word) != before
            && let Some(watch) = &mut self.watch
        {
            watch.changes += 1;
        }
    }
}

/// The eight bytes at an address, which is a multiple of eight and the machine's memory.
fn peek(word: usize) -> u64 {
    // SAFETY: the caller has asked `line_of`: the arena or a stack, which are mapped, and whole
    // lines of which one machine has; its simulated threads run on this host thread, one at a time.
    // The value is only compared, and any bytes are one.
    unsafe { std::ptr::with_exposed_provenance::<u64>(word).read_volatile() }
}

/// A table with room for an index.
fn resize<T: Clone>(table: &mut Vec<Option<T>>, index: usize) -> &mut Vec<Option<T>> {
    if table.len() <= index {
        table.resize(index + 1, None);
    }
    table
}
