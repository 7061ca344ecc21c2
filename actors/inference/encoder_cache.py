"""Gives out encoder slots: the task around the ledger in `engine/planning/encoder/cache.py`.

Performs the ledger's effects: answers those who need an item with its slot, or asks them for its features,
and tells the scheduler what to encode, drop and free. Read `engine/planning/encoder/cache.py` for the rules,
`actors/inference/engine.py` for who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

import trio

from ...engine.planning.encoder.admission_queue import Ticket
from ...engine.planning.encoder.cache import EncoderCache
from ...engine.planning.encoder.effects import CacheEffect, Drop, Encode, FeaturesNeeded, Free, Grant
from ...engine.planning.events import EncodeDropped, EncodeFailed, WindowEncoded
from ...protocols.engine.messages import ContentHash, Features, ItemKey, Lane
from ...protocols.errors import SensoriumError
from ..runtime.actor import Handle, Inbox, Reply
from .scheduler import SchedulerHandle

INBOX_CAPACITY: Final = 4096
"""Needs that may arrive in one turn of the loop; those that must wait do so in the ledger."""


@dataclass(frozen=True, slots=True)
class _Need:
    ticket: Ticket
    items: tuple[ItemKey, ...]
    lane: Lane
    reply: Reply[Grant | FeaturesNeeded]


@dataclass(frozen=True, slots=True)
class _Supply:
    ticket: Ticket
    features: Mapping[ContentHash, Features]
    reply: Reply[Grant | FeaturesNeeded]


@dataclass(frozen=True, slots=True)
class _Release:
    ticket: Ticket
    is_passing: bool


EncodeEvent = WindowEncoded | EncodeFailed | EncodeDropped
_Message = _Need | _Supply | _Release | EncodeEvent


class EncoderCacheHandle:
    """What others may ask of the encoder cache."""

    def __init__(self, handle: Handle[_Message]) -> None:
        self._handle = handle

    async def need(self, ticket: Ticket, items: tuple[ItemKey, ...], lane: Lane) -> Grant | FeaturesNeeded:
        """A slot for each of `items`, held until `release(ticket)`, which must follow whatever happens here.

        Given all at once, as soon as there is room for all, to better classes first: the scheduler orders the
        encodes before their uses. A `FeaturesNeeded` comes first where features are missing: `supply` them.
        Raises BadRequestError if it can never be, OverloadedError if too many of its class or better ones
        wait.
        """
        return await self._handle.call(lambda reply: _Need(ticket, items, lane, reply))

    async def supply(
        self, ticket: Ticket, features: Mapping[ContentHash, Features]
    ) -> Grant | FeaturesNeeded:
        """The slots, now that what was asked for is here, or what else has become missing."""
        return await self._handle.call(lambda reply: _Supply(ticket, features, reply))

    def release(self, ticket: Ticket, *, is_passing: bool = False) -> None:
        """Give up a claim, granted, waiting, refused or never made. `is_passing`: as the ledger says."""
        self._handle.follow_up(_Release(ticket, is_passing))

    def report(self, event: EncodeEvent) -> None:
        """What became of an encode (from the scheduler)."""
        self._handle.follow_up(event)


class EncoderCacheActor:
    """One task that owns the ledger."""

    def __init__(self, cache: EncoderCache, *, scheduler: SchedulerHandle) -> None:
        self.inbox: Inbox[_Message] = Inbox("encoder cache", INBOX_CAPACITY)
        self.handle = EncoderCacheHandle(Handle(self.inbox))
        self._cache = cache
        self._scheduler = scheduler
        self._replies: dict[Ticket, Reply[Grant | FeaturesNeeded]] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        with self.inbox:
            task_status.started()
            while True:
                self._perform(self._handle_message(await self.inbox.receive()))

    def _handle_message(self, message: _Message) -> Iterable[CacheEffect]:
        match message:
            case _Need(ticket, items, lane, reply):
                self._replies[ticket] = reply
                try:
                    return self._cache.need(ticket, items, lane)
                except SensoriumError as error:
                    self._replies.pop(ticket).fail(error)
                    return ()
            case _Supply(ticket, features, reply):
                self._replies[ticket] = reply
                return self._cache.supply(ticket, features)
            case _Release(ticket, is_passing):
                self._replies.pop(ticket, None)
                return self._cache.release(ticket, is_passing=is_passing)
            case WindowEncoded(slot, num_bytes):
                return self._cache.encoded(slot, num_bytes)
            case EncodeFailed(slot, _):
                return self._cache.failed(slot)
            case EncodeDropped(slot):
                return self._cache.dropped(slot)
            case _:
                assert_never(message)

    def _perform(self, effects: Iterable[CacheEffect]) -> None:
        for effect in effects:
            match effect:
                case Grant(ticket) | FeaturesNeeded(ticket):
                    # One that is just sending what it was asked for is asked for more when that is here.
                    reply = self._replies.pop(ticket, None)
                    if reply is not None:
                        reply.set(effect)
                case Encode() | Drop() | Free():
                    self._scheduler.perform(effect)
                case _:
                    assert_never(effect)
