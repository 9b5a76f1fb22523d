//! A machine whose transfers have their calibrated costs.

use coreline_topology::CpuId;

use super::calibration::{self, Transfer};
use super::{Machine, job, taken};
use crate::hardware::spec::Spec;
use crate::results::failure::Failure;

impl Machine {
    /// Returns the calibrated transfers, one for each class, and one for each pair of nodes with
    /// costs of its own. Each transfer has the cost at which a ping-pong matches the latency in the
    /// machine file. It also has the latency of a simulated ping-pong on this machine. Classes that
    /// the machine does not have are left out.
    ///
    /// # Errors
    ///
    /// [`Failure`] if a machine cannot start, as for [`run`](Machine::run).
    pub fn calibration(&self) -> Result<Vec<Transfer>, Box<Failure>> {
        let mut transfers = calibration::transfers(&self.spec, self.request_percent, play)?;
        for transfer in &mut transfers {
            let cpus = calibration::cpus(&self.spec, transfer.class, transfer.nodes);
            let Some(cpus) = cpus else { continue };
            let machine = Machine::new(self.spec.clone()).request_percent(self.request_percent);
            transfer.simulated = play(machine.calibrated()?.spec, self.request_percent, cpus)?;
        }
        Ok(transfers)
    }

    /// This machine with transfers at their cost instead of at their ping-pong figure.
    pub(super) fn calibrated(mut self) -> Result<Machine, Box<Failure>> {
        for transfer in calibration::transfers(&self.spec, self.request_percent, play)? {
            self.spec.set_transfer(transfer.class, transfer.nodes, transfer.raw);
        }
        Ok(self)
    }
}

/// Has two CPUs play, with all costs as they are.
fn play(spec: Spec, request_percent: u32, cpus: [CpuId; 2]) -> Result<u64, Box<Failure>> {
    let machine = Machine::new(spec).request_percent(request_percent);
    let machine = machine.step_limit(calibration::MOST_STEPS).program("calibration");
    let (job, value) = job(calibration::game(cpus));
    let (run, _) = taken(machine.run_as_is(None, job, (0, 0)), value);
    Ok(calibration::one_way(run?.value))
}
