"""What test workers run in place of the package's own function."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from coreline import _coreline


def log(what: str) -> None:
    """Adds a line, whole, to the log that all workers share."""
    file = os.open(os.environ["CORELINE_TEST_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, what.encode())
    os.close(file)


def logged(task: str) -> bytes:
    """Runs a task, and logs its keys: with a `+` before it runs, and with a `-` those that it left out."""
    keys = json.loads(task)["keys"]
    log("".join(f"{os.getpid()} + {key}\n" for key in keys))
    file = _coreline.run_task(task)
    log("".join(f"{os.getpid()} - {key}\n" for key in keys[len(_coreline.Rows.from_parquet(file)) :]))
    return file


def begun() -> list[tuple[int, str]]:
    """The process and the key of each run that began. The runs of a task whose worker was killed count, too."""
    path = Path(os.environ["CORELINE_TEST_LOG"])
    runs: list[tuple[int, str]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        pid, sign, key = line.split(" ", 2)
        if sign == "+":
            runs.append((int(pid), key))
        else:
            runs.remove((int(pid), key))
    return runs


def killed_by_a_cell(task: str) -> bytes:
    """Runs a task, but dies of the cell that the environment names."""
    if any(os.environ["CORELINE_TEST_KILLER"] in key for key in json.loads(task)["keys"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return _coreline.run_task(task)


def of_another_engine(task: str) -> bytes:
    """Runs a task that was made for another version."""
    return _coreline.run_task(json.dumps(json.loads(task) | {"engine": "0.0.0+forged"}))
