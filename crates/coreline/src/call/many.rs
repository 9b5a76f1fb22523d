//! Calls to several workers at the same time.

use std::panic::resume_unwind;

use coreline_topology::{CpuId, CpuSet};
use coreline_world::World;

use super::CallError;
use super::post::quietly;
use super::request::{Caller, Header, Request};
use super::shared::Shared;

impl<W: World> Shared<W> {
    /// [`Workers::call_many`](super::Workers::call_many).
    pub(super) fn call_many<R, F>(
        &self,
        cpus: &CpuSet,
        function: F,
    ) -> Result<Vec<(CpuId, R)>, CallError>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        let current = self.current();
        self.admit(current)?;
        let worker = |cpu| self.worker(cpu).ok_or(CallError::NoWorker(cpu));
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
                unsafe { self.send(*index, request.as_message(), true) }
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
        let (mut values, mut refused, mut panicked) = (Vec::new(), None, None);
        for (request, sent) in requests.into_iter().zip(sent) {
            match sent.map(|()| request.into_value()) {
                Ok(Ok(value)) => values.push(value),
                // The first goes on. The others end here, and not while it unwinds: what panics
                // once more then, as the destructor of a payload may, aborts the process.
                Ok(Err(panic)) if panicked.is_none() => panicked = Some(panic),
                Ok(Err(panic)) => quietly(|| drop(panic)),
                Err(why) => _ = refused.get_or_insert(why),
            }
        }
        if panicked.is_none() && refused.is_none() {
            return Ok(cpus.iter().zip(values).collect());
        }
        // One by one: of two destructors that panic, the second would do so while the first one's
        // panic unwinds.
        values.into_iter().for_each(|value| quietly(|| drop(value)));
        match (panicked, refused) {
            (Some(panic), _) => resume_unwind(panic),
            (None, why) => Err(why.unwrap_or(CallError::Closed)),
        }
    }
}
