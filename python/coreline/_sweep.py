"""Sweeps: run the cells that a store lacks, and keep their rows."""

from __future__ import annotations

import concurrent.futures as futures
import os
import tempfile
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from coreline import _coreline
from coreline._catalogue import Machine
from coreline._engines import AHEAD, TRIES, Engine, Executor, Lost, Processes, Ray
from coreline._grid import Grid
from coreline._rows import Row, Rows, cell_failed

_On = Literal["ray"] | futures.Executor | None
_Commit = Literal["driver", "workers"]

# A child of fork shares the lock of an open store, and would keep it after its parent has ended.
_open: set[_coreline.Store] = set()


def _close_in_child() -> None:
    for store in _open:
        store.close()


os.register_at_fork(after_in_child=_close_in_child)


def sweep(
    grid: Grid,
    store: str | Path,
    on: _On = None,
    *,
    workers: int | None = None,
    commit: _Commit = "driver",
    progress: bool | None = None,
) -> Rows:
    """Runs the cells of a grid that a store lacks, and returns the rows of all cells of the grid.

    Args:
        grid: The cells.
        store: The folder that keeps the rows, as Parquet files. The call creates it. Finished cells never run again, so
            after a crash or a Ctrl-C the same call goes on.
        on: What runs the cells: worker processes of this host, Ray, or any ``concurrent.futures.Executor``, whose
            workers need the same version of this package.
        workers: The number of workers. Without it: a process for each CPU that this process may use; as many as the
            engine says that it has.
        commit: What writes rows into the store: the driver, which is this process, or the workers. Workers need a file
            system that all hosts share, on which ``store`` is the same folder.
        progress: Whether to show a bar, which needs ``coreline[progress]``. Without it: if that is installed.

    A cell whose run fails has a row with an ``error``. So has a cell whose worker died three times.

    Raises:
        InvalidGrid: if the grid is not valid.
        StoreError: if the store cannot be used; StoreInUse if another sweep uses it; StoreNotShared if a worker should
            write rows and does not see the folder.
        HostTooSmall: if a worker's host has too little memory for a cell, which then has no row.
        EngineMismatch: if the store or a worker has another version of the simulator.
        ExecutorFailed: if the executor ended.
    """
    if commit not in ("driver", "workers"):
        raise ValueError(f'commit cannot be {commit!r}; give "driver" or "workers"')
    # First, because it says what is wrong with the grid before an engine starts.
    cells = grid.native()
    open_store = _coreline.Store(store, cells)
    _open.add(open_store)
    try:
        remaining = open_store.estimate()[0]
        if remaining > 0:
            with _Bar(progress, len(cells.keys), len(cells.keys) - remaining) as bar:
                engine = _engine(on, workers, remaining)
                try:
                    _Driver(cells, open_store, engine, bar, commit).drive()
                finally:
                    engine.close()
        return Rows(open_store.rows())
    finally:
        _open.discard(open_store)
        open_store.close()


def run(grid: Grid, on: _On = None, *, workers: int | None = None, progress: bool | None = None) -> Rows:
    """Runs the cells of a grid, and keeps no rows. Arguments and exceptions are those of :func:`sweep`."""
    with tempfile.TemporaryDirectory(prefix="coreline-") as store:
        return sweep(grid, store, on, workers=workers, progress=progress)


def cell(key: str, machine: Machine | Iterable[Machine] = ()) -> Row:
    """Runs one cell in a process of its own, and returns its row.

    Args:
        key: The replay line, as in ``rows[0].replay``.
        machine: The machine of the line, if it is your own.

    Raises:
        UnknownCell: if the line is none of a scenario, or its machine's file is missing.
        CellFailed: if the run failed; HostTooSmall if this host has too little memory for it.
    """
    own = (machine,) if isinstance(machine, Machine) else machine
    files = [one.path.read_text() for one in own if one.path is not None]
    task = _coreline.task([key], files)
    engine = Processes(1)
    try:
        engine.submit(task)
        while not (ended := engine.wait()):
            pass
        outcome = ended[0][1]
    finally:
        engine.close()
    if isinstance(outcome, Lost):
        outcome = _coreline.failed_row(task, outcome.why)
    row = Rows(_coreline.Rows.from_parquet(outcome))[0]
    if row.error is not None:
        raise cell_failed(row)
    return row


def _engine(on: _On, workers: int | None, remaining: int) -> Engine:
    if workers is not None and workers < 1:
        raise ValueError(f"workers cannot be {workers}; give 1 or more")
    if on is None:
        return Processes(min(workers or len(os.sched_getaffinity(0)), remaining))
    if on == "ray":
        return Ray(workers)
    if isinstance(on, futures.Executor):
        return Executor(on, workers)
    raise TypeError(f'on cannot be {on!r}; give None, "ray" or a concurrent.futures.Executor')


class _Progress(Protocol):
    def update(self, n: float) -> Any: ...
    def close(self) -> Any: ...


class _Bar:
    """A progress bar, or none."""

    def __init__(self, wanted: bool | None, total: int, initial: int) -> None:
        self._bar: _Progress | None = None
        if wanted is False:
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            if wanted:
                raise
            return
        self._bar = tqdm(total=total, initial=initial, unit="cell", desc="coreline")

    def update(self, rows: int) -> None:
        if self._bar is not None:
            self._bar.update(rows)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


@dataclass
class _Task:
    """Cells that run one after the other on one worker."""

    keys: list[str]
    lost: int = 0
    """How many workers it has lost."""


class _Driver:
    """Keeps an engine busy until no cell remains."""

    def __init__(
        self, cells: _coreline.Sweep, store: _coreline.Store, engine: Engine, bar: _Bar, commit: _Commit
    ) -> None:
        self._cells = cells
        self._store = store
        by_workers = commit == "workers"
        self._order = store.task if by_workers else cells.task
        self._commit = store.accept if by_workers else store.commit
        self._engine = engine
        self._bar = bar
        self._again: deque[_Task] = deque()
        self._running: dict[Hashable, _Task] = {}

    def drive(self) -> None:
        try:
            while self._submit():
                self._take(None)
        except BaseException:
            self._finish()
            raise

    def _submit(self) -> bool:
        """Fills the engine, and returns whether it has anything to run."""
        workers = self._engine.workers
        while len(self._running) < AHEAD * workers and (task := self._next(workers)) is not None:
            self._running[self._engine.submit(self._order(task.keys, workers))] = task
        return bool(self._running)

    def _next(self, workers: int) -> _Task | None:
        if self._again:
            return self._again.popleft()
        keys = self._store.next_keys(workers)
        return None if keys is None else _Task(keys)

    def _take(self, patience: float | None) -> None:
        for name, outcome in self._engine.wait(patience):
            task = self._running.pop(name)
            if isinstance(outcome, Lost):
                self._lose(task, outcome)
            else:
                self._bar.update(self._commit(task.keys, outcome))

    def _lose(self, task: _Task, lost: Lost) -> None:
        task.lost += lost.tries
        if task.lost < TRIES:
            self._again.append(task)
        elif len(task.keys) > 1:
            # One of them may be the reason: the others need not suffer from it.
            self._again.extend(_Task([key]) for key in task.keys)
        else:
            why = f"{lost.why}, {task.lost} times"
            row = _coreline.failed_row(self._cells.task(task.keys, 1), why)
            self._bar.update(self._store.commit(task.keys, row))

    def _finish(self) -> None:
        """Commits what has ended meanwhile, after an exception."""
        try:
            self._take(0)
        except Exception:
            pass  # The first exception says what is wrong.
