"""The example of the package's page."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    assert "seed=range(16)" in example
    monkeypatch.chdir(tmp_path)
    exec(compile(example.replace("range(16)", "range(1)"), "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("12 cells, about ") and said.endswith("True\n")
