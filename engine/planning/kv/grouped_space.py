"""Blocks and state slots of models whose layers keep different things.

A request has a block table for each group of layers, all from one pool, and a slot if there are states
(`docs/decisions/0023-cache-groups.md`). What it finds is the longest prefix that every group and the states
can serve. `engine/planning/kv/tables.py` has what concerns tables, `engine/planning/kv/states.py` the slots;
all else is as in `engine/planning/kv/space.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..limits import SchedulerConfig
from ..plan import SequenceId, SequenceStep
from ..request import ScheduledRequest
from .blocks import Block
from .groups import HOLE
from .names import BlockHash
from .parked import Parked
from .space import Found, KvSpace
from .states import StateSlots
from .tables import GroupTables, Table


@dataclass(frozen=True, slots=True)
class GroupedFound(Found):
    """`tables` hold `blocks`; the states are a `snapshot`, or what the session parked."""

    tables: tuple[Table, ...]
    snapshot: int | None


def make_space(config: SchedulerConfig) -> KvSpace:
    """The one that the model's layers need."""
    first, *others = config.groups
    is_plain = first.spec.reach is None and not (others or first.looks_ahead or config.num_state_slots)
    return KvSpace(config) if is_plain else GroupedKvSpace(config)


class GroupedKvSpace(KvSpace):
    """The blocks and the state slots of one engine."""

    def __init__(self, config: SchedulerConfig) -> None:
        super().__init__(config)
        self._groups = GroupTables(config, self.pool)
        self.states = StateSlots(config) if config.num_state_slots else None

    def find(self, request: ScheduledRequest) -> Found:
        """What of a waiting request is computed already. Takes nothing."""
        limit, size = request.max_reused, self._block_size
        names: Sequence[BlockHash] = ()
        if self._is_caching:
            names = request.hasher.extend(request.tokens, limit // size)[: limit // size]
        num_cached, tables = self._groups.find(names, self.states)
        parked = self.sessions.find(request.message.session)
        if parked is not None:
            overlap = max(parked.overlap(request) - self._num_ahead, 0)
            length = self._servable(parked, min(overlap, limit), names)
            if length and length >= num_cached * size:
                tables = self._groups.needed(parked.tables, length)
                snapshot = None if _has_state(parked, length) else self._snapshot(names, length)
                return GroupedFound(blocks_of(tables), length, True, tables, snapshot)
        length = num_cached * size
        return GroupedFound(blocks_of(tables), length, False, tables, self._snapshot(names, length))

    def fits(self, request: ScheduledRequest, found: Found) -> bool:
        """Whether what it needs to enter can be had without preempting anyone."""
        assert isinstance(found, GroupedFound)
        if self.states is not None and not (self.states.num_free or self.sessions.has_states):
            return False
        lengths = self._groups.lengths(len(request.tokens), found.num_tokens)
        wanted = sum(lengths) - sum(map(len, found.tables))
        free = self.pool.num_free - sum(not self.pool.num_holders(block) for block in found.blocks)
        return wanted <= free or wanted <= free + self._num_evictable(found)

    def grow(self, request: ScheduledRequest, num_positions: int) -> bool:
        """Give `request` blocks for so many positions, parked ones if need be; False if there are too few.
        Windows let go first of what the next row needs no more."""
        self._groups.slide(request)
        return self._extend(request, [self.pool.num_blocks_for(num_positions)] * self._groups.count)

    def room_for_draft(self, request: ScheduledRequest, num_lacking: int) -> int:
        """Positions it can have without anybody else's blocks, where `num_lacking` others need some now."""
        num_blocks = max(self.pool.num_free // self._groups.count - num_lacking, 0)
        return request.capacity + num_blocks * self._block_size

    def settle_draft(self, request: ScheduledRequest) -> None:
        """Let go of the blocks behind the next position, and go back to the states of before if the draft was
        not accepted whole. Steps in flight write to no position behind those planned now."""
        if self.states is not None:
            self.states.settle(request)
        num_known = max(request.num_computed + 1, len(request.tokens))
        num_kept = self.pool.num_blocks_for(max(num_known, request.num_planned))
        tables = tables_of(request)
        for table in tables:
            self.pool.free(table[num_kept:])
        self._set_tables(request, [table[:num_kept] for table in tables])

    def register(self, request: ScheduledRequest) -> None:
        """Make the blocks findable that are full now, and the snapshots behind them."""
        num_full = request.num_computed // self._block_size
        hashes = request.hasher.extend(request.tokens, num_full)
        for index in range(request.num_registered, num_full):
            if self._pending.get(hashes[index]) is request:
                del self._pending[hashes[index]]
            self._groups.register(request, index, hashes[index])
        if self.states is not None:
            self.states.register(request, hashes)
        request.num_registered = num_full
        request.next_full = (num_full + 1) * self._block_size

    def leave(self, request: ScheduledRequest) -> None:
        """End a stay on the device; all blocks and slots are let go."""
        self._stop_computing(request)
        if self.states is not None:
            self.states.leave(request)
        for table in tables_of(request):
            self.pool.free(blocks_of((table,)))
        request.leave()

    def end(self, request: ScheduledRequest, *, parks: bool) -> None:
        """End a request. If it was its session's live one, its computed KV may be parked, and its state if it
        is that behind all of it."""
        key = self.sessions.end(request)
        tables = self._groups.cut(tables_of(request), request.num_computed)
        blocks = blocks_of(tables)
        if key is not None and parks and blocks and self._groups.serve(tables, request.num_computed):
            if self.sessions.may_park(len(blocks)):
                slot = None if self.states is None else self.states.leave(request, keeps=True)
                self.pool.share(blocks)
                tokens, media = tuple(request.tokens[: request.num_computed]), request.message.media
                self.sessions.park(key, Parked(request.hasher.root, media, tokens, blocks, tables, slot))
            else:
                self.num_evictions += 1
        self.leave(request)
        while (parked := self.sessions.take_excess()) is not None:
            self._evict(parked)

    def check(self, running: list[ScheduledRequest]) -> None:
        """Assert that every holder is accounted for, and that what is shared is full."""
        self.pool.check()
        held = [(tables_of(each), each.num_computed) for each in running]
        held += [(parked.tables, len(parked.tokens)) for parked in self.sessions.parked]
        holds = Counter(block for tables, _ in held for block in blocks_of(tables))
        assert len(holds) + self.pool.num_free == self.pool.num_total, "blocks leak"
        assert all(self.pool.num_holders(block) == count for block, count in holds.items())
        for tables, num_computed in held:
            blocks = blocks_of(tables)
            assert len(set(blocks)) == len(blocks), "a block is twice in one sequence"
            for block in blocks_of([table[num_computed // self._block_size :] for table in tables]):
                assert holds[block] == 1, "a block that is not full is shared"
                assert not self.pool.is_findable(block), "a block that is not full can be found"
        for request in running:
            self._groups.check(request)
        assert set(self._pending.values()) <= set(running)
        assert self.sessions.num_blocks == sum(len(parked.blocks) for parked in self.sessions.parked)
        if self.states is not None:
            slots = [each.state_slot for each in self.sessions.parked if each.state_slot is not None]
            slots += [slot for each in running if each.state is not None for slot in each.state.slots]
            self.states.check(slots)

    def check_step(self, step: SequenceStep, request: ScheduledRequest | None, end: int) -> None:
        """Assert of a step in flight that nobody else has its blocks, and `request`, whose step it is unless
        it is over, has them still as far as the step writes, but for those that slid out since."""
        tables = (step.block_table, *step.more_tables)
        if request is not None:
            assert step.state_slot == (None if request.state is None else request.state.slot)
            num_kept = self._num_kept(step, end)
            for mine, theirs in zip(tables_of(request), tables, strict=True):
                same = zip(mine[:num_kept], theirs[:num_kept], strict=False)
                assert all(one in (other, HOLE) for one, other in same), "a step in flight lost its blocks"
                assert len(mine) >= min(len(theirs), num_kept), "a step in flight lost its blocks"
        size = self._block_size
        for table in tables:
            written = table[step.start // size : -(-(step.start + step.num_rows) // size)]
            assert written, "a step without rows"
            assert HOLE not in written, "a step writes to a hole"
            assert not any(map(self.pool.is_findable, written)), "a findable block is written to"

    def _begin(self, request: ScheduledRequest, found: Found, sequence_id: SequenceId) -> None:
        """Take over what is found, a slot, and blocks: full attention for all known tokens, windows for those
        of one step."""
        assert isinstance(found, GroupedFound)
        key = request.message.session
        parked = None if key is None else self.sessions.take(key)
        slot: int | None = None
        if not found.is_parked:
            self.pool.share(found.blocks)
            if parked is not None:
                self._let_go(parked)
        elif parked is not None:
            kept = set(found.blocks)
            self.pool.free([block for block in parked.blocks if block not in kept])
            if found.num_tokens % self._block_size:
                for table in found.tables:
                    self.pool.unregister(table[-1])
            if _has_state(parked, found.num_tokens):
                slot = parked.state_slot
            else:
                self._free_state(parked)
        request.enter(sequence_id, found.tables[0], found.num_tokens)
        self._set_tables(request, found.tables)
        if self.states is not None:
            self.states.begin(request, self._take_slot() if slot is None else slot, found.snapshot)
        has_room = self._extend(request, self._groups.lengths(len(request.tokens), found.num_tokens))
        assert has_room, "a request entered that does not fit"

    def _servable(self, parked: Parked, length: int, names: Sequence[BlockHash]) -> int:
        """How many of the first `length` tokens that are parked every group and the states can serve."""
        size = self._block_size
        while length:
            if not self._groups.serve(parked.tables, length):
                return 0  # what slid out of a window serves no shorter prefix either
            longest = length
            if length % size and self._groups.is_shared(parked.tables, length // size):
                longest -= length % size  # its last block would be written to, and others read it
            if self.states is not None and not _has_state(parked, longest):
                longest = self.states.longest(names, min(longest // size, len(names))) * size
            if longest == length:
                break
            length = longest
        return length

    def _snapshot(self, names: Sequence[BlockHash], num_tokens: int) -> int | None:
        """That behind so many tokens."""
        if self.states is None or not num_tokens:
            return None
        return self.states.find(names[num_tokens // self._block_size - 1])

    def _take_slot(self) -> int:
        assert self.states is not None
        while (slot := self.states.allocate()) is None:
            parked = self.sessions.take_oldest()
            assert parked is not None, "a request entered that does not fit"
            self._evict(parked)
        return slot

    def _extend(self, request: ScheduledRequest, lengths: Sequence[int]) -> bool:
        """Give the groups' tables so many entries; False (and nothing) if there are too few blocks."""
        tables = tables_of(request)
        counts = [max(length - len(table), 0) for length, table in zip(lengths, tables, strict=True)]
        blocks = self._take(sum(counts))
        if blocks is None:
            return False
        longer: list[Table] = []
        start = 0
        for table, count in zip(tables, counts, strict=True):
            longer.append(table + blocks[start : start + count])
            start += count
        self._set_tables(request, longer)
        return True

    def _set_tables(self, request: ScheduledRequest, tables: Sequence[Table]) -> None:
        request.blocks, request.more_tables = tables[0], tuple(tables[1:])
        request.capacity = min(map(len, tables)) * self._block_size

    def _let_go(self, parked: Parked) -> None:
        self.pool.free(parked.blocks)
        self._free_state(parked)

    def _free_state(self, parked: Parked) -> None:
        if self.states is not None and parked.state_slot is not None:
            self.states.free((parked.state_slot,))


def tables_of(request: ScheduledRequest) -> tuple[Table, ...]:
    """Those of all groups."""
    return (request.blocks, *request.more_tables)


def blocks_of(tables: Sequence[Table]) -> tuple[Block, ...]:
    """What they hold."""
    return tuple(block for table in tables for block in table if block != HOLE)


def _has_state(parked: Parked, num_tokens: int) -> bool:
    """Whether it holds the states behind exactly so many tokens."""
    return parked.state_slot is not None and num_tokens == len(parked.tokens)
