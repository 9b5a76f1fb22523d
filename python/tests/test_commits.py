"""Sweeps whose workers write into the store."""

from __future__ import annotations

import json
from concurrent import futures
from pathlib import Path
from typing import Any

import coreline
import polars
import pytest
from coreline import _coreline, _worker

import workers
from conftest import LARGE
from test_sweep import files, same, use


pytestmark = pytest.mark.usefixtures("logged")


def unfinished(store: Path) -> int:
    return len([*store.glob(".unfinished-*")])


def sweep(store: Path, **how: Any) -> coreline.Rows:
    return coreline.sweep(LARGE, store, commit="workers", progress=False, **how)


def is_whole(store: Path, rows: coreline.Rows, expected: coreline.Rows) -> None:
    """Asserts that a sweep has the expected rows, that its files have each once, and that the next one cleans up."""
    assert same(rows, expected)
    assert len(polars.read_parquet(store / "*.parquet")) == len(expected)
    assert same(sweep(store), expected)
    assert unfinished(store) == 0


@pytest.mark.parametrize("threads", [False, True])
def test_workers_write_the_rows(
    large: coreline.Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: bool
) -> None:
    store = tmp_path / "rows"
    returned: list[bytes] = []

    def run(task: str) -> bytes:
        returned.append(_coreline.run_task(task))
        return returned[-1]

    monkeypatch.setattr(_worker, "run", run)
    with futures.ThreadPoolExecutor(2) as pool:
        rows = sweep(store, on=pool if threads else None)
    assert unfinished(store) == 0
    is_whole(store, rows, large)
    if threads:
        assert len(returned) == files(store)
        assert all(json.loads(answer).keys() == {"file", "rows", "time"} for answer in returned)


def test_a_relative_folder_is_the_same_for_workers(
    grid: coreline.Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    order = json.loads(_coreline.Store("rows", grid.native()).task(grid.keys, 1))
    assert order["store"]["dir"] == str(tmp_path / "rows")


def test_a_worker_that_dies_before_it_answers_leaves_an_unfinished_file(
    large: coreline.Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "killed_after_writing")
    store = tmp_path / "rows"
    rows = sweep(store, workers=1)
    assert len(workers.begun()) == 3 == unfinished(store)
    monkeypatch.undo()
    is_whole(store, rows, large)


def test_a_task_that_ran_twice_has_no_second_row(
    large: coreline.Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "twice")
    store = tmp_path / "rows"
    rows = sweep(store)
    assert unfinished(store) == files(store) == len(workers.begun()) > 3
    monkeypatch.undo()
    is_whole(store, rows, large)


@pytest.mark.parametrize("lengths", [(6, 6), (2, 6), (6, 2), (6, 0)])
def test_a_second_answer_adds_only_what_is_missing(
    grid: coreline.Grid, tmp_path: Path, lengths: tuple[int, int]
) -> None:
    store = _coreline.Store(tmp_path, grid.native())
    keys = store.next_keys(1) or []
    while (more := store.next_keys(1)) is not None:
        keys += more
    order = json.loads(store.task(keys[:6], 1))
    answers = [_coreline.run_task(json.dumps({**order, "keys": keys[:length]})) for length in lengths]
    assert unfinished(tmp_path) == 2
    for answer, length in zip(answers, lengths, strict=True):
        assert store.accept(keys[:6], answer) == length
    assert unfinished(tmp_path) == 0
    assert len(polars.read_parquet(tmp_path / "*.parquet")) == 6 == len(store.rows())
    store.close()
    assert grid.estimate(tmp_path).cells == 6


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_worker_that_does_not_see_the_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_folder: bool
) -> None:
    other = tmp_path / "other"
    if has_folder:
        # Another host may have a store of its own under the same name.
        _coreline.Store(other, LARGE.native()).close()
    monkeypatch.setenv("CORELINE_TEST_ELSEWHERE", str(other))
    use(monkeypatch, "elsewhere")
    why = "belongs to another sweep" if has_folder else "No such file"
    with pytest.raises(coreline.StoreNotShared, match=f"does not see the store .*{why}.*let the driver"):
        sweep(tmp_path / "rows")
    assert isinstance(coreline.StoreNotShared("why"), coreline.StoreError)
    assert files(tmp_path / "rows") == 0 == unfinished(other)


def test_a_worker_of_a_sweep_that_has_ended_adds_nothing(grid: coreline.Grid, tmp_path: Path) -> None:
    """The first driver was killed, and its workers run on."""
    store = _coreline.Store(tmp_path, grid.native())
    order = store.task(grid.keys[:3], 1)
    _coreline.run_task(order)
    store.close()
    assert unfinished(tmp_path) == 1
    second = _coreline.Store(tmp_path, grid.native())
    assert unfinished(tmp_path) == 0
    with pytest.raises(coreline.StoreNotShared, match="another sweep"):
        _coreline.run_task(order)
    assert second.estimate()[0] == 12
    second.close()


def test_a_worker_without_room_ends_the_sweep(
    large: coreline.Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, "without_room")
    store = tmp_path / "rows"
    with pytest.raises(coreline.StoreError, match="cannot write to .*File too large"):
        sweep(store, workers=1)
    assert files(store) == 2 and unfinished(store) == 0
    monkeypatch.undo()
    is_whole(store, sweep(store), large)


def test_a_store_that_is_replaced_takes_no_rows(grid: coreline.Grid, tmp_path: Path) -> None:
    store = _coreline.Store(tmp_path / "rows", grid.native())
    answer = _coreline.run_task(store.task(grid.keys[:3], 1))
    (tmp_path / "rows").rename(tmp_path / "moved")
    _coreline.Store(tmp_path / "rows", grid.native()).close()
    with pytest.raises(coreline.StoreError, match="moved or replaced"):
        store.accept(grid.keys[:3], answer)
    assert files(tmp_path / "rows") == files(tmp_path / "moved") == 0


def test_the_writer_of_rows_is_one_of_two(grid: coreline.Grid, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="commit cannot be 'worker'"):
        coreline.sweep(grid, tmp_path, commit="worker", progress=False)  # type: ignore[arg-type]
