"""Faults of the processes of a server: signals, refused memory, refused descriptors.

Limits are lowered from outside while a process runs, as no test within it could, and put back after a while
(Linux: `prlimit`).
"""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEAST_SERVICE_S: Final = 15.0
"""Of the models' process, from its first answer to its end: after more than five ends in a minute of service
it is given up."""
SIGNALS: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP)
MARKS: Final = {"models": "actors.engine_process", "decoder": "spawn_main"}
"""What their command lines hold."""
SPARE_BYTES: Final = (0, 1 << 20, 16 << 20, 64 << 20)
SPARE_DESCRIPTORS: Final = (0, 1, 4, 16)


@dataclass
class ProcessFaults:
    """Of a running server. Each method does one, and gives its name; None where there is nothing to hit."""

    server: int
    num_answers: Callable[[], int]
    """Of requests for the model so far."""
    _num_before: int = 0
    """As it last ended."""
    _serves_since: float | None = None

    def send_signal(self, chance: random.Random) -> str | None:
        """Kill, crash or stop the models' process or one that decodes."""
        kind, number, stopped_s = (
            chance.choice(tuple(MARKS)),
            chance.choice(SIGNALS),
            chance.uniform(0.1, 3.0),
        )
        may_end = kind == "models" and number is not signal.SIGSTOP
        processes = children(self.server, kind)[:1]
        if not processes or (may_end and not self._may_end()):
            return None
        with suppress(ProcessLookupError):
            os.kill(processes[0], number)
            if number is signal.SIGSTOP:
                time.sleep(stopped_s)
                os.kill(processes[0], signal.SIGCONT)
        return f"{kind} {number.name}"

    def refuse_memory(self, chance: random.Random) -> str | None:
        """Let a process have no more address space than it has, or little more."""
        kind, spare = chance.choice(("server", *MARKS)), chance.choice(SPARE_BYTES)
        lasts_s = chance.uniform(0.1, 3.0)
        process = self._process(kind)
        if process is None or (kind == "models" and not self._may_end()):
            return None
        with (
            suppress(ProcessLookupError, FileNotFoundError),
            limited(process, resource.RLIMIT_AS, address_space(process) + spare),
        ):
            time.sleep(lasts_s)
        return f"{kind} memory refused"

    def refuse_descriptors(self, chance: random.Random) -> str | None:
        """Let a process open no more descriptors than it has, or few more."""
        kind, spare = chance.choice(("server", *MARKS)), chance.choice(SPARE_DESCRIPTORS)
        lasts_s = chance.uniform(0.1, 3.0)
        process = self._process(kind)
        if process is None or (kind == "models" and not self._may_end()):
            return None
        with (
            suppress(ProcessLookupError, FileNotFoundError),
            limited(process, resource.RLIMIT_NOFILE, open_files(process).total() + spare),
        ):
            time.sleep(lasts_s)
        return f"{kind} descriptors refused"

    def _process(self, kind: str) -> int | None:
        return self.server if kind == "server" else next(iter(children(self.server, kind)), None)

    def _may_end(self) -> bool:
        """Whether the models' process may; if so, not again before it has served for a while."""
        now = time.monotonic()
        if self._serves_since is None and self.num_answers() > self._num_before:
            self._serves_since = now
        if self._serves_since is None or now < self._serves_since + LEAST_SERVICE_S:
            return False
        self._num_before, self._serves_since = self.num_answers(), None
        return True


@contextmanager
def limited(process: int, kind: int, soft: int) -> Iterator[None]:
    """A context in which a limit of another process is that low; what was lower before stays."""
    before = resource.prlimit(process, kind)
    if before[0] != resource.RLIM_INFINITY:
        soft = min(soft, before[0])
    resource.prlimit(process, kind, (soft, before[1]))
    try:
        yield
    finally:
        _, hard = resource.prlimit(process, kind)  # it may have been lowered meanwhile, for good
        soft = before[0] if hard == resource.RLIM_INFINITY else min(before[0] % (1 << 64), hard)
        resource.prlimit(process, kind, (soft, hard))


def children(parent: int, kind: str) -> list[int]:
    """Processes of a server: the models', or those that decode."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            command = (path.parent / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(fields[1]) == parent and MARKS[kind] in command:
            found.append(int(path.parent.name))
    return found


def address_space(process: int) -> int:
    """Bytes of it that a process has."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[0]) * resource.getpagesize()


def open_files(process: int) -> Counter[str]:
    """Descriptors of a process, by what they are of: sockets, pipes, each file."""
    found = Counter[str]()
    for name in os.listdir(f"/proc/{process}/fd"):
        with suppress(FileNotFoundError):
            found[os.readlink(f"/proc/{process}/fd/{name}").partition(":[")[0]] += 1
    return found
