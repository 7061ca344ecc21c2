"""The block tables of a request, one for each group of layers: what is found, slides out, is named.

All tables count positions alike, so that entry `i` of each has the tokens from `i * block_size` on. A table
of a window has holes at its front. Read `engine/planning/kv/grouped_space.py` for who gets the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..limits import SchedulerConfig
from ..request import ScheduledRequest
from .blocks import Block, BlockPool
from .groups import HOLE, PagedGroup
from .names import BlockHash, name_in
from .states import StateSlots

Table = tuple[Block, ...]


class GroupTables:
    """What holds for the tables of all requests of an engine."""

    def __init__(self, config: SchedulerConfig, pool: BlockPool) -> None:
        self._groups = config.groups
        self._pool = pool
        self._block_size = config.block_size
        self._max_tokens_per_step = config.max_tokens_per_step
        self.count = len(config.groups)

    def find(self, names: Sequence[BlockHash], states: StateSlots | None) -> tuple[int, tuple[Table, ...]]:
        """The most of the first blocks that every group and state can serve, and their tables."""
        longest, before = len(names), -1
        while longest != before:
            before = longest
            for number, group in enumerate(self._groups):
                longest = self._longest(number, group, names, longest)
            if states is not None:
                longest = states.longest(names, longest)
        return longest, tuple(
            self._table(number, group, names, longest) for number, group in enumerate(self._groups)
        )

    def lengths(self, num_tokens: int, num_found: int) -> list[int]:
        """How many entries tables have when a request enters: full attention for all known tokens."""
        full = self._pool.num_blocks_for(num_tokens)
        first = self._pool.num_blocks_for(min(num_tokens, num_found + self._max_tokens_per_step))
        return [full if group.spec.reach is None else first for group in self._groups]

    def cut(self, tables: Sequence[Table], num_tokens: int) -> tuple[Table, ...]:
        """The part of them that reaches up to so many tokens."""
        num_blocks = self._pool.num_blocks_for(num_tokens)
        return tuple(table[:num_blocks] for table in tables)

    def needed(self, tables: Sequence[Table], num_tokens: int) -> tuple[Table, ...]:
        """The part of them that rows behind so many tokens need."""
        tables = self.cut(tables, num_tokens)
        return tuple(
            (HOLE,) * first + table[first:]
            for group, table in zip(self._groups, tables, strict=True)
            for first in (group.spec.first_needed(num_tokens) // self._block_size,)
        )

    def serve(self, tables: Sequence[Table], num_tokens: int) -> bool:
        """Whether they have what a row behind so many tokens needs."""
        return all(
            group.serves(table, num_tokens, self._block_size)
            for group, table in zip(self._groups, tables, strict=True)
        )

    def is_shared(self, tables: Sequence[Table], index: int) -> bool:
        """Whether somebody else holds the blocks of one place, too."""
        return any(self._pool.num_holders(table[index]) > 1 for table in tables)

    def register(self, request: ScheduledRequest, index: int, block_hash: BlockHash) -> None:
        """Make the blocks of this name findable, which are those of one place."""
        for number, table in enumerate((request.blocks, *request.more_tables)):
            place = index - self._groups[number].looks_ahead
            if place >= 0 and table[place] != HOLE:
                self._pool.register(table[place], name_in(number, block_hash))

    def slide(self, request: ScheduledRequest) -> None:
        """Let go of the blocks that the next row needs no more. What is in flight and reads them is done
        before whoever gets them writes."""
        tables = [request.blocks, *request.more_tables]
        for number, group in enumerate(self._groups):
            table = tables[number]
            end = group.spec.first_needed(request.num_planned - request.num_drafted) // self._block_size
            start = end
            while start and table[start - 1] != HOLE:
                start -= 1
            if start < end:
                self._pool.free(table[start:end])
                tables[number] = table[:start] + (HOLE,) * (end - start) + table[end:]
        request.blocks, request.more_tables = tables[0], tuple(tables[1:])

    def check(self, request: ScheduledRequest) -> None:
        """Assert that holes are in front of what is needed, and that a window is no longer than it may be."""
        tables = (request.blocks, *request.more_tables)
        for group, table in zip(self._groups, tables, strict=True):
            num_holes = sum(block == HOLE for block in table)
            assert HOLE not in table[num_holes:], "a hole behind the front"
            assert num_holes <= group.spec.first_needed(request.num_planned) // self._block_size
            num_rows = self._max_tokens_per_step + request.num_drafted
            most = group.max_blocks(len(table) * self._block_size, self._block_size, num_rows)
            assert len(table) - num_holes <= most, "a window holds more than it may"

    def _longest(self, number: int, group: PagedGroup, names: Sequence[BlockHash], longest: int) -> int:
        """The most of the first blocks, `longest` at most, that one group can serve."""
        if group.looks_ahead:
            names = names[1:]
            longest = min(longest, len(names))
        if group.spec.reach is None:
            found = 0
            while found < longest and self._pool.get(name_in(number, names[found])) is not None:
                found += 1
            return found
        index = longest
        while longest:
            # The last block also where the next row needs nothing of it: it tells that all was computed.
            first = min(group.spec.first_needed(longest * self._block_size) // self._block_size, longest - 1)
            if index == first:
                break
            index -= 1
            if self._pool.get(name_in(number, names[index])) is None:
                longest = index
        return longest

    def _table(self, number: int, group: PagedGroup, names: Sequence[BlockHash], num_blocks: int) -> Table:
        first = group.spec.first_needed(num_blocks * self._block_size) // self._block_size
        ahead = group.looks_ahead
        blocks = (self._pool.get(name_in(number, name)) for name in names[first + ahead : num_blocks + ahead])
        return (HOLE,) * first + tuple(HOLE if block is None else block for block in blocks)
