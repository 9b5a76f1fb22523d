//! Load beside what is measured: threads of another process that compute without end.
//!
//! Of another process, because a program that others disturb is not in one process with them: a
//! barrier of all of a process's threads would interrupt them, too, and their CPU time would be in
//! the candidate's.

use std::env;
use std::hint;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};

use coreline_topology::CpuId;
use coreline_world::native::probe;
use coreline_world::{Native, Placement, Threads};

use crate::error::Error;

/// The first argument of the program where it is the load. The second is the number of threads.
pub(crate) const ARGUMENT: &str = "compute-beside";

/// Threads that compute until this is dropped. They end, too, if this process does.
pub(crate) struct Load(Option<Child>);

impl Load {
    /// Starts this many, pinned as measuring threads are.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if there can be none.
    pub(crate) fn start(threads: usize) -> Result<Load, Error> {
        if threads == 0 {
            return Ok(Load(None));
        }
        let program = env::current_exe().map_err(Error::Load)?;
        let mut command = Command::new(program);
        command.arg(ARGUMENT).arg(threads.to_string());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(Error::Load)?;
        let begun = child.stdout.take();
        let load = Load(Some(child));
        // One byte, once all run.
        begun.map_or(Ok(()), |mut begun| begun.read_exact(&mut [0])).map_err(Error::Load)?;
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // The load ends where its input does, which `wait` closes. What it ended with does not
            // matter.
            let _ = child.wait();
        }
    }
}

/// Is the load: computes on this many threads until the input ends.
///
/// # Errors
///
/// [`Error`] if the threads cannot be started.
pub(crate) fn compute(threads: Option<String>) -> Result<(), Error> {
    let threads = threads.and_then(|text| text.parse().ok()).unwrap_or(1);
    let allowed: Vec<CpuId> = probe().allowed.map_err(Error::NoCpus)?.iter().collect();
    for &cpu in allowed.iter().cycle().take(threads) {
        // Detached: the process ends with the main thread.
        drop(Native::spawn(Placement::On(cpu), || -> () {
            loop {
                hint::black_box(0);
            }
        })?);
    }
    io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush()).map_err(Error::Load)?;
    io::stdin().read_to_end(&mut Vec::new()).map_err(Error::Load)?;
    Ok(())
}
