//! The engine's side of the calls by which threads report on their locks.

use crate::engine::Engine;
use crate::results::locks::{Event, Happens, LockReport};
use crate::results::report::Site;

impl Engine {
    /// The running thread says what happens to a lock of `len` bytes.
    pub(crate) fn note_lock(&mut self, lock: usize, len: usize, site: Site, what: Happens) {
        let event = Event {
            lock: self.relative(lock),
            thread: self.current(),
            cpu: self.cpu(),
            at: self.here().now,
        };
        let log = self.locks.log(event.lock, len as u64, site);
        let before = log.since(event.thread);
        what(log, event, &self.topology);
        let Some(tracer) = &mut self.tracer else { return };
        let (after, cpu, who) =
            (log.since(event.thread), event.cpu.index(), (event.lock, event.thread));
        if let (Some(since), None) = (before.waiting, after.waiting) {
            tracer.waited(cpu, who, since, event.at);
        }
        if let (Some(since), None) = (before.holding, after.holding) {
            tracer.held(cpu, who, since, event.at);
        }
    }

    /// The reports on the locks of the run so far.
    pub(super) fn lock_reports(&self) -> Vec<LockReport> {
        let end = |thread: usize| self.threads[thread].ended.unwrap_or(self.settled);
        self.locks.reports(end, |lock| self.names.of(lock, 1))
    }
}
