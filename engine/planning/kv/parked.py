"""What live sessions leave behind between their requests: parked KV, under a budget.

A request that revises its session's previous one starts from what that left, as far as both agree. Nothing
depends on it but speed: what is parked may be evicted at any time. Pure bookkeeping over blocks it is
handed; `engine/planning/kv/space.py` performs takeover and eviction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ....protocols.engine.messages import MediaSpan, SessionKey
from ..request import ScheduledRequest
from .blocks import Block
from .names import BlockHash

_STRIDE: Final = 256  # tokens compared at once


@dataclass(frozen=True, slots=True)
class Parked:
    """KV of `tokens` behind `root`, as far as a request was computed; the last block may be part full.

    Where layers keep different things, `tables` are those of the groups and `blocks` what they hold.
    """

    root: BlockHash
    media: tuple[MediaSpan, ...]
    tokens: tuple[int, ...]
    blocks: tuple[Block, ...]
    tables: tuple[tuple[Block, ...], ...] = ()
    state_slot: int | None = None
    """The state behind all of `tokens`, if the model has states and that one is kept."""

    def overlap(self, request: ScheduledRequest) -> int:
        """How many tokens at the front of `request` have this KV."""
        if self.root != request.hasher.root:
            return 0
        num_tokens = shared_length(self.tokens, request.tokens)
        media_end = shared_media(self.media, request.message.media)
        return num_tokens if media_end is None else min(num_tokens, media_end)


class SessionStore:
    """Each session's live request, and what it parked; the longest parked is evicted first."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._live: dict[SessionKey, ScheduledRequest] = {}
        self._parked: OrderedDict[SessionKey, Parked] = OrderedDict()
        self.num_blocks = 0
        """Blocks in `parked` entries, shared ones as often as they are held."""

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def parked(self) -> Sequence[Parked]:
        """Everything parked, longest first."""
        return tuple(self._parked.values())

    @property
    def has_states(self) -> bool:
        """Whether anything parked holds a state."""
        return any(parked.state_slot is not None for parked in self._parked.values())

    def live(self, key: SessionKey | None) -> ScheduledRequest | None:
        """The session's request that is waiting or running."""
        return None if key is None else self._live.get(key)

    def begin(self, request: ScheduledRequest) -> None:
        """`request` is its session's live one from now on."""
        if request.message.session is not None:
            self._live[request.message.session] = request

    def end(self, request: ScheduledRequest) -> SessionKey | None:
        """`request` is over; the session that it was the live request of."""
        key = request.message.session
        if key is None or self._live.get(key) is not request:
            return None
        del self._live[key]
        return key

    def close(self, key: SessionKey) -> None:
        """The live request goes on, but belongs to the session no more."""
        self._live.pop(key, None)

    def find(self, key: SessionKey | None) -> Parked | None:
        """What the session parked."""
        return None if key is None else self._parked.get(key)

    def park(self, key: SessionKey, parked: Parked) -> None:
        """Keep `parked` until it is taken."""
        assert key not in self._parked
        self._parked[key] = parked
        self.num_blocks += len(parked.blocks)

    def may_park(self, num_blocks: int) -> bool:
        """Whether so many can be kept at all; more would only push out everybody else's."""
        return num_blocks <= self._max_blocks

    def take(self, key: SessionKey) -> Parked | None:
        """Remove what the session parked, if anything."""
        parked = self._parked.pop(key, None)
        if parked is not None:
            self.num_blocks -= len(parked.blocks)
        return parked

    def take_excess(self) -> Parked | None:
        """What is to be evicted because the budget is passed. A waiting heir keeps its inheritance."""
        return (
            self._take_first(lambda key: key not in self._live)
            if self.num_blocks > self._max_blocks
            else None
        )

    def take_oldest(self) -> Parked | None:
        """What is to be evicted because blocks are needed: first of sessions without a waiting heir."""
        return self._take_first(lambda key: key not in self._live) or self._take_first(lambda _: True)

    def _take_first(self, is_wanted: Callable[[SessionKey], bool]) -> Parked | None:
        key = next((key for key in self._parked if is_wanted(key)), None)
        return None if key is None else self.take(key)


def shared_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix of two lists of tokens."""
    limit = min(len(first), len(second))
    start = 0
    while start < limit and tuple(first[start : start + _STRIDE]) == tuple(second[start : start + _STRIDE]):
        start += _STRIDE
    while start < limit and first[start] == second[start]:
        start += 1
    return min(start, limit)


def shared_media(first: Sequence[MediaSpan], second: Sequence[MediaSpan]) -> int | None:
    """Up to which token two prompts of equal tokens have the same media; None if they never differ."""
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            return min(mine.start, theirs.start)
    rest = (*first[len(second) :], *second[len(first) :])
    return rest[0].start if rest else None
