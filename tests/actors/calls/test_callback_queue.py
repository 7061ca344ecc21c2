"""What is posted of calls outlives them, counts for who asked for it, and holds up no call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import httpx
import pytest
import trio
from sensorium.actors.callers import Caller
from sensorium.actors.calls import callbacks
from sensorium.actors.calls.call import Audience, CallActor, Terms
from sensorium.actors.calls.callback_queue import PostingActor, PostingStatistics
from sensorium.actors.config.calls import CallConfig
from sensorium.actors.fetching.dns import Names
from sensorium.actors.live.connection import Line, Socket
from sensorium.actors.live.outbox import Outbox
from sensorium.protocols.errors import OverloadedError
from sensorium.protocols.shared.audio_format import AudioFormat
from support.fake_sessions import FakeSocket

CONFIG = CallConfig(("hooks.example",), ("127.0.0.1",), "a secret of an operator")
ONE, OTHER = Caller("one", has_key=True), Caller("other", has_key=True)

pytestmark = pytest.mark.slow


@asynccontextmanager
async def silent_host() -> AsyncIterator[tuple[httpx.URL, list[trio.SocketStream]]]:
    """Takes every post, and answers none."""
    met: list[trio.SocketStream] = []

    async def stay_silent(stream: trio.SocketStream) -> None:
        met.append(stream)
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, stay_silent, 0, host="127.0.0.1"))
        yield httpx.URL(f"http://hooks.example:{listener.socket.getsockname()[1]}/"), met
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def posting(most: int) -> AsyncIterator[PostingActor]:
    actor = PostingActor(CONFIG, Names(lambda *_: ["127.0.0.1"]), most=most)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        yield actor
        nursery.cancel_scope.cancel()


async def until_all_is_posted(actor: PostingActor) -> None:
    with trio.fail_after(20):
        while actor:
            await trio.lowlevel.checkpoint()


async def test_callbacks_count_until_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "_AFTER_S", 0.05)
    async with silent_host() as (target, _), posting(16) as actor:
        held = [actor.open(target, ONE, lambda *_: None) for _ in range(14)]
        with pytest.raises(OverloadedError) as refused:
            actor.open(target, ONE, lambda *_: None)
        assert refused.value.code == "too_many_callbacks"
        held.append(actor.open(target, OTHER, lambda *_: None))
        for callback in held:
            callback.put("{}")
        assert actor.statistics() == PostingStatistics(0, 0, 15, 15)
        for callback in held:
            callback.finish()
        with pytest.raises(OverloadedError):  # the calls are over, and their last words wait
            actor.open(target, ONE, lambda *_: None)
        await until_all_is_posted(actor)
        assert actor.statistics() == PostingStatistics(0, 15, 0, 0)
        actor.open(target, ONE, lambda *_: None).finish()
        await until_all_is_posted(actor)


async def test_a_call_and_its_socket_end_before_what_is_told_of_it_is_posted() -> None:
    def open_track(_socket: Socket, _format: AudioFormat) -> Line:
        return cast("Line", object())

    async def serve(_: Line) -> None:
        """A track whose session ends at once."""

    async with silent_host() as (target, met), posting(8) as actor:
        provider = FakeSocket()
        outbox = Outbox(max_events=100, max_bytes=100_000, send_timeout_s=5)
        call = CallActor(
            provider,
            outbox,
            lambda _: Terms(ONE, open_track, open_callback=partial(actor.open, target, ONE)),
            serve,
            Audience(),
            ONE,
        )
        provider.client_sends({"event": "start", "start": {}}, {"event": "stop"})
        with trio.fail_after(5):
            await call.run()
            while not met:
                await trio.lowlevel.checkpoint()
        assert len(actor) == 1
        assert actor.statistics().num_to_post >= 2
