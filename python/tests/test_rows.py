"""Rows, and what reads them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import coreline
import duckdb
import pandas
import polars
import pytest


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows") / "store"


@pytest.fixture
def rows(grid: coreline.Grid, store: Path) -> coreline.Rows:
    return coreline.sweep(grid, store, progress=False)


def test_rows_are_dictionaries_in_the_order_of_the_grid(grid: coreline.Grid, rows: coreline.Rows) -> None:
    assert [row.replay for row in rows] == grid.keys
    assert list(rows[0]) == rows.columns and rows[-1] == rows[11] and len(rows[2:4]) == 2
    assert rows[2:4][1] == rows[3] and rows != rows[1:]
    row = rows[5]
    assert isinstance(row["turns"], float) and isinstance(row["seed"], int) and row["cost"] is None
    assert row.error is None and len(rows.failed) == 0 and rows.check() is rows
    with pytest.raises(IndexError):
        rows[12]
    assert repr(rows) == "<12 rows>"


def test_a_row_shows_what_differs(rows: coreline.Rows) -> None:
    html = rows._repr_html_()
    assert "<th>variant</th>" in html and "<th>machine</th>" not in html
    assert "12 rows" in repr(rows) and html.count("<tr") == 13


def test_arrow_needs_no_pyarrow(rows: coreline.Rows, store: Path) -> None:
    assert importlib.util.find_spec("pyarrow") is None, "this environment must not have it"
    frame = polars.DataFrame(rows)
    assert frame.columns == rows.columns and frame.to_dicts() == list(rows)
    assert frame.schema["seed"] == polars.UInt64 and frame.schema["turns"] == polars.Float64
    # A column that is null in all rows has its type, too.
    assert frame.schema["error"] == polars.String and frame.schema["cost_percent"] == polars.UInt64
    assert rows.to_polars().equals(frame)
    files = polars.read_parquet(store / "*.parquet").sort("replay")
    assert files.equals(frame.sort("replay"))


def test_duckdb_reads_the_stream_and_the_files(rows: coreline.Rows, store: Path) -> None:
    ask = "select variant, count(*), sum(steps)::ubigint from {} group by variant order by variant"
    of_stream = duckdb.execute(ask.format("rows")).fetchall()
    of_files = duckdb.execute(ask.format(f"'{store}/*.parquet'")).fetchall()
    assert of_stream == of_files and [row[:2] for row in of_files] == [("fifo", 6), ("near", 6)]


def test_pandas_has_the_same_values(rows: coreline.Rows) -> None:
    frame = rows.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["turns"]) == [row["turns"] for row in rows]
    assert list(frame.columns) == rows.columns


def test_a_failed_cell_is_an_exception_with_its_replay_line(rows: coreline.Rows) -> None:
    key = rows[0].replay.replace(" program=", " steps=100 program=")
    with pytest.raises(coreline.CellFailed, match="no end after 100 steps") as failed:
        coreline.cell(key)
    assert failed.value.replay == key and f"replay: {key}" in str(failed.value)
    assert coreline.cell(rows[0].replay) == rows[0]
    with pytest.raises(coreline.UnknownCell):
        coreline.cell("no line")


def test_exceptions_survive_a_pickle(rows: coreline.Rows) -> None:
    import pickle

    error = pickle.loads(pickle.dumps(coreline.CellFailed("it failed", rows[0].replay)))
    assert isinstance(error, coreline.CellFailed)
    assert (str(error), error.replay) == ("it failed", rows[0].replay)
    assert json.dumps(list(rows)) == json.dumps(list(rows[:]))
