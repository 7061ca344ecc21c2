"""A child process that was forked has no thread of the engine: it gets an error, and does not wait."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from sensorium import AsyncLocalEngine, LocalEngine
from support.forked_exit import Core
from support.forks import in_fork

pytestmark = pytest.mark.slow

FORKED = "UnavailableError: this process was forked after the engine was started"
PROGRAM = Path(__file__).parents[2] / "support" / "forked_exit.py"


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = LocalEngine("fake")
    engine._core = Core  # type: ignore[method-assign]
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

    assert in_fork(use) == "first"
    assert next(engine.stream("x")).text == "first"


def test_under_asyncio() -> None:
    engine = AsyncLocalEngine("fake")
    engine._core = Core  # type: ignore[method-assign]

    async def main() -> None:
        async with engine:
            stream = engine.stream("x")
            assert (await anext(stream)).text == "first"
            assert in_fork(lambda: asyncio.run(chat())).startswith(FORKED)
            assert in_fork(lambda: asyncio.run(read())).startswith(FORKED)
            assert (await anext(stream)).text == "second"

        async def read() -> None:
            await anext(stream)

    async def chat() -> None:
        await engine.chat("x")

    asyncio.run(main())


def test_under_trio() -> None:
    """Forked in another thread: in that of the loop the child could not run another."""
    engine = AsyncLocalEngine("fake")
    engine._core = Core  # type: ignore[method-assign]

    async def chat() -> None:
        await engine.chat("x")

    async def main() -> None:
        async with engine:
            for use in (lambda: trio.run(chat), lambda: engine.stream("x")):
                assert (await trio.to_thread.run_sync(in_fork, use)).startswith(FORKED)
            assert (await anext(engine.stream("x"))).text == "first"

    trio.run(main)


def test_a_child_leaves_as_programs_do_and_the_parent_goes_on() -> None:
    ran = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=120)
    assert (ran.stdout, ran.returncode) == ("0 second\n", 0), ran.stderr
