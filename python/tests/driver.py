"""A driver that tests end.

It runs the grid whose fields are JSON in the first argument, into the store that is the second argument.

The third argument is the engine: ``processes``, ``ray`` or ``dask``. Its workers log what they begin.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import coreline
import workers
from coreline import _engines, _worker


def main() -> None:
    fields: dict[str, Any] = json.loads(sys.argv[1])
    grid = coreline.Grid(**fields)
    store, engine = sys.argv[2:]
    _worker.run = workers.logged
    _engines.Processes.COMMAND = "import workers; from coreline._worker import main; main(workers.logged)"
    if engine == "processes":
        coreline.sweep(grid, store, progress=False)
    elif engine == "ray":
        importlib.import_module("ray").init(address=os.environ["CORELINE_TEST_CLUSTER"], log_to_driver=False)
        coreline.sweep(grid, store, on="ray", progress=False)
    else:
        with importlib.import_module("distributed").Client(os.environ["CORELINE_TEST_CLUSTER"]) as client:
            coreline.sweep(grid, store, on=client.get_executor(), progress=False)


if __name__ == "__main__":
    main()
