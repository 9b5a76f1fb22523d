"""Charts of rows."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import coreline
import pytest


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> coreline.Rows:
    grid = coreline.Grid(
        "lockscale",
        ["host-2c", "desktop-12c"],
        variant=("fifo", "near"),
        seed=range(4),
        cost="shares",
        quick=True,
        threads=(2, 1),
        outside=500,
    )
    return coreline.sweep(grid, tmp_path_factory.mktemp("charts") / "rows", progress=False)


def points(figure: Any) -> dict[tuple[str, str, int], tuple[float, float, float]]:
    """The points of a figure: by panel, line and place, the value, the lowest and the highest."""
    found = {}
    for trace in figure.data:
        spans = zip(trace.x, trace.y, trace.error_y.arrayminus, trace.error_y.array, strict=True)
        for x, y, below, above in spans:
            found[trace.xaxis or "x", trace.name, x] = (y, y - below, y + above)
    return found


def test_a_chart_has_the_means_and_the_band_of_its_rows(rows: coreline.Rows) -> None:
    plotly: Any = pytest.importorskip("plotly.graph_objects")
    figure = rows.chart("turns")
    assert isinstance(figure, plotly.Figure) and len(figure.data) == 4
    found = points(figure)
    assert len(found) == 2 * 2 * 2
    for panel, machine in (("x", "host-2c"), ("x2", "desktop-12c")):
        for variant in ("fifo", "near"):
            for threads in (1, 2):
                runs = [float(str(row["turns"])) for row in rows.where(machine=machine, variant=variant, threads=threads)]
                assert len(runs) == 12
                expected = (statistics.fmean(runs), min(runs), max(runs))
                assert found[panel, variant, threads] == pytest.approx(expected)
    assert [note.text for note in figure.layout.annotations] == ["host-2c", "desktop-12c"]
    assert "turns" in figure.layout.yaxis.title.text and figure.layout.xaxis2.title.text == "threads"
    assert figure.layout.title.subtitle.text.startswith("means of 12 runs")


def test_a_chart_of_one_machine_has_one_panel(rows: coreline.Rows) -> None:
    pytest.importorskip("plotly")
    figure = rows.where(machine="host-2c", seed=rows[0]["seed"], request_percent=30).chart("turns", over="threads")
    assert [trace.name for trace in figure.data] == ["fifo", "near"]
    # A point of one run has no band.
    assert figure.data[0].error_y.array is None and figure.layout.title.subtitle.text is None
    assert figure.layout.title.text == "lockscale: turns over threads on host-2c"


def test_what_no_chart_shows_is_refused(rows: coreline.Rows) -> None:
    pytest.importorskip("plotly")
    with pytest.raises(coreline.InvalidChart, match="did you mean turns"):
        rows.chart("turn")
    with pytest.raises(coreline.InvalidChart, match="numeric parameter"):
        rows.chart("turns", over="variant")
    with pytest.raises(coreline.InvalidChart, match=r"differ in threads.*rows\.where\(threads=\d\)"):
        rows.chart("turns", over="section_ns")
    with pytest.raises(coreline.InvalidChart, match="no rows"):
        rows.where(machine="none").chart("turns")


def test_rows_are_chosen_by_the_values_of_columns(rows: coreline.Rows) -> None:
    assert len(rows.where(machine="host-2c", threads=[1, 2])) == len(rows) // 2
    assert rows.where(variant="near", threads=2)[0] == next(
        row for row in rows if row["variant"] == "near" and row["threads"] == 2
    )
    assert len(rows.where(error=None)) == len(rows) and len(rows.where()) == len(rows)
    with pytest.raises(KeyError, match="thread"):
        rows.where(thread=1)


def test_a_chart_without_plotly_says_what_to_install(rows: coreline.Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.io", None)
    with pytest.raises(ImportError, match=r"install coreline\[plotly\]"):
        rows.chart("turns")
