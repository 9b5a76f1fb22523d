"""Options and fixtures of all tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import coreline
import pytest
import workers

TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engines", action="store_true", help="also run the tests of Ray, Dask, loky and MPI")


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


# 240 cells of some milliseconds, so that tasks have several of them.
FIELDS = {
    "scenario": "lockscale",
    "machine": "host-2c",
    "variant": ["fifo", "near"],
    "seed": list(range(60)),
    "quick": True,
    "threads": [1, 2],
}
LARGE = coreline.Grid(**FIELDS)  # type: ignore[arg-type]


@pytest.fixture
def grid() -> coreline.Grid:
    return GRID


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> coreline.Rows:
    """The rows of the large grid, from the threads of the program."""
    return in_process(LARGE, tmp_path_factory.mktemp("large"))


Begun = Callable[[], list[tuple[int, str]]]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Begun:
    """Lets test workers find this folder and the log, and returns a reader of the log."""
    monkeypatch.setenv("CORELINE_TEST_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    return workers.begun


Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program() -> Program:
    """Runs the program with arguments."""
    return run_program


def run_program(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "coreline", *map(str, args)], capture_output=True, text=True)


def in_process(grid: coreline.Grid, folder: Path) -> coreline.Rows:
    """Runs a grid as ``coreline sweep`` does, on the threads of one process, and reads its rows."""
    folder.mkdir(parents=True, exist_ok=True)
    specification = folder / "grid.toml"
    specification.write_text(toml(grid))
    done = run_program("sweep", specification, "--store", folder / "rows")
    assert done.returncode in (0, 1), done.stderr
    return coreline.sweep(grid, folder / "rows", progress=False)


def toml(grid: coreline.Grid) -> str:
    """The specification as a file: JSON's values are TOML's, apart from objects."""
    fields = json.loads(grid.specification())
    params = fields.pop("params", {})
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    lines += ["[params]", *(f"{name} = {json.dumps(value)}" for name, value in params.items())]
    return "\n".join(lines)
