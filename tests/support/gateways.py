"""A gateway and servers behind it in one event loop, over real sockets.

The servers answer as the test's own ASGI application has them; they can be killed, frozen and started again
at their port, as a process can.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import trio
import trio.lowlevel
from sensorium.actors.config.gateway import GatewayConfig
from sensorium.actors.config.network import ListenConfig
from sensorium.actors.gateway.gateway import serve_gateway
from sensorium.actors.gateway.servers import Server
from sensorium.actors.gateway.state import GatewayState
from sensorium.actors.telemetry.logs import LogConfig
from sensorium.actors.transport.connection_limits import ConnectionLimits, Guard
from sensorium.actors.transport.listener import open_listener, serve_connections
from sensorium.actors.transport.trusted_proxies import TrustedProxies

LIMITS = ConnectionLimits(max_connections=256, max_per_address=256, idle_s=30.0)
WAIT_S = 30.0
Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]
Answer = Callable[["Stub", dict[str, Any], bytes, Receive, Send], Awaitable[None]]
"""Answers one request of a stub: its scope, its body, and ASGI's two."""


async def reply(
    send: Send,
    body: object,
    status: int = 200,
    *headers: tuple[bytes, bytes],
    kind: bytes = b"application/json",
) -> None:
    """A whole answer: bytes as they are, all else as JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    fields = [(b"content-type", kind), (b"content-length", b"%d" % len(data)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": data})


async def echo(stub: Stub, scope: dict[str, Any], body: bytes, receive: Receive, send: Send) -> None:
    """Says which server it is, and what it got."""
    fields = [(name.decode(), value.decode()) for name, value in scope["headers"]]
    found = {
        "server": stub.name,
        "method": scope["method"],
        "target": (scope["raw_path"] + b"?" + scope["query_string"]).decode(),
        "headers": fields,
        "size": len(body),
    }
    await reply(send, found)


async def echo_socket(stub: Stub, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Says which server it is, and then what it is told."""
    await receive()
    await send({"type": "websocket.accept", "subprotocol": (scope["subprotocols"] or [None])[0]})
    await send({"type": "websocket.send", "text": msgspec.json.encode({"server": stub.name}).decode()})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
    stub.close_codes.append(message["code"])


@dataclass(eq=False)
class Stub:
    """One server."""

    name: str
    models: tuple[str, ...] = ("m",)
    answer: Answer = echo
    talk: Callable[[Stub, dict[str, Any], Receive, Send], Awaitable[None]] = echo_socket
    health: int = 200
    proxies: TrustedProxies | None = None
    scopes: list[dict[str, Any]] = field(default_factory=list)
    """Of what the gateway relayed."""
    close_codes: list[int] = field(default_factory=list)
    port: int = 0
    is_frozen: bool = False
    """It takes connections in, and does nothing more."""
    ended: trio.Event = field(default_factory=trio.Event)
    """It listens no more."""
    _scope: trio.CancelScope | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
        if self.is_frozen:
            await trio.sleep_forever()
        if scope["type"] == "websocket":
            self.scopes.append(scope)
            await self.talk(self, scope, receive, send)
        elif scope["path"] == "/health":
            await reply(send, {}, self.health)
        elif scope["path"] == "/v1/models":
            await reply(
                send, {"object": "list", "data": [{"id": model, "object": "model"} for model in self.models]}
            )
        else:
            self.scopes.append(scope)
            body = b""
            while (message := await receive())["type"] == "http.request":
                body += message["body"]
                if not message["more_body"]:
                    await self.answer(self, scope, body, receive, send)
                    return

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until killed."""
        listener = open_listener("127.0.0.1", self.port)
        self.port = listener.getsockname()[1]
        self.ended = trio.Event()
        with trio.CancelScope() as self._scope:
            task_status.started()
            await serve_connections(
                self,
                listener,
                guard=Guard(LIMITS),
                max_message_bytes=1 << 20,
                send_timeout_s=20.0,
                stop=trio.Event(),
                grace_s=0.0,
                proxies=self.proxies,
            )
        self.ended.set()

    def kill(self) -> None:
        """Its connections end at once, and new ones are refused."""
        assert self._scope is not None
        self._scope.cancel()


@dataclass
class Gateway:
    """A running gateway."""

    port: int
    state: GatewayState
    stop: trio.Event
    nursery: trio.Nursery

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def server(self, stub: Stub) -> Server:
        """What the gateway knows of a stub."""
        found = self.state.servers.find(stub.url)
        assert found is not None
        return found

    async def wait_state(self, stub: Stub, *states: str) -> None:
        """Return when the gateway holds a stub to be in one of these."""
        with trio.fail_after(WAIT_S):
            while self.server(stub).health.state not in states:  # noqa: ASYNC110
                await trio.sleep(0.01)

    async def wait_quiet(self) -> None:
        """Return when the gateway has nothing in hand."""
        with trio.fail_after(WAIT_S):
            await self.state.wait_quiet()

    async def restart(self, stub: Stub) -> None:
        """Start a stub that was killed again, at its port."""
        await stub.ended.wait()
        await self.nursery.start(stub.run)


CONFIG = GatewayConfig(health_interval_s=0.1, dead_after_s=0.5)


@asynccontextmanager
async def gateway(
    *stubs: Stub, config: GatewayConfig = CONFIG, listen: ListenConfig | None = None
) -> AsyncIterator[Gateway]:
    """The stubs, and a gateway in front of them that has asked each how it is."""
    stop = trio.Event()
    ready: list[str] = []
    async with trio.open_nursery() as nursery:
        for stub in stubs:
            await nursery.start(stub.run)
        if stubs:
            config = replace(config, servers=tuple(stub.url for stub in stubs))
        listening = replace(listen or ListenConfig(drain_s=1.0), port=0)

        async def serve(*, task_status: trio.TaskStatus[GatewayState]) -> None:
            await serve_gateway(
                config,
                listening,
                LogConfig(access_log="off"),
                stop=stop,
                on_ready=ready.append,
                task_status=task_status,
            )

        state = await nursery.start(serve)
        while not ready:
            await trio.lowlevel.checkpoint()
        yield Gateway(int(ready[0].rsplit(":", 1)[1]), state, stop, nursery)
        stop.set()
        with trio.fail_after(WAIT_S):
            await state.wait_quiet()
        nursery.cancel_scope.cancel()


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def running_gateway(config: GatewayConfig, listen: ListenConfig | None = None) -> Iterator[str]:
    """A gateway in a thread, in front of servers that run elsewhere; its base URL."""
    ready = threading.Event()
    found: list[str] = []
    tokens: list[tuple[trio.lowlevel.TrioToken, trio.Event]] = []

    def announce(url: str) -> None:
        found.append(url)
        ready.set()

    async def main() -> None:
        stop = trio.Event()
        tokens.append((trio.lowlevel.current_trio_token(), stop))
        listening = replace(listen or ListenConfig(drain_s=1.0), port=0)
        await serve_gateway(config, listening, LogConfig(), stop=stop, on_ready=announce)

    thread = threading.Thread(target=trio.run, args=(main,), name="gateway under test", daemon=True)
    thread.start()
    assert ready.wait(WAIT_S), "the gateway did not start"
    try:
        yield found[0]
    finally:
        token, stop = tokens[0]
        with suppress(trio.RunFinishedError):
            trio.from_thread.run_sync(stop.set, trio_token=token)
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the gateway did not stop"
