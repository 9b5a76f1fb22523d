"""Machines and scenarios."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from pathlib import Path

from coreline import _coreline


@dataclass(frozen=True)
class Cost:
    """What an operation costs on a machine."""

    name: str
    value: float
    unit: str
    """``ns`` or ``count``."""
    uncertain: bool
    """Whether the band of a result varies the cost by 30 %."""
    source: str


@dataclass(frozen=True)
class Machine:
    """A machine that can be simulated: a preset, or your own machine file."""

    name: str
    summary: str
    cpus: int
    cores: int
    caches: int
    """The number of last-level caches."""
    nodes: int
    sockets: int
    costs: tuple[Cost, ...] = field(repr=False)
    tree: str = field(repr=False)
    """The parts of the machine, as indented text."""
    digest: str | None = None
    """The digest of the machine's file, as replay lines have it; None for a preset."""
    path: Path | None = None
    """The machine's file; None for a preset."""

    @staticmethod
    def preset(name: str) -> Machine:
        """Returns a machine that the package brings.

        Raises:
            InvalidGrid: if there is no such machine.
        """
        return _machine(name, None)

    @staticmethod
    def load(path: str | Path) -> Machine:
        """Reads a machine file, which ``coreline measure --out`` writes.

        Raises:
            InvalidGrid: if the file cannot be read or is not valid.
        """
        # With a slash, so that no preset's name is meant.
        whole = Path(path).absolute()
        return _machine(str(whole), whole)

    def _repr_html_(self) -> str:
        title = f"<b>{html.escape(self.name)}</b>: {html.escape(self.summary)}"
        return f"<div>{title}<pre>{html.escape(self.tree)}</pre></div>"


def _machine(asked: str, path: Path | None) -> Machine:
    facts = json.loads(_coreline.machine(asked))
    costs = tuple(Cost(**cost) for cost in facts.pop("costs"))
    return Machine(**facts, costs=costs, path=path)


def machines() -> list[Machine]:
    """Returns the machines that the package brings."""
    return [Machine.preset(name) for name in _coreline.machines()]


@dataclass(frozen=True)
class Param:
    """A parameter of a scenario, which a grid may vary."""

    name: str
    about: str
    form: str
    """The form of a value: ``N``, a unit, or names."""


@dataclass(frozen=True)
class Variant:
    """An alternative that a scenario compares."""

    name: str
    about: str


@dataclass(frozen=True)
class Figure:
    """A figure of a row."""

    name: str
    unit: str
    better: str
    """``lower`` or ``higher``."""


@dataclass(frozen=True)
class Scenario:
    """A program that runs on simulated machines, with what a grid may vary and what rows have."""

    name: str
    about: str
    params: tuple[Param, ...]
    variants: tuple[Variant, ...]
    figures: tuple[Figure, ...]


def scenarios() -> list[Scenario]:
    """Returns the scenarios."""
    return [
        Scenario(
            name=one["name"],
            about=one["about"],
            params=tuple(Param(**param) for param in one["params"]),
            variants=tuple(Variant(**variant) for variant in one["variants"]),
            figures=tuple(Figure(**figure) for figure in one["figures"]),
        )
        for one in json.loads(_coreline.scenarios())
    ]
