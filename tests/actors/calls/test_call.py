"""A call's tracks do not wait for each other; what a session does is `tests/e2e/test_calls.py`'s business."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import httpx
import pytest
import trio
import trio.testing
from sensorium.actors.callers import Caller
from sensorium.actors.calls import callbacks
from sensorium.actors.calls.call import (
    Agree,
    Audience,
    CallActor,
    OpenCallback,
    OpenCallTrack,
    Terms,
    TrackSocket,
)
from sensorium.actors.calls.callbacks import Callback
from sensorium.actors.live.connection import Line, Socket
from sensorium.actors.live.outbox import Outbox
from sensorium.protocols.errors import OverloadedError
from sensorium.protocols.shared.audio_format import AudioFormat
from support.fake_sessions import FakeSocket

ONE = Caller("x")


def agreed(open_track: OpenCallTrack, open_callback: OpenCallback | None = None) -> Agree:
    return lambda _: Terms(ONE, open_track, open_callback=open_callback)


async def test_a_track_whose_session_ends_unread_does_not_hold_up_the_other(nursery: trio.Nursery) -> None:
    tracks: dict[str, TrackSocket] = {}
    ends, received = trio.Event(), trio.Event()

    def open_track(socket: Socket, _: AudioFormat) -> Line:
        assert isinstance(socket, TrackSocket)
        tracks[socket.name] = socket
        return cast("Line", socket)

    async def serve(line: Line) -> None:
        track = cast("TrackSocket", line)
        if track.name == "a":
            await ends.wait()
            return
        assert await track.receive() == b"other"
        received.set()
        await trio.sleep_forever()

    provider = FakeSocket()
    outbox = Outbox(max_events=100, max_bytes=100_000, send_timeout_s=5)
    actor = CallActor(provider, outbox, agreed(open_track), serve, Audience(), ONE)
    nursery.start_soon(actor.run)
    provider.client_sends({"event": "start", "start": {"tracks": ["a", "b"]}})
    provider.client_sends(
        *({"event": "media", "media": {"track": "a", "payload": "eA=="}} for _ in range(100))
    )
    provider.client_sends({"event": "media", "media": {"track": "b", "payload": "b3RoZXI="}})
    await trio.testing.wait_all_tasks_blocked()
    assert not received.is_set()
    ends.set()
    with trio.fail_after(5):
        await received.wait()
    nursery.cancel_scope.cancel()


async def test_a_call_without_room_for_a_track_is_told_of_in_order(nursery: trio.Nursery) -> None:
    def is_full(_: Socket, __: AudioFormat) -> Line:
        raise OverloadedError("no room", code="too_many_sessions")

    async def serve(_: Line) -> None:
        raise AssertionError

    provider = FakeSocket()
    outbox = Outbox(max_events=100, max_bytes=100_000, send_timeout_s=5)
    actor = CallActor(provider, outbox, agreed(is_full), serve, Audience(), ONE)
    nursery.start_soon(actor.run)
    provider.client_sends({"event": "start", "start": {"tracks": ["a", "b"]}})
    await trio.testing.wait_all_tasks_blocked()
    reported = [(event["event"], event["seq"]) for event in provider.received]
    assert reported == [("call.started", 1), ("error", 2), ("error", 3), ("call.summary", 4)]


async def test_a_call_that_has_not_begun_ends_with_the_server_and_nobody_waits(nursery: trio.Nursery) -> None:
    def open_track(_: Socket, __: AudioFormat) -> Line:
        raise AssertionError

    async def serve(_: Line) -> None:
        raise AssertionError

    provider = FakeSocket()
    outbox = Outbox(max_events=100, max_bytes=100_000, send_timeout_s=5)
    actor = CallActor(provider, outbox, agreed(open_track), serve, Audience(), ONE)
    nursery.start_soon(actor.run)
    actor.drain()
    await trio.testing.wait_all_tasks_blocked()
    assert [event["event"] for event in provider.received] == ["call.summary"]


async def test_numbers_go_up_where_a_callback_has_no_room(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "MAX_WAITING", 1)

    def open_track(socket: Socket, _: AudioFormat) -> Line:
        return cast("Line", socket)

    def open_callback(problem: Callable[[str, str], None]) -> Callback:
        return Callback(httpx.URL("http://127.0.0.1/"), None, None, problem)  # type: ignore[arg-type]

    async def serve(_: Line) -> None:
        await trio.sleep_forever()

    provider = FakeSocket()
    outbox = Outbox(max_events=100, max_bytes=100_000, send_timeout_s=5)
    actor = CallActor(provider, outbox, agreed(open_track, open_callback), serve, Audience(), ONE)
    nursery.start_soon(actor.run)
    provider.client_sends({"event": "start", "start": {}})
    provider.client_sends(*({"event": "mark", "mark": {"name": f"{number}"}} for number in range(2)))
    await trio.testing.wait_all_tasks_blocked()
    assert [event["seq"] for event in provider.received] == [1, 2, 3, 4]
    nursery.cancel_scope.cancel()
