"""What readers of a session's events are given, and when they are left alone."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import pytest
from sensorium.client.errors import SDKError
from sensorium.client.options import MAX_QUEUED_EVENTS
from sensorium.client.realtime.answer import EventQueue
from sensorium.client.realtime.events import AnswerDelta


def test_one_who_reads_nothing_is_left_alone_and_told_so() -> None:
    readers = WeakSet[EventQueue[Any]]()
    idle, busy = (EventQueue(readers, lambda event: event) for _ in range(2))
    event = AnswerDelta(response_id="a", item_id="b", delta="text", event_id="c")
    for _ in range(MAX_QUEUED_EVENTS + 2):
        for each in tuple(readers):
            each.put(event)
        assert busy.take() is event
    assert set(readers) == {busy}
    for _ in range(MAX_QUEUED_EVENTS):
        assert idle.take() is event
    assert idle.has_more()
    with pytest.raises(SDKError, match="were not read"):
        idle.take()


def test_a_reader_that_nobody_has_any_more_is_forgotten() -> None:
    readers = WeakSet[EventQueue[Any]]()
    kept = EventQueue(readers, lambda event: event)
    EventQueue(readers, lambda event: event)
    assert set(readers) == {kept}
