"""Grids, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import coreline
import pytest


def test_a_grid_names_each_combination_once(grid: coreline.Grid) -> None:
    assert len(grid) == 12 == len(set(grid.keys))
    assert all(key.startswith("coreline-sim/1 machine=host-2c ") for key in grid.keys)
    assert len(coreline.Grid("lockscale", ["host-2c", "host-2c"], variant="fifo", threads=1)) == 1
    lists = coreline.Grid("lockscale", ["host-2c"], variant=["fifo", "near"], seed=[0, 1, 2], quick=True, threads=[1, 2])
    assert grid == lists
    assert len({grid, grid}) == 1


def test_the_band_has_more_cells() -> None:
    point, shares, band = (
        len(coreline.Grid("lockscale", "host-2c", variant="fifo", threads=1, cost="point")),
        len(coreline.Grid("lockscale", "host-2c", variant="fifo", threads=1, cost="shares")),
        len(coreline.Grid("lockscale", "host-2c", variant="fifo", threads=1, cost="band")),
    )
    assert 1 == point < shares < band


def test_a_grid_says_how_long_it_takes(grid: coreline.Grid, tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    assert str(grid).startswith("12 cells, about ") and f" on {cpus} CPU" in str(grid)
    assert grid.estimate().is_rough and "a guess" in str(grid)
    coreline.sweep(grid, tmp_path, progress=False)
    more = coreline.Grid("lockscale", "host-2c", variant="fifo", seed=range(5), quick=True, threads=(1, 2))
    estimate = more.estimate(tmp_path)
    assert (estimate.cells, estimate.is_rough) == (4, False)
    assert 0 < estimate.seconds < 60 and estimate.memory > 1 << 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scenario": "lockscales"}, "did you mean lockscale"),
        ({"machine": "host-3c"}, "host-2c"),
        ({"variant": "fifi"}, "fifo"),
        ({"config": "no-such"}, "configuration"),
        ({"thread": 3}, "did you mean threads"),
        ({"threads": "many"}, "threads"),
        ({"cost": "bands"}, "band"),
        ({"arbitration": "last"}, "last"),
        ({"machine": []}, "machine is an empty list"),
        ({"config": []}, "config is an empty list"),
        ({"variant": []}, "variant is an empty list"),
        ({"seed": []}, "seed is an empty list"),
        ({"arbitration": ()}, "arbitration is an empty list"),
        ({"threads": []}, "threads is an empty list"),
    ],
)
def test_a_wrong_grid_is_refused(change: dict[str, object], message: str) -> None:
    fields: dict[str, object] = {"scenario": "lockscale", "machine": "host-2c", **change}
    with pytest.raises(coreline.InvalidGrid, match=message):
        len(coreline.Grid(**fields))  # type: ignore[arg-type]
