"""Grids: which cells of which scenario run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coreline import _coreline
from coreline._catalogue import Machine
from coreline._rows import counted

Cost = Literal["point", "shares", "band"]
"""Which points of a machine's band of uncertain costs run: the default point, each request share, or the whole band."""

_Name = str | Machine


@dataclass(frozen=True)
class Estimate:
    """What cells take."""

    cells: int
    seconds: float
    """The CPU time of all of them together."""
    memory: int
    """The memory of a process that runs the largest of them, in bytes."""
    is_rough: bool
    """Whether no cell of the scenario was run yet: the time may be wrong by a factor of 10."""

    def __str__(self) -> str:
        cpus = len(os.sched_getaffinity(0))
        guess = ", a guess, because no cell has run yet" if self.is_rough else ""
        return f"{counted(self.cells, 'cell')}, about {_took(self.seconds / cpus)} on {counted(cpus, 'CPU')}{guess}"


@dataclass(frozen=True, init=False)
class Grid:
    """All combinations of machines, variants, parameters, seeds and uncertain costs of one scenario.

    Each cell is one simulated run. Its key is its replay line, which has everything that the run depends on except the
    code. Where an argument or a scenario's parameter is left out, its default values run.
    """

    scenario: str
    machine: tuple[str, ...]
    """Names of presets, and paths of machine files."""
    config: tuple[str, ...] | None
    """Parts of the machines, or ``all``."""
    variant: tuple[str, ...] | None
    seed: tuple[int, ...]
    cost: Cost
    arbitration: tuple[str, ...] | None
    quick: bool
    params: tuple[tuple[str, tuple[str | int, ...]], ...]

    def __init__(
        self,
        scenario: str,
        machine: _Name | Iterable[_Name],
        *,
        config: str | Iterable[str] | None = None,
        variant: str | Iterable[str] | None = None,
        seed: int | Iterable[int] = 1,
        cost: Cost = "point",
        arbitration: str | Iterable[str] | None = None,
        quick: bool = False,
        **params: str | int | Iterable[str | int],
    ) -> None:
        named = (machine,) if isinstance(machine, str | Machine) else tuple(machine)
        values = {
            "scenario": scenario,
            "machine": tuple(_asked(one) for one in named),
            "config": _tuple(config),
            "variant": _tuple(variant),
            "seed": (seed,) if isinstance(seed, int) else tuple(seed),
            "cost": cost,
            "arbitration": _tuple(arbitration),
            "quick": quick,
            "params": tuple((name, _several(value)) for name, value in params.items()),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def specification(self) -> str:
        """The grid as JSON, with the fields of a file for ``coreline sweep``."""
        fields = {
            "scenario": self.scenario,
            "machine": self.machine,
            "config": self.config,
            "variant": self.variant,
            "seed": self.seed,
            "cost": self.cost,
            "arbitration": self.arbitration,
            "quick": self.quick,
            "params": dict(self.params),
        }
        # An empty list is not left out: it is an error.
        return json.dumps({name: value for name, value in fields.items() if value is not None})

    def native(self) -> _coreline.Sweep:
        return _coreline.Sweep(self.specification())

    @property
    def keys(self) -> list[str]:
        """The keys of the cells, in the order of rows."""
        return self.native().keys

    def __len__(self) -> int:
        return len(self.native().keys)

    def estimate(self, store: str | Path | None = None) -> Estimate:
        """What the cells take. With a store, it estimates the cells that the store lacks, from those that it has."""
        return Estimate(*self.native().estimate(store))

    def __str__(self) -> str:
        return str(self.estimate())


def _asked(machine: _Name) -> str:
    if isinstance(machine, str):
        return machine
    return machine.name if machine.path is None else str(machine.path)


def _tuple(value: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


def _several(value: str | int | Iterable[str | int]) -> tuple[str | int, ...]:
    return (value,) if isinstance(value, str | int) else tuple(value)


def _took(seconds: float) -> str:
    if seconds < 2:
        return f"{round(seconds * 1e3)} ms"
    if seconds < 120:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
