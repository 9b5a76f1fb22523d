"""Simulations of many-core machines, in grids that survive crashes.

A :class:`Grid` names cells, each of which is one simulated run. :func:`sweep` runs the cells that a folder of finished
rows lacks, on the CPUs of this host, on Ray, or on any ``concurrent.futures.Executor``. pandas, polars and DuckDB read
:class:`Rows`.
"""

from coreline._catalogue import Cost, Figure, Machine, Param, Scenario, Variant, machines, scenarios
from coreline._coreline import engine
from coreline._errors import (
    CellFailed,
    EngineMismatch,
    Error,
    ExecutorFailed,
    HostTooSmall,
    InvalidChart,
    InvalidGrid,
    StoreError,
    StoreInUse,
    StoreNotShared,
    UnknownCell,
)
from coreline._grid import Estimate, Grid
from coreline._rows import Row, Rows, Value
from coreline._sweep import cell, run, sweep

__all__ = [
    "CellFailed",
    "Cost",
    "EngineMismatch",
    "Error",
    "Estimate",
    "ExecutorFailed",
    "Figure",
    "Grid",
    "HostTooSmall",
    "InvalidChart",
    "InvalidGrid",
    "Machine",
    "Param",
    "Row",
    "Rows",
    "Scenario",
    "StoreError",
    "StoreInUse",
    "StoreNotShared",
    "UnknownCell",
    "Value",
    "Variant",
    "cell",
    "engine",
    "machines",
    "run",
    "scenarios",
    "sweep",
]
