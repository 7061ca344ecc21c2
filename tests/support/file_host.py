"""A web server for tests that answers as it is told, also as no honest one would: raw bytes over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio

Behave = Callable[[trio.SocketStream, str], Awaitable[None]]
"""What is done with a connection once the request for a path has come."""


@dataclass
class FileHost:
    """`answers` by path: raw bytes to send, or what to do. `requested` are the paths in order."""

    port: int
    answers: dict[str, bytes | Behave] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    num_connections: int = 0

    def url(self, path: str, host: str = "files.test") -> str:
        """An address here, by a name."""
        return f"http://{host}:{self.port}{path}"


def answer(body: bytes = b"", *, status: int = 200, head: str = "", length: int | None = None) -> bytes:
    """An HTTP answer."""
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status} X\r\n{head}Content-Length: {size}\r\n\r\n".encode() + body


def redirect(location: str, status: int = 302) -> bytes:
    """An HTTP answer that sends elsewhere."""
    return answer(status=status, head=f"Location: {location}\r\n")


@asynccontextmanager
async def file_host(place: tuple[str, int] = ("127.0.0.1", 0)) -> AsyncIterator[FileHost]:
    """Run one on a free port of 127.0.0.1, or elsewhere."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(place[1], host=place[0])
        host = FileHost(listener.socket.getsockname()[1])

        async def serve(stream: trio.SocketStream) -> None:
            host.num_connections += 1
            head = b""
            while b"\r\n\r\n" not in head:
                chunk = await stream.receive_some()
                if not chunk:
                    return
                head += chunk
            path = head.split(b" ", 2)[1].decode()
            host.requested.append(path)
            host.heads.append(head)
            found = host.answers.get(path, answer(status=404))
            try:
                if isinstance(found, bytes):
                    await stream.send_all(found)
                else:
                    await found(stream, path)
            except trio.BrokenResourceError:
                pass  # the client had heard enough
            finally:
                await stream.aclose()

        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield host
        nursery.cancel_scope.cancel()
