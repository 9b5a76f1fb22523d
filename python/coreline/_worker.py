"""A worker: a process that runs tasks.

Any engine calls ``run`` with plain text and returns plain bytes. The package's own workers are processes that run
``main``. The process that started a worker writes tasks to its standard input and reads answers from its standard
output. Each is a frame of a kind, a length and bytes.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import struct
import threading
from collections.abc import Callable

from coreline import _coreline

HEAD = struct.Struct("<cQ")
READY = b"r"
DONE = b"d"
FAILED = b"f"


def run(task: str) -> bytes:
    """Runs a task, and returns its rows as a Parquet file, or what it wrote into the store."""
    return _coreline.run_task(task)


def frame(kind: bytes, body: bytes) -> bytes:
    return HEAD.pack(kind, len(body)) + body


def read(file: int, size: int) -> bytes | None:
    """Reads so many bytes, or None if the other side has ended before."""
    parts = []
    while size > 0:
        part = os.read(file, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_frame(file: int) -> tuple[bytes, bytes] | None:
    head = read(file, HEAD.size)
    if head is None:
        return None
    kind, size = HEAD.unpack(head)
    body = read(file, size)
    return None if body is None else (kind, body)


def write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _tasks(source: int, tasks: queue.SimpleQueue[str]) -> None:
    while (found := read_frame(source)) is not None:
        tasks.put(found[1].decode())
    # The driver has ended, whatever ended it. It needs no answer any more.
    os._exit(0)


def main(run: Callable[[str], bytes] = run) -> None:
    """Runs tasks until the standard input ends."""
    # The driver decides what a Ctrl-C ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, sink = os.dup(0), os.dup(1)
    # What a library prints must not be taken for an answer.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_tasks, args=(source, tasks), daemon=True).start()
    write(sink, frame(READY, b""))
    while True:
        try:
            answer = frame(DONE, run(tasks.get()))
        except Exception as error:
            answer = frame(FAILED, pickle.dumps(error))
        write(sink, answer)

