"""The examples of the package's page and of the page on clusters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def example(page: str, smaller: dict[str, str]) -> str:
    """The first program of a page, with fewer cells."""
    found = (ROOT / page).read_text().split("```python\n")[1].split("```")[0]
    for old, new in smaller.items():
        assert old in found
        found = found.replace(old, new)
    return found


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program = example("python/README.md", {"range(16)": "range(1)"})
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("12 cells, about ") and said.endswith("True\n")


def test_the_program_for_clusters_runs_here(tmp_path: Path) -> None:
    program = tmp_path / "locks.py"
    program.write_text(example("docs/cluster.md", {"range(8)": "range(1)", "[2, 16, 96]": "[2]"}))
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("36 rows\n")
