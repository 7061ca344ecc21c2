"""A server for tests: addresses, the loop from outside, and errors that reach the test."""

from __future__ import annotations

import httpx
import pytest
import trio
from sensorium.actors.config.server import ListenConfig
from sensorium.actors.errors import AddressError
from sensorium.protocols.errors import ModelLoadError
from sensorium.testing import make_config, running_server, scripted_server

pytestmark = pytest.mark.slow


def test_addresses_and_calls_into_the_loop() -> None:
    with scripted_server("Paris.") as server:
        assert server.api == f"http://127.0.0.1:{server.port}/v1"
        assert server.realtime == f"ws://127.0.0.1:{server.port}/v1/realtime"
        assert httpx.get(f"{server.url}/health").status_code == 200
        tasks: list[str] = []
        server.run(lambda: tasks.append(trio.lowlevel.current_task().name))
        assert tasks
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_what_keeps_it_from_starting_is_raised(tmp_path: object) -> None:
    with pytest.raises(ModelLoadError, match=str(tmp_path)), running_server(make_config(str(tmp_path))):
        pass
    with scripted_server("Paris.") as server:
        config = make_config("tiny-qwen3-vl", listen=ListenConfig(port=server.port))
        with pytest.raises(AddressError, match="cannot listen"), running_server(config):
            pass


def test_one_that_ends_by_itself_is_left_quietly() -> None:
    with scripted_server("Paris.") as server:
        server.run(server.stop.set)
        server.thread.join(60)
        assert not server.thread.is_alive()
