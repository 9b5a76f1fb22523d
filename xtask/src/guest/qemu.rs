//! The emulated machine and its console.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::target::{Arch, require};
use crate::workspace;

/// MiB of memory of each node.
const NODE_MEMORY: u32 = 768;

/// What machine to emulate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) arch: Arch,
    pub(crate) cpus: u32,
    pub(crate) nodes: u32,
}

impl Shape {
    /// The command that starts the machine, except for what the machine boots.
    ///
    /// # Errors
    ///
    /// If the CPUs cannot be spread evenly over the nodes, or QEMU is not there.
    pub(crate) fn command(self) -> Result<Command, Error> {
        let Shape { arch, cpus, nodes } = self;
        if cpus == 0 || nodes == 0 || !cpus.is_multiple_of(nodes) {
            return Err(Error::Shape { cpus, nodes });
        }
        let (package, options, console) = match arch {
            Arch::X86_64 => ("qemu-system-x86", "-machine q35 -cpu max", "ttyS0"),
            // The first interrupt controller that serves more than eight CPUs; pointer
            // authentication by a hash that is quick to emulate.
            Arch::Aarch64 => (
                "qemu-system-arm",
                "-machine virt,gic-version=3 -cpu max,pauth-impdef=on",
                "ttyAMA0",
            ),
        };
        let program = format!("qemu-system-{}", arch.name());
        require(&program, &format!("install QEMU (in Debian {package})"))?;
        let mut qemu = workspace::command(program, &[]);
        // QEMU itself uses several threads where this machine's memory order allows it.
        qemu.args("-accel tcg -nodefaults -no-user-config -display none -no-reboot".split(' '));
        qemu.args("-serial stdio".split(' ')).args(options.split(' '));
        let cores = cpus / nodes;
        qemu.args(["-smp", &format!("{cpus},sockets={nodes},cores={cores},threads=1")]);
        qemu.args(["-m", &format!("{}M", nodes * NODE_MEMORY)]);
        for node in 0..nodes {
            let (first, last) = (node * cores, (node + 1) * cores - 1);
            let memory = format!("memory-backend-ram,id=memory{node},size={NODE_MEMORY}M");
            let place = format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}");
            qemu.args(["-object", &memory, "-numa", &place]);
        }
        // A panic ends the run, by a reboot that QEMU is told not to do.
        let line = format!("console={console} quiet panic=-1 rdinit=/init");
        qemu.args(["-append", &line]);
        Ok(qemu)
    }
}

/// A running guest, ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    child: Child,
    lines: Receiver<String>,
}

impl Guest {
    pub(crate) fn start(mut command: Command) -> Result<Guest, Error> {
        let cannot =
            |command: &Command, source| Error::Start { command: workspace::line(command), source };
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|source| cannot(&command, source))?;
        let (send, lines) = channel();
        let Some(console) = child.stdout.take() else {
            unreachable!("its output was asked to be a pipe");
        };
        // A thread of its own, because a pipe can be read only without a time limit. It ends with
        // the guest, or when the receiver is gone.
        thread::spawn(move || {
            let mut lines = BufReader::new(console).split(b'\n').map_while(Result::ok);
            lines.try_for_each(|line| {
                send.send(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned())
            })
        });
        Ok(Guest { child, lines })
    }

    /// The next line of the console; `None` when the guest has ended.
    ///
    /// # Errors
    ///
    /// If it is silent for that long.
    pub(crate) fn line(&mut self, silence: Duration) -> Result<Option<String>, Error> {
        match self.lines.recv_timeout(silence) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(Error::Silent(silence)),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Either fails only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_no_node_could_have_are_refused() {
        for (cpus, nodes) in [(16, 3), (0, 1), (4, 0), (2, 4)] {
            let shape = Shape { arch: Arch::X86_64, cpus, nodes };
            let refused = shape.command();
            assert!(matches!(refused, Err(Error::Shape { .. })), "{cpus} CPUs, {nodes} nodes");
        }
    }

    #[test]
    fn a_guests_lines_are_read_until_it_ends() {
        let command = workspace::command("printf", &["a\\r\\nb\\n"]);
        let mut guest = Guest::start(command).expect("printf is a program");
        let mut line = || guest.line(Duration::from_secs(60)).expect("it speaks at once");
        assert_eq!([line(), line(), line()], [Some("a".into()), Some("b".into()), None]);
    }

    #[test]
    fn a_silent_guest_is_given_up() {
        let command = workspace::command("sleep", &["600"]);
        let mut guest = Guest::start(command).expect("sleep is a program");
        assert!(matches!(guest.line(Duration::ZERO), Err(Error::Silent(_))));
    }
}
