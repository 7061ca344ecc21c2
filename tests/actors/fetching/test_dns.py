"""Names are resolved in a bounded number of threads, which callers share."""

from __future__ import annotations

import socket
import threading

import pytest
import trio
from sensorium.actors.fetching.dns import MAX_RESOLVING, Names, resolve_by_system

pytestmark = pytest.mark.slow


def test_a_name_with_thousands_of_addresses_has_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"10.0.{n >> 8}.{n & 255}", 80)) for n in range(4000)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert resolve_by_system("files.test", 80) == [f"10.0.0.{n}" for n in range(16)]


async def test_slow_names_of_one_key_keep_no_other_waiting() -> None:
    """Also those that were given up: their threads wait on, and count."""
    answers, running = threading.Event(), threading.Semaphore(0)

    def resolve(host: str, _: int) -> list[str]:
        if host == "slow.test":
            running.release()
            answers.wait(20)
        return ["10.0.0.1"]

    names = Names(resolve)
    try:
        with trio.fail_after(20):
            async with trio.open_nursery() as lookups:
                for _ in range(10 * MAX_RESOLVING):
                    lookups.start_soon(names.addresses, "slow.test", 80, "one")
                for _ in range(MAX_RESOLVING * 7 // 8):
                    await trio.to_thread.run_sync(running.acquire)
                assert await names.addresses("quick.test", 80, "another") == ["10.0.0.1"]
                lookups.cancel_scope.cancel()
            for _ in range(20):
                with trio.move_on_after(0.001):
                    await names.addresses("slow.test", 80, "one")
            assert await names.addresses("quick.test", 80, "another") == ["10.0.0.1"]
            assert not running.acquire(blocking=False), "the threads of what was given up were forgotten"
            answers.set()
            assert await names.addresses("quick.test", 80, "one") == ["10.0.0.1"]
    finally:
        answers.set()


async def test_a_name_that_is_not_known_leads_nowhere() -> None:
    def resolve(host: str, _: int) -> list[str]:
        host.encode("ascii")
        raise OSError(-2, "Name or service not known")

    assert await Names(resolve).addresses("no.test", 80) == ()
    assert await Names(resolve).addresses("\ud800", 80) == ()
