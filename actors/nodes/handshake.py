"""Proves to both ends of a connection that the other one knows the same secret, before anything else is said.

Each sends a random number that was never used before, and answers the other's with an HMAC over both; the
secret itself is not sent. It says who is at the other end, and hides nothing: on a network where others can
read or write into a connection, carry it in TLS (`tls.py`), a tunnel or a private network.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from ...protocols.errors import SensoriumError
from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class Service:
    """What a connection is for: both ends mean the same one, or neither goes on."""

    hello: bytes
    """Its first line. The last number changes where two versions do not understand each other."""
    listener: str
    """The command that listens."""
    caller: str
    """The command that connects."""


ENGINES: Final = Service(b"sensorium engines 2\n", "sensorium engine", "sensorium serve --engines")
DIRECTORY: Final = Service(b"sensorium cluster 2\n", "sensorium cluster", "sensorium serve --cluster")
FRONTS: Final = Service(b"sensorium fronts 1\n", "sensorium serve --cluster", "sensorium serve --cluster")
HANDSHAKE_S: Final = 5.0
MIN_SECRET_BYTES: Final = 16
_NONCE_BYTES: Final = 32
_DIGEST: Final = "sha256"
_DIGEST_BYTES: Final = 32
_ACCEPTED: Final = b"+"


class HandshakeError(SensoriumError):
    """The other end is not who it has to be."""


def read_secret(option: str, path: Path) -> bytes:
    """The secret in the file of an option, without the line's end. Raises ConfigError."""
    option = option.replace("_", "-")
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"--{option} is {path}: {error.strerror}; allowed: a file with a secret") from None
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigError(
            f"--{option} is {path}, which holds {len(secret)} bytes; allowed: {MIN_SECRET_BYTES} or more, "
            "as of `openssl rand -hex 32`"
        )
    return secret


async def ask_in(stream: trio.abc.Stream, secret: bytes, service: Service = ENGINES) -> None:
    """The side that connected. Raises HandshakeError, and what the stream raises."""
    ours = secrets.token_bytes(_NONCE_BYTES)
    await stream.send_all(service.hello + ours)
    closed = f"it closed the connection, as what is not `{service.listener}` of this version does"
    hello = await _exactly(stream, len(service.hello), closed)
    if hello != service.hello:
        raise HandshakeError(f"what listens there is not `{service.listener}` of this version")
    theirs = await _exactly(stream, _NONCE_BYTES, "it closed the connection")
    proof = await _exactly(stream, _DIGEST_BYTES, "it closed the connection")
    if not hmac.compare_digest(proof, _proof(secret, service, b"listener", ours, theirs)):
        raise HandshakeError("its secret is another one")
    await stream.send_all(_proof(secret, service, b"caller", ours, theirs))
    if await _exactly(stream, 1, "it did not accept our secret") != _ACCEPTED:
        raise HandshakeError("it did not accept our secret")


async def let_in(stream: trio.abc.Stream, secret: bytes, service: Service = ENGINES) -> None:
    """The side that was connected to. Raises HandshakeError, and what the stream raises."""
    hello = await _exactly(stream, len(service.hello), "it closed the connection")
    if hello != service.hello:
        raise HandshakeError(f"it does not speak as `{service.caller}` of this version")
    theirs = await _exactly(stream, _NONCE_BYTES, "it closed the connection")
    ours = secrets.token_bytes(_NONCE_BYTES)
    await stream.send_all(service.hello + ours + _proof(secret, service, b"listener", theirs, ours))
    proof = await _exactly(stream, _DIGEST_BYTES, "it closed the connection, as one with another secret does")
    if not hmac.compare_digest(proof, _proof(secret, service, b"caller", theirs, ours)):
        raise HandshakeError("its secret is another one")
    await stream.send_all(_ACCEPTED)


def _proof(secret: bytes, service: Service, who: bytes, caller: bytes, listener: bytes) -> bytes:
    return hmac.digest(secret, service.hello + who + caller + listener, _DIGEST)


async def _exactly(stream: trio.abc.Stream, size: int, else_: str) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise HandshakeError(else_)
        data += more
    return data
