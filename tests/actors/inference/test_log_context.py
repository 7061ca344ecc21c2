"""What an engine writes about a request names it as its client does, in one process and across a line."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import trio
from sensorium.actors.inference.client import EngineClient
from sensorium.actors.telemetry.logs import LogContext, log_context
from sensorium.protocols.errors import InternalError, UnavailableError
from support.fake_engine import make_fake_engine, request, run_whole
from support.fake_runner import CRASH_ID
from support.remote_engine import Connection
from trio.testing import MockClock

ALICE, BOB = LogContext("req_alice", "a" * 32), LogContext("req_bob", "b" * 32)


@dataclass
class Lines(logging.Handler):
    """Each line with what it is about."""

    lines: list[tuple[LogContext, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((log_context(), record.getMessage()))

    def about(self, text: str) -> list[LogContext]:
        """What the lines with `text` are about."""
        return [context for context, message in self.lines if text in message]

    __hash__ = object.__hash__


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.fixture(params=["here", "remote"])
async def engine(nursery: trio.Nursery, request: pytest.FixtureRequest) -> EngineClient:
    """An engine that cannot read its tokens."""

    def decode(_: Sequence[int]) -> str:
        raise ValueError("no tokenizer")

    here = make_fake_engine(decode=decode)
    await nursery.start(here.run)
    if request.param == "here":
        return here
    connection = Connection(here)
    await nursery.start(connection.run)
    return connection.remote


async def test_tokens_that_cannot_be_read_are_of_the_request_that_they_answer(
    autojump_clock: MockClock, engine: EngineClient, lines: Lines
) -> None:
    async def fail(context: LogContext) -> None:
        with context.applied(), pytest.raises(InternalError):
            await run_whole(engine, request(f"of {context.request_id}"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail, ALICE)
        nursery.start_soon(fail, BOB)
    assert set(lines.about("cannot be read")) == {ALICE, BOB}


async def test_a_crash_names_the_requests_that_were_in_flight(
    autojump_clock: MockClock, engine: EngineClient, lines: Lines
) -> None:
    async def fail(context: LogContext, prompt: tuple[int, ...]) -> None:
        with context.applied(), pytest.raises(UnavailableError):
            await run_whole(engine, request(f"of {context.request_id}", prompt, max_tokens=50))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail, ALICE, (1, 2))
        nursery.start_soon(fail, BOB, (1, CRASH_ID))
    (line,) = (message for _, message in lines.lines if "in flight" in message)
    assert "req_alice" in line
    assert "req_bob" in line


async def test_a_defect_in_a_call_is_of_its_caller(
    autojump_clock: MockClock, nursery: trio.Nursery, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_fake_engine()
    await nursery.start(engine.run)
    connection = Connection(engine)
    await nursery.start(connection.run)

    def broken(*_: object, **__: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(engine, "placed", broken)
    with BOB.applied(), pytest.raises(InternalError):
        await run_whole(connection.remote, request("a"))
    assert lines.about("a call failed") == [BOB]
