"""One mistake is one exception, whichever way it was made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sensorium.client import APIError, AsyncClient, Client
from support.server import Server

pytestmark = pytest.mark.slow


def file(url: str, wav: bytes) -> None:
    with Client(url) as client:
        client.transcribe(wav, model="nobody")


def live(url: str, _: bytes) -> None:
    with Client(url) as client, client.realtime("nobody"):
        pass


def live_async(url: str, _: bytes) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client, client.realtime("nobody"):
            pass

    asyncio.run(run())


@pytest.mark.parametrize("call", [file, live, live_async])
def test_a_model_that_is_not_there(server: Server, lights: bytes, call: Callable[[str, bytes], None]) -> None:
    for _ in range(5):
        with pytest.raises(APIError) as raised:
            call(server.url, lights)
        assert (raised.value.status, raised.value.code, raised.value.param) == (
            404,
            "model_not_found",
            "model",
        )
