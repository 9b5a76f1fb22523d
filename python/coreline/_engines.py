"""Engines: what runs the tasks of a sweep.

An engine only runs tasks. It may lose them, and run them twice. The store decides which rows are finished.
"""

from __future__ import annotations

import concurrent.futures as futures
import os
import pickle
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from coreline import _worker
from coreline._errors import Error, ExecutorFailed

TRIES = 3
"""So often a task may lose its worker."""

AHEAD = 2
"""So many tasks of a worker are with the engine: one runs, and the other is there when it ends."""

STARTS = 5
"""So many workers in a row may end before they are ready."""


@dataclass(frozen=True)
class Lost:
    """A task whose worker ended."""

    why: str
    tries: int = 1
    """How many workers it lost; 0 if it had not begun."""


Outcome = bytes | Lost


class Engine(Protocol):
    """What runs tasks."""

    @property
    def workers(self) -> int:
        """The number of tasks that run at the same time. It may change."""

    def submit(self, task: str) -> Hashable:
        """Hands a task over, and returns a name for it."""

    def wait(self, patience: float | None = None) -> list[tuple[Hashable, Outcome]]:
        """Waits until a task has ended, and returns all that have.

        Raises:
            Error: what a worker raised; ExecutorFailed if the engine has ended.
        """

    def close(self) -> None:
        """Ends the tasks that still run."""


@dataclass(eq=False)
class _Process:
    """A worker process of our own."""

    process: subprocess.Popen[bytes]
    tasks: deque[int] = field(default_factory=deque)
    """What it was given: it runs the first one."""
    is_ready: bool = False


class Processes:
    """Worker processes of this host, which stay and run many tasks. When one dies, another one takes its place."""

    COMMAND = "from coreline._worker import main; main()"

    def __init__(self, count: int) -> None:
        self._count = count
        self._names = 0
        self._workers: list[_Process] = []
        self._failed_starts = 0
        self._selector = selectors.DefaultSelector()

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    @property
    def workers(self) -> int:
        return self._count

    def submit(self, task: str) -> int:
        self._names += 1
        data = _worker.frame(_worker.DONE, task.encode())
        worker = min(self._workers, key=lambda worker: len(worker.tasks), default=None)
        if worker is None or (worker.tasks and len(self._workers) < self._count):
            worker = self._start()
        worker.tasks.append(self._names)
        try:
            assert worker.process.stdin is not None
            _worker.write(worker.process.stdin.fileno(), data)
        except BrokenPipeError:
            pass  # Its end is seen as the end of its answers.
        return self._names

    def wait(self, patience: float | None = None) -> list[tuple[Hashable, Outcome]]:
        answers = self._selector.select(patience)
        return [ended for key, _ in answers for ended in self._answer(key.data)]

    def _answer(self, worker: _Process) -> list[tuple[Hashable, Outcome]]:
        assert worker.process.stdout is not None
        found = _worker.read_frame(worker.process.stdout.fileno())
        if found is None:
            return self._bury(worker)
        kind, body = found
        if kind == _worker.READY:
            worker.is_ready = True
            self._failed_starts = 0
            return []
        name = worker.tasks.popleft()
        if kind == _worker.FAILED:
            raise pickle.loads(body)
        return [(name, body)]

    def _bury(self, worker: _Process) -> list[tuple[Hashable, Outcome]]:
        assert worker.process.stdout is not None
        self._selector.unregister(worker.process.stdout)
        self._workers.remove(worker)
        why = _ended(_end(worker.process))
        if not worker.is_ready:
            self._failed_starts += 1
            if self._failed_starts == STARTS:
                raise ExecutorFailed(f"{STARTS} workers could not start; of the last one, {why}; see what it printed")
        return [(name, Lost(why, int(worker.is_ready and at == 0))) for at, name in enumerate(worker.tasks)]

    def _start(self) -> _Process:
        # The package may lie where only this process looks.
        found = str(Path(__file__).absolute().parent.parent)
        path = os.pathsep.join(filter(None, [found, os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            # Without the current folder, in which a file may have the name of a module.
            [sys.executable, "-P", "-c", self.COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,
            # A Ctrl-C is for this process alone.
            process_group=0,
        )
        worker = _Process(process)
        self._workers.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        return worker

    def close(self) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            _end(worker.process)
        self._workers.clear()
        self._selector.close()


def _end(process: subprocess.Popen[bytes]) -> int:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    return process.wait()


def _ended(code: int) -> str:
    if code >= 0:
        return f"its worker process ended with the exit code {code}"
    try:
        return f"its worker process ended by the signal {signal.Signals(-code).name}"
    except ValueError:
        return f"its worker process ended by the signal {-code}"


class Executor:
    """Any ``concurrent.futures.Executor``."""

    def __init__(self, executor: futures.Executor, workers: int | None) -> None:
        self._executor = executor
        self._workers = workers
        self._running: set[futures.Future[bytes]] = set()

    @property
    def workers(self) -> int:
        return self._workers or _workers_of(self._executor)

    def submit(self, task: str) -> Hashable:
        try:
            future = self._executor.submit(_worker.run, task)
        except (futures.BrokenExecutor, RuntimeError) as error:
            raise _broken(self._executor, error) from error
        self._running.add(future)
        return future

    def wait(self, patience: float | None = None) -> list[tuple[Hashable, Outcome]]:
        done, self._running = futures.wait(self._running, patience, futures.FIRST_COMPLETED)
        return [(future, self._outcome(future)) for future in done]

    def _outcome(self, future: futures.Future[bytes]) -> Outcome:
        try:
            return future.result()
        except Error:
            raise
        except futures.CancelledError:
            return Lost("the executor cancelled it")
        except Exception as error:
            # Dask's, after several workers died. It has no place in the standard library.
            if type(error).__name__ == "KilledWorker":
                return Lost(f"its workers died: {error}", TRIES)
            raise _broken(self._executor, error) from error

    def close(self) -> None:
        for future in self._running:
            future.cancel()


def _broken(executor: object, error: BaseException) -> ExecutorFailed:
    name = type(executor).__name__
    return ExecutorFailed(
        f"the executor {name} cannot go on: {type(error).__name__}: {error}; finished rows are in the store, so call "
        "sweep again with a working executor, or without one"
    )


def _workers_of(executor: Any) -> int:
    """How many workers an executor has, as far as it says."""
    for name in ("_max_workers", "num_workers"):
        if isinstance(count := getattr(executor, name, None), int) and count > 0:
            return count
    client = getattr(executor, "_client", None)
    if client is not None and hasattr(client, "nthreads"):
        return sum(client.nthreads().values()) or 1
    return 4 * (os.cpu_count() or 1)


class Ray:
    """The cluster of Ray that the environment names, or one on this host."""

    def __init__(self, workers: int | None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ExecutorFailed("Ray is not installed; install coreline[ray]") from error
        self._ray: Any = ray
        self._own = not ray.is_initialized()
        if self._own:
            ray.init(log_to_driver=False, include_dashboard=False)
        # A task of which a worker or a node dies runs again: so often here, then cell by cell.
        self._run = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_worker.run)
        self._workers = workers
        self._running: list[Any] = []

    @property
    def workers(self) -> int:
        return self._workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, task: str) -> Hashable:
        reference: Hashable = self._run.remote(task)
        self._running.append(reference)
        return reference

    def wait(self, patience: float | None = None) -> list[tuple[Hashable, Outcome]]:
        if not self._running:
            return []
        done, self._running = self._ray.wait(self._running, timeout=patience)
        more, self._running = self._ray.wait(self._running, num_returns=len(self._running), timeout=0) if (
            self._running
        ) else ([], [])
        return [(reference, self._outcome(reference)) for reference in [*done, *more]]

    def _outcome(self, reference: Any) -> Outcome:
        lost = self._ray.exceptions
        try:
            return bytes(self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, Error):
                raise cause from error
            raise _broken(self, error) from error
        except (
            lost.WorkerCrashedError,
            lost.NodeDiedError,
            lost.OutOfMemoryError,
            lost.ObjectLostError,
            lost.TaskUnschedulableError,
        ) as error:
            return Lost(f"its workers died: {str(error).splitlines()[0]}", TRIES)
        except self._ray.exceptions.RayError as error:
            raise _broken(self, error) from error

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        if self._own:
            self._ray.shutdown()
