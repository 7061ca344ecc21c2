"""The ledger of encoder outputs: which content is in which slot, who holds it, what must be encoded.

Pure bookkeeping over slots (integers that name an encoding and are never used again; the tensors belong to
the runner) within a budget of bytes. Each content is encoded once, however many ask for it while it is
encoded or kept; claims are made by name, and features asked of one claimant only. It knows no scheduler and
no tasks: it answers with effects (`engine/planning/encoder/effects.py`), which
`actors/inference/encoder_cache.py` performs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from ....protocols.engine.messages import INTERACTIVE, ContentHash, Features, ItemKey, Lane
from ....protocols.errors import BadRequestError, OverloadedError
from ..plan import Slot
from ..service_classes import SERVICES
from .admission_queue import MAX_OVERTAKES, ClaimLine, Ticket
from .effects import CacheEffect, Drop, Encode, FeaturesNeeded, Free, Grant

# missing: its features are asked of `sender` · encoding: holders may already use the slot ·
# dropping: nobody wants it, `Drop` is on its way ·
# ready: encoded · failed: holders are still to let go of it, nobody else finds it
_State = Literal["missing", "encoding", "dropping", "ready", "failed"]

_UNSETTLED: Final = ("missing", "dropping")
_NO_FEATURES: Final = Features((0,), b"")


@dataclass(slots=True, eq=False)
class _Entry:
    content_hash: ContentHash
    slot: Slot
    num_bytes: int  # the estimate until it is encoded, then what the runner reported
    sender: Ticket  # one of the holders, while it is missing
    state: _State = "missing"
    features: Features = _NO_FEATURES
    holders: set[Ticket] = field(default_factory=set)
    is_passing: bool = True  # nobody who held it may ask for it again


@dataclass(slots=True)
class _Claim:
    entries: tuple[_Entry, ...]  # one per item; an item may be named twice
    is_granted: bool = False


class EncoderCache:
    """Slots by content hash: single-flight, reference counted, evicting the longest free first.

    Nothing is evicted while there is room, and nothing that is held is ever evicted. What all who held it
    called passing (the windows of live turns: the next update has another open window, and an ended turn is
    asked about no more) goes before everything else, and where nobody holds it `max_passing_bytes` of it are
    kept at the most, or the newest: memory used again costs less than new memory. A claim gets all its items
    at once; if there is no room for them it waits, by class of service and then by caller in turn
    (`engine/planning/encoder/admission_queue.py` says who may pass whom, and how often), and holds nothing
    meanwhile. So nobody waits while holding and nothing deadlocks, as long as every request holds at most one
    ticket at a time. What is held is taken from nobody: a better claim waits until enough of it is let go.

    `bytes_of` estimates what an encoding of so many tokens will take. Where encodings turn out larger, the
    budget is exceeded by the difference until they are let go.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        bytes_of: Callable[[int], int],
        max_waiting: int,
        max_overtakes: int = MAX_OVERTAKES,
        max_passing_bytes: int | None = None,
    ) -> None:
        """`max_passing_bytes` None: all of `max_bytes`."""
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; allowed: at least 1")
        self.max_bytes = max_bytes
        self._max_passing_bytes = max_bytes if max_passing_bytes is None else max_passing_bytes
        self._bytes_of = bytes_of
        self._max_waiting = max_waiting
        self._next_slot = 0
        self._entries: dict[ContentHash, _Entry] = {}
        self._by_slot: dict[Slot, _Entry] = {}
        self._claims: dict[Ticket, _Claim] = {}
        # Ready and free, longest free first: what is passing, and the rest.
        self._passing: OrderedDict[ContentHash, _Entry] = OrderedDict()
        self._kept: OrderedDict[ContentHash, _Entry] = OrderedDict()
        self._line = ClaimLine(max_overtakes)
        self._num_bytes = 0
        self._evictable_bytes = 0
        self._passing_bytes = 0  # of those that are evictable
        self.num_hits = 0
        self.num_misses = 0

    @property
    def num_entries(self) -> int:
        """Contents kept or being encoded."""
        return len(self._entries)

    @property
    def num_references(self) -> int:
        """Contents held, counted once per ticket that holds them."""
        return sum(len(entry.holders) for entry in self._by_slot.values())

    @property
    def num_waiting(self) -> int:
        """Tickets that wait for room."""
        return self._line.num_waiting(len(SERVICES) - 1)

    @property
    def num_bytes(self) -> int:
        """Bytes of what is kept (as the runner reported) or being encoded (as estimated)."""
        return self._num_bytes

    def need(self, ticket: Ticket, items: Iterable[ItemKey], lane: Lane = INTERACTIVE) -> list[CacheEffect]:
        """Claim the contents of all `items`.

        Raises BadRequestError if they can never be held together, OverloadedError if `max_waiting` others
        of the same class or better ones wait for room.
        """
        wanted = tuple(items)
        num_bytes = self._needed_bytes(wanted)
        if num_bytes > self.max_bytes:
            raise BadRequestError(
                f"this request's media take {num_bytes} bytes encoded; the encoder cache has {self.max_bytes}"
            )
        claim = self._line.add(ticket, lane, wanted)
        effects = self._serve_waiting()  # others only after this one
        if ticket in self._line and self._line.num_waiting(claim.service) > self._max_waiting:
            self._line.remove(ticket)
            raise OverloadedError(
                f"all {self.max_bytes} bytes of the encoder cache are in use and {self._max_waiting} others "
                "wait for some"
            )
        return effects

    def supply(self, ticket: Ticket, features: Mapping[ContentHash, Features]) -> list[CacheEffect]:
        """What `ticket` was asked for; those who need it are granted or asked for more.

        What is not missing (any more), and claims given up meanwhile, are nothing to supply.
        """
        claim = self._claims.get(ticket)
        if claim is None:
            return []
        effects: list[CacheEffect] = []
        supplied: list[_Entry] = []
        for entry in dict.fromkeys(claim.entries):
            if entry.state == "missing" and entry.content_hash in features:
                entry.state, entry.features = "encoding", features[entry.content_hash]
                effects.append(Encode(entry.slot, entry.features))
                supplied.append(entry)
        holders = {holder for entry in supplied for holder in entry.holders}
        for holder in sorted(holders | {ticket}):
            effects += self._answer(holder)
        return effects

    def release(self, ticket: Ticket, *, is_passing: bool = False) -> list[CacheEffect]:
        """Give up a claim, held or waiting. Unknown tickets (refused ones) are nothing to give up.

        `is_passing`: whoever gives it up expects nobody to ask for its contents again.
        """
        claim = self._claims.pop(ticket, None)
        if claim is None:
            self._line.remove(ticket)
            return self._serve_waiting()
        effects: list[CacheEffect] = []
        for entry in dict.fromkeys(claim.entries):
            entry.holders.remove(ticket)
            entry.is_passing &= is_passing
            if not entry.holders:
                effects += self._let_go(entry)
            elif entry.state == "missing" and entry.sender == ticket:
                entry.sender = min(entry.holders)
                effects += self._answer(entry.sender)
        return effects + self._serve_waiting()

    def encoded(self, slot: Slot, num_bytes: int) -> list[CacheEffect]:
        """The encode of `slot` is done; its result takes `num_bytes`."""
        entry = self._by_slot[slot]
        entry.state = "ready"
        entry.features = _NO_FEATURES  # only an encode needs them
        self._num_bytes += num_bytes - entry.num_bytes
        entry.num_bytes = num_bytes
        if not entry.holders:
            self._add_evictable(entry)
        return [*self._make_room(0), *self._answers(entry), *self._serve_waiting()]

    def dropped(self, slot: Slot) -> list[CacheEffect]:
        """The encode of `slot` was forgotten before it started."""
        entry = self._by_slot.pop(slot)
        if entry.holders:  # wanted again meanwhile
            entry.state = "encoding"
            self._give_slot(entry)
            return [Encode(entry.slot, entry.features), *self._answers(entry)]
        del self._entries[entry.content_hash]
        self._num_bytes -= entry.num_bytes
        return self._serve_waiting()

    def failed(self, slot: Slot) -> list[CacheEffect]:
        """The encode of `slot` failed. Its holders learn it when they use it; the next `need` tries again."""
        entry = self._by_slot[slot]
        entry.state = "failed"
        entry.features = _NO_FEATURES
        self._num_bytes -= entry.num_bytes
        entry.num_bytes = 0
        del self._entries[entry.content_hash]
        effects = self._answers(entry) if entry.holders else self._let_go(entry)
        return [*effects, *self._serve_waiting()]

    def check(self) -> None:
        """Assert the invariants."""
        assert self._num_bytes == sum(entry.num_bytes for entry in self._by_slot.values())
        free = self._passing | self._kept
        assert self._evictable_bytes == sum(entry.num_bytes for entry in free.values())
        assert self._passing_bytes == sum(entry.num_bytes for entry in self._passing.values())
        assert self._passing_bytes <= self._max_passing_bytes or len(self._passing) == 1
        assert all(entry.is_passing for entry in self._passing.values())
        assert not any(entry.is_passing for entry in self._kept.values())
        self._line.check()
        assert self._line.next(self._may_take, self._is_there) is None, "somebody waits for nothing"
        holders = {ticket for entry in self._by_slot.values() for ticket in entry.holders}
        assert holders <= set(self._claims)
        for ticket, claim in self._claims.items():
            assert all(ticket in entry.holders for entry in claim.entries)
            assert claim.is_granted or any(entry.state in _UNSETTLED for entry in claim.entries)
        for content_hash, entry in self._entries.items():
            assert entry.content_hash == content_hash
            assert entry.state != "failed"
            assert (content_hash in free) == (entry.state == "ready" and not entry.holders)
            assert entry.holders or entry.state not in ("missing", "encoding")
            assert entry.state != "missing" or entry.sender in entry.holders
        for slot, entry in self._by_slot.items():
            assert entry.slot == slot < self._next_slot
            assert entry.state != "failed" or entry.holders

    def _needed_bytes(self, items: tuple[ItemKey, ...]) -> int:
        """What all of `items` take, the same content once."""
        sizes: dict[ContentHash, int] = {}
        for item in items:
            entry = self._entries.get(item.content_hash)
            sizes[item.content_hash] = self._bytes_of(item.num_tokens) if entry is None else entry.num_bytes
        return sum(sizes.values())

    def _is_there(self, items: tuple[ItemKey, ...]) -> bool:
        return all(item.content_hash in self._entries for item in items)

    def _may_take(self, items: tuple[ItemKey, ...]) -> bool:
        """Whether there is room for `items` beside what is held. If nothing is, there always is."""
        if len(self._by_slot) == len(self._passing) + len(self._kept):
            return True
        hashes = {item.content_hash for item in items}
        there = {each for each in hashes if each in self._entries}
        pinned = self._num_bytes - self._evictable_bytes
        for content_hash in there:
            entry = self._evictable(self._entries[content_hash]).get(content_hash)
            pinned += 0 if entry is None else entry.num_bytes
        new = tuple(item for item in items if item.content_hash not in there)
        return not new or pinned + self._needed_bytes(new) <= self.max_bytes

    def _take(self, ticket: Ticket, items: tuple[ItemKey, ...]) -> list[CacheEffect]:
        """Hold what is there, make room for the rest, and ask for it."""
        wanted = {item.content_hash: item for item in items}
        for content_hash in wanted:
            entry = self._entries.get(content_hash)
            if entry is not None:
                self.num_hits += 1
                entry.holders.add(ticket)
                if self._evictable(entry).pop(content_hash, None) is not None:
                    self._count_evictable(entry, -entry.num_bytes)
        new = [item for content_hash, item in wanted.items() if content_hash not in self._entries]
        effects = self._make_room(sum(self._bytes_of(item.num_tokens) for item in new))
        for item in new:
            self.num_misses += 1
            num_bytes = self._bytes_of(item.num_tokens)
            self._num_bytes += num_bytes
            entry = self._entries[item.content_hash] = _Entry(item.content_hash, -1, num_bytes, ticket)
            entry.holders.add(ticket)
            self._give_slot(entry)
        self._claims[ticket] = _Claim(tuple(self._entries[item.content_hash] for item in items))
        return effects + self._answer(ticket)

    def _give_slot(self, entry: _Entry) -> None:
        entry.slot = self._next_slot
        self._next_slot += 1
        self._by_slot[entry.slot] = entry

    def _make_room(self, num_bytes: int) -> list[CacheEffect]:
        """Evict until `num_bytes` more fit, as far as that goes: what is passing, then the longest free."""
        effects: list[CacheEffect] = []
        while self._is_too_much(num_bytes) and (free := self._passing or self._kept):
            _, entry = free.popitem(last=False)
            self._count_evictable(entry, -entry.num_bytes)
            self._num_bytes -= entry.num_bytes
            del self._entries[entry.content_hash], self._by_slot[entry.slot]
            effects.append(Free(entry.slot))
        return effects

    def _is_too_much(self, num_bytes: int) -> bool:
        if self._passing_bytes > self._max_passing_bytes and len(self._passing) > 1:
            return True
        return self._num_bytes + num_bytes > self.max_bytes

    def _count_evictable(self, entry: _Entry, num_bytes: int) -> None:
        self._evictable_bytes += num_bytes
        self._passing_bytes += num_bytes if entry.is_passing else 0

    def _answer(self, ticket: Ticket) -> list[CacheEffect]:
        """Tell `ticket` its slots, or first what it is to send; nothing while others are still to act."""
        claim = self._claims[ticket]
        entries = dict.fromkeys(claim.entries)
        missing = [each for each in entries if each.state == "missing" and each.sender == ticket]
        if missing:
            return [FeaturesNeeded(ticket, tuple(entry.content_hash for entry in missing))]
        if claim.is_granted or any(entry.state in _UNSETTLED for entry in entries):
            return []
        claim.is_granted = True
        return [Grant(ticket, tuple(entry.slot for entry in claim.entries))]

    def _answers(self, entry: _Entry) -> list[CacheEffect]:
        return [answer for ticket in sorted(entry.holders) for answer in self._answer(ticket)]

    def _evictable(self, entry: _Entry) -> OrderedDict[ContentHash, _Entry]:
        return self._passing if entry.is_passing else self._kept

    def _add_evictable(self, entry: _Entry) -> None:
        self._evictable(entry)[entry.content_hash] = entry
        self._count_evictable(entry, entry.num_bytes)

    def _let_go(self, entry: _Entry) -> list[CacheEffect]:
        """Nobody holds `entry` any more."""
        match entry.state:
            case "missing":
                del self._by_slot[entry.slot], self._entries[entry.content_hash]
                self._num_bytes -= entry.num_bytes
            case "encoding":
                entry.state = "dropping"
                return [Drop(entry.slot)]
            case "ready":
                self._add_evictable(entry)
                return self._make_room(0)
            case "failed":
                del self._by_slot[entry.slot]
            case "dropping":
                pass
        return []

    def _serve_waiting(self) -> list[CacheEffect]:
        """Give room to those who wait, as far as it goes."""
        effects: list[CacheEffect] = []
        while (claim := self._line.next(self._may_take, self._is_there)) is not None:
            self._line.serve(claim)
            effects += self._take(claim.ticket, claim.items)
        return effects
