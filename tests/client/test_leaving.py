"""Sessions that are left: those who still send or read are told so in time, whatever the server does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import anyio
import msgspec
import pytest
from sensorium.client import AsyncClient, AsyncRealtimeSession, Client, SessionClosedError, async_client
from sensorium.client import connection as limits
from sensorium.protocols.realtime.codec import encode_event
from sensorium.protocols.realtime.events import SessionCreated
from sensorium.protocols.realtime.session import SessionView
from support.both_loops import both_loops
from support.cutting_proxy import CuttingProxy, cutting_proxy
from support.fake_server import SESSION, FakeDialog, serve_realtime
from support.server import wait_until

pytestmark = pytest.mark.slow

PATIENCE_S = 15.0
"""Longer than a busy machine takes; the kernel gives a connection up after twice that."""
MORE_THAN_FITS = 32 * 1024 * 1024
RESUMABLE = SESSION | {"resume_token": "t", "limits": SESSION["limits"] | {"resume_grace_s": 60.0}}


@contextmanager
def proxied() -> Iterator[CuttingProxy]:
    """A proxy in front of a server whose sessions can be resumed."""
    greeting = encode_event(SessionCreated(session=msgspec.convert(RESUMABLE, SessionView)))
    with serve_realtime(lambda: FakeDialog(greeting=greeting)) as url:
        port = urlsplit(url).port
        assert port is not None
        with cutting_proxy(port) as proxy:
            yield proxy


def test_closing_does_not_wait_for_a_thread_that_cannot_send() -> None:
    with proxied() as proxy, Client(proxy.url) as client, client.realtime() as session:
        raised: list[Exception] = []

        def send() -> None:
            try:
                session.send(bytes(MORE_THAN_FITS))
            except SessionClosedError as error:
                raised.append(error)

        proxy.stall()
        sender, closer = threading.Thread(target=send), threading.Thread(target=session.close)
        sender.start()
        while not session._sending.locked():
            assert sender.is_alive()
        closer.start()
        closer.join(PATIENCE_S)
        assert not closer.is_alive()
        sender.join(PATIENCE_S)
        assert [str(error) for error in raised] == [
            "the client closed the session: code 1000 (normal closure), reason: the session was left"
        ]
    assert proxy.num_accepted == 1


@pytest.mark.parametrize("is_cancelled", [False, True])
@both_loops
async def test_who_iterates_elsewhere_comes_to_an_end_though_the_server_says_no_goodbye(
    is_cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "CLOSE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(limits, "CLOSE_TIMEOUT_S", 0.2)
    num_ended = 0

    async def iterate(session: AsyncRealtimeSession) -> None:
        nonlocal num_ended
        async for _ in session:
            pass
        num_ended += 1

    with proxied() as proxy:
        async with AsyncClient(proxy.url) as client:
            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as others:
                    with anyio.CancelScope() as scope:
                        async with client.realtime() as session:
                            others.start_soon(iterate, session)
                            await anyio.wait_all_tasks_blocked()
                            proxy.stall()
                            if is_cancelled:
                                scope.cancel()
                                await anyio.sleep_forever()
            with pytest.raises(SessionClosedError, match="the session was left"):
                await session.send(bytes(100))
    assert num_ended == 1
    assert proxy.num_accepted == 1


@both_loops
async def test_a_session_that_is_left_while_it_comes_back_stays_left() -> None:
    num_ended = 0

    async def iterate(session: AsyncRealtimeSession) -> None:
        nonlocal num_ended
        async for _ in session:
            pass
        num_ended += 1

    with proxied() as proxy:
        async with AsyncClient(proxy.url) as client:
            with anyio.fail_after(PATIENCE_S):
                async with anyio.create_task_group() as others, client.realtime() as session:
                    others.start_soon(iterate, session)
                    await anyio.wait_all_tasks_blocked()
                    proxy.stall()
                    proxy.cut()
                    await anyio.to_thread.run_sync(wait_until, lambda: proxy.num_accepted > 1)
    assert num_ended == 1
