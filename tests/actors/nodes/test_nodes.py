"""Engines on other machines: who is let in, and what becomes of requests when a connection is cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import trio
from sensorium.actors.config.engine import ProcessConfig
from sensorium.actors.config.server import ServerConfig
from sensorium.actors.config.validation import HostPort, read_host_port
from sensorium.actors.engine_process.peer import EnginePeer, FilesChangedError
from sensorium.actors.errors import ConfigError
from sensorium.actors.inference.engine import Engine
from sensorium.actors.nodes.client import EngineNode
from sensorium.actors.nodes.entrance import MAX_PENDING
from sensorium.actors.nodes.handshake import DIRECTORY, ENGINES, HandshakeError, ask_in, let_in, read_secret
from sensorium.actors.nodes.server import run_node
from sensorium.actors.nodes.tls import tls_context
from sensorium.actors.replicas.processes import Nodes
from sensorium.actors.worker_config import Orders
from sensorium.engine.models.info import ModelInfo
from sensorium.protocols.errors import UnavailableError
from support.cutting_proxy import CuttingProxy
from support.fake_engine import make_fake_engine, request, run_whole
from support.fake_process import orders
from support.fake_runner import INFO, answer_alone
from trio.testing import memory_stream_pair

SECRET = b"0123456789abcdef"
NAME = INFO.name


@dataclass(frozen=True)
class Opened:
    engine: Engine
    info: ModelInfo


def open_next(name: str, _: Orders, __: Sequence[Opened]) -> Opened:
    return Opened(make_fake_engine(), replace(INFO, name=name))


@asynccontextmanager
async def node(
    *, secret: bytes = SECRET, name: str = NAME, drain_s: float = 0.0, port: int = 0
) -> AsyncIterator[tuple[HostPort, trio.Event]]:
    """Engines that listen, until the context is left or the event is set."""
    stop, found = trio.Event(), []
    ready = trio.Event()

    def announce(where: str) -> None:
        found.append(read_host_port("engines", where))
        ready.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                run_node,
                orders("fake"),
                HostPort("127.0.0.1", port),
                secret,
                partial(open_next, name),
                stop=stop,
                drain_s=drain_s,
                on_ready=announce,
            )
        )
        await ready.wait()
        yield found[0], stop
        nursery.cancel_scope.cancel()


def connected(address: HostPort, secret: bytes = SECRET) -> EngineNode:
    found = EngineNode(address, [NAME], secret, silence_s=20.0, left_out_s=1.0)
    found.engines[0].set_info(INFO)
    return found


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 (of connections)
            await trio.sleep(0.01)


async def ask(peer: EnginePeer, name: str) -> None:
    with trio.fail_after(30):
        assert (await run_whole(peer.engines[0], request(name))).token_ids == answer_alone(request(name))[0]


async def shaken(ours: bytes, theirs: bytes) -> list[str | None]:
    """What a handshake with two secrets says at each end."""
    said: list[str | None] = [None, None]
    ends = memory_stream_pair()

    async def shake(index: int, secret: bytes) -> None:
        try:
            await (ask_in, let_in)[index](ends[index], secret)
        except HandshakeError as error:
            said[index] = error.message
            await ends[index].aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shake, 0, ours)
        nursery.start_soon(shake, 1, theirs)
    return said


async def test_both_ends_prove_that_they_know_the_secret() -> None:
    assert await shaken(SECRET, SECRET) == [None, None]
    front, engine = await shaken(SECRET, SECRET + b"!")
    assert front == "its secret is another one"
    assert engine is not None


async def test_a_proof_for_one_service_is_none_for_another() -> None:
    """An engine does not take a server that looks for a directory, though it knows the secret."""
    ours, theirs = memory_stream_pair()
    await ours.send_all(ENGINES.hello + bytes(32))
    with pytest.raises(HandshakeError, match="it does not speak as `sensorium serve --cluster`"):
        await let_in(theirs, SECRET, DIRECTORY)


async def test_an_engine_believes_no_proof_but_that_of_its_own_number() -> None:
    """What was said in one connection is worth nothing in another."""
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        with pytest.RaisesGroup(pytest.RaisesExc(HandshakeError, match="its secret is another one")):
            async with trio.open_nursery() as inner:
                inner.start_soon(let_in, theirs, SECRET)
                await ours.send_all(ENGINES.hello + bytes(32))
                heard = bytearray()
                while len(heard) < len(ENGINES.hello) + 64:
                    heard += await ours.receive_some(200)
                await ours.send_all(bytes(heard[-32:]))  # the engine's own proof, sent back
        nursery.cancel_scope.cancel()


async def test_requests_are_answered_across_the_network() -> None:
    async with node() as (address, _), trio.open_nursery() as nursery:
        peer = connected(address)
        await nursery.start(peer.run)
        for number in range(3):
            await ask(peer, f"{number}")
        assert peer.opened is not None
        nursery.cancel_scope.cancel()


async def test_a_connection_that_is_cut_or_stalls_is_made_again() -> None:
    async with node() as (address, _), trio.open_nursery() as nursery:
        proxy = CuttingProxy(address.port)
        peer = connected(read_host_port("engines", proxy.url.removeprefix("http://")))
        await nursery.start(peer.run)
        await ask(peer, "a")
        proxy.cut()
        await until(lambda: peer.engines[0].health != "ready")
        with pytest.raises(UnavailableError):
            await run_whole(peer.engines[0], request("b"))
        await until(lambda: peer.engines[0].health == "ready")
        await ask(peer, "c")
        proxy.stall()
        await until(lambda: peer.engines[0].health == "unresponsive")
        proxy.flow()
        await until(lambda: peer.engines[0].health == "ready")
        await ask(peer, "d")
        nursery.cancel_scope.cancel()
    proxy.close()


async def test_a_wrong_secret_gets_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    async with node() as (address, _), trio.open_nursery() as nursery:
        peer = connected(address, b"another secret of that size")
        nursery.start_soon(peer.run)
        await until(lambda: "its secret is another one; it is tried again" in caplog.text)
        assert peer.opened is None
        assert "was not let in" in caplog.text
        nursery.cancel_scope.cancel()


async def test_those_who_say_nothing_are_few_and_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorium.actors.nodes.entrance.HANDSHAKE_S", 0.5)
    async with node() as (address, _), trio.open_nursery() as nursery:
        silent = [await trio.open_tcp_stream(address.host, address.port) for _ in range(MAX_PENDING + 1)]
        with trio.fail_after(10):
            for stream in silent:
                async with stream:
                    assert await stream.receive_some(1) == b""
        peer = connected(address)
        await nursery.start(peer.run)
        await ask(peer, "a")
        nursery.cancel_scope.cancel()


async def test_rubbish_is_no_handshake() -> None:
    async with node() as (address, _), await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with trio.fail_after(10), suppress(trio.BrokenResourceError):
            assert await stream.receive_some(1) == b""


async def test_engines_with_other_models_are_refused() -> None:
    async with node(name="other") as (address, _), trio.open_nursery() as nursery:
        with pytest.raises(FilesChangedError, match=f"run other; this server has to serve {NAME}"):
            await nursery.start(connected(address).run)
        nursery.cancel_scope.cancel()


async def test_one_that_ends_takes_nothing_new() -> None:
    async with node(drain_s=5.0) as (address, stop), trio.open_nursery() as nursery:
        peer = connected(address)
        await nursery.start(peer.run)
        await ask(peer, "a")
        stop.set()
        await until(lambda: peer.engines[0].health != "ready")
        nursery.cancel_scope.cancel()


def config(tmp_path: Path, *addresses: HostPort) -> ServerConfig:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    process = ProcessConfig(engines=tuple(map(str, addresses)), engine_secret_file=tmp_path / "secret")
    return ServerConfig(models=(NAME,), process=process)


async def test_a_server_uses_those_that_are_there(tmp_path: Path) -> None:
    async with node() as (first, stop), node() as (second, _), trio.open_nursery() as nursery:
        nodes = Nodes(config(tmp_path, first, second, HostPort("127.0.0.1", 9)))
        await nursery.start(nodes.run)
        nodes.set_info(0, INFO)
        (engine,) = nodes.engines
        await until(lambda: len(engine.available()) == 2)
        answers = [answer_alone(request(f"{number}"))[0] for number in range(6)]
        assert [(await run_whole(engine, request(f"{number}"))).token_ids for number in range(6)] == answers
        assert [engine.router.num_placed(index) for index in range(3)] == [3, 3, 0]
        stop.set()
        await until(lambda: engine.available() == [1])
        assert [(await run_whole(engine, request(f"{number}"))).token_ids for number in range(6)] == answers
        nursery.cancel_scope.cancel()


def test_what_has_to_be_given_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--engines needs --engine-secret-file"):
        ProcessConfig(engines=("10.0.0.2:9000",))
    with pytest.raises(ConfigError, match="--engines is 'nowhere'; allowed: HOST:PORT"):
        ProcessConfig(engines=("nowhere",), engine_secret_file=tmp_path)
    with pytest.raises(ConfigError, match="allowed: no --replicas"):
        ProcessConfig(engines=("10.0.0.2:9000",), engine_secret_file=tmp_path, replicas=2)
    with pytest.raises(ConfigError, match=r"--secret-file is .*No such file"):
        read_secret("secret_file", tmp_path / "none")
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(ConfigError, match=r"--secret-file is .* holds 6 bytes; allowed: 16 or more"):
        read_secret("secret_file", tmp_path / "short")
    missing, no_ca = tmp_path / "cert.pem", tmp_path / "short"
    with pytest.raises(
        ConfigError, match=r"--engine-tls-cert is .*cert.pem, --engine-tls-key is .*No such file"
    ):
        tls_context(missing, missing, no_ca, prefix="engine-tls", is_server=False)
    with pytest.raises(
        ConfigError, match="--tls-cert is given without the others; allowed: --tls-cert, --tls-key"
    ):
        tls_context(tmp_path, None, None, prefix="tls", is_server=True)
    assert tls_context(None, None, None, prefix="tls", is_server=True) is None
