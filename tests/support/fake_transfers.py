"""Blocks that a fake runner gets from other places: some arrive after a few steps, of others a part does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sensorium.engine.planning.plan import TransferId, TransferStep

Cells = list[Any]
"""What a block holds: `fake_runner.py` knows."""


class FakeTransfers:
    """Fills blocks of `cells`, which hold nothing as long as a transfer goes on, and if it fails."""

    def __init__(self, cells: list[Cells]) -> None:
        self.places: dict[str, dict[bytes, Cells]] = {}
        """Of other places the blocks they have, by name."""
        self.broken_places: set[str] = set()
        """Those whose transfers fail."""
        self._cells = cells
        self._open: dict[TransferId, tuple[TransferStep, int]] = {}

    def export(self, place: str, name: bytes, cells: Cells) -> None:
        """A place has this block from now on."""
        self.places.setdefault(place, {}).setdefault(name, list(cells))

    def step(self, begun: Sequence[TransferStep]) -> tuple[tuple[TransferId, ...], tuple[TransferId, ...]]:
        """Begin some, and go on with all: those that have finished, and failed."""
        for each in begun:
            self._open[each.transfer_id] = (each, 7 * each.transfer_id % 5)
        finished, failed = list[TransferId](), list[TransferId]()
        for transfer_id, (step, num_steps) in list(self._open.items()):
            there = self.places.get(step.place, {})
            for block in step.blocks:
                self._cells[block][:] = [None] * len(self._cells[block])
            if num_steps:
                self._open[transfer_id] = (step, num_steps - 1)
                continue
            del self._open[transfer_id]
            if step.place in self.broken_places or any(name not in there for name in step.names):
                failed.append(transfer_id)
                continue
            finished.append(transfer_id)
            for block, name in zip(step.blocks, step.names, strict=True):
                self._cells[block][:] = there[name]
        return tuple(finished), tuple(failed)
