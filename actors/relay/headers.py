"""Which header fields pass a gateway, and which it writes itself. Pure.

Fields of one connection stay on it (RFC 9110, 7.6.1). What names the client is written anew, since the server
believes it of us. What a page's browser adds has been checked here, and is nothing to the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

Headers = list[tuple[bytes, bytes]]

_OF_ONE_CONNECTION: Final = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
_WRITTEN_ANEW: Final = frozenset(
    {
        b"host",
        b"content-length",
        b"expect",
        b"accept-encoding",
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-real-ip",
        b"sensorium-caller",
        b"x-request-id",
        b"origin",
        b"cookie",
    }
)
KEYS: Final = frozenset({b"authorization", b"x-api-key", b"api-key"})
_OF_OUR_ANSWERS: Final = frozenset(
    {
        b"date",
        b"server",
        b"x-request-id",
        b"request-id",
        b"alt-svc",
        b"strict-transport-security",
        b"set-cookie",
        b"vary",
    }
)


def to_server(headers: Iterable[tuple[bytes, bytes]], *, replaces_key: bool) -> Headers:
    """Of a request's fields those that the server gets."""
    headers = list(headers)
    left_out = _OF_ONE_CONNECTION | _WRITTEN_ANEW | _named_by_connection(headers)
    if replaces_key:
        left_out |= KEYS
    return [
        (name, value)
        for name, value in headers
        if name not in left_out and not name.startswith(b"sec-websocket-")
    ]


def to_client(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Of an answer's fields those that the client gets."""
    headers = [(bytes(name), bytes(value)) for name, value in headers]
    left_out = _OF_ONE_CONNECTION | _OF_OUR_ANSWERS | _named_by_connection(headers)
    if any(name == b"transfer-encoding" for name, _ in headers):
        left_out |= {b"content-length"}  # which says nothing beside it (RFC 9112, 6.3)
    return [
        (name, value)
        for name, value in headers
        if name not in left_out and not name.startswith((b"access-control-", b"sec-websocket-"))
    ]


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Fields that one of the sides calls its connection's own."""
    values = [value for name, value in headers if name == b"connection"]
    # What frames a message, or shows a key, is no connection's own whatever it is called.
    return (
        frozenset(each.strip().lower() for value in values for each in value.split(b","))
        - KEYS
        - {
            b"content-length",
            b"content-type",
        }
    )
