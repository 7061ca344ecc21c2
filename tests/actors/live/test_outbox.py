"""The outbox sends in order, is bounded in events, bytes and time, and says goodbye last."""

from __future__ import annotations

import pytest
import trio
from sensorium.actors.live.outbox import Outbox, SlowReaderError
from trio.testing import MockClock


class Line:
    """A transport that remembers; it blocks while `open` is not set."""

    def __init__(self) -> None:
        self.sent: list[str | tuple[int, str]] = []
        self.open = trio.Event()

    async def send(self, frame: str) -> None:
        await self.open.wait()
        self.sent.append(frame)

    async def close(self, code: int, reason: str) -> None:
        self.sent.append((code, reason))


def outbox(*, max_events: int = 4, max_bytes: int = 100) -> Outbox:
    return Outbox(max_events=max_events, max_bytes=max_bytes, send_timeout_s=8.0)


async def test_frames_go_out_in_order_and_the_close_last(autojump_clock: MockClock) -> None:
    line, box = Line(), outbox()
    line.open.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.run, line.send, line.close)
        box.put("a")
        await trio.sleep(1)
        box.put("b")
        box.put("c")
        box.close(1000, "bye")
        box.put("too late")
        box.close(1011, "the first close decides")
    assert line.sent == ["a", "b", "c", (1000, "bye")]
    assert box.close_code == 1000


async def test_bounds_on_events_and_bytes() -> None:
    events = outbox()
    for _ in range(4):
        events.put("x")
    with pytest.raises(SlowReaderError):
        events.put("x")
    size = outbox()
    size.put("x" * 99)
    with pytest.raises(SlowReaderError):
        size.put("xx")


async def test_room_comes_back_as_frames_are_sent(autojump_clock: MockClock) -> None:
    line, box = Line(), outbox()
    line.open.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.run, line.send, line.close)
        for _ in range(10):
            box.put("x" * 90)
            await trio.sleep(1)
        box.close(1000, "")
    assert len(line.sent) == 11


async def test_what_piled_up_is_dropped_for_the_reason(autojump_clock: MockClock) -> None:
    line, box = Line(), outbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.run, line.send, line.close)
        box.put("being sent")
        await trio.sleep(1)
        box.put("waiting")
        box.close(1008, "too slow", drop=True)
        line.open.set()
    assert line.sent == ["being sent", (1008, "too slow")]


async def test_a_send_that_takes_too_long_is_noticed(autojump_clock: MockClock) -> None:
    line, box = Line(), outbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.run, line.send, line.close)
        box.put("never read")
        started = trio.current_time()
        with pytest.raises(SlowReaderError):
            await box.watch()
        assert 8.0 <= trio.current_time() - started <= 11.0
        nursery.cancel_scope.cancel()


async def test_waiting_with_nothing_to_send_is_not_slow(autojump_clock: MockClock) -> None:
    line, box = Line(), outbox()
    line.open.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(box.run, line.send, line.close)
        box.put("read at once")
        with trio.move_on_after(100):
            await box.watch()
        nursery.cancel_scope.cancel()
    assert line.sent == ["read at once"]


@pytest.mark.parametrize("end", ["sent", "closed", "lost"])
async def test_whoever_can_waits_while_much_is_to_be_read(autojump_clock: MockClock, end: str) -> None:
    """Until it was sent, or nothing will be any more."""
    line, box, waited = Line(), outbox(), trio.Event()

    async def wait() -> None:
        await box.room()
        waited.set()

    box.put("x" * 25)
    await box.room()
    box.put("x" * 25)
    async with trio.open_nursery() as nursery:
        writing = trio.CancelScope()

        async def write() -> None:
            with writing:
                await box.run(line.send, line.close)

        nursery.start_soon(write)
        await trio.sleep(1)  # the first frame is on its way
        box.put("x")
        nursery.start_soon(wait)
        await trio.sleep(1)
        assert not waited.is_set()
        if end == "sent":
            line.open.set()
        elif end == "closed":
            box.close(1000, "bye", drop=True)
        else:
            writing.cancel()
        await trio.sleep(1)
        assert waited.is_set()
        await box.room()
        nursery.cancel_scope.cancel()
