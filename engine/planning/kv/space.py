"""Who gets which KV blocks: what a request finds computed, what it is given, what it leaves behind.

Joins the block pool, the prefix cache and the sessions' parked KV; blocks that sessions park are given to
whoever needs them. It decides no order: `engine/planning/scheduler.py` does, and preempts when this has no
more. Here all layers attend to all tokens; `engine/planning/kv/grouped_space.py` is for the other models.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from sys import maxsize

from ....protocols.engine.messages import SessionKey
from ..limits import SchedulerConfig
from ..plan import SequenceId, SequenceStep
from ..request import ScheduledRequest
from .blocks import Block, BlockPool
from .names import BlockHash
from .parked import Parked, SessionStore
from .states import StateSlots
from .transfers import Transfers


@dataclass(frozen=True, slots=True)
class Found:
    """KV of a request's first `num_tokens` tokens, in `blocks`: cached, or parked by its session."""

    blocks: tuple[Block, ...]
    num_tokens: int
    is_parked: bool


class KvSpace:
    """The blocks of one engine, of which each request has one table.

    A block is written to only by a request that holds it alone, and never while it is findable. It becomes
    findable once it is full and the step that filled it came back without error.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.pool = BlockPool(config.num_blocks, config.block_size)
        budget = config.max_parked_blocks
        self.sessions = SessionStore(config.num_blocks // 2 if budget is None else budget)
        self.states: StateSlots | None = None
        self.transfers = Transfers(self.pool)
        self._block_size = config.block_size
        self._is_caching = config.prefix_caching
        self._num_ahead = int(any(group.looks_ahead for group in config.groups))
        self._pending: dict[BlockHash, ScheduledRequest] = {}  # blocks to be, and who computes them
        self.num_queried = self.num_hits = self.num_evictions = self.num_reused = 0

    def find(self, request: ScheduledRequest) -> Found:
        """What of a waiting request is computed already. Takes nothing."""
        limit = request.max_reused
        size = self._block_size
        cached: tuple[Block, ...] = ()
        if self._is_caching:
            num_blocks = limit // size
            cached = self.pool.find(request.hasher.extend(request.tokens, num_blocks)[:num_blocks])
        parked = self.sessions.find(request.message.session)
        if parked is not None:
            length = min(parked.overlap(request), limit)
            if length % size and self.pool.num_holders(parked.blocks[length // size]) > 1:
                length -= length % size  # its last block would be written to, and others read it
            if length and length >= len(cached) * size:
                return Found(parked.blocks[: self.pool.num_blocks_for(length)], length, is_parked=True)
        return Found(cached, len(cached) * size, is_parked=False)

    def is_awaiting(self, request: ScheduledRequest, found: Found | None = None) -> bool:
        """Whether a better request is about to compute the block behind `found` (or the one waited for)."""
        if found is not None:
            index = found.num_tokens // self._block_size
            if self.states is not None:
                index = self.states.next_snapshot(index) - 1
            index += self._num_ahead
            is_useful = self._is_caching and (index + 1) * self._block_size <= request.max_reused
            request.awaited = request.hasher.hashes[index] if is_useful else None
        if request.awaited is None:
            return False
        owner = self._pending.get(request.awaited)
        return owner is not None and owner.order < request.order

    def fetch(self, request: ScheduledRequest, found: Found) -> bool:
        """Have blocks behind `found` come from where `request` says they are, if that has some: it waits for
        them then. It must fit, and is given nothing yet."""
        source, request.source = request.source, None
        size = self._block_size
        num_blocks = 0 if source is None else min(source.num_tokens, request.max_reused) // size
        first = len(found.blocks)
        if source is None or not self._is_caching or found.is_parked or num_blocks <= first:
            return False
        names = request.hasher.extend(request.tokens, num_blocks)[first:num_blocks]
        self.pool.share(found.blocks)  # or they might be taken for the others
        blocks = self._take(len(names))
        if blocks is None:
            self.pool.free(found.blocks)
            return False
        request.transfer = self.transfers.begin(source.place, tuple(names), found.blocks + blocks)
        return True

    def fits(self, request: ScheduledRequest, found: Found) -> bool:
        """Whether blocks for all known tokens can be had without preempting anyone."""
        wanted = self.pool.num_blocks_for(len(request.tokens)) - len(found.blocks)
        free = self.pool.num_free - sum(not self.pool.num_holders(block) for block in found.blocks)
        if wanted <= free:
            return True
        return wanted <= free + self.sessions.num_blocks and wanted <= free + self._num_evictable(found)

    def enter(self, request: ScheduledRequest, found: Found, sequence_id: SequenceId) -> None:
        """Begin a stay on the device with `found` and blocks for all known tokens; they must fit."""
        self._count(request, found)
        self._begin(request, found, sequence_id)
        request.num_registered = found.num_tokens // self._block_size
        request.next_full = (request.num_registered + 1) * self._block_size if self._is_caching else maxsize
        if self._is_caching:
            num_full = len(request.tokens) // self._block_size
            for block_hash in request.hasher.extend(request.tokens, num_full)[request.num_registered :]:
                self._pending.setdefault(block_hash, request)

    def grow(self, request: ScheduledRequest, num_positions: int) -> bool:
        """Give `request` blocks for so many positions, parked ones if need be; False if there are too few."""
        wanted = self.pool.num_blocks_for(num_positions) - len(request.blocks)
        if wanted <= 0:
            return True
        blocks = self.pool.allocate(wanted) or self._take(wanted)
        if blocks is None:
            return False
        request.blocks += blocks
        request.capacity = len(request.blocks) * self._block_size
        return True

    def room_for_draft(self, request: ScheduledRequest, num_lacking: int) -> int:
        """Positions it can have without anybody else's blocks, where `num_lacking` others need one now."""
        return request.capacity + max(self.pool.num_free - num_lacking, 0) * self._block_size

    def settle_draft(self, request: ScheduledRequest) -> None:
        """Let go of the blocks behind the next position: a rejected draft had them. Steps in flight write to
        no position behind those planned now."""
        num_kept = self.pool.num_blocks_for(max(request.num_computed + 1, request.num_planned))
        self.pool.free(request.blocks[num_kept:])
        request.blocks = request.blocks[:num_kept]
        request.capacity = len(request.blocks) * self._block_size

    def register(self, request: ScheduledRequest) -> None:
        """Make the blocks findable that are full now."""
        num_full = request.num_computed // self._block_size
        hashes = request.hasher.extend(request.tokens, num_full)
        for index in range(request.num_registered, num_full):
            if self._pending.get(hashes[index]) is request:
                del self._pending[hashes[index]]
            self.pool.register(request.blocks[index], hashes[index])
        request.num_registered = num_full
        request.next_full = (num_full + 1) * self._block_size

    def leave(self, request: ScheduledRequest) -> None:
        """End a stay on the device; all blocks are let go."""
        self._stop_computing(request)
        self.pool.free(request.blocks)
        request.leave()

    def end(self, request: ScheduledRequest, *, parks: bool) -> None:
        """End a request. If it was its session's live one, its computed KV may be parked."""
        key = self.sessions.end(request)
        num_blocks = self.pool.num_blocks_for(request.num_computed)
        if key is None or not parks or not num_blocks:
            self.leave(request)
        elif not self.sessions.may_park(num_blocks):
            self.num_evictions += 1
            self.leave(request)
        else:
            self._stop_computing(request)
            self.pool.free(request.blocks[num_blocks:])
            tokens, blocks = tuple(request.tokens[: request.num_computed]), request.blocks[:num_blocks]
            self.sessions.park(key, Parked(request.hasher.root, request.message.media, tokens, blocks))
            request.leave()
        while (parked := self.sessions.take_excess()) is not None:
            self._evict(parked)

    def close(self, key: SessionKey) -> None:
        """Let go of what a session parked; its live request will park nothing."""
        self.sessions.close(key)
        parked = self.sessions.take(key)
        if parked is not None:
            self._let_go(parked)

    def check(self, running: list[ScheduledRequest]) -> None:
        """Assert that every holder is accounted for, and that what is shared is full."""
        self.pool.check()
        tables = [(request.blocks, request.num_computed) for request in running]
        tables += [(parked.blocks, len(parked.tokens)) for parked in self.sessions.parked]
        holds = Counter(block for blocks, _ in tables for block in blocks)
        self.transfers.check()
        held = holds + Counter(self.transfers.held)
        assert len(held) + self.pool.num_free == self.pool.num_total, "blocks leak"
        assert all(self.pool.num_holders(block) == count for block, count in held.items())
        for blocks, num_computed in tables:
            assert len(set(blocks)) == len(blocks), "a block is twice in one sequence"
            for block in blocks[num_computed // self._block_size :]:
                assert held[block] == 1, "a block that is not full is shared"
                assert not self.pool.is_findable(block), "a block that is not full can be found"
        assert set(self._pending.values()) <= set(running)
        assert self.sessions.num_blocks == sum(len(parked.blocks) for parked in self.sessions.parked)

    def check_step(self, step: SequenceStep, request: ScheduledRequest | None, end: int) -> None:
        """Assert of a step in flight that nobody else has its blocks, and `request`, whose step it is unless
        it is over, has them still as far as the step writes: to `end`, as drafts before it turned out."""
        size = self._block_size
        if request is not None:
            num_kept = self._num_kept(step, end)
            assert request.blocks[:num_kept] == step.block_table[:num_kept], (
                "a step in flight lost its blocks"
            )
        written = step.block_table[step.start // size : -(-(step.start + step.num_rows) // size)]
        assert written, "a step without rows"
        assert not any(map(self.pool.is_findable, written)), "a findable block is written to"

    def _num_kept(self, step: SequenceStep, end: int) -> int:
        """Blocks of each table that a step in flight may use: all, unless a draft before it was rejected."""
        is_whole = end == step.start + step.num_rows
        return len(step.block_table) if is_whole else self.pool.num_blocks_for(end)

    def counters(self) -> dict[str, int]:
        """Fields of `EngineStatistics` that are counted here."""
        return {
            "num_prefix_queried": self.num_queried,
            "num_prefix_hits": self.num_hits,
            "num_windows_reused": self.num_reused,
            "num_session_evictions": self.num_evictions,
            "num_transfers_failed": self.transfers.num_failed,
        }

    def _begin(self, request: ScheduledRequest, found: Found, sequence_id: SequenceId) -> None:
        """Take over what is found, and blocks for all known tokens."""
        key = request.message.session
        parked = None if key is None else self.sessions.take(key)
        if not found.is_parked:
            self.pool.share(found.blocks)
            if parked is not None:
                self._let_go(parked)
        elif parked is not None:
            self.pool.free(parked.blocks[len(found.blocks) :])
            if found.num_tokens % self._block_size:
                self.pool.unregister(found.blocks[-1])
        request.enter(sequence_id, found.blocks, found.num_tokens)
        request.capacity = len(found.blocks) * self._block_size
        has_room = self.grow(request, len(request.tokens))
        assert has_room, "a request entered that does not fit"

    def _take(self, count: int) -> tuple[Block, ...] | None:
        """So many blocks, parked ones if need be; None (and nothing) if there are too few."""
        while (blocks := self.pool.allocate(count)) is None:
            parked = self.sessions.take_oldest()
            if parked is None:
                return None
            self._evict(parked)
        return blocks

    def _count(self, request: ScheduledRequest, found: Found) -> None:
        if not request.has_run:
            request.num_cached = found.num_tokens  # never all of its prompt
        self.num_queried += request.num_prompt
        self.num_hits += min(found.num_tokens, request.num_prompt)
        ends = (span.start + span.num_tokens for span in request.message.media)
        self.num_reused += sum(end <= found.num_tokens for end in ends)

    def _num_evictable(self, found: Found) -> int:
        """Blocks that would be free if everything parked were evicted, but for those in `found`."""
        holds = Counter(block for parked in self.sessions.parked for block in parked.blocks)
        kept = set(found.blocks)
        return sum(
            count == self.pool.num_holders(block) and block not in kept for block, count in holds.items()
        )

    def _evict(self, parked: Parked) -> None:
        self.num_evictions += 1
        self._let_go(parked)

    def _let_go(self, parked: Parked) -> None:
        self.pool.free(parked.blocks)

    def _stop_computing(self, request: ScheduledRequest) -> None:
        for block_hash in request.hasher.hashes[request.num_registered :]:
            if self._pending.get(block_hash) is request:
                del self._pending[block_hash]
