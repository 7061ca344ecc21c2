"""Collects a session's effects and numbers its events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from weakref import WeakMethod

import msgspec
from msgspec import UNSET

from ..protocols.errors import SensoriumError
from ..protocols.realtime.events import Error, ErrorDetail, ServerEvent
from .effects import Effect, Send


class EventSink(Protocol):
    """What the parts of a session say something to."""

    def send(self, event: ServerEvent) -> None:
        """Send an event; its id and number are filled in."""
        ...

    def do(self, effect: Effect) -> None:
        """Have anything else done."""
        ...


class Outgoing:
    """Effects in order. Every event gets a fresh `event_id` and the next `server_event_seq`, from 1."""

    def __init__(self, new_id: Callable[[str], str]) -> None:
        self._new_id = new_id
        self._num_sent = 0
        self._effects: list[Effect] = []
        self._follower: Callable[[], Callable[[ServerEvent], object] | None] = lambda: None

    def set_follower(self, follower: Callable[[ServerEvent], object]) -> None:
        """Tell a method of an object every event as it is sent, for as long as there is the object: it knows
        this one, and a cycle would be left to the garbage collector."""
        self._follower = WeakMethod(follower)

    def send(self, event: ServerEvent) -> None:
        """Send `event` with its id and number filled in."""
        self._num_sent += 1
        numbered = msgspec.structs.replace(
            event, event_id=self._new_id("event"), server_event_seq=self._num_sent
        )
        self._effects.append(Send(numbered))
        follow = self._follower()
        if follow is not None:
            follow(numbered)

    def refuse(self, error: SensoriumError, event_id: str | None = None) -> None:
        """Send an `error` event; `event_id` is the client event's."""
        self.send(Error(error=error_detail(error, event_id)))

    def do(self, effect: Effect) -> None:
        """Add any other effect."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """What has been collected since the last call."""
        effects, self._effects = self._effects, []
        return effects


def error_detail(error: SensoriumError, event_id: str | None = None) -> ErrorDetail:
    """An error as the wire shows it."""
    return ErrorDetail(
        type=error.type, code=error.code, message=error.message, param=error.param, event_id=event_id or UNSET
    )
