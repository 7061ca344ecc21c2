"""Inboxes, handles, replies, and the driver of pure machines."""

from __future__ import annotations

import math

import pytest
import trio
from sensorium.actors.runtime.actor import Handle, Inbox, Reply, drive
from sensorium.protocols.errors import OverloadedError, UnavailableError
from trio.testing import MockClock, wait_all_tasks_blocked

Message = tuple[str, Reply[str]] | str


async def test_messages_come_in_order_and_are_counted() -> None:
    inbox: Inbox[str] = Inbox("post", 2)
    handle = Handle(inbox)
    handle.send_nowait("one")
    handle.send_nowait("two")
    with pytest.raises(OverloadedError, match="the post is busy: 2 messages"):
        handle.send_nowait("three")
    handle.follow_up("end")
    assert await inbox.receive() == "one"
    assert inbox.take_all() == ["two", "end"]
    statistics = inbox.statistics()
    assert (statistics.num_received, statistics.max_depth, statistics.num_refused) == (3, 3, 1)
    assert statistics.depth == 0


async def test_ask_awaits_the_answer(nursery: trio.Nursery) -> None:
    inbox: Inbox[Message] = Inbox("post", 2)

    async def serve() -> None:
        while True:
            message = await inbox.receive()
            assert not isinstance(message, str)
            question, reply = message
            if question == "bad":
                reply.fail(ValueError("bad question"))
            reply.set(question.upper())
            reply.fail(ValueError("the first answer counts"))

    nursery.start_soon(serve)
    handle = Handle(inbox)
    assert await handle.call(lambda reply: ("hello", reply)) == "HELLO"
    with pytest.raises(ValueError, match="bad question"):
        await handle.call(lambda reply: ("bad", reply))


@pytest.mark.parametrize("is_received", [False, True])
async def test_ask_does_not_hang_when_the_actor_dies(nursery: trio.Nursery, is_received: bool) -> None:
    inbox: Inbox[Message] = Inbox("post", 2)

    async def die() -> None:
        with inbox:
            if is_received:
                await inbox.receive()
            await wait_all_tasks_blocked()

    nursery.start_soon(die)
    handle = Handle(inbox)
    with pytest.raises(UnavailableError, match="the post has stopped"):
        await handle.call(lambda reply: ("hello", reply))
    with pytest.raises(UnavailableError):
        handle.send_nowait("late")
    handle.follow_up("nothing left to complete")
    inbox.close()
    assert inbox.statistics().depth == 0


async def test_a_cancelled_question_leaves_nothing_behind() -> None:
    inbox: Inbox[Message] = Inbox("post", 2)
    with trio.move_on_after(0) as scope:
        await Handle(inbox).call(lambda reply: ("hello", reply))
    assert scope.cancelled_caught
    message = await inbox.receive()
    assert not isinstance(message, str)
    message[1].set("nobody hears this")
    inbox.close()


class Timer:
    """A machine that wants to be called every `period_s` seconds, and notes everything."""

    def __init__(self, period_s: float, *, is_stuck: bool = False) -> None:
        self.deadline = period_s
        self.noted: list[tuple[str, float]] = []
        self._period_s = period_s
        self._is_stuck = is_stuck

    def receive(self, event: str, *, now: float) -> list[str]:
        self.noted.append((event, now))
        return [f"{event} 1", f"{event} 2"]

    def on_deadline(self, *, now: float) -> list[str]:
        self.noted.append(("deadline", now))
        self.deadline += 0 if self._is_stuck else self._period_s
        return ["deadline"]


async def run_timer(timer: Timer, sends: list[tuple[float, str]]) -> list[str]:
    """Drive it until the sender is done; the effects in order."""
    send, receive = trio.open_memory_channel[str](10)
    performed: list[str] = []

    async def perform(effect: str) -> None:
        await trio.lowlevel.checkpoint()
        performed.append(effect)

    async def send_all() -> None:
        for time, event in sends:
            await trio.sleep_until(time)
            send.send_nowait(event)
        send.close()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_all)
        await drive(timer, receive.receive, perform)
    return performed


async def test_deadlines_are_exact_and_effects_in_order(autojump_clock: MockClock) -> None:
    timer = Timer(10.0)
    effects = await run_timer(timer, [(3.0, "a"), (25.0, "b"), (31.0, "c")])
    assert timer.noted == [
        ("a", 3.0),
        ("deadline", 10.0),
        ("deadline", 20.0),
        ("b", 25.0),
        ("deadline", 30.0),
        ("c", 31.0),
    ]
    assert effects == ["a 1", "a 2", "deadline", "deadline", "b 1", "b 2", "deadline", "c 1", "c 2"]


async def test_a_machine_without_deadline_waits(autojump_clock: MockClock) -> None:
    timer = Timer(math.inf)
    assert await run_timer(timer, [(1e6, "a")]) == ["a 1", "a 2"]


async def test_a_machine_that_does_not_move_its_deadline_is_found_out(autojump_clock: MockClock) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await run_timer(Timer(1.0, is_stuck=True), [(5.0, "a")])
    assert caught.group_contains(AssertionError, match="did not move its deadline")


async def test_what_is_always_there_keeps_no_deadline_waiting(autojump_clock: MockClock) -> None:
    timer, events = Timer(1.0), iter("abcdefgh")

    async def receive() -> str:  # at once, as from a full queue: trio has no chance to cancel it
        if (event := next(events, None)) is None:
            raise trio.EndOfChannel
        return event

    async def perform(effect: str) -> None:
        if effect.endswith(" 2"):
            autojump_clock.jump(0.4)

    await drive(timer, receive, perform)
    assert [event for event, _ in timer.noted] == [*"abc", "deadline", *"de", "deadline", *"fgh", "deadline"]


async def test_no_event_is_lost_under_cancellation_or_between_deadlines(autojump_clock: MockClock) -> None:
    send, receive = trio.open_memory_channel[str](1000)
    timer = Timer(0.001)

    async def perform(effect: str) -> None:
        await trio.lowlevel.checkpoint()

    async def feed() -> None:
        for number in range(300):
            await trio.sleep(0.0007)
            send.send_nowait(str(number))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        for _ in range(100):
            with trio.move_on_after(0.0025):
                await drive(timer, receive.receive, perform)
    left = [receive.receive_nowait() for _ in range(receive.statistics().current_buffer_used)]
    events = [event for event, _ in timer.noted if event != "deadline"]
    assert events + left == [str(number) for number in range(300)]
