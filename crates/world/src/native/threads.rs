//! Threads: those of std, which settle on their CPUs before they run anything else.

use core::time::Duration;
use std::sync::mpsc;
use std::{panic, thread};

use coreline_topology::CpuSet;

use crate::native::{Native, system};
use crate::{Place, Placement, SpawnError, ThreadOptions, Threads};

/// A handle to wait for a native thread.
#[derive(Debug)]
pub struct JoinHandle<T>(thread::JoinHandle<Option<T>>);

impl<T> crate::JoinHandle<T> for JoinHandle<T> {
    fn join(self) -> T {
        match self.0.join() {
            Ok(Some(value)) => value,
            Ok(None) => unreachable!("a thread that could not be placed has no handle"),
            Err(panic) => panic::resume_unwind(panic),
        }
    }

    fn is_current(&self) -> bool {
        self.0.thread().id() == thread::current().id()
    }
}

impl Threads for Native {
    type JoinHandle<T: Send + 'static> = JoinHandle<T>;

    fn spawn<T, F>(placement: Placement, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        spawn(thread::Builder::new(), placement, Box::new(f))
    }

    /// Linux shows the first 15 bytes of the name.
    fn spawn_with<T, F>(
        options: ThreadOptions<'_>,
        placement: Placement,
        f: F,
    ) -> Result<JoinHandle<T>, SpawnError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // A NUL would end the name early, and std panics at one.
        let named = thread::Builder::new().name(options.name.replace('\0', ""));
        let builder = match options.stack_size {
            Some(bytes) => named.stack_size(bytes),
            None => named,
        };
        spawn(builder, placement, Box::new(f))
    }

    fn allowed() -> CpuSet {
        system::allowed_here().unwrap_or_else(|| Native::topology().set())
    }

    /// Async-signal-safe on Linux, where it leaves `errno` alone.
    fn yield_now() {
        system::yield_now();
    }

    fn sleep(span: Duration) {
        thread::sleep(span);
    }
}

/// Boxed, so that this and std's part of it are compiled once for each type of result, and not for
/// each closure.
fn spawn<T: Send + 'static>(
    builder: thread::Builder,
    placement: Placement,
    f: Box<dyn FnOnce() -> T + Send>,
) -> Result<JoinHandle<T>, SpawnError> {
    let Placement::On(cpu) = placement else {
        return start(builder, || Some(f())).map(JoinHandle);
    };
    let (report, placed) = mpsc::sync_channel(1);
    let thread = start(builder, move || {
        let settled = system::settle(cpu);
        let may_run = settled.is_ok();
        // Cannot fail: the spawner waits for this.
        let _ = report.send(settled);
        may_run.then(f)
    })?;
    match placed.recv() {
        Ok(Ok(())) => Ok(JoinHandle(thread)),
        Ok(Err(error)) => {
            // Its closure is dropped when this returns. It ran nothing that could panic.
            let _ = thread.join();
            Err(error)
        }
        Err(mpsc::RecvError) => Err(SpawnError::Exhausted("it died at its start".to_owned())),
    }
}

fn start<T, F>(builder: thread::Builder, f: F) -> Result<thread::JoinHandle<T>, SpawnError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    builder.spawn(f).map_err(|error| SpawnError::Exhausted(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coreline_topology::CpuId;

    use super::*;
    use crate::JoinHandle as _;

    #[test]
    fn a_cpu_that_is_not_there_is_named_with_those_that_are() {
        let kept = Arc::new(());
        for number in [60_000, u32::MAX] {
            let held = Arc::clone(&kept);
            let spawned = Native::spawn(Placement::On(CpuId::new(number)), move || {
                unreachable!("ran although {held:?} could not be placed")
            });
            let error = spawned.map(|_: JoinHandle<()>| ()).unwrap_err();
            let SpawnError::Cpu { cpu, allowed, .. } = &error else { panic!("{error}") };
            assert_eq!(cpu.get(), number);
            assert!(!allowed.is_empty(), "{error}");
            assert_eq!(Arc::strong_count(&kept), 1, "the closure is dropped");
        }
    }

    #[test]
    fn a_thread_has_the_name_that_it_was_given() {
        let own = || thread::current().name().map(str::to_owned);
        for (asked, found) in [("worker-1", "worker-1"), ("a\0b", "ab"), ("", "")] {
            let options = ThreadOptions { name: asked, ..ThreadOptions::default() };
            let thread = Native::spawn_with(options, Placement::Anywhere, own).unwrap();
            assert_eq!(thread.join().as_deref(), Some(found));
        }
    }

    #[test]
    fn joining_passes_a_panic_on() {
        let thread = Native::spawn(Placement::Anywhere, || panic::resume_unwind(Box::new(7)));
        let thread: JoinHandle<()> = thread.unwrap();
        let payload = panic::catch_unwind(panic::AssertUnwindSafe(|| thread.join())).unwrap_err();
        assert_eq!(payload.downcast_ref::<i32>(), Some(&7));
    }
}
