"""A driver that tests end.

It runs the grid whose fields are JSON in the first argument, into the store that is the second argument.

The third argument is the engine: ``processes``, ``ray``, ``dask`` or ``mpi``. Its workers log what they begin. The fourth
argument says what writes the rows: ``driver`` or ``workers``.
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
    store, engine, commit = sys.argv[2:]
    how: dict[str, Any] = {"commit": commit, "progress": False}
    _worker.run = workers.logged
    _engines.Processes.COMMAND = "import workers; from coreline._worker import main; main(workers.logged)"
    if engine == "processes":
        coreline.sweep(grid, store, **how)
    elif engine == "ray":
        importlib.import_module("ray").init(address=os.environ["CORELINE_TEST_CLUSTER"], log_to_driver=False)
        coreline.sweep(grid, store, on="ray", **how)
    elif engine == "mpi":
        with importlib.import_module("mpi4py.futures").MPIPoolExecutor() as executor:
            coreline.sweep(grid, store, on=executor, **how)
    else:
        with importlib.import_module("distributed").Client(os.environ["CORELINE_TEST_CLUSTER"]) as client:
            coreline.sweep(grid, store, on=client.get_executor(), **how)


if __name__ == "__main__":
    main()
