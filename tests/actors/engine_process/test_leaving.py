"""Who leaves amid something large: neither side keeps what had come of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from sensorium.actors.engine_process import messages
from sensorium.actors.engine_process import multiplexer as link_module
from sensorium.actors.engine_process.connection import Line
from sensorium.actors.engine_process.framing import FrameReader
from sensorium.actors.engine_process.server import EngineServer
from sensorium.actors.inference.engine import Engine
from sensorium.protocols.engine.messages import (
    INTERACTIVE,
    ContentHash,
    Features,
    ItemKey,
    PromptLogprobs,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    TextGenerated,
)
from sensorium.protocols.engine.statistics import EngineStatistics
from sensorium.protocols.errors import OverloadedError, SensoriumError, UnavailableError
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

PAIRS = ((1, -1.0), (2, -2.0))
LONG = TextGenerated(
    RequestId("a"), (1,), prompt_logprobs=PromptLogprobs((-1.0,) * 90_000, (PAIRS,) * 90_000, (1,) * 90_000)
)


class Engines:
    """One that answers at great length, and has no room any more when `full` is set."""

    health = "ready"

    def __init__(self) -> None:
        self.full = trio.Event()

    def statistics(self) -> EngineStatistics:
        return EngineStatistics()

    def inboxes(self) -> tuple[()]:
        return ()

    @asynccontextmanager
    async def run(self, _: SampleRequest) -> AsyncIterator[AsyncIterator[TextGenerated]]:
        async def texts() -> AsyncIterator[TextGenerated]:
            yield LONG
            await trio.sleep_forever()

        yield texts()

    @asynccontextmanager
    async def placed(self, items: object = (), fetch: Any = None, **_: object) -> AsyncIterator[Engines]:  # noqa: ANN401
        if not items:
            yield self
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch, [ContentHash("h")])
            await self.full.wait()
            nursery.cancel_scope.cancel()
        if self.full.is_set():
            raise OverloadedError("no room any more")
        yield self


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[FrameReader]:
    made: list[FrameReader] = []

    class Reader(FrameReader):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(link_module, "FrameReader", Reader)
    return made


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Line, Engines]]:
    ours, theirs = memory_stream_pair()
    opened = trio.Event()

    def take(message: messages.Message, _: Sequence[bytes]) -> None:
        if isinstance(message, messages.Opened):
            opened.set()

    def lost() -> SensoriumError:
        return UnavailableError("gone")

    line = Line(ours, take)
    engines = Engines()
    server = EngineServer([cast("Engine", engines)], theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, messages.Opened((), ()), ())
        nursery.start_soon(line.run, lost)
        await opened.wait()
        yield line, engines
        nursery.cancel_scope.cancel()


async def until_begun(readers: list[FrameReader], *, begun: bool) -> None:
    for _ in range(100_000):
        if any(reader._begun for reader in readers) == begun:
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("it stays as it was")


async def test_what_had_come_of_an_answer_is_dropped(readers: list[FrameReader]) -> None:
    request = Request(RequestId("a"), (1,), Sample(SamplingParams(max_tokens=1)))
    async with connected() as (line, _):
        async with line.call(messages.Run(0, request)):
            await until_begun(readers, begun=True)
        await until_begun(readers, begun=False)


async def test_what_had_come_of_a_picture_is_dropped_where_the_call_failed_meanwhile(
    readers: list[FrameReader],
) -> None:
    item = ItemKey(ContentHash("h"), 1)
    async with connected() as (line, engines):
        async with line.call(messages.Hold(0, (item,), INTERACTIVE)) as call:
            await call.answer(messages.Missing)
            await call.supply([Features((1 << 24,), bytes(1 << 26))])
            await until_begun(readers, begun=True)
            engines.full.set()
            with pytest.raises(OverloadedError):
                await call.answer(messages.Accepted)
        await until_begun(readers, begun=False)


async def test_a_server_that_is_stopped_for_hours_finds_a_bounded_number_of_states(
    autojump_clock: MockClock,
) -> None:
    ours, theirs = lockstep_stream_pair()
    server = EngineServer([cast("Engine", Engines())], theirs)
    num_bytes = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, messages.Opened((), ()), ())
        await trio.sleep(3600)
        with trio.move_on_after(0.1):  # which no further state is made within
            while True:
                num_bytes += len(await ours.receive_some(1 << 20))
        nursery.cancel_scope.cancel()
    assert num_bytes < 2 << 20
