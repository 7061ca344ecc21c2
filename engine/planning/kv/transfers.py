"""Blocks that come from another place: which are under way, and who waits for them.

A request may name a place that has computed the beginning of its prompt (`Request.kv_from`). While it waits,
a transfer fills blocks that the transfer holds, whatever becomes of the request: nobody else may get them
before it has ended. What has arrived is findable as if it had been computed here; what has not is computed.
Pure bookkeeping: `engine/planning/kv/space.py` says which blocks, the runner moves their contents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..plan import StepResult, TransferId, TransferStep
from .blocks import Block, BlockPool
from .names import BlockHash


@dataclass(frozen=True, slots=True)
class _Transfer:
    """`names` are those of the last blocks of `blocks`; what is in the ones before was found here."""

    names: tuple[BlockHash, ...]
    blocks: tuple[Block, ...]

    @property
    def filled(self) -> tuple[Block, ...]:
        """The blocks that are written to."""
        return self.blocks[len(self.blocks) - len(self.names) :]


class Transfers:
    """Those of one engine."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.open: dict[TransferId, _Transfer] = {}
        """Those that have not ended. Only this class changes it."""
        self._new: list[TransferStep] = []
        self._next_id = 0
        self.num_failed = 0

    @property
    def held(self) -> Iterable[Block]:
        """The blocks that transfers hold, as often as they do."""
        return (block for each in self.open.values() for block in each.blocks)

    def begin(self, place: str, names: tuple[BlockHash, ...], blocks: tuple[Block, ...]) -> TransferId:
        """Have the last of `blocks` filled with what is called `names` at `place`. All of them are held once
        for this: those in front were found here, and must not get lost meanwhile."""
        transfer_id = TransferId(self._next_id)
        self._next_id += 1
        self.open[transfer_id] = transfer = _Transfer(names, blocks)
        self._new.append(TransferStep(transfer_id, place, names, transfer.filled))
        return transfer_id

    def take_new(self) -> tuple[TransferStep, ...]:
        """What has not been planned yet."""
        steps = tuple(self._new)
        self._new.clear()
        return steps

    def end(self, result: StepResult) -> None:
        """Let go of the blocks of those that have ended; what has arrived is findable from now on."""
        for transfer_id in result.transfers_finished:
            transfer = self.open[transfer_id]
            for block, name in zip(transfer.filled, transfer.names, strict=True):
                self._pool.register(block, name)
        for transfer_id in (*result.transfers_finished, *result.transfers_failed):
            self._pool.free(self.open.pop(transfer_id).blocks)
        self.num_failed += len(result.transfers_failed)

    def check(self) -> None:
        """Assert that what is written to is nobody else's, and cannot be found."""
        for block in (block for each in self.open.values() for block in each.filled):
            assert self._pool.num_holders(block) == 1, "a block that a transfer fills is shared"
            assert not self._pool.is_findable(block), "a block that a transfer fills can be found"
