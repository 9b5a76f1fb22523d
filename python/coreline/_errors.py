"""The exceptions of the package."""


class Error(Exception):
    """The base of all exceptions of the package.

    ``replay`` is the replay line of the run that failed, if one did. ``coreline replay`` repeats the run.
    """

    def __init__(self, message: str, replay: str | None = None) -> None:
        super().__init__(message)
        self.replay = replay


class InvalidGrid(Error, ValueError):
    """A grid, a machine or a value of a parameter is not valid."""


class InvalidChart(Error, ValueError):
    """Rows cannot be shown as the chart that was asked for."""


class UnknownCell(Error, ValueError):
    """A key is not the replay line of a scenario's run, or its machine's file is missing."""


class CellFailed(Error):
    """The run of a cell failed. The message has the reason and the replay line."""


class StoreError(Error):
    """A store cannot be read or written. Rows that were finished before are still there."""


class StoreInUse(StoreError):
    """Another sweep uses the store."""


class StoreNotShared(StoreError):
    """A worker that should write rows into the store does not see its folder."""


class HostTooSmall(Error):
    """A worker's host has too little memory for a cell. The cell has no row, and another host could run it."""


class EngineMismatch(Error):
    """Rows or a worker have another version of the simulator, which may give other results."""


class ExecutorFailed(Error):
    """The engine that runs tasks ended or refused them. Finished rows are in the store."""
