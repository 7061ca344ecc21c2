"""A child process that was forked has no thread of the engine: it gets an error, and does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import trio
from sensorium import AsyncLocalEngine, LocalEngine
from support.forks import in_fork
from support.local_core import DELTA, loading_at_once

pytestmark = pytest.mark.slow

FORKED = "UnavailableError: this process was forked after the engine was started"


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = LocalEngine("fake")
    engine._core = loading_at_once  # type: ignore[method-assign]
    with engine:
        yield engine


@pytest.mark.parametrize(
    "use",
    [
        lambda engine: engine.chat("x"),
        lambda engine: engine.generate(["x", "y"]),
        lambda engine: next(engine.stream("x")),
        lambda engine: engine.transcribe(bytes(9)),
        lambda engine: next(engine.segments(bytes(9))),
    ],
    ids=["chat", "generate", "stream", "transcribe", "segments"],
)
def test_the_error_names_the_fork(engine: LocalEngine, use: Callable[[LocalEngine], object]) -> None:
    assert in_fork(lambda: use(engine)).startswith(FORKED)


def test_a_child_may_close_it_and_open_its_own(engine: LocalEngine) -> None:
    def use() -> str:
        engine.close()
        with engine:
            return next(engine.stream("x")).text

    assert in_fork(use) == DELTA.text
    assert next(engine.stream("x")) == DELTA


def test_under_asyncio() -> None:
    engine = AsyncLocalEngine("fake")
    engine._core = loading_at_once  # type: ignore[method-assign]

    async def main() -> None:
        async with engine:
            stream = engine.stream("x")
            assert await anext(stream) == DELTA

            async def read() -> None:
                await anext(stream)

            assert in_fork(lambda: asyncio.run(chat())).startswith(FORKED)
            assert in_fork(lambda: asyncio.run(read())).startswith(FORKED)
            assert await anext(stream) == DELTA

    async def chat() -> None:
        await engine.chat("x")

    asyncio.run(main())


def test_under_trio() -> None:
    """Trio itself starts no loop in such a child; one that goes on in the parent's gets the error."""
    engine = AsyncLocalEngine("fake")
    engine._core = loading_at_once  # type: ignore[method-assign]

    async def main() -> None:
        async with engine:
            stream = engine.stream("x")
            for use in (
                lambda: engine.chat("x").send(None),
                lambda: engine.stream("x"),
                lambda: stream.__anext__().send(None),
            ):
                assert in_fork(use).startswith(FORKED)
            assert await anext(stream) == DELTA

    trio.run(main)
