"""Who gets which KV blocks: what a request finds computed, what it is given, what it leaves behind.

Joins the block pool, the prefix cache, the sessions' parked KV and the slots of states; what sessions park is
given to whoever needs it. It decides no order: `engine/planning/scheduler.py` does, and preempts when this has
no more. Read `engine/planning/kv/tables.py` for what groups of layers have in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from sys import maxsize

from ....protocols.engine.messages import SessionKey
from ..limits import SchedulerConfig
from ..plan import Copy, SequenceId, SequenceStep
from ..request import ScheduledRequest
from .blocks import Block, BlockPool
from .names import BlockHash
from .parked import Parked, SessionStore
from .states import StateSlots
from .tables import GroupTables, Table


@dataclass(frozen=True, slots=True)
class Found:
    """KV of a request's first `num_tokens` tokens, in `tables`, one a group: cached, or parked by its session.

    Where a model has states, theirs is a `snapshot`, or what the session parked.
    """

    tables: tuple[Table, ...]
    num_tokens: int
    is_parked: bool
    snapshot: int | None = None


class KvSpace:
    """The blocks and the state slots of one engine.

    A block is written to only by a request that holds it alone, and never while it is findable. It becomes
    findable once it is full and the step that filled it came back without error.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.pool = BlockPool(config.num_blocks, config.block_size)
        budget = config.max_parked_blocks
        self.sessions = SessionStore(config.num_blocks // 2 if budget is None else budget)
        self.states = StateSlots(config) if config.num_state_slots else None
        self.groups = GroupTables(config, self.pool)
        self._block_size = config.block_size
        self._is_caching = config.prefix_caching
        self._pending: dict[BlockHash, ScheduledRequest] = {}  # blocks to be, and who computes them
        self.num_queried = self.num_hits = self.num_evictions = self.num_reused = 0

    def find(self, request: ScheduledRequest) -> Found:
        """What of a waiting request is computed already. Takes nothing."""
        limit = request.max_reused
        size = self._block_size
        cached = self.groups.nothing
        num_cached = 0
        names: Sequence[BlockHash] = ()
        if self._is_caching:
            names = request.hasher.extend(request.tokens, limit // size)[: limit // size]
            num_cached, cached = self.groups.find(names, self.states)
        parked = self.sessions.find(request.message.session)
        if parked is not None:
            length = self._servable(parked, min(parked.overlap(request), limit), names)
            if length and length >= num_cached * size:
                tables = self.groups.needed(parked.tables, length)
                return Found(tables, length, is_parked=True, snapshot=self._snapshot(length, names, parked))
        return Found(cached, num_cached * size, False, self._snapshot(num_cached * size, names))

    def is_awaiting(self, request: ScheduledRequest, found: Found | None = None) -> bool:
        """Whether a better request is about to compute the block behind `found` (or the one waited for)."""
        if found is not None:
            index = found.num_tokens // self._block_size
            if self.states is not None:
                index = self.states.next_snapshot(index) - 1
            is_useful = self._is_caching and (index + 1) * self._block_size <= request.max_reused
            request.awaited = request.hasher.hashes[index] if is_useful else None
        if request.awaited is None:
            return False
        owner = self._pending.get(request.awaited)
        return owner is not None and owner.order < request.order

    def fits(self, request: ScheduledRequest, found: Found) -> bool:
        """Whether what it needs to enter can be had without preempting anyone."""
        if self.states is not None and not (self.states.num_free or self.sessions.has_states):
            return False
        wanted = self.groups.num_wanted(found.tables, len(request.tokens), found.num_tokens)
        blocks = self.groups.blocks_of(found.tables)
        free = self.pool.num_free - sum(not self.pool.num_holders(block) for block in blocks)
        if wanted <= free:
            return True
        return wanted <= free + self.sessions.num_blocks and wanted <= free + self._num_evictable(blocks)

    def enter(self, request: ScheduledRequest, found: Found, sequence_id: SequenceId) -> None:
        """Begin a stay on the device with `found` and blocks for the known tokens; they must fit. A window
        has blocks for one step's tokens at first."""
        self._count(request, found)
        key = request.message.session
        parked = None if key is None else self.sessions.take(key)
        state_slot = None
        blocks = self.groups.blocks_of(found.tables)
        if not found.is_parked:
            self.pool.share(blocks)
            if parked is not None:
                self._let_go(parked)
        elif parked is not None:
            kept = set(blocks)
            self.pool.free([block for block in parked.blocks if block not in kept])
            if found.num_tokens % self._block_size:
                for table in found.tables:
                    self.pool.unregister(table[-1])
            if found.snapshot is None:
                state_slot = parked.state_slot
            elif parked.state_slot is not None and self.states is not None:
                self.states.free((parked.state_slot,))
        request.enter(sequence_id, found.tables[0], found.num_tokens)
        request.more_tables = found.tables[1:]
        if self.states is not None:
            slot = self._take_slot() if state_slot is None else state_slot
            self.states.begin(request, slot, found.snapshot)
        has_room = self._extend(request, self.groups.lengths(len(request.tokens), found.num_tokens))
        assert has_room, "a request entered that does not fit"
        request.num_registered = found.num_tokens // self._block_size
        request.next_full = (request.num_registered + 1) * self._block_size if self._is_caching else maxsize
        if self._is_caching:
            num_full = len(request.tokens) // self._block_size
            for block_hash in request.hasher.extend(request.tokens, num_full)[request.num_registered :]:
                self._pending.setdefault(block_hash, request)

    def grow(self, request: ScheduledRequest, num_positions: int) -> bool:
        """Give `request` blocks for so many positions, parked ones if need be; False if there are too few."""
        wanted = self.pool.num_blocks_for(num_positions)
        if self.groups.is_one_full:
            wanted -= len(request.blocks)
            if wanted <= 0:
                return True
            blocks = self._allocate(wanted)
            if blocks is None:
                return False
            request.blocks += blocks
            request.capacity = len(request.blocks) * self._block_size
            return True
        self.groups.slide(request)
        return self._extend(request, [wanted] * self.groups.count)

    def room_for_draft(self, request: ScheduledRequest, num_lacking: int) -> int:
        """Positions it can have without anybody else's blocks, where `num_lacking` others need some now."""
        num_blocks = max(self.pool.num_free // self.groups.count - num_lacking, 0)
        return request.capacity + num_blocks * self._block_size

    def settle_draft(self, request: ScheduledRequest) -> None:
        """A draft is back: let go of the blocks behind the next position, and go back to the state of before
        if not all was accepted. No plan in flight may feed `request`."""
        if self.states is not None:
            self.states.settle(request)
        num_kept = self.pool.num_blocks_for(max(request.num_computed + 1, len(request.tokens)))
        tables = (request.blocks, *request.more_tables)
        for table in tables:
            self.pool.free(table[num_kept:])
        self._set_tables(request, [table[:num_kept] for table in tables])

    def register(self, request: ScheduledRequest) -> None:
        """Make the blocks findable that are full now."""
        num_full = request.num_computed // self._block_size
        hashes = request.hasher.extend(request.tokens, num_full)
        for index in range(request.num_registered, num_full):
            if self._pending.get(hashes[index]) is request:
                del self._pending[hashes[index]]
            self.groups.register(request, index, hashes[index])
        if self.states is not None:
            self.states.register(request, hashes)
        request.num_registered = num_full
        request.next_full = (num_full + 1) * self._block_size

    def leave(self, request: ScheduledRequest) -> None:
        """End a stay on the device; all blocks are let go."""
        self._stop_computing(request)
        if self.states is not None:
            self.states.leave(request)
        for table in (request.blocks, *request.more_tables):
            self.pool.free(self.groups.blocks_of((table,)))
        request.leave()

    def end(self, request: ScheduledRequest, *, parks: bool) -> None:
        """End a request. If it was its session's live one, its computed KV may be parked."""
        key = self.sessions.end(request)
        tables = self.groups.cut((request.blocks, *request.more_tables), request.num_computed)
        blocks = self.groups.blocks_of(tables)
        if key is None or not parks or not blocks or not self.groups.serve(tables, request.num_computed):
            self.leave(request)
        elif not self.sessions.may_park(len(blocks)):
            self.num_evictions += 1
            self.leave(request)
        else:
            state_slot = None if self.states is None else self.states.leave(request, keeps=True)
            self.pool.share(blocks)
            tokens, media = tuple(request.tokens[: request.num_computed]), request.message.media
            self.sessions.park(key, Parked(request.hasher.root, media, tokens, tables, blocks, state_slot))
            self.leave(request)
        while (parked := self.sessions.take_excess()) is not None:
            self._evict(parked)

    def close(self, key: SessionKey) -> None:
        """Let go of what a session parked; its live request will park nothing."""
        self.sessions.close(key)
        parked = self.sessions.take(key)
        if parked is not None:
            self._let_go(parked)

    def take_copies(self) -> tuple[Copy, ...]:
        """The copies of states that the plan being made begins with."""
        return () if self.states is None else self.states.take_copies()

    def check(self, running: list[ScheduledRequest]) -> None:
        """Assert that every holder is accounted for, and that what is shared is full."""
        self.pool.check()
        held = [((each.blocks, *each.more_tables), each.num_computed) for each in running]
        held += [(parked.tables, len(parked.tokens)) for parked in self.sessions.parked]
        holds = Counter(block for tables, _ in held for block in self.groups.blocks_of(tables))
        assert len(holds) + self.pool.num_free == self.pool.num_total, "blocks leak"
        assert all(self.pool.num_holders(block) == count for block, count in holds.items())
        for tables, num_computed in held:
            blocks = self.groups.blocks_of(tables)
            assert len(set(blocks)) == len(blocks), "a block is twice in one sequence"
            for block in (block for table in tables for block in table[num_computed // self._block_size :]):
                assert block < 0 or holds[block] == 1, "a block that is not full is shared"
                assert block < 0 or not self.pool.is_findable(block), "a block that is not full can be found"
        for request in running:
            self.groups.check(request)
        assert set(self._pending.values()) <= set(running)
        assert self.sessions.num_blocks == sum(len(parked.blocks) for parked in self.sessions.parked)
        if self.states is not None:
            slots = [each.state_slot for each in self.sessions.parked if each.state_slot is not None]
            slots += [slot for each in running if each.state is not None for slot in each.state.slots]
            self.states.check(slots)

    def check_step(self, step: SequenceStep, request: ScheduledRequest | None) -> None:
        """Assert of a step in flight that its blocks are its own, and still `request`'s if it is the same."""
        size = self._block_size
        tables = (step.block_table, *step.more_tables)
        if request is not None:
            assert step.state_slot == (None if request.state is None else request.state.slot)
            for mine, theirs in zip((request.blocks, *request.more_tables), tables, strict=True):
                same = zip(mine, theirs, strict=False)
                assert all(one in (other, -1) for one, other in same), "a step in flight lost its blocks"
                assert len(mine) >= len(theirs)
        for table in tables:
            written = table[step.start // size : -(-(step.start + step.num_rows) // size)]
            assert written, "a step without rows"
            assert min(written) >= 0, "a step writes to a hole"
            assert not any(map(self.pool.is_findable, written)), "a findable block is written to"

    def counters(self) -> dict[str, int]:
        """Fields of `EngineStatistics` that are counted here."""
        return {
            "num_prefix_queried": self.num_queried,
            "num_prefix_hits": self.num_hits,
            "num_windows_reused": self.num_reused,
            "num_session_evictions": self.num_evictions,
        }

    def _servable(self, parked: Parked, length: int, names: Sequence[BlockHash]) -> int:
        """How many of the first `length` tokens that a session parked every group and state can serve."""
        size = self._block_size
        while length:
            longest = length
            if not self.groups.serve(parked.tables, longest):
                return 0  # what slid out of a window serves no shorter prefix either
            if longest % size and self.groups.is_shared(parked.tables, longest // size):
                longest -= longest % size  # its last block would be written to, and others read it
            if self.states is not None and not (
                parked.state_slot is not None and longest == len(parked.tokens)
            ):
                num_blocks = min(longest // size, len(names))
                longest = self.states.longest(names, num_blocks) * size
            if longest == length:
                return length
            length = longest
        return 0

    def _snapshot(
        self, num_tokens: int, names: Sequence[BlockHash], parked: Parked | None = None
    ) -> int | None:
        """That behind so many tokens, unless what is parked has their state."""
        if self.states is None or not num_tokens:
            return None
        if parked is not None and parked.state_slot is not None and num_tokens == len(parked.tokens):
            return None
        return self.states.find(names[num_tokens // self._block_size - 1])

    def _take_slot(self) -> int:
        assert self.states is not None
        while (slot := self.states.allocate()) is None:
            parked = self.sessions.take_oldest()
            assert parked is not None, "a request entered that does not fit"
            self._evict(parked)
        return slot

    def _allocate(self, count: int) -> tuple[Block, ...] | None:
        """Blocks, parked ones if need be; None if there are too few."""
        while (blocks := self.pool.allocate(count)) is None:
            parked = self.sessions.take_oldest()
            if parked is None:
                return None
            self._evict(parked)
        return blocks

    def _extend(self, request: ScheduledRequest, lengths: Sequence[int]) -> bool:
        """Give the groups' tables so many entries; False (and nothing) if there are too few blocks."""
        tables = (request.blocks, *request.more_tables)
        counts = [max(length - len(table), 0) for length, table in zip(lengths, tables, strict=True)]
        blocks = self._allocate(sum(counts))
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

    def _count(self, request: ScheduledRequest, found: Found) -> None:
        if not request.has_run:
            request.num_cached = found.num_tokens  # never all of its prompt
        self.num_queried += request.num_prompt
        self.num_hits += min(found.num_tokens, request.num_prompt)
        ends = (span.start + span.num_tokens for span in request.message.media)
        self.num_reused += sum(end <= found.num_tokens for end in ends)

    def _num_evictable(self, found: Sequence[Block]) -> int:
        """Blocks that would be free if everything parked were evicted, but for those in `found`."""
        holds = Counter(block for parked in self.sessions.parked for block in parked.blocks)
        kept = set(found)
        return sum(
            count == self.pool.num_holders(block) and block not in kept for block, count in holds.items()
        )

    def _evict(self, parked: Parked) -> None:
        self.num_evictions += 1
        self._let_go(parked)

    def _let_go(self, parked: Parked) -> None:
        self.pool.free(parked.blocks)
        if parked.state_slot is not None and self.states is not None:
            self.states.free((parked.state_slot,))

    def _stop_computing(self, request: ScheduledRequest) -> None:
        for block_hash in request.hasher.hashes[request.num_registered :]:
            if self._pending.get(block_hash) is request:
                del self._pending[block_hash]
