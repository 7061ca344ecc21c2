"""What runs on a machine of a cluster, without Ray: an actor of Ray's is a class, and its process is ours."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import msgspec
import pytest
import trio
from sensorium.actors.cluster.pipe import EngineOrder
from sensorium.actors.cluster.ray_actor import EngineActor
from sensorium.actors.cluster.ray_launcher import check_authentication, connect
from sensorium.actors.config.cluster import ClusterConfig
from sensorium.actors.config.validation import read_host_port
from sensorium.actors.errors import ConfigError
from sensorium.actors.nodes.client import EngineNode
from support.fake_cluster_child import COMMAND
from support.fake_engine import request, run_whole
from support.fake_process import orders
from support.fake_runner import INFO, answer_alone

SECRET = b"0123456789abcdef"


def actor(model: str = "fake", *, needs_token: bool = False) -> EngineActor:
    order = EngineOrder(orders(model), SECRET, drain_s=1.0)
    return EngineActor(msgspec.msgpack.encode(order), needs_token=needs_token, command=COMMAND)


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[EngineActor, str]]:
    engine = actor()
    kind, address = engine.start("127.0.0.1")
    assert kind == "started"
    yield engine, address
    assert engine.stop() == 0


async def test_it_serves_who_knows_the_secret(started: tuple[EngineActor, str]) -> None:
    async with trio.open_nursery() as nursery:
        node = EngineNode(read_host_port("listen", started[1]), [INFO.name], SECRET, silence_s=20.0)
        node.engines[0].set_info(INFO)
        with trio.fail_after(30):
            await nursery.start(node.run)
            answer = await run_whole(node.engines[0], request("a"))
        assert answer.token_ids == answer_alone(request("a"))[0]
        nursery.cancel_scope.cancel()


def test_its_process_ends_with_it() -> None:
    """As where the machine's Ray ends: what is left is nothing that says stop."""
    engine = actor()
    assert engine.start("127.0.0.1")[0] == "started"
    assert engine._ours is not None
    engine._ours.close()
    assert engine.ended() == 1


def test_the_signal_that_ends_its_process_is_known() -> None:
    engine = actor()
    assert engine.start("127.0.0.1")[0] == "started"
    assert engine._process is not None
    os.kill(engine._process.pid, signal.SIGKILL)
    assert engine.ended() == -signal.SIGKILL


def test_what_cannot_be_loaded_is_named() -> None:
    assert actor("missing").start("127.0.0.1") == ("model", "missing0: no such folder")


def test_where_ray_has_no_token_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    kind, reason = actor(needs_token=True).start("127.0.0.1")
    assert kind == "other"
    assert "Ray runs without RAY_AUTH_MODE=token on 127.0.0.1; allowed:" in reason


def test_a_cluster_without_tokens_is_refused_unless_allowed() -> None:
    for mode in ("", "disabled"):
        with pytest.raises(
            ConfigError, match="every program that reaches Ray's ports can run code"
        ) as caught:
            check_authentication(ClusterConfig(), mode)
        assert "set RAY_AUTH_MODE=token" in str(caught.value)
        assert "--allow-unauthenticated-ray" in str(caught.value)
        check_authentication(ClusterConfig(allow_unauthenticated_ray=True), mode)
    check_authentication(ClusterConfig(), "token")


def test_without_ray_the_message_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"needs Ray, .*: pip install 'sensorium\[cluster\]'"):
        connect(ClusterConfig())


@pytest.mark.parametrize("kind", [ConnectionError, RuntimeError, Exception])
def test_a_ray_that_does_not_start_is_a_named_error(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray raises a bare `Exception` where a local node is too slow."""

    def init(**_: object) -> None:
        raise kind("The current node timed out during startup.\nMore of it.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    with pytest.raises(ConfigError, match=r"--address is 'auto': The current node timed out during startup"):
        connect(ClusterConfig())
