"""The asynchronous live session over a real socket, under asyncio and under trio, against the fake server."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from sensorium.client import (
    APIError,
    AsyncClient,
    Client,
    Completed,
    Delta,
    SDKError,
    SensoriumConnectionError,
    SensoriumTimeoutError,
    SessionClosedError,
)
from sensorium.client import connection as waits
from support.both_loops import both_loops
from support.fake_server import FakeDialog, finals, serve_realtime

pytestmark = pytest.mark.slow

CHUNK = bytes(4_800)
"""100 ms of silence; the fake hears a word in every 500 ms."""


@both_loops
async def test_transcribe_sends_in_the_background_and_stops_after_the_last_turn() -> None:
    with serve_realtime() as url:
        async with AsyncClient(url) as client, client.realtime() as session:
            assert session.created is not None
            events = [event async for event in session.transcribe([CHUNK] * 20)]
        assert finals(events) == ["one two", "three four"]


@both_loops
async def test_transcribe_takes_chunks_and_not_a_whole_recording() -> None:
    whole: Any = CHUNK
    with serve_realtime() as url:
        async with AsyncClient(url) as client, client.realtime() as session:
            with pytest.raises(TypeError, match="expected an iterable"):
                session.transcribe(whole)


@both_loops
async def test_async_chunks_and_deltas_before_the_end() -> None:
    with serve_realtime() as url:
        received = anyio.Event()

        async def chunks() -> AsyncIterator[bytes]:
            yield CHUNK * 5
            await received.wait()
            yield CHUNK * 5

        text = ""
        async with AsyncClient(url) as client, client.realtime() as session:
            async for event in session.transcribe(chunks()):
                match event:
                    case Delta(delta=delta):
                        text += delta
                        received.set()
                    case Completed(transcript=transcript):
                        assert transcript == text == "one two"


@both_loops
async def test_manual_turns() -> None:
    with serve_realtime() as url:
        async with AsyncClient(url) as client, client.realtime(turn_detection=None, binary=False) as session:
            for _ in range(5):
                await session.send(CHUNK)
            await session.commit()
            for _ in range(10):
                await session.send(CHUNK)
            await session.finish()
            assert finals([event async for event in session]) == ["one", "two three"]


@both_loops
async def test_a_cancelled_finish_is_sent_whole_and_may_be_called_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve_realtime() as url:
        async with AsyncClient(url) as client, client.realtime() as session:
            await session.send(CHUNK * 10)
            make = session._core.finish
            with anyio.CancelScope() as scope, monkeypatch.context() as patched:

                def finish() -> list[str]:
                    scope.cancel()
                    return make()

                patched.setattr(session._core, "finish", finish)
                await session.finish()
            assert scope.cancelled_caught
            await session.finish()
            assert finals([event async for event in session]) == ["one two"]


@both_loops
async def test_a_plain_iterable_that_waits_holds_up_nobody_else() -> None:
    may_go_on = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield CHUNK * 5
        assert may_go_on.wait(10)
        yield CHUNK * 5

    with serve_realtime() as url:
        async with AsyncClient(url) as client, client.realtime() as session:
            events = []
            async for event in session.transcribe(chunks()):
                events.append(event)
                if isinstance(event, Delta):
                    may_go_on.set()
            assert finals(events) == ["one two"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_iterable_that_waits_for_ever_is_left_alone(backend: str) -> None:
    """Its thread ends with it, or with the program."""
    goes_on, requested = threading.Event(), threading.Event()

    def chunks() -> Iterator[bytes]:
        yield CHUNK * 5
        requested.set()
        goes_on.wait(30)

    async def body() -> None:
        async with AsyncClient(url) as client, client.realtime() as session:
            async for _ in session.transcribe(chunks()):
                await anyio.to_thread.run_sync(requested.wait)
                break

    with serve_realtime() as url:
        anyio.run(body, backend=backend)
    waiting = [thread for thread in threading.enumerate() if "_read_wanted" in thread.name]
    assert all(thread.daemon for thread in waiting)
    goes_on.set()
    for thread in waiting:
        gc.collect()
        thread.join(10)
        assert not thread.is_alive()


@both_loops
async def test_two_who_iterate_are_told_so() -> None:
    with serve_realtime() as url:
        async with (
            AsyncClient(url) as client,
            client.realtime() as session,
            anyio.create_task_group() as others,
        ):
            others.start_soon(anext, session)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(SDKError, match="iterated already"):
                await anext(session)
            others.cancel_scope.cancel()


@both_loops
async def test_pace_and_a_second_round_on_one_session() -> None:
    with serve_realtime() as url:
        async with AsyncClient(url) as client, client.realtime() as session:
            start = anyio.current_time()
            first = [event async for event in session.transcribe([CHUNK] * 10, speed=5.0)]
            assert anyio.current_time() - start >= 0.2
            second = [event async for event in session.transcribe([CHUNK] * 10)]
        assert finals(first + second) == ["one two", "three four"]


@both_loops
async def test_an_exception_in_the_chunks_reaches_the_caller() -> None:
    def chunks() -> Iterator[bytes]:
        yield CHUNK * 5
        raise OSError("the microphone fell down")

    with serve_realtime() as url:
        async with AsyncClient(url) as client, client.realtime() as session:
            with pytest.raises(OSError, match="the microphone fell down"):
                _ = [event async for event in session.transcribe(chunks())]


@both_loops
async def test_leaving_early_ends_the_sender_with_the_session() -> None:
    num_taken = 0

    def chunks() -> Iterator[bytes]:
        nonlocal num_taken
        for _ in range(1_000):
            num_taken += 1
            yield CHUNK

    with serve_realtime() as url:
        with anyio.fail_after(10):
            async with AsyncClient(url) as client, client.realtime() as session:
                async for _ in session.transcribe(chunks(), speed=10.0):
                    break
            left_at = num_taken
            await anyio.sleep(0.2)  # twenty chunks' time
            assert 0 < left_at <= num_taken <= left_at + 1 < 1_000, "one may be on its way"


@both_loops
async def test_an_exception_in_the_body_is_not_wrapped_in_a_group() -> None:
    with serve_realtime() as url, pytest.raises(KeyError, match="mine"):
        async with AsyncClient(url) as client, client.realtime():
            raise KeyError("mine")


@both_loops
async def test_cancelling_a_session_leaves_at_once() -> None:
    with serve_realtime() as url:
        with anyio.move_on_after(0.2) as scope:
            async with AsyncClient(url) as client, client.realtime() as session:
                async for _ in session:
                    pass
        assert scope.cancelled_caught


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@both_loops
async def test_no_server_says_what_to_do(host: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://{host}:{free.getsockname()[1]}"

    with pytest.raises(SensoriumConnectionError) as caught:
        async with AsyncClient(url) as client, client.realtime():
            pass
    assert str(caught.value) == f"no server at {url}; start one with: sensorium serve"


@both_loops
async def test_refusals_carry_the_servers_words() -> None:
    with serve_realtime(status=lambda: 401) as url, pytest.raises(APIError, match="no such key") as refused:
        async with AsyncClient(url) as client, client.realtime():
            pass
    assert refused.value.request_id == "req_fake"
    with serve_realtime() as url, pytest.raises(APIError, match="there is no model 'missing' here"):
        async with AsyncClient(url) as client, client.realtime("missing"):
            pass


@both_loops
async def test_a_session_that_is_refused_for_now_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int | None] = [503, 503, None]
    monkeypatch.setattr(waits, "_FIRST_WAIT_S", 0.001)
    with serve_realtime(status=lambda: answers.pop(0)) as url:
        async with AsyncClient(url, max_retries=2) as client, client.realtime() as session:
            assert session.created is not None
        answers[:] = [503, None]
        with Client(url, max_retries=1) as sync, sync.realtime() as opened:
            assert opened.created is not None


@both_loops
async def test_a_close_in_the_middle_names_code_and_reason() -> None:
    with serve_realtime(lambda: FakeDialog(close_at_ms=700)) as url:
        async with AsyncClient(url) as client, client.realtime() as session:
            with pytest.raises(
                SessionClosedError, match=r"code 1011 \(server fault\), reason: the fake broke"
            ):
                _ = [event async for event in session.transcribe([CHUNK] * 20, speed=20.0)]


@both_loops
async def test_a_server_that_stays_silent_is_a_timeout() -> None:
    silent = FakeDialog(silent=True)
    with serve_realtime(lambda: silent) as url, pytest.raises(SensoriumTimeoutError, match="did not accept"):
        async with AsyncClient(url, timeout=0.1) as client, client.realtime():
            pass
