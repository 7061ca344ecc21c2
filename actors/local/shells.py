"""How a `LocalCore` is reached: in the caller's own trio loop, or in the loop of a thread.

`actors/local/engine.py` puts what users call on top of these.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Generic, Self, TypeAlias, TypeVar, cast

import trio
from anyio.from_thread import BlockingPortal

from ...protocols.errors import UnavailableError
from ..runtime.nursery import open_work
from ..runtime.panic_guard import contained
from .core import LocalCore

_T = TypeVar("_T")
_P = TypeVar("_P")
Work: TypeAlias = Callable[[Callable[[_P], None]], Awaitable[object]]
"""Gives pieces to what it is called with, until it returns."""

_WAS_CLOSED = "the engine was closed"
CLOSED = "the engine is not running: use it inside `with LocalEngine(…) as engine:`"
FORKED = (
    "this process was forked after the engine was started, and none of the engine's threads are in it: "
    "create the LocalEngine after the fork (gunicorn: in a worker, without --preload; multiprocessing: the "
    "start method `spawn`, or create it in the child)"
)
ENTERED = "the engine is running already: enter it once, and use it from there"


class HomeProcess:
    """The process that an engine was started in; its forked children have none of the engine's threads."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_left(self) -> bool:
        """Whether this code runs in a forked child."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Raises UnavailableError in a forked child, where a wait for the engine would have no end."""
        if self.is_left:
            raise UnavailableError(FORKED)


class Threaded:
    """A core in the trio loop of a thread of its own."""

    def __init__(self, core: LocalCore) -> None:
        """Blocks until the model is loaded. Raises ModelLoadError."""
        self.core = core
        self.home = HomeProcess()
        opened: Future[BlockingPortal] = Future()
        # The context manager of anyio's `start_blocking_portal` is a generator. A forked child that collects
        # it would wait for a thread that it does not have.
        self._thread = threading.Thread(
            target=_run_portal, args=(opened,), name="sensorium-local", daemon=True
        )
        self._thread.start()
        portal = opened.result()
        self._portal: BlockingPortal | None = portal
        try:
            self._serving, _ = portal.start_task(core.run)
        except BaseException:
            self._end(portal, cancels=True)
            raise
        # Left open, as Ctrl-C in an interactive session leaves it: threads that compute while the interpreter
        # goes down would take the process with them.
        atexit.register(self.close)

    def start(self, function: Callable[..., Awaitable[_T]], *args: object) -> Future[_T]:
        """Run `function` in the loop. Cancelling the future cancels it there."""
        self.home.check()
        if self._portal is None:
            raise UnavailableError(CLOSED)
        return self._portal.start_task_soon(_contained, function, *args)

    def close(self) -> None:
        """End everything and wait for it. May be called again; does nothing in a forked child."""
        portal, self._portal = self._portal, None
        if portal is not None and not self.home.is_left:
            atexit.unregister(self.close)
            self._serving.cancel()
            self._end(portal, cancels=False)

    def _end(self, portal: BlockingPortal, *, cancels: bool) -> None:
        with suppress(RuntimeError):  # the loop has ended already
            portal.call(portal.stop, cancels)
        self._thread.join()


def _run_portal(opened: Future[BlockingPortal]) -> None:
    """Runs a loop in this thread until its portal is stopped; `opened` gets the portal."""

    async def serve() -> None:
        async with BlockingPortal() as portal:
            opened.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        trio.run(serve)
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(error)


class Pieces(Generic[_P]):
    """An answer as it comes; also an async context manager that aborts what is left of it."""

    def __init__(self, receive: Callable[[], Awaitable[_P | None]], cancel: Callable[[], object]) -> None:
        self._receive = receive
        self._cancel = cancel
        self._is_closed = False

    def __aiter__(self) -> AsyncIterator[_P]:
        return self

    async def __anext__(self) -> _P:
        try:
            piece = None if self._is_closed else await self._receive()
        except UnavailableError:
            if not self._is_closed:  # meanwhile
                raise
            piece = None
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Abort what is left; whoever reads on finds the end."""
        self._is_closed = True
        self._cancel()

    def __del__(self) -> None:
        self._cancel()


class TrioShell:
    """The core in the caller's loop. `open` and `leave` are called in one task, `close` in any."""

    def __init__(self, core: LocalCore) -> None:
        self.core = core
        self._home = HomeProcess()
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None
        self._ended = trio.Event()

    async def open(self) -> None:
        async with AsyncExitStack() as stack:
            nursery = await stack.enter_async_context(open_work())
            await nursery.start(self._serve)
            self._stack = stack.pop_all()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        """In a nursery of its own, whose end leaves the task that has opened it alone."""
        try:
            async with open_work() as self._nursery:
                await self._nursery.start(self.core.run)
                task_status.started()
        finally:
            self._ended.set()

    async def close(self) -> None:
        assert self._nursery is not None, "opened"
        self._nursery.cancel_scope.cancel()
        await self._ended.wait()

    async def leave(self) -> None:
        assert self._nursery is not None, "opened"
        self._nursery.cancel_scope.cancel()
        await self._stack.aclose()

    async def call(self, function: Callable[..., Awaitable[_T]], *args: object) -> _T:
        self._home.check()
        return await _contained(function, *args)

    def stream(self, work: Work[_P]) -> Pieces[_P]:
        self._home.check()
        send, receive = trio.open_memory_channel[_P](math.inf)
        scope = trio.CancelScope()
        errors: list[Exception] = [UnavailableError(_WAS_CLOSED)]  # unless it ends otherwise
        token = trio.lowlevel.current_trio_token()

        async def run() -> None:
            with scope, send:
                try:
                    with contained:
                        await work(send.send_nowait)
                    errors.clear()
                except Exception as error:
                    errors[:] = [error]

        async def next_piece() -> _P | None:
            self._home.check()
            try:
                return await receive.receive()
            except trio.EndOfChannel:
                if errors:
                    raise errors.pop() from None
                return None

        def cancel() -> None:
            if self._home.is_left:
                return  # the work is the parent's
            with suppress(trio.RunFinishedError):  # called by the garbage collector, in any thread
                token.run_sync_soon(scope.cancel)

        assert self._nursery is not None, "opened"
        self._nursery.start_soon(run)
        return Pieces(next_piece, cancel)


class AsyncioShell:
    """The core in a thread, for a caller in asyncio."""

    def __init__(self, core: LocalCore) -> None:
        self.core = core
        self._threaded: Threaded | None = None

    async def open(self) -> None:
        pool = ThreadPoolExecutor(1)
        opening = pool.submit(Threaded, self.core)
        pool.shutdown(wait=False)
        try:
            self._threaded = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)  # in the thread: the loop may be over by then
            raise

    async def close(self) -> None:
        if self._threaded is not None:
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._threaded.close))

    async def leave(self) -> None:
        await self.close()

    async def call(self, function: Callable[..., Awaitable[_T]], *args: object) -> _T:
        assert self._threaded is not None, "opened"
        return await asyncio.wrap_future(self._threaded.start(function, *args))

    def stream(self, work: Work[_P]) -> Pieces[_P]:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[_P | None] = asyncio.Queue()

        def put(piece: _P | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody reads any more
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

        assert self._threaded is not None, "opened"
        home = self._threaded.home
        future = self._threaded.start(work, put)
        future.add_done_callback(lambda _: put(None))

        async def next_piece() -> _P | None:
            home.check()
            piece = await pieces.get()
            if piece is None:
                pieces.put_nowait(None)
                _result(future)
            return piece

        return Pieces(next_piece, partial(_cancel, future, home))


async def _contained(function: Callable[..., Awaitable[_T]], *args: object) -> _T:
    """One call's work: a panic in it must not end the loop that it shares with others."""
    with contained:
        return await function(*args)


def _close_opened(opening: Future[Threaded]) -> None:
    """Close what nobody waits for any more, if it could be opened."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def wait(future: Future[_T]) -> _T:
    try:
        return _result(future)
    except BaseException:  # Ctrl-C: the work must not go on without its caller
        future.cancel()
        raise


def _result(future: Future[_T]) -> _T:
    try:
        return future.result()
    except CancelledError:
        raise UnavailableError(_WAS_CLOSED) from None


def drain(threaded: Threaded, work: Work[_P]) -> Iterator[_P]:
    """The pieces as they come. Leaving the loop, or dropping the iterator unread, ends the work."""
    pieces: queue.SimpleQueue[_P | None] = queue.SimpleQueue()
    future = threaded.start(work, pieces.put)
    future.add_done_callback(lambda _: pieces.put(None))
    reading = _drain(threaded.home, pieces, future)
    next(reading)  # one that had not begun would be dropped without its `finally`
    return reading


def _drain(home: HomeProcess, pieces: queue.SimpleQueue[_P | None], future: Future[object]) -> Iterator[_P]:
    try:
        yield cast(_P, None)
        while True:
            home.check()
            piece = pieces.get()
            if piece is None:
                break
            yield piece
        _result(future)
    finally:
        _cancel(future, home)


def _cancel(future: Future[object], home: HomeProcess) -> None:
    """End work that no caller reads any more. In a forked child it is the parent's, which goes on with it."""
    if not home.is_left:
        future.cancel()
