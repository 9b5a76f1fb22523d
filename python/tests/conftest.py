"""Options and fixtures of all tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import coreline
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engines", action="store_true", help="also run the tests of Ray and Dask")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--engines"):
        skip = pytest.mark.skip(reason="only with --engines")
        for item in items:
            if "engines" in item.keywords:
                item.add_marker(skip)


# 12 cells, each of which takes a few milliseconds.
GRID = coreline.Grid(
    "lockscale",
    "host-2c",
    variant=("fifo", "near"),
    seed=range(3),
    quick=True,
    threads=(1, 2),
)


@pytest.fixture
def grid() -> coreline.Grid:
    return GRID


Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program() -> Program:
    """Runs the program with arguments."""

    def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "coreline", *map(str, args)], capture_output=True, text=True)

    return run


InProcess = Callable[[coreline.Grid, Path], coreline.Rows]


@pytest.fixture
def in_process(program: Program) -> InProcess:
    """Runs a grid as ``coreline sweep`` does, on the threads of one process, and reads its rows."""

    def run(grid: coreline.Grid, folder: Path) -> coreline.Rows:
        folder.mkdir(parents=True, exist_ok=True)
        specification = folder / "grid.toml"
        specification.write_text(toml(grid))
        done = program("sweep", specification, "--store", folder / "rows")
        assert done.returncode in (0, 1), done.stderr
        return coreline.sweep(grid, folder / "rows", progress=False)

    return run


def toml(grid: coreline.Grid) -> str:
    """The specification as a file: JSON's values are TOML's, apart from objects."""
    fields = json.loads(grid.specification())
    params = fields.pop("params", {})
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    lines += ["[params]", *(f"{name} = {json.dumps(value)}" for name, value in params.items())]
    return "\n".join(lines)
