"""Rows: the results of cells."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, overload

from coreline import _coreline
from coreline._errors import CellFailed

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects
    import polars

Value = str | int | float | None
"""The value of a column in a row. It is None if the column does not apply."""

_SHOWN = 20


class Row(dict[str, Value]):
    """A row as a dictionary, in the order of the columns."""

    @property
    def replay(self) -> str:
        """The key of the cell, which is its replay line."""
        return str(self["replay"])

    @property
    def error(self) -> str | None:
        """Why the run failed, or None if it did not."""
        error = self["error"]
        return None if error is None else str(error)


# No `Sequence`: polars would read that as a list of dictionaries, and guess the types of the columns.
class Rows:
    """The rows of cells of one scenario, in the order of the grid.

    polars, DuckDB and pyarrow read this object through Arrow's C stream, as in ``polars.DataFrame(rows)``.
    """

    def __init__(self, native: _coreline.Rows) -> None:
        self._native = native

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._native.columns

    @property
    def failed(self) -> Rows:
        """The rows of the cells whose run failed."""
        return Rows(self._native.take([at for at, row in enumerate(self) if row.error is not None]))

    def check(self) -> Rows:
        """Returns these rows.

        Raises:
            CellFailed: if the run of a cell failed, with the replay line of the first one.
        """
        failed = self.failed
        if len(failed) > 0:
            raise cell_failed(failed[0], len(failed), len(self))
        return self

    def where(self, **values: Value | Iterable[Value]) -> Rows:
        """The rows whose columns have these values, or one of several values.

        Raises:
            KeyError: if there is no such column.
        """
        one = {name: _several(value) for name, value in values.items()}
        rows = enumerate(self)
        return Rows(self._native.take([at for at, row in rows if all(row[name] in one[name] for name in one)]))

    def chart(self, metric: str, over: str | None = None) -> plotly.graph_objects.Figure:
        """A chart of a figure over a parameter, which needs ``coreline[plotly]``.

        Each machine has a panel, and each variant a line. A point is the mean over seeds, costs and arbitrations. Its
        whiskers reach from the lowest to the highest. Failed runs are left out.

        Args:
            metric: The figure, as ``turns``.
            over: The parameter, as the column of rows is called. Without it: the number of threads or, in a scenario
                without it, of CPUs.

        Raises:
            InvalidChart: if there is no such figure or parameter, or if the rows differ in something else. Then choose
                rows by :meth:`where`.
        """
        try:
            import plotly.io
        except ImportError as error:
            raise ImportError("charts need plotly; install coreline[plotly]") from error
        return plotly.io.from_json(self._native.chart(metric, over))

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Row | Rows:
        places = range(len(self))[index]
        if isinstance(places, range):
            return Rows(self._native.take(places))
        return Row(self._native.row(places))

    def __iter__(self) -> Iterator[Row]:
        return (Row(self._native.row(at)) for at in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame of pandas."""
        import pandas

        # Not through Arrow's stream, for which pandas needs pyarrow.
        return pandas.DataFrame(list(self), columns=self.columns)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a data frame of polars."""
        import polars

        return polars.DataFrame(self)

    def __repr__(self) -> str:
        failed = len(self.failed)
        return f"<{counted(len(self), 'row')}{f', of which {failed:,} failed' if failed else ''}>"

    def _repr_html_(self) -> str:
        rows = [*self[:_SHOWN]]
        # The columns that differ or that have a figure; the replay line says the rest.
        shown = [name for name in self.columns if name != "replay" and any(row[name] is not None for row in rows)]
        if len(rows) > 1:
            shown = [name for name in shown if len({row[name] for row in rows}) > 1]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in shown)
        body = "".join(
            f'<tr title="{html.escape(row.replay)}">'
            + "".join(f"<td>{html.escape(_text(row[name]))}</td>" for name in shown)
            + "</tr>"
            for row in rows
        )
        more = f"<p>and {len(self) - _SHOWN:,} more</p>" if len(self) > _SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _several(value: Value | Iterable[Value]) -> tuple[Value, ...]:
    return (value,) if value is None or isinstance(value, str | int | float) else tuple(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def cell_failed(row: Row, failed: int = 1, of: int = 1) -> CellFailed:
    which = "the cell" if of == 1 else f"{counted(failed, 'cell')} of {of:,}"
    # The error of a simulated program has the line already.
    line = "" if row.replay in (row.error or "") else f"\n  replay: {row.replay}"
    return CellFailed(f"{which} failed: {row.error}{line}", row.replay)
