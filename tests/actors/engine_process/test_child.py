"""The process that runs engines, from the start on: it is never silent."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import trio
import trio.testing
from sensorium.actors.engine_process import child, messages
from sensorium.actors.engine_process.connection import Line
from sensorium.actors.engine_process.messages import Message
from sensorium.actors.worker_config import Orders
from sensorium.protocols.errors import ModelLoadError, UnavailableError
from support.fake_process import Opened, open_next, orders
from trio.testing import memory_stream_pair

pytestmark = pytest.mark.slow


async def test_it_says_that_it_is_there_while_it_loads() -> None:
    go_on, opened = threading.Event(), trio.Event()
    ours, theirs = memory_stream_pair()
    sent: list[Message] = []

    def open_slowly(received: Orders, before: Sequence[Opened]) -> Opened:
        assert go_on.wait(60)
        return open_next(received, before)

    def take(message: Message, _: Sequence[bytes]) -> None:
        sent.append(message)
        if sent.count(messages.Loading()) == 3:
            go_on.set()
        if isinstance(message, messages.Opened):
            opened.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Line(ours, take).run, lambda: UnavailableError("gone"))
        nursery.start_soon(child._run, orders("fake"), theirs, open_slowly, nursery)
        with trio.fail_after(60):
            await opened.wait()
        nursery.cancel_scope.cancel()


async def refuse_memory() -> None:
    raise MemoryError


async def test_refused_memory_ends_the_wait_for_a_thread_that_gives_no_result() -> None:
    never = threading.Event()

    def open_never(_: Orders, __: Sequence[Opened]) -> Opened:
        never.wait(30)
        raise AssertionError

    stream = trio.StapledStream(
        trio.testing.MemorySendStream(refuse_memory), trio.testing.MemoryReceiveStream()
    )
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            try:
                with pytest.raises(ModelLoadError, match="not enough memory"):
                    await child._run(orders("fake"), stream, open_never, nursery)
            finally:
                never.set()
