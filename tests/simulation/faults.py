"""What goes wrong in a simulated run: each fault comes at a time, and says whom it may touch.

A fault that hits something of one client (a thread's job, a decode process' file) touches that client; one
that takes a model away touches who needs the model until it is back. Whoever is not touched must be answered
as if nothing had happened: that is what `simulation/invariants.py` checks. Slowness touches nobody.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Kind = Literal[
    "thread raises",
    "threads refused",
    "worker dies",
    "worker hangs",
    "disk full",
    "device raises",
    "device hangs",
    "device out of memory",
    "process dies",
    "process stopped",
    "actor raises",
    "actor slow",
    "link slow",
    "clock set",
    "loop held",
    "server stops",
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
SUPERVISED: Final = ("executor", "scheduler", "detokenizer", "encoder cache")
"""Actors whose failure is a restart of their engine."""


class SimulatedError(Exception):
    """A defect that nobody has foreseen."""


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    at: float
    """Virtual seconds after the start."""
    target: str = ""
    """A model, or an actor's inbox."""
    lasts_s: float = 0.0


@dataclass
class Faults:
    """What is to go wrong next, and what goes wrong meanwhile. The machine asks before everything it does."""

    next: Counter[tuple[Kind, str]] = field(default_factory=Counter)
    """Faults that hit whoever comes next."""
    now: dict[tuple[Kind, str], float] = field(default_factory=dict)
    """Faults that hold, and how many seconds of slowness they mean."""
    touched: set[str] = field(default_factory=set)
    """Clients of whom something was hit."""
    lost_workers: Counter[str | None] = field(default_factory=Counter)
    """Decode processes, by client."""

    def _touch(self, client: str | None) -> None:
        if client is not None:
            self.touched.add(client)

    def _strike(self, kind: Kind, target: str = "") -> bool:
        if not self.next[kind, target]:
            return False
        self.next[kind, target] -= 1
        return True

    def start_thread(self, client: str | None) -> None:
        """A thread is wanted. Raises RuntimeError as Python does where there is none."""
        if ("threads refused", "") in self.now:
            self._touch(client)
            raise RuntimeError("can't start new thread")

    def in_thread(self, client: str | None, name: str) -> Exception | None:
        """What a thread's job raises, if it does."""
        if ("disk full", "") in self.now and "write_bytes" in name:
            self._touch(client)
            return OSError(errno.ENOSPC, "No space left on device")
        if client and self._strike("thread raises"):
            self.touched.add(client)
            return SimulatedError(f"raised in {name}")
        return None

    def in_worker(self, client: str | None) -> Literal["dies", "hangs"] | None:
        """What becomes of a decode process. A job whose process is lost once is tried again: no touch."""
        if self._strike("worker dies"):
            self._lose_worker(client)
            return "dies"
        if self._strike("worker hangs"):
            self._lose_worker(client)
            return "hangs"
        return None

    def _lose_worker(self, client: str | None) -> None:
        self.lost_workers[client] += 1
        if self.lost_workers[client] > 1:
            self._touch(client)

    def on_device(self, model: str) -> Exception | Literal["hangs"] | None:
        """What becomes of a step of a model."""
        if self._strike("device raises", model):
            return RuntimeError("CUDA error: an illegal memory access was encountered")
        if self._strike("device out of memory", model):
            return MemoryError("std::bad_alloc")
        return "hangs" if self._strike("device hangs", model) else None

    def in_actor(self, inbox: str) -> float:
        """For how long an actor dawdles before it takes its next message. Raises what the actor raises."""
        if self._strike("actor raises", inbox):
            raise SimulatedError(f"raised in the {inbox}")
        return self.now.get(("actor slow", inbox), 0.0)

    def on_link(self) -> float:
        """How late what one of the two processes says arrives."""
        return self.now.get(("link slow", ""), 0.0)
