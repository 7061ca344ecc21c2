"""The head of a request as h11 read it, in ASGI's words; and whether it asks for a WebSocket."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

import h11

Headers = list[tuple[bytes, bytes]]
Address = tuple[str, int]

_ASGI: Final = {"version": "3.0", "spec_version": "2.4"}


def scope_of(request: h11.Request, *, client: Address, server: Address) -> dict[str, Any]:
    """ASGI's scope. An absolute URI gives the path, and its authority stands for `Host` (RFC 9112, 3.2.2)."""
    headers = [(bytes(name), bytes(value)) for name, value in request.headers]
    target = bytes(request.target)
    scheme, is_absolute, rest = target.partition(b"://")
    if is_absolute and scheme.lower() in {b"http", b"https"}:
        authority = re.split(b"[/?]", rest, maxsplit=1)[0]
        target = b"/" + rest[len(authority) :].removeprefix(b"/")
        headers = [(b"host", authority), *(each for each in headers if each[0] != b"host")]
    raw_path, _, query = target.partition(b"?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": _ASGI,
        "http_version": request.http_version.decode("ascii"),
        "method": request.method.decode("ascii"),
        "scheme": "http",
        "path": unquote(raw_path.decode("latin-1")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": client,
        "server": server,
    }
    if is_upgrade(request):
        scope |= {
            "type": "websocket",
            "scheme": "ws",
            "subprotocols": _tokens(headers, b"sec-websocket-protocol"),
            "extensions": {"websocket.http.response": {}},
        }
    return scope


def is_upgrade(request: h11.Request) -> bool:
    """Whether a WebSocket is asked for, rightly or not."""
    offered = _tokens([(bytes(name), bytes(value)) for name, value in request.headers], b"upgrade")
    return any(each.lower() == "websocket" for each in offered)


def body_length(request: h11.Request) -> int | None:
    """Announced bytes of the body, 0 if there is none; None if its end shows only when it comes."""
    length: int | None = 0
    for name, value in request.headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            length = int(value)
    return length


def _tokens(headers: Headers, wanted: bytes) -> list[str]:
    """The comma-separated values of every header of that name."""
    values = [value.decode("latin-1") for name, value in headers if name == wanted]
    return [token.strip() for value in values for token in value.split(",") if token.strip()]
