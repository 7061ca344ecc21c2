"""Connections without sockets: what `actors/transport` is to an application and to a client, in memory.

The application runs in a task of the server's, as it does there: a client that leaves does not end it, it is
told, and has to end by itself. What is sent to a client that has left is dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import trio
from sensorium.actors.transport.websocket import AsgiApp, GoneError

Message = dict[str, Any]
_PART_BYTES = 64 * 1024


class Cut(Exception):  # noqa: N818 (an event, not a defect)
    """The connection was lost, or the server has closed it."""


@dataclass
class Connections:
    """The server's side: runs the application for each connection. `serve` stands in for its listener."""

    app: AsgiApp | None = None
    num_open: int = 0
    nursery: trio.Nursery | None = None
    opened: trio.Event = field(default_factory=trio.Event)
    failures: list[str] = field(default_factory=list)
    """What left the application as an exception."""

    async def serve(
        self, app: AsgiApp, listener: object, *, stop: trio.Event, grace_s: float, **_: object
    ) -> None:
        """In place of `actors/transport/listener.py`'s `serve_connections`."""
        async with trio.open_nursery() as nursery:
            self.app, self.nursery = app, nursery
            self.opened.set()
            await stop.wait()
            self.app = None
            nursery.cancel_scope.deadline = trio.current_time() + grace_s
        self.nursery = None

    def start(self, connection: _Connection) -> None:
        """Serve a connection in a task of the server's. Raises Cut where nobody listens."""
        if self.app is None or self.nursery is None:
            raise Cut("nobody listens")
        self.nursery.start_soon(self._run, self.app, connection)

    async def _run(self, app: AsgiApp, connection: _Connection) -> None:
        self.num_open += 1
        try:
            await app(connection.scope, connection.receive, connection.send)
        except GoneError:
            pass  # the client has left, and the application was told
        except Exception as error:
            self.failures.append(f"{connection.scope['path']}: {error!r}")
        finally:
            self.num_open -= 1
            connection.end()


class _Connection:
    """Both ends of one connection."""

    def __init__(self, path: str, headers: Mapping[str, str], address: str, **scope: object) -> None:
        url = urlsplit(path)
        encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self.scope: dict[str, Any] = {
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "path": url.path,
            "raw_path": url.path.encode(),
            "query_string": url.query.encode(),
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1:8000"), *encoded],
            "client": (address, 50_000),
            "server": ("127.0.0.1", 8000),
            **scope,
        }
        self.gone = trio.Event()
        """The client has left."""
        self.ended = trio.Event()
        """The server has done with it."""

    async def receive(self) -> Message:
        """For the application."""
        raise NotImplementedError

    async def send(self, message: Message) -> None:
        """For the application."""
        raise NotImplementedError

    def leave(self) -> None:
        """The client is gone, without a word."""
        self.gone.set()

    def end(self) -> None:
        """The application has returned."""
        self.ended.set()


class Request(_Connection):
    """One request and its answer."""

    def __init__(
        self, method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str], address: str
    ) -> None:
        length = {"content-length": str(len(body))} if body else {}
        super().__init__(path, {**headers, **length}, address, type="http", scheme="http", method=method)
        self._parts = [body[at : at + _PART_BYTES] for at in range(0, len(body), _PART_BYTES)] or [b""]
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_whole = False
        self.num_heads = 0

    async def receive(self) -> Message:
        await trio.lowlevel.checkpoint()
        if self._parts and not self.gone.is_set():
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        if not self.is_whole:
            await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if self.gone.is_set():
            return
        assert not self.is_whole, "something was sent behind the end of an answer"
        if message["type"] == "http.response.start":
            self.num_heads += 1
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message.get("headers", ())}
        else:
            assert self.num_heads == 1, "a body came without its head"
            self.body += message.get("body", b"")
            self.is_whole = not message.get("more_body", False)


class Socket(_Connection):
    """One WebSocket. The client sends with `say` and reads with `hear`."""

    def __init__(self, path: str, *, headers: Mapping[str, str], address: str) -> None:
        extensions: dict[str, Any] = {"websocket.http.response": {}}
        super().__init__(
            path, headers, address, type="websocket", scheme="ws", subprotocols=[], extensions=extensions
        )
        self.scope["sensorium.byte_bound"] = lambda *_: None
        self._to_app, self._for_app = trio.open_memory_channel[Message](math.inf)
        self._to_client, self._for_client = trio.open_memory_channel[str](math.inf)
        self._to_app.send_nowait({"type": "websocket.connect"})
        self.closed: tuple[int, str] | None = None
        """By the server."""
        self.refused = 0
        """Status of the answer in place of a handshake."""

    async def receive(self) -> Message:
        return await self._for_app.receive()

    async def send(self, message: Message) -> None:
        await trio.lowlevel.checkpoint()
        if self.gone.is_set() or self.closed is not None:
            raise GoneError("the WebSocket is closed")
        match message["type"]:
            case "websocket.send":
                self._to_client.send_nowait(message["text"])
            case "websocket.close":
                self.closed = (message.get("code", 1000), message.get("reason") or "")
                self._to_app.send_nowait({"type": "websocket.disconnect", "code": self.closed[0]})
                self._to_client.close()
            case "websocket.http.response.start":
                self.refused = message["status"]

    def say(self, event: Message | bytes) -> None:
        """Send an event, or audio as it is. Raises Cut."""
        if self.gone.is_set() or self.closed is not None or self.ended.is_set():
            raise Cut("the connection is closed")
        kind = "bytes" if isinstance(event, bytes) else "text"
        data = event if isinstance(event, bytes) else json.dumps(event)
        self._to_app.send_nowait({"type": "websocket.receive", kind: data})

    async def hear(self) -> Message:
        """The next event. Raises Cut."""
        try:
            event: Message = json.loads(await self._for_client.receive())
        except trio.EndOfChannel:
            raise Cut("the connection is closed") from None
        return event

    def end(self) -> None:
        super().end()
        self._to_client.close()

    def leave(self, code: int = 1006) -> None:
        """Go, by default without a word."""
        if not self.gone.is_set():
            super().leave()
            self._to_app.send_nowait({"type": "websocket.disconnect", "code": code})
            self._to_client.close()


@contextmanager
def leaving(connection: _Connection) -> Iterator[None]:
    """The client is gone behind this, however it ends."""
    try:
        yield
    finally:
        connection.leave()
