"""Small messages overtake large ones, large ones take turns, and neither is without a bound."""

from __future__ import annotations

import itertools
import random

import pytest
import trio
from sensorium.actors.engine_process import multiplexer as link_module
from sensorium.actors.engine_process.connection import Line
from sensorium.actors.engine_process.framing import MAX_FRAME, FrameError
from sensorium.actors.engine_process.messages import GetState
from sensorium.actors.engine_process.multiplexer import Link
from sensorium.protocols.engine.messages import Features
from sensorium.protocols.errors import TooLargeError
from trio.testing import MockClock, memory_stream_pair

MIB = 1024 * 1024


class Pair:
    """Two links, the first of which sends; what the other took, in order."""

    def __init__(self) -> None:
        ours, theirs = memory_stream_pair()
        self.here, self.there = Link(ours), Link(theirs)
        self.taken: list[tuple[int, list[bytes]]] = []

    async def run(self) -> None:
        """Carry what is sent."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.here.run_sending)
            nursery.start_soon(self.there.run_receiving, self._take)

    async def _take(self, call: int, parts: list[bytes]) -> None:
        self.taken.append((call, parts))

    async def until(self, num: int) -> None:
        """Return when so many have come."""
        while len(self.taken) < num:
            await trio.lowlevel.checkpoint()


@pytest.fixture
async def pair() -> Pair:
    return Pair()


async def test_small_ones_overtake_large_ones(pair: Pair, nursery: trio.Nursery) -> None:
    await pair.here.send(1, b"picture", [bytes(3 * MIB)])
    await pair.here.send(2, b"smaller", [bytes(MAX_FRAME)])
    pair.here.send_nowait(3, b"speech")
    nursery.start_soon(pair.run)
    await pair.until(3)
    assert [call for call, _ in pair.taken] == [3, 2, 1]


async def test_what_is_too_large_is_its_callers_matter_and_the_others_go_on(
    pair: Pair, nursery: trio.Nursery
) -> None:
    nursery.start_soon(pair.run)
    with pytest.raises(FrameError, match="20000 buffers"):
        await pair.here.send(1, b"", [b""] * 19_999)
    await pair.here.send(2, b"picture", [bytes(MIB)])
    await pair.until(1)
    line, features = Line(memory_stream_pair()[0], lambda *_: None), Features((0, 0), b"")
    with pytest.raises(TooLargeError, match="too large for the engine's process"):
        async with line.call(GetState()) as call:
            await call.supply([features] * 20_000)


async def test_what_a_call_says_stays_in_order(pair: Pair, nursery: trio.Nursery) -> None:
    nursery.start_soon(pair.run)
    chosen = random.Random(5)
    expected: list[list[bytes]] = []
    for number in range(60):
        head = b"%d" % number
        buffers = [bytes(chosen.choice([10, MAX_FRAME, 2 * MAX_FRAME]))] if chosen.random() < 0.3 else []
        expected.append([head, *buffers])
        if buffers:
            await pair.here.send(1, head, buffers)
        else:
            pair.here.send_nowait(1, head)
        if chosen.random() < 0.2:
            await trio.lowlevel.checkpoint()
    await pair.until(60)
    assert [parts for _, parts in pair.taken] == expected


async def test_a_long_head_is_a_large_message(pair: Pair, nursery: trio.Nursery) -> None:
    nursery.start_soon(pair.run)
    head = b"x" * (2 * MIB)
    pair.here.send_nowait(1, head)
    await pair.until(1)
    assert pair.taken == [(1, [head])]


async def test_who_leaves_takes_back_what_is_under_way(pair: Pair, nursery: trio.Nursery) -> None:
    for call in (1, 2):
        await pair.here.send(call, b"picture", [bytes(8 * MIB)])
    nursery.start_soon(pair.run)
    await trio.lowlevel.checkpoint()
    pair.here.abandon(1)
    pair.here.send_nowait(1, b"leave")
    await pair.until(2)
    assert [(call, len(parts)) for call, parts in pair.taken] == [(1, 1), (2, 2)]


async def test_what_is_large_waits_for_room(
    pair: Pair, nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_MAX_LARGE_BYTES", MIB)
    for call in (1, 2):
        await pair.here.send(call, b"picture", [bytes(MIB // 2)])
    with trio.move_on_after(1) as scope:
        await pair.here.send(3, b"picture", [bytes(1)])
    assert scope.cancelled_caught
    nursery.start_soon(pair.run)
    await pair.here.send(4, b"picture", [bytes(1)])
    await pair.until(3)
    assert sorted(call for call, _ in pair.taken) == [1, 2, 4], "who gave up sends nothing"


async def test_who_makes_more_and_more_waits_for_the_reader(
    pair: Pair, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await pair.here.settled()
    for _ in range(20):
        pair.here.send_nowait(1, bytes(MAX_FRAME))
    with trio.move_on_after(1) as scope:
        await pair.here.settled()
    assert scope.cancelled_caught
    nursery.start_soon(pair.run)
    await pair.here.settled()


async def test_others_have_a_turn_between_messages_that_came_together(
    pair: Pair, nursery: trio.Nursery
) -> None:
    """A burst of answers to one client is not read in one go."""
    seen: list[int] = []

    async def look() -> None:
        while len(pair.taken) < 64:
            seen.append(len(pair.taken))
            await trio.lowlevel.checkpoint()

    for call in range(64):
        pair.here.send_nowait(call, bytes(1024))
    nursery.start_soon(pair.run)
    await look()
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 16
