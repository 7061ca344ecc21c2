"""Choices among candidates that take scripted time: what they compute and how long is said by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from weakref import WeakValueDictionary

import pytest
import torch
from sensorium.kernels import autotune as module
from sensorium.kernels.autotune import Choice, Run
from torch import Tensor

ROWS = (1, 4, 16, 64)


class Stopwatch:
    """A clock that moves only while a candidate runs. Meanwhile threads wait for `waiting` of the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waiting = 0.0
        self.waited_s = 0.0
        self.num_calls = 0

    def __call__(self) -> float:
        return self.now

    def waited(self) -> float:
        """See `Waited`."""
        return self.waited_s

    def run(self, seconds: Iterator[float]) -> Tensor:
        """A candidate that takes the next of `seconds`."""
        self.num_calls += 1
        taken = next(seconds)
        self.now += taken
        self.waited_s += taken * self.waiting
        return torch.zeros(1)


def any_threads(rows: int) -> None:
    """As many as there are."""


@contextmanager
def no_others(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Choices of models that other tests hold are out of sight."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "_made", WeakValueDictionary())
        yield


def scripted(
    clock: Stopwatch,
    seconds: Callable[[str, int], Iterator[float]],
    *,
    results: Mapping[str, Callable[[int], Tensor]] | None = None,
    alike_rows: int = 16,
    shape: str = "8x8",
) -> Choice:
    """Between `old`, the default, and `new`. `results` are of so many rows; without them all are alike."""

    def runs(rows: int) -> dict[str, Run]:
        return {name: partial(clock.run, seconds(name, rows)) for name in ("old", "new")}

    def probe(name: str, rows: int) -> Tensor:
        return torch.ones(rows) if results is None else results[name](rows)

    return module.shared_choice(
        Choice(
            operation="product",
            shape=shape,
            candidates=("old", "new"),
            rows=ROWS,
            default=lambda _: "old",
            runs=runs,
            cost=lambda rows: (rows, rows),
            probe=lambda: probe,
            alike_rows=alike_rows,
        )
    )
