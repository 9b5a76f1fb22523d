//! Calls to several workers at the same time.

use std::panic::resume_unwind;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::World;

use super::Why;
use super::request::{Caller, Header, Request};
use super::shared::Shared;

impl<W: World> Shared<W> {
    /// [`Workers::call_many`](super::Workers::call_many).
    pub(super) fn call_many<R, F>(&self, cpus: &CpuSet, function: F) -> Result<Vec<(CpuId, R)>, Why>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        let current = self.current();
        self.admit(current)?;
        let worker = |cpu| self.worker(cpu).ok_or(Why::NoWorker(cpu));
        let callees: Vec<usize> = cpus.iter().map(worker).collect::<Result<_, _>>()?;
        let function = &function;
        let caller = Caller::new(current);
        let request = |cpu| Request::new_in(move || function(cpu), caller);
        let requests: Vec<_> = cpus.iter().map(request).collect();
        let mut sent = Vec::with_capacity(requests.len());
        for (request, index) in requests.iter().zip(&callees) {
            sent.push(if current == Some(*index) {
                Ok(())
            } else {
                // SAFETY: this waits below until every request that was sent is done.
                unsafe { self.workers[*index].send(request.as_message(), true, self.kicks()) }
            });
        }
        // When the others have it: it may wait for them.
        let own = callees.iter().position(|index| current == Some(*index));
        if let Some(own) = own {
            // SAFETY: it was sent to no other thread.
            unsafe { Header::run(requests[own].as_message()) };
        }
        for ((request, index), sent) in requests.iter().zip(&callees).zip(&sent) {
            if sent.is_ok() && current != Some(*index) {
                self.wait(current, request.header(), &self.workers[*index]);
            }
        }
        let values = requests.into_iter().zip(sent).map(|(request, sent)| {
            sent?;
            Ok::<R, Why>(request.into_value().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        let values: Vec<R> = values.collect::<Result<_, Why>>()?;
        Ok(cpus.iter().zip(values).collect())
    }
}
