"""The side of those who run engines: takes calls from a line, asks the engines, sends the answers back.

Whoever is at the other end has left when the line is lost: `run` returns then, and everything of theirs has
been given back. It tells the state of the engines several times a second, and before any failure, so that
nobody is told that an engine is down and finds it "ready". Read `actors/engine_process/connection.py` for the
other end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, cast

import trio

from ...protocols.engine.messages import (
    AnyRequest,
    ContentHash,
    EncoderItem,
    Features,
    PromptRequest,
    Sample,
    SampleRequest,
    TextGenerated,
    Transduce,
    Transduced,
    TransduceRequest,
)
from ...protocols.errors import BadRequestError, InternalError, OverloadedError, SensoriumError
from ..inference.client import FedRun, Place
from ..inference.engine import Engine
from ..runtime.panic_guard import contained
from . import messages
from .chunking import read_message, send_message
from .framing import Buffer
from .messages import Message
from .multiplexer import Link, LinkLostError

logger = logging.getLogger(__name__)

STATE_INTERVAL_S: Final = 0.25
MAX_CALLS: Final = 20_000
"""More than the other side keeps in flight (`actors/engine_process/connection.py`)."""


_NOT_SENT: Final = Features((), b"")


_Call = messages.Hold | messages.Run | messages.Fork | messages.Feed


@dataclass(slots=True, eq=False)
class _Work:
    """One call that is worked on."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    done: trio.Event = field(default_factory=trio.Event)
    supplied: trio.Event = field(default_factory=trio.Event)
    features: tuple[Features, ...] = ()
    fed: FedRun | None = None
    """What runs, if it is fed."""


class EngineServer:
    """Answers for `engines`, which run, on one line."""

    def __init__(
        self,
        engines: Sequence[Engine],
        stream: trio.abc.Stream,
        *,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        """While it is draining, engines are said to be stopped: what runs is answered, nothing new comes."""
        self._engines = engines
        self._is_draining = is_draining
        self._link = Link(stream)
        self._works: dict[int, _Work] = {}
        self._reported_health: list[str] = []

    async def run(self, opened: messages.Opened, contents: Sequence[Buffer]) -> None:
        """Say hello, with the `contents` of the checkpoints' files, then serve until the line is lost."""
        self._answer(
            messages.NEWS, self._state()
        )  # before, so that who is told of models knows of their health
        await self._link.send(messages.NEWS, messages.encode(opened), contents)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._link.run_sending)
            nursery.start_soon(self._report_states)
            self._nursery = nursery
            try:
                await self._link.run_receiving(self._take)
            except LinkLostError as error:
                logger.debug("%s", error)
            nursery.cancel_scope.cancel()

    async def _report_states(self) -> None:
        while True:
            await trio.sleep(STATE_INTERVAL_S)
            await self._link.settled(messages.NEWS)  # the other side may be stopped (Ctrl-Z) for hours
            self._answer(messages.NEWS, self._state())

    def _state(self) -> messages.State:
        self._reported_health = [engine.health for engine in self._engines]
        return messages.State(
            tuple(
                messages.ModelState(
                    "stopped" if self._is_draining() else engine.health,
                    engine.statistics(),
                    tuple(engine.inboxes()),
                )
                for engine in self._engines
            )
        )

    def _answer(self, number: int, message: Message) -> None:
        self._link.send_nowait(number, messages.encode(message))

    async def _take(self, number: int, parts: list[bytes]) -> None:
        message, buffers = await read_message(parts)
        work = self._works.get(number)
        match message:
            case messages.CloseSession(model, session):
                self._engines[model].close_session(session)
            case messages.GetState():
                self._answer(number, self._state())
            case messages.Supply() if work is not None:
                work.features = messages.features_of(message, buffers)
                work.supplied.set()
            case messages.Leave():
                if self._link.abandon(number):
                    self._answer(number, messages.Leave())
                if work is not None:
                    work.scope.cancel()
                    await work.done.wait()  # who leaves may use its request id again at once
            case messages.Hold() | messages.Run() | messages.Fork() | messages.Feed() if (
                len(self._works) < MAX_CALLS
            ):
                self._works[number] = work = _Work()
                self._nursery.start_soon(self._work, number, message, buffers, work)
            case messages.Hold() | messages.Run() | messages.Fork() | messages.Feed():
                self._answer(number, messages.failed(OverloadedError("too many requests are in flight")))
            case _:
                pass  # of a call that is over

    async def _work(self, number: int, message: _Call, buffers: Sequence[bytes], work: _Work) -> None:
        try:
            with message.log_context.applied(), contained, work.scope:
                await self._perform(number, message, buffers, work)
        except SensoriumError as error:
            self._fail(number, error)
        except LinkLostError:
            pass  # `run` ends as well
        except Exception as error:
            # One call's, as it would be one request's in a process of both.
            with message.log_context.applied():
                logger.error("a call failed: %s", type(message).__name__, exc_info=error)
            self._fail(number, InternalError("The engine failed on this request."))
        finally:
            del self._works[number]
            work.done.set()

    def _fail(self, number: int, error: SensoriumError) -> None:
        if self._reported_health != [engine.health for engine in self._engines]:
            self._answer(messages.NEWS, self._state())
        self._answer(number, messages.failed(error))

    async def _perform(self, number: int, message: _Call, buffers: Sequence[bytes], work: _Work) -> None:
        engine = self._engines[message.model]
        match message:
            case messages.Hold():
                await self._hold(number, engine, message, work)
            case messages.Run():
                await self._run(number, engine, message.body, work)
            case messages.Feed():
                await self._fed(message.run).feed(messages.chunk_of(message, buffers))
                self._answer(number, messages.Accepted())
            case messages.Fork():
                await self._bring(number, self._fed(message.parent).fork(message.body), work)

    def _fed(self, number: int) -> FedRun:
        work = self._works.get(number)
        if work is None or work.fed is None:
            raise BadRequestError("the request has ended, and takes no more input")
        return work.fed

    async def _hold(self, number: int, engine: Engine, message: messages.Hold, work: _Work) -> None:
        async def fetch(missing: Sequence[ContentHash]) -> Sequence[Features]:
            work.supplied = trio.Event()
            self._answer(number, messages.Missing(tuple(missing)))
            await work.supplied.wait()
            features, work.features = work.features, ()
            return features

        items = [EncoderItem(key.content_hash, _NOT_SENT, key.num_tokens) for key in message.items]
        async with engine.placed(items, lane=message.lane, fetch=fetch):
            self._answer(number, messages.Accepted())
            await trio.sleep_forever()

    async def _run(self, number: int, engine: Engine, request: AnyRequest, work: _Work) -> None:
        async with engine.placed() as place:
            if isinstance(request.task, Sample):
                last = await self._stream(number, place, cast("SampleRequest", request))
                await send_message(self._link, number, messages.Text(last))
            elif isinstance(request.task, Transduce):
                await self._bring(number, place.run(cast("TransduceRequest", request)), work)
            else:
                async with place.run(cast("PromptRequest", request)) as run:
                    self._answer(number, messages.Performed(await run.outcome()))

    async def _bring(self, number: int, entered: AbstractAsyncContextManager[FedRun], work: _Work) -> None:
        """Send what the input of a request brings; its end when the engine has let go of it."""
        async with entered as work.fed:
            self._answer(number, messages.Accepted())
            async for event in work.fed:
                if isinstance(event, Transduced) and event.finish_reason is not None:
                    break
                self._answer(number, messages.Brought(event))
                await self._link.settled()
            else:
                raise InternalError("The engine ended without a reason.")
        self._answer(number, messages.Brought(event))

    async def _stream(self, number: int, place: Place, request: SampleRequest) -> TextGenerated:
        """Send all texts but the last, which follows when the engine has let go of the request."""
        async with place.run(request) as run:
            self._answer(number, messages.Accepted())
            if request.task.sampling.num_beams > 1:
                return await run.outcome()
            async for text in run:
                if text.finish_reason is not None:
                    return text
                await send_message(self._link, number, messages.Text(text))
                await self._link.settled()
        raise InternalError("The engine ended without a reason.")
