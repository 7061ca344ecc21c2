"""The slots of recurrent and convolution states: whose they are, which are snapshots, how they move.

A running request has one slot; its state is that behind all tokens planned so far. A snapshot is a slot that
nobody writes to, found by the name of the block it stands behind; those nobody holds go when slots are
needed, longest unused first. States move by copies, which a plan carries and the runner makes in order,
before the plan's sequences. So a copy made with a step is of the state in front of it, however many plans
are in flight. Read `engine/planning/kv/grouped_space.py` next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..limits import SchedulerConfig
from ..plan import Copy
from ..request import ScheduledRequest
from .blocks import BlockPool
from .held_state import HeldState
from .names import BlockHash


class StateSlots:
    """The slots of one engine whose model has states."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._pool = BlockPool(config.num_state_slots, 1)
        self._block_size = config.block_size
        self._interval = config.snapshot_interval
        self._is_caching = config.prefix_caching
        self._copies: list[Copy] = []
        self._lent: set[int] = set()

    @property
    def num_free(self) -> int:
        """Slots nobody holds, snapshots included."""
        return self._pool.num_free

    @property
    def num_total(self) -> int:
        """All slots."""
        return self._pool.num_total

    def take_copies(self) -> tuple[Copy, ...]:
        """Those of the plan being made."""
        copies = tuple(self._copies)
        self._copies.clear()
        return copies

    def longest(self, names: Sequence[BlockHash], num_blocks: int) -> int:
        """The most of the first `num_blocks` blocks that a snapshot stands behind."""
        while num_blocks and self._pool.get(names[num_blocks - 1]) is None:
            num_blocks -= 1
        return num_blocks

    def next_snapshot(self, num_blocks: int) -> int:
        """Behind how many blocks the next snapshot is made, of a sequence that has so many."""
        return (num_blocks // self._interval + 1) * self._interval

    def cut(self, start: int, num_tokens: int) -> int:
        """How many tokens of a prompt a step from `start` feeds, so that its end has a snapshot if it can."""
        if not self._is_caching:
            return num_tokens
        stride = self._interval * self._block_size
        end = (start + num_tokens) // stride * stride
        return end - start if end > start else num_tokens

    def allocate(self) -> int | None:
        """A slot, if nobody holds one of them."""
        taken = self._pool.allocate(1)
        return None if taken is None else taken[0]

    def free(self, slots: Iterable[int]) -> None:
        """Let go of slots."""
        self._pool.free(tuple(slots))

    def lend(self) -> int | None:
        """A slot for a request without blocks (`engine/planning/streaming_request.py`), if one is free."""
        slot = self.allocate()
        if slot is not None:
            self._lent.add(slot)
        return slot

    def take_back(self, slot: int) -> None:
        """A lent slot is used no more."""
        self._lent.remove(slot)
        self.free((slot,))

    def copy(self, source: int, target: int) -> None:
        """Have the plan being made copy states."""
        self._copies.append(Copy(source, target))

    def find(self, name: BlockHash) -> int | None:
        """The snapshot of that name."""
        return self._pool.get(name)

    def begin(self, request: ScheduledRequest, slot: int, snapshot: int | None) -> None:
        """A stay begins in `slot`, from a snapshot or with the state that is there."""
        if snapshot is not None and snapshot != slot:
            self._copies.append(Copy(snapshot, slot))
            self._pool.share((snapshot,))  # used now: others go first
            self._pool.free((snapshot,))
        request.state = HeldState(slot, request.num_computed)

    def may_draft(self, num_known: int) -> bool:
        """Whether a draft may follow so many tokens: what is not accepted whole is fed again."""
        return num_known == 1 and self._pool.num_free > 0

    def feed(self, request: ScheduledRequest, num_known: int, num_draft: int) -> None:
        """A step feeds so many tokens: make the copies that it needs in front."""
        state = request.state
        assert state is not None
        if num_draft:
            state.checkpoint, state.checkpoint_position = self.allocate(), state.position
            assert state.checkpoint is not None, "see `may_draft`"
            if state.position:  # else it is zero by its position
                self._copies.append(Copy(state.slot, state.checkpoint))
        self._take_snapshot(request, state)
        state.position += num_known + num_draft

    def settle(self, request: ScheduledRequest) -> None:
        """A draft is back: what was not accepted whole leaves the state of before, and is fed again."""
        state = request.state
        assert state is not None
        if state.checkpoint is None:
            return
        if state.position == request.num_computed:
            self.free((state.checkpoint,))
        else:
            self.free((state.slot,))
            state.slot, state.position = state.checkpoint, state.checkpoint_position
            request.rewind(state.position)
        state.checkpoint = None

    def register(self, request: ScheduledRequest, names: Sequence[BlockHash]) -> None:
        """Make the snapshots findable whose steps are back; `names` are those of all full blocks."""
        state = request.state
        assert state is not None
        while state.unproven and state.unproven[0][0] * self._block_size <= request.num_computed:
            num_blocks, slot = state.unproven.pop(0)
            self._pool.register(slot, names[num_blocks - 1])
            self.free((slot,))

    def leave(self, request: ScheduledRequest, *, keeps: bool = False) -> int | None:
        """End a stay. If `keeps`, the state stays held, and its slot is returned if it is that behind all
        computed tokens. Otherwise it becomes a snapshot, if it is that behind full blocks."""
        state = request.state
        if state is None:
            return None
        request.state = None
        num_computed = request.num_computed
        is_sound = state.position == num_computed > 0 and state.checkpoint is None
        if keeps and is_sound:
            self.free(state.slots[1:])
            return state.slot
        num_blocks, rest = divmod(num_computed, self._block_size)
        if is_sound and not rest and self._is_caching:
            self._pool.register(state.slot, request.hasher.hashes[num_blocks - 1])
        self.free(state.slots)
        return None

    def check(self, held: Iterable[int]) -> None:
        """Assert that every slot is held by those who say so, once, and that nobody writes to a snapshot."""
        self._pool.check()
        counts = Counter((*held, *self._lent))
        assert all(count == 1 for count in counts.values()), "two hold one state"
        assert len(counts) + self._pool.num_free == self._pool.num_total, "states leak"
        assert not any(map(self._pool.is_findable, counts)), "a snapshot is written to"
        assert not self._copies, "copies that no plan has made"

    def _take_snapshot(self, request: ScheduledRequest, state: HeldState) -> None:
        num_blocks, rest = divmod(state.position, self._block_size)
        if rest or not num_blocks or num_blocks % self._interval or not self._is_caching:
            return
        names: Sequence[BlockHash] = ()
        if state.position <= len(request.tokens):  # else plans in flight sample the last of them
            names = request.hasher.extend(request.tokens, num_blocks)
            if self._pool.get(names[num_blocks - 1]) is not None:
                return
        slot = self.allocate()
        if slot is None:
            return
        self._copies.append(Copy(state.slot, slot))
        state.unproven.append((num_blocks, slot))
        if names:
            self.register(request, names)
