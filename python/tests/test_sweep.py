"""Sweeps in worker processes and on executors, of which workers and drivers die."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Literal

import coreline
import pytest
import workers
from coreline import _engines, _worker
from coreline._engines import Processes

from conftest import FIELDS, LARGE, TESTS, Begun, in_process


def same(one: coreline.Rows, other: coreline.Rows) -> bool:
    """Whether rows are equal byte by byte."""
    return json.dumps(list(one)) == json.dumps(list(other))


def until(is_true: Callable[[], object]) -> None:
    """Waits, and gives up after minutes."""
    end = time.monotonic() + 300
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def files(store: Path) -> int:
    return len([*store.glob("[!.]*.parquet")])


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def use(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    command = f"import workers; from coreline._worker import main; main(workers.{function})"
    monkeypatch.setattr(Processes, "COMMAND", command)


def test_worker_processes_give_the_rows_of_the_program(grid: coreline.Grid, tmp_path: Path) -> None:
    rows = coreline.sweep(grid, tmp_path / "ours", progress=False)
    assert same(rows, in_process(grid, tmp_path / "theirs"))


def test_finished_cells_do_not_run_again(
    grid: coreline.Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Begun
) -> None:
    use(monkeypatch, "logged")
    rows = coreline.sweep(grid, tmp_path / "rows", progress=False)
    assert len(logged()) == 12
    assert same(coreline.sweep(grid, tmp_path / "rows", progress=False), rows)
    assert len(logged()) == 12
    more = coreline.Grid("lockscale", "host-2c", variant=("fifo", "near"), seed=range(4), quick=True, threads=(1, 2))
    assert len(coreline.sweep(more, tmp_path / "rows", progress=False)) == 16
    assert len(logged()) == 16


@pytest.mark.parametrize("commit", ["driver", "workers"])
def test_a_worker_that_is_killed_changes_no_row(
    large: coreline.Rows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    logged: Begun,
    commit: Literal["driver", "workers"],
) -> None:
    use(monkeypatch, "logged")
    killed: list[int] = []

    def fresh() -> list[int]:
        return [pid for pid, _ in logged() if pid not in killed]

    def kill() -> None:
        for count in (1, 2, 3):
            until(lambda: files(tmp_path / "rows") >= count and fresh())
            killed.append(fresh()[-1])
            os.kill(killed[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    rows = coreline.sweep(LARGE, tmp_path / "rows", commit=commit, progress=False)
    killer.join()
    assert len(killed) == 3 and same(rows, large) and len(rows.failed) == 0


def test_a_cell_that_kills_its_workers_has_a_row_with_an_error(
    large: coreline.Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Begun
) -> None:
    use(monkeypatch, "killed_by_a_cell")
    bad = LARGE.keys[100]
    monkeypatch.setenv("CORELINE_TEST_KILLER", bad)
    rows = coreline.sweep(LARGE, tmp_path, progress=False)
    [failed] = rows.failed
    assert failed.replay == bad and failed["turns"] is None
    assert failed.error == "its worker process ended by the signal SIGKILL, 3 times"
    others = [row for row in rows if row.replay != bad]
    assert json.dumps(others) == json.dumps([row for row in large if row.replay != bad])
    with pytest.raises(coreline.CellFailed, match="1 cell of 240 failed: its worker") as error:
        rows.check()
    assert error.value.replay == bad
    # It is finished, as a failure: nothing runs, although a worker would survive the cell now.
    monkeypatch.setattr(Processes, "COMMAND", "raise SystemExit(9)")
    assert same(coreline.sweep(LARGE, tmp_path, progress=False), rows)


def test_a_cell_whose_run_fails_has_a_row_with_an_error() -> None:
    # The step limit is a part of the key, and no grid has a smaller one.
    grid = coreline.Grid("lockscale", "host-2c", variant="fifo", quick=True, threads=1)
    key = grid.keys[0].replace(" program=", " steps=100 program=")
    task = coreline._coreline.task([key], [])
    row = coreline.Rows(coreline._coreline.Rows.from_parquet(_worker.run(task)))[0]
    assert row.replay == key and row.error is not None and "no end after 100 steps" in row.error
    assert row["turns"] is None


@pytest.mark.parametrize(
    ("stop", "commit"),
    [(signal.SIGKILL, "driver"), (signal.SIGINT, "driver"), (signal.SIGTERM, "driver"), (signal.SIGKILL, "workers")],
)
def test_a_driver_that_is_stopped_goes_on_where_it_was(
    large: coreline.Rows, tmp_path: Path, logged: Begun, stop: signal.Signals, commit: str
) -> None:
    store = tmp_path / "rows"
    command = [sys.executable, str(TESTS / "driver.py"), json.dumps(FIELDS), str(store), "processes", commit]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: files(store) >= 3 or driver.poll() is not None)
    driver.send_signal(stop)
    _, said = driver.communicate()
    assert driver.returncode == -stop, said
    assert ("KeyboardInterrupt" in said) == (stop == signal.SIGINT)
    pids = {pid for pid, _ in logged()}
    until(lambda: not any(map(is_running, pids)))
    before = LARGE.estimate(store).cells
    assert 0 < before < 240, "it was stopped on the way"
    rows = coreline.sweep(LARGE, store, progress=False)
    assert same(rows, large)


def test_one_sweep_at_a_time_uses_a_store(grid: coreline.Grid, tmp_path: Path) -> None:
    store = coreline._coreline.Store(tmp_path, grid.native())
    with pytest.raises(coreline.StoreInUse, match="another folder with store="):
        coreline.sweep(grid, tmp_path, progress=False)
    store.close()
    assert len(coreline.sweep(grid, tmp_path, progress=False)) == 12


def test_a_store_of_something_else_is_refused(grid: coreline.Grid, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("rows")
    with pytest.raises(coreline.StoreError, match="not a file of a sweep"):
        coreline.sweep(grid, tmp_path, progress=False)
    with pytest.raises(coreline.StoreError):
        coreline.sweep(grid, tmp_path / "x.parquet", progress=False)


def test_a_worker_of_another_version_is_refused(
    grid: coreline.Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Begun
) -> None:
    use(monkeypatch, "of_another_engine")
    with pytest.raises(coreline.EngineMismatch, match=r"0\.0\.0\+forged.*same version of coreline everywhere"):
        coreline.sweep(grid, tmp_path, progress=False)
    monkeypatch.setattr(_worker, "run", workers.of_another_engine)
    with futures.ThreadPoolExecutor(2) as pool, pytest.raises(coreline.EngineMismatch):
        coreline.sweep(grid, tmp_path, on=pool, progress=False)


def test_a_worker_that_cannot_start_is_no_failed_cell(
    grid: coreline.Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Processes, "COMMAND", "raise SystemExit(9)")
    with pytest.raises(coreline.ExecutorFailed, match="could not start.* exit code 9"):
        coreline.sweep(grid, tmp_path, progress=False)
    assert grid.estimate(tmp_path).cells == 12


def pools() -> list[futures.Executor]:
    spawn = multiprocessing.get_context("spawn")
    return [futures.ThreadPoolExecutor(2), futures.ProcessPoolExecutor(2, mp_context=spawn)]


@pytest.mark.parametrize("pool", [0, 1])
def test_any_executor_gives_the_same_rows(large: coreline.Rows, tmp_path: Path, pool: int) -> None:
    with pools()[pool] as executor:
        assert same(coreline.sweep(LARGE, tmp_path, on=executor, progress=False), large)


def test_a_broken_executor_loses_no_finished_row(
    large: coreline.Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Begun
) -> None:
    monkeypatch.setattr(_worker, "run", workers.killed_by_a_cell)
    monkeypatch.setenv("CORELINE_TEST_KILLER", LARGE.keys[200])
    spawn = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        with pytest.raises(coreline.ExecutorFailed, match="BrokenProcessPool.*finished rows are in the store"):
            coreline.sweep(LARGE, tmp_path, on=pool, progress=False)
        with pytest.raises(coreline.ExecutorFailed):
            coreline.sweep(LARGE, tmp_path, on=pool, progress=False)
    assert LARGE.estimate(tmp_path).cells < 240
    monkeypatch.undo()
    assert same(coreline.sweep(LARGE, tmp_path, progress=False), large)


def test_a_child_of_fork_does_not_keep_the_lock(grid: coreline.Grid, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    # The children live on after the sweep.
    with futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
        coreline.sweep(grid, tmp_path, on=pool, progress=False)
        assert len(coreline.sweep(grid, tmp_path, progress=False)) == 12


def test_what_cannot_run_tasks_is_refused(grid: coreline.Grid, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match='give None, "ray"'):
        coreline.sweep(grid, tmp_path, on="spark", progress=False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="workers cannot be 0"):
        coreline.sweep(grid, tmp_path, workers=0, progress=False)


def test_an_executor_is_asked_again_how_many_workers_it_has() -> None:
    """The workers of a cluster may start later."""

    class Growing(futures.Executor):
        num_workers = 1

    growing = Growing()
    engine = _engines.Executor(growing, None)
    assert engine.workers == 1
    growing.num_workers = 3
    assert engine.workers == 3
    assert _engines.Executor(growing, 2).workers == 2


def test_a_task_that_lost_its_workers_runs_cell_by_cell(
    grid: coreline.Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that loses each task of several cells, as Ray does after its own tries."""

    class Losing:
        def __init__(self, *_: object) -> None:
            self.tasks: list[str] = []
            self.waiting: list[str] = []

        workers = 1

        def submit(self, task: str) -> int:
            self.tasks.append(task)
            self.waiting.append(task)
            return len(self.tasks)

        def wait(self, patience: float | None = None) -> list[tuple[int, _engines.Outcome]]:
            name = len(self.tasks) - len(self.waiting) + 1
            task = self.waiting.pop(0)
            lost = len(json.loads(task)["keys"]) > 1
            return [(name, _engines.Lost("it was lost", 3) if lost else _worker.run(task))]

        def close(self) -> None:
            pass

    engine = Losing()
    monkeypatch.setattr(coreline._sweep, "_engine", lambda *_: engine)
    rows = coreline.sweep(grid, tmp_path, progress=False)
    assert len(rows) == 12 and len(rows.failed) == 0
    sizes = [len(json.loads(task)["keys"]) for task in engine.tasks]
    assert max(sizes) > 1 and sum(size for size in sizes if size == 1) == 12


def test_the_cells_that_a_task_left_out_run_later(
    large: coreline.Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ends a task early that takes far longer than estimated. Here each task ends after two cells."""
    sizes: list[int] = []

    def first_two(task: str) -> bytes:
        fields = json.loads(task)
        sizes.append(len(fields["keys"]))
        return coreline._coreline.run_task(json.dumps({**fields, "keys": fields["keys"][:2]}))

    monkeypatch.setattr(_worker, "run", first_two)
    with futures.ThreadPoolExecutor(2) as pool:
        assert same(coreline.sweep(LARGE, tmp_path, on=pool, progress=False), large)
    assert max(sizes) > 2, "no task was cut"
