"""TLS to hosts that clients name: what is offered to them costs this server little, whatever they choose."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest
from sensorium.actors.fetching.http_get import tls_context

P_256 = 0x0017
SUPPORTED_GROUPS = 10


def extensions(hello: bytes) -> Iterator[tuple[int, bytes]]:
    """Of a ClientHello in one record (RFC 8446, 4.1.2)."""
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at : at + 2])
    at += 1 + hello[at] + 2
    while at < len(hello):
        kind, size = int.from_bytes(hello[at : at + 2]), int.from_bytes(hello[at + 2 : at + 4])
        yield kind, hello[at + 4 : at + 4 + size]
        at += 4 + size


def groups(context: ssl.SSLContext) -> list[int]:
    """The groups of key exchange that a client offers."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="host.example").do_handshake()
    body = dict(extensions(sent.read()))[SUPPORTED_GROUPS]
    return [int.from_bytes(body[at : at + 2]) for at in range(2, len(body), 2)]


def test_no_key_exchange_over_finite_fields_is_offered() -> None:
    context = tls_context()
    assert groups(context) == [P_256]
    assert not [each["name"] for each in context.get_ciphers() if each["name"].startswith("DHE-")]
    assert [each["name"] for each in context.get_ciphers() if each["name"].startswith("ECDHE-")]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
