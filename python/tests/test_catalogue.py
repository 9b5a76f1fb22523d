"""Machines and scenarios."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import coreline
import pytest

from conftest import Program


def machine_file(program: Program, folder: Path) -> Path:
    """The file of a machine of one's own: a preset under another name."""
    source = Path(__file__).parents[2] / "crates/sim/machines/host-2c.toml"
    path = folder / "mine.toml"
    path.write_text(source.read_text().replace('"host-2c"', '"mine"'))
    return path


def test_machines_have_parts_and_costs_with_sources() -> None:
    machines = {machine.name: machine for machine in coreline.machines()}
    epyc = machines["epyc-9654-2s"]
    assert (epyc.cpus, epyc.cores, epyc.caches, epyc.nodes, epyc.sockets) == (384, 192, 24, 2, 2)
    assert epyc.path is None and epyc.digest is None
    assert all(cost.source for cost in epyc.costs) and any(cost.uncertain for cost in epyc.costs)
    assert "socket 0" in epyc.tree and "<pre>" in epyc._repr_html_()


def test_a_machine_file_is_a_machine(program: Program, tmp_path: Path) -> None:
    mine = coreline.Machine.load(machine_file(program, tmp_path))
    assert mine.name == "mine" and mine.path == tmp_path / "mine.toml"
    preset = coreline.Machine.preset("host-2c")
    assert mine.costs == preset.costs and mine.digest is not None
    grid = coreline.Grid("lockscale", [mine, preset], variant="fifo", quick=True, threads=1)
    rows = coreline.run(grid, progress=False)
    assert [row["machine"] for row in rows] == ["mine", "host-2c"]
    # The same costs, so the same result.
    assert rows[0]["turns"] == rows[1]["turns"]
    assert coreline.cell(rows[0].replay, mine) == rows[0]
    with pytest.raises(coreline.UnknownCell, match="machine file"):
        coreline.cell(rows[0].replay)


def test_a_machine_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(coreline.InvalidGrid, match="did you mean host-2c"):
        coreline.Machine.preset("host-2d")
    with pytest.raises(coreline.Error):
        coreline.Machine.load(tmp_path / "none.toml")
    with pytest.raises(coreline.Error):
        coreline.Machine.load("host-2c")


def test_scenarios_say_what_grids_vary_and_what_rows_have(grid: coreline.Grid) -> None:
    scenarios = {scenario.name: scenario for scenario in coreline.scenarios()}
    lockscale = scenarios["lockscale"]
    assert {"fifo", "near"} <= {variant.name for variant in lockscale.variants}
    assert "threads" in {param.name for param in lockscale.params}
    columns = coreline.run(grid, progress=False).columns
    assert {figure.name for figure in lockscale.figures} <= set(columns)
    with pytest.raises(dataclasses.FrozenInstanceError):
        lockscale.name = "another"  # type: ignore[misc]
