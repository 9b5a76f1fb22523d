"""The program that the package brings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import coreline

from conftest import Program


def test_the_program_has_its_output_and_exit_codes(program: Program) -> None:
    machines = program("machines", "--json")
    assert machines.returncode == 0
    names = [machine["name"] for machine in json.loads(machines.stdout)["machines"]]
    assert names == [machine.name for machine in coreline.machines()]
    assert program("--version").stdout.startswith("coreline ")
    wrong = program("machine")
    assert wrong.returncode == 2 and "machines" in wrong.stderr and not wrong.stdout
    assert program("machines", "host-3c").returncode == 2


def test_a_closed_output_is_an_error() -> None:
    closed = subprocess.run(
        ["sh", "-c", '"$0" -m coreline machines >&-', sys.executable], stderr=subprocess.PIPE, text=True
    )
    assert closed.returncode == 1 and "cannot write" in closed.stderr


def test_a_simulation_runs_under_the_program(program: Program) -> None:
    done = program("run", "lockscale", "--world", "host-2c", "--quick", "--threads", "1", "--variant", "fifo", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["scenario"] == "lockscale"


def test_an_interrupt_ends_a_sweep_of_the_program(tmp_path: Path) -> None:
    specification = tmp_path / "grid.toml"
    specification.write_text('scenario = "lockscale"\nmachine = "host-2c"\nvariant = "fifo"\nseed = "0..3000"\n')
    command = [sys.executable, "-m", "coreline", "sweep", str(specification), "--store", str(tmp_path / "rows")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not list(tmp_path.glob("rows/*.parquet")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
