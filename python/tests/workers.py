"""What test workers run in place of the package's own function."""

from __future__ import annotations

import json
import os
import resource
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
    order = json.loads(task)
    keys = order["keys"]
    log("".join(f"{os.getpid()} + {key}\n" for key in keys))
    answer = _coreline.run_task(task)
    done = json.loads(answer)["rows"] if order["store"] else _coreline.Rows.from_parquet(answer)
    log("".join(f"{os.getpid()} - {key}\n" for key in keys[len(done) :]))
    return answer


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


def killed_after_writing(task: str) -> bytes:
    """Runs a task, and dies before it answers, with each of the first three tasks once."""
    answer = _coreline.run_task(task)
    key = json.loads(task)["keys"][0]
    before = [key for _, key in begun()]
    if len(before) < 3 and key not in before:
        log(f"{os.getpid()} + {key}\n")
        os.kill(os.getpid(), signal.SIGKILL)
    return answer


def twice(task: str) -> bytes:
    """Runs a task and the first two of its cells, as if two workers had it. Each other time, the short one comes last."""
    order = json.loads(task)
    short = json.dumps({**order, "keys": order["keys"][:2]})
    first, last = (task, short) if len(begun()) % 2 else (short, task)
    log(f"{os.getpid()} + {order['keys'][0]}\n")
    _coreline.run_task(first)
    return _coreline.run_task(last)


def elsewhere(task: str) -> bytes:
    """Runs a task where the folder that the environment names has the name of the store."""
    order = json.loads(task)
    order["store"]["dir"] = os.environ["CORELINE_TEST_ELSEWHERE"]
    return _coreline.run_task(json.dumps(order))


def without_room(task: str) -> bytes:
    """Runs a task whose files cannot have more than a few bytes, after two that can."""
    log(f"{os.getpid()} + {json.loads(task)['keys'][0]}\n")
    if len(begun()) > 2:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
    return _coreline.run_task(task)


def of_another_engine(task: str) -> bytes:
    """Runs a task that was made for another version."""
    return _coreline.run_task(json.dumps(json.loads(task) | {"engine": "0.0.0+forged"}))
