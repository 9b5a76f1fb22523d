"""The notebook of the documentation gives the outputs that it shows.

After a change of the simulator, `jupyter execute --inplace` writes new outputs into it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "concurrency-ids.ipynb"


def outputs(notebook: Any) -> list[str]:
    """What its cells print and return, as text."""
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output["text"] if "text" in output else output["data"]["text/plain"] for output in shown]


def test_the_notebook_gives_what_it_shows(tmp_path: Path) -> None:
    read: Any = importlib.import_module("nbformat").read
    client: Any = importlib.import_module("nbclient").NotebookClient
    committed = read(NOTEBOOK, as_version=4)
    assert any("8.1 (8.0 to 9.0)" in output for output in outputs(committed)), "it shows the gain on 192 cores"
    executed = read(NOTEBOOK, as_version=4)
    client(executed, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert outputs(executed) == outputs(committed)
