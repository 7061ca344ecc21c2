"""Items for the ledger of encoder outputs, and claimants who send at once what they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sensorium.engine.planning.encoder.admission_queue import MAX_OVERTAKES, Ticket
from sensorium.engine.planning.encoder.cache import EncoderCache
from sensorium.engine.planning.encoder.effects import CacheEffect, FeaturesNeeded
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Features, Lane, Service


def item(name: str) -> EncoderItem:
    """An item of `name[1:]` bytes when encoded, 100 if it does not say: a byte a token."""
    return EncoderItem(ContentHash(name), Features((1,), name.encode()), int(name[1:] or 100))


class Ledger:
    """A ledger whose claimants send at once what they are asked for."""

    def __init__(
        self,
        max_bytes: int = 200,
        max_waiting: int = 2,
        max_overtakes: int = MAX_OVERTAKES,
        max_passing_bytes: int | None = None,
    ) -> None:
        self.cache = EncoderCache(
            max_bytes=max_bytes,
            bytes_of=lambda num_tokens: num_tokens,
            max_waiting=max_waiting,
            max_overtakes=max_overtakes,
            max_passing_bytes=max_passing_bytes,
        )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (counters, `check`)
        return getattr(self.cache, name)

    def need(
        self,
        ticket: Ticket,
        items: Sequence[EncoderItem],
        service: Service = "interactive",
        caller: str = "",
    ) -> list[CacheEffect]:
        lane = Lane(service, caller=caller)
        return self.sent(self.cache.need(ticket, [each.key for each in items], lane))

    def release(self, ticket: Ticket, *, is_passing: bool = False) -> list[CacheEffect]:
        return self.sent(self.cache.release(ticket, is_passing=is_passing))

    def encoded(self, slot: int, num_bytes: int) -> list[CacheEffect]:
        return self.sent(self.cache.encoded(slot, num_bytes))

    def sent(self, effects: list[CacheEffect]) -> list[CacheEffect]:
        found: list[CacheEffect] = []
        for effect in effects:
            if isinstance(effect, FeaturesNeeded):
                found += self.sent(self.cache.supply(effect.ticket, features(effect.missing)))
            else:
                found.append(effect)
        return found


def features(names: Iterable[ContentHash]) -> dict[ContentHash, Features]:
    return {name: item(name).features for name in names}


make = Ledger
