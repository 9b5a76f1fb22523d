"""The program ``coreline``."""

import signal
import sys

from coreline import _coreline


def main() -> int:
    """Runs the program with the arguments of this process, and returns its exit code."""
    # Python would note a Ctrl-C, and answer it after the program has ended.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _coreline.program(["coreline", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
