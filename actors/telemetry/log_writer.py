"""Writes the log in a thread of its own: where nobody reads it, lines are left out, and nobody else waits.

What a terminal, a pipe or a container's runtime does not take holds up this thread only. **Bounded**:
`MAX_LINES` wait; how many found no room is said before the next that finds some. `logs.py` uses it.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Final, TextIO

MAX_LINES: Final = 4096
_FLUSH_S: Final = 1.0
"""How long the end of the process waits for a reader."""


class LogWriter(logging.Handler):
    """Formats where something is logged, which has the request's id, and writes elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._write = _writing(stream)
        self._lines: queue.SimpleQueue[str | threading.Event] = queue.SimpleQueue()
        self._num_left_out = 0
        threading.Thread(target=self._run, name="sensorium-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Have the line written, if there is room. Does not wait."""
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        if self._lines.qsize() >= MAX_LINES:
            self._num_left_out += 1
            return
        self._report_left_out()
        self._lines.put(line)

    def flush(self) -> None:
        """Return when everything is written, or when nobody reads it."""
        with self.lock or nullcontext():
            self._report_left_out()
        written = threading.Event()
        self._lines.put(written)
        written.wait(_FLUSH_S)

    def _report_left_out(self) -> None:
        if self._num_left_out:
            message = "%d lines of the log were left out: nobody read it"
            level, number = logging.WARNING, self._num_left_out
            self._num_left_out = 0
            self._lines.put(self.format(logging.LogRecord(__name__, level, "", 0, message, (number,), None)))

    def _run(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            with suppress(OSError, ValueError):  # the reader is gone, or the disk full: nobody can be told
                self._write(f"{line}\n")


def _writing(stream: TextIO) -> Callable[[str], object]:
    """Past the buffer of standard error, which the interpreter's end would wait for."""
    try:
        descriptor = stream.fileno()
    except OSError:  # one in memory
        return stream.write

    ready = select.poll()
    ready.register(descriptor, select.POLLOUT)

    def write(text: str) -> None:
        data = text.encode(errors="backslashreplace")
        while data:
            ready.poll()  # somebody may have made it one that does not wait
            with suppress(BlockingIOError):  # another process was first
                data = data[os.write(descriptor, data) :]

    return write
