"""What test workers run in place of the package's own function."""

from __future__ import annotations

import json
import os
import signal

from coreline import _coreline


def log(what: str) -> None:
    """Adds a line, whole, to the log that all workers share."""
    file = os.open(os.environ["CORELINE_TEST_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, what.encode())
    os.close(file)


def logged(task: str) -> bytes:
    """Runs a task, and logs the keys that it begins."""
    log("".join(f"{os.getpid()} {key}\n" for key in json.loads(task)["keys"]))
    return _coreline.run_task(task)


def killed_by_a_cell(task: str) -> bytes:
    """Runs a task, but dies of the cell that the environment names."""
    if any(os.environ["CORELINE_TEST_KILLER"] in key for key in json.loads(task)["keys"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return _coreline.run_task(task)


def of_another_engine(task: str) -> bytes:
    """Runs a task that was made for another version."""
    return _coreline.run_task(json.dumps(json.loads(task) | {"engine": "0.0.0+forged"}))
