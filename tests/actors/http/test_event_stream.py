"""Server-sent events: nothing before the first frame, an error event after it, [DONE] at the end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import trio
from sensorium.actors.http.anthropic.dialect import ANTHROPIC
from sensorium.actors.http.error_bodies import ERROR_SHAPE, OPENAI_ERRORS, ErrorShape
from sensorium.actors.http.event_stream import EventStream, Put
from sensorium.protocols.errors import BadRequestError
from starlette.types import Message

FRAME = b"data: {}\n\n"


class Client:
    """An ASGI client that stays until told to leave."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.leaves = trio.Event()
        self.num_held = 0

    async def receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(message)

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.num_held += 1
        try:
            yield
        finally:
            self.num_held -= 1

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def read(self, work: Callable[[Put], Awaitable[None]], errors: ErrorShape = OPENAI_ERRORS) -> None:
        await EventStream(work, self.hold)({"type": "http", ERROR_SHAPE: errors}, self.receive, self.send)


async def test_frames_and_done() -> None:
    async def work(put: Put) -> None:
        assert client.num_held == 1
        put(FRAME)
        await trio.lowlevel.checkpoint()
        put(FRAME)

    client = Client()
    await client.read(work)
    assert client.sent[0]["status"] == 200
    assert (b"content-type", b"text/event-stream; charset=utf-8") in client.sent[0]["headers"]
    assert client.body == 2 * FRAME + b"data: [DONE]\n\n"
    assert [message["more_body"] for message in client.sent[1:]][-1] is False
    assert client.num_held == 0


async def test_failing_before_the_first_frame_is_no_stream() -> None:
    async def work(put: Put) -> None:
        await trio.lowlevel.checkpoint()
        raise BadRequestError("no", param="prompt")

    client = Client()
    with pytest.raises(BadRequestError):
        await client.read(work)
    assert client.sent == []
    assert client.num_held == 0


@pytest.mark.parametrize(
    ("error", "message", "kind"),
    [
        (BadRequestError("no", param="prompt"), "no", "invalid_request_error"),
        (ZeroDivisionError("secret"), "The server failed on this request.", "server_error"),
    ],
)
async def test_failing_midway_is_an_event(error: Exception, message: str, kind: str) -> None:
    async def work(put: Put) -> None:
        put(FRAME)
        await trio.lowlevel.checkpoint()
        raise error

    client = Client()
    await client.read(work)
    frames = client.body.split(b"\n\n")
    assert frames[0] == FRAME.strip()
    found = json.loads(frames[1].removeprefix(b"data: "))["error"]
    assert (found["message"], found["type"]) == (message, kind)
    assert frames[2:] == [b"data: [DONE]", b""]


@pytest.mark.parametrize("error", [BadRequestError("no"), ZeroDivisionError("secret")])
async def test_failing_after_silence_is_an_event_of_the_api_that_was_asked(
    autojump_clock: trio.testing.MockClock, error: Exception
) -> None:
    async def work(_: Put) -> None:
        await trio.sleep(6)
        raise error

    client = Client()
    await client.read(work, errors=ANTHROPIC.errors)
    message = "no" if isinstance(error, BadRequestError) else "The server failed on this request."
    _, frame, *rest = client.body.decode().split("\n\n")
    name, data = frame.split("\n")
    assert name == "event: error"
    found = json.loads(data.removeprefix("data: "))
    assert (found["type"], found["error"]["message"]) == ("error", message)
    assert rest == ["data: [DONE]", ""]


async def test_silence_is_filled_with_comments(autojump_clock: trio.testing.MockClock) -> None:
    async def work(put: Put) -> None:
        await trio.sleep(12)
        put(FRAME)

    client = Client()
    await client.read(work)
    assert client.body.count(b": keep-alive\n\n") == 2
    assert client.body.endswith(FRAME + b"data: [DONE]\n\n")


async def test_a_client_that_leaves_cancels_the_work(autojump_clock: trio.testing.MockClock) -> None:
    was_cancelled = False

    async def work(put: Put) -> None:
        nonlocal was_cancelled
        put(FRAME)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            was_cancelled = True
            raise

    client = Client()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.read, work)
        await trio.sleep(1)
        client.leaves.set()
    assert was_cancelled
    assert client.num_held == 0
