"""The two ways to a core: closed from any task, given up while they open, and streams that end alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import trio
from sensorium import AsyncLocalEngine, LocalEngine
from sensorium.protocols.errors import UnavailableError
from support.local_core import DELTA, Core

pytestmark = pytest.mark.slow


def engine_of(core: Core) -> AsyncLocalEngine:
    engine = AsyncLocalEngine("fake")
    engine._core = lambda: core  # type: ignore[method-assign]
    return engine


def run(library: str, function: Callable[[], Awaitable[None]]) -> None:
    """To its end, or not for ever."""

    async def under_trio() -> None:
        with trio.fail_after(60):
            await function()

    async def under_asyncio() -> None:
        async with asyncio.timeout(60):
            await function()

    if library == "trio":
        trio.run(under_trio)
    else:
        asyncio.run(under_asyncio())


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_a_stream_that_was_closed_is_at_its_end_and_one_that_lost_its_engine_is_not(library: str) -> None:
    core = Core()
    core.go_on.set()

    async def main() -> None:
        async with engine_of(core) as engine:
            closed, lost = engine.stream("x"), engine.stream("x")
            for stream in (closed, lost):
                assert await anext(stream) == DELTA
            await closed.aclose()
            assert [delta async for delta in closed] == []
            await engine.aclose()
            assert core.ended.is_set()
            with pytest.raises(UnavailableError, match="closed"):
                _ = [delta async for delta in lost]
            with pytest.raises(UnavailableError, match="not running"):
                engine.stream("x")

    run(library, main)


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_an_engine_is_entered_once_at_a_time(library: str) -> None:
    """A second one would take its place, and it would never be closed."""
    core = Core()
    core.go_on.set()
    engine = engine_of(core)

    async def main() -> None:
        for _ in range(2):
            async with engine:
                with pytest.raises(RuntimeError, match="running already"):
                    await engine.__aenter__()
                assert await anext(engine.stream("x")) == DELTA
            assert core.ended.is_set()
            core.ended.clear()

    run(library, main)


def test_so_is_one_of_a_plain_program() -> None:
    core = Core()
    core.go_on.set()
    engine = LocalEngine("fake")
    engine._core = lambda: core  # type: ignore[method-assign]
    for _ in range(2):
        with engine:
            with pytest.raises(RuntimeError, match="running already"), engine:
                pass
            assert next(engine.stream("x")) == DELTA
        assert core.ended.is_set()
        core.ended.clear()


def test_who_could_not_open_it_may_try_again() -> None:
    core = Core()
    engine = engine_of(core)

    async def main() -> None:
        with trio.move_on_after(0):
            await engine.__aenter__()
        core.go_on.set()
        async with engine:
            assert await anext(engine.stream("x")) == DELTA

    run("trio", main)


def test_another_task_may_close_it_and_who_opened_it_goes_on() -> None:
    core = Core()
    core.go_on.set()

    async def main() -> None:
        async with engine_of(core) as engine:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(engine.aclose)
                await trio.to_thread.run_sync(core.ended.wait, 60)
            await trio.lowlevel.checkpoint()
            with pytest.raises(UnavailableError):
                await engine.generate("x")

    run("trio", main)
    assert core.ended.is_set()


def test_who_is_cancelled_while_it_opens_leaves_nothing_running() -> None:
    core = Core()

    async def main() -> None:
        opening = asyncio.create_task(engine_of(core).__aenter__())
        await asyncio.to_thread(core.loading.wait, 60)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    run("asyncio", main)
    core.go_on.set()
    assert core.ended.wait(60)


def test_a_stream_that_is_dropped_unread_ends_its_work() -> None:
    core, engine = Core(), LocalEngine("fake")
    core.go_on.set()
    engine._core = lambda: core  # type: ignore[method-assign]
    with engine:
        stream = engine.stream("a")
        assert core.streaming.wait(60)
        del stream
        assert core.stopped.wait(60)
