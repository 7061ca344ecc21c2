"""An engine behind a wire: an `EngineClient` whose every call and answer crosses as bytes to a real `Engine`.

The bytes go through memory; nothing else of the two sides meets. What a process boundary would need is all
here, so that whatever cannot cross one fails in a test.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeVar

import msgspec
import trio
from sensorium.actors.engine.engine import Engine
from sensorium.actors.kernel.actor import InboxStatistics
from sensorium.actors.kernel.supervisor import Health
from sensorium.engine.models.info import ModelInfo
from sensorium.protocols import errors
from sensorium.protocols.messages import (
    INTERACTIVE,
    Align,
    ContentHash,
    EncoderItem,
    EngineStatistics,
    Features,
    Generate,
    ItemKey,
    Lane,
    SessionKey,
    TextGenerated,
    TokensAligned,
)

T = TypeVar("T")


class Hold(msgspec.Struct, frozen=True):
    """What a claim on encodings says."""

    items: tuple[ItemKey, ...]
    lane: Lane


BODIES: Final[dict[str, Any]] = {
    # of calls
    "hold": Hold,
    "supply": tuple[Features, ...],
    "generate": Generate,
    "complete": Generate,
    "align": Align,
    "close_session": SessionKey,
    "leave": None,
    # of answers
    "accepted": None,
    "missing": tuple[ContentHash, ...],
    "text": TextGenerated,
    "aligned": TokensAligned,
    "failed": tuple[str, dict[str, str | float | None]],
}


class Frame(msgspec.Struct, frozen=True):
    """A call, or one answer to the call with the same number."""

    id: int
    name: str
    body: Any = None


def copied(value: object, kind: type[T]) -> T:
    """`value` as the other side would have it. Paths travel as text."""
    data = msgspec.msgpack.encode(value, enc_hook=str)
    return msgspec.msgpack.decode(data, type=kind, dec_hook=lambda to, text: to(text))


def read(data: bytes) -> Frame:
    """The frame in some bytes."""
    frame = msgspec.msgpack.decode(data, type=Frame)
    return Frame(frame.id, frame.name, msgspec.convert(frame.body, BODIES[frame.name]))


class RemoteEngine:
    """The client's side."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.inboxes: Callable[[], Iterable[InboxStatistics]] = engine.inboxes
        self.num_features_sent = 0
        self._ids = count(1)
        self._waiting: dict[int, trio.MemorySendChannel[Frame]] = {}
        self._calls, calls = trio.open_memory_channel[bytes](math.inf)
        self._server = _Server(engine, calls, self._take)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the engine and its side of the wire."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.engine.run)
            nursery.start_soon(self._server.run, nursery)
            task_status.started()

    @property
    def info(self) -> ModelInfo:
        return copied(self.engine.info, type(self.engine.info))

    @property
    def health(self) -> Health:
        return copied(self.engine.health, Health)  # type: ignore[arg-type]  # a Literal

    def statistics(self) -> EngineStatistics:
        return copied(self.engine.statistics(), EngineStatistics)

    @asynccontextmanager
    async def encoded(self, *items: EncoderItem, lane: Lane = INTERACTIVE) -> AsyncIterator[None]:
        features = {item.content_hash: item.features for item in items}
        async with self._asking("hold", Hold(tuple(item.key for item in items), lane)) as answers:
            while (answer := await answers.next()).name == "missing":
                self._tell(answer.id, "supply", [features[name] for name in answer.body])
                self.num_features_sent += len(answer.body)
            yield

    @asynccontextmanager
    async def generate(self, request: Generate) -> AsyncIterator[_Answers]:
        async with self._asking("generate", request) as answers:
            await answers.next()
            yield answers

    async def complete(self, request: Generate) -> TextGenerated:
        async with self._asking("complete", request) as answers:
            text: TextGenerated = (await answers.next()).body
            return text

    async def align(self, command: Align) -> TokensAligned:
        async with self._asking("align", command) as answers:
            aligned: TokensAligned = (await answers.next()).body
            return aligned

    def close_session(self, session: SessionKey) -> None:
        self._tell(next(self._ids), "close_session", session)

    @asynccontextmanager
    async def _asking(self, name: str, body: object) -> AsyncIterator[_Answers]:
        number = next(self._ids)
        self._waiting[number], receive = trio.open_memory_channel[Frame](math.inf)
        self._tell(number, name, body)
        try:
            yield _Answers(receive)
        finally:
            del self._waiting[number]
            self._tell(number, "leave")

    def _tell(self, number: int, name: str, body: object = None) -> None:
        self._calls.send_nowait(msgspec.msgpack.encode(Frame(number, name, body)))

    def _take(self, data: bytes) -> None:
        frame = read(data)
        if frame.id in self._waiting:
            self._waiting[frame.id].send_nowait(frame)


@dataclass
class _Answers:
    """What comes back for one call; iterating gives its texts."""

    channel: trio.MemoryReceiveChannel[Frame]
    is_over: bool = False

    async def next(self) -> Frame:
        frame = await self.channel.receive()
        if frame.name == "failed":
            kind, named = frame.body
            raise getattr(errors, kind)(**named)
        return frame

    def __aiter__(self) -> _Answers:
        return self

    async def __anext__(self) -> TextGenerated:
        if self.is_over:
            raise StopAsyncIteration
        text: TextGenerated = (await self.next()).body
        self.is_over = text.finish_reason is not None
        return text


@dataclass
class _Work:
    """One call the engine's side works on."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    done: trio.Event = field(default_factory=trio.Event)
    supplies: Any = field(default_factory=lambda: trio.open_memory_channel[Sequence[Features]](math.inf))


@dataclass
class _Server:
    """The engine's side."""

    engine: Engine
    calls: trio.MemoryReceiveChannel[bytes]
    send: Callable[[bytes], None]
    works: dict[int, _Work] = field(default_factory=dict)

    async def run(self, nursery: trio.Nursery) -> None:
        async for data in self.calls:
            call = read(data)
            work = self.works.get(call.id)
            if call.name == "close_session":
                self.engine.close_session(call.body)
            elif call.name == "supply" and work is not None:
                work.supplies[0].send_nowait(call.body)
            elif call.name == "leave" and work is not None:
                work.scope.cancel()
                await work.done.wait()  # who leaves may use its request id again at once
            elif call.name not in ("supply", "leave"):
                self.works[call.id] = work = _Work()
                nursery.start_soon(self._work, call, work)

    def _answer(self, number: int, name: str, body: object = None) -> None:
        self.send(msgspec.msgpack.encode(Frame(number, name, body)))

    async def _work(self, call: Frame, work: _Work) -> None:
        try:
            with work.scope:
                await self._perform(call, work)
        except errors.SensoriumError as error:
            known = next(each for each in type(error).mro() if hasattr(errors, each.__name__))
            fields = ("message", "code", "param", "retry_after_s")
            named = {name: getattr(error, name) for name in fields if hasattr(error, name)}
            self._answer(call.id, "failed", (known.__name__, named))
        finally:
            del self.works[call.id]
            work.done.set()

    async def _perform(self, call: Frame, work: _Work) -> None:
        async def fetch(missing: Sequence[ContentHash]) -> Sequence[Features]:
            self._answer(call.id, "missing", missing)
            features: Sequence[Features] = await work.supplies[1].receive()
            return features

        match call.name:
            case "hold":
                async with self.engine.held(call.body.items, fetch, lane=call.body.lane):
                    self._answer(call.id, "accepted")
                    await trio.sleep_forever()
            case "complete":
                self._answer(call.id, "text", await self.engine.complete(call.body))
            case "align":
                self._answer(call.id, "aligned", await self.engine.align(call.body))
            case "generate":
                async with self.engine.generate(call.body) as stream:
                    self._answer(call.id, "accepted")
                    async for text in stream:
                        self._answer(call.id, "text", text)
