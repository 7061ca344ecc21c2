"""Who a request comes from where a proxy in front says so: the only place that decides whose word counts.

A proxy is trusted by its address alone (`--trusted-proxies`); what others send is ignored. A trusted one may
name the client in three ways, of which the first that is there counts: a signed field of a gateway
(`protocols/server/signed_caller.py`), where the server has its secret; `X-Forwarded-For`; or the PROXY
protocol before the first request of a connection (versions 1 and 2, as HAProxy's proxy-protocol.txt has
them). Of a list of addresses the last one counts that is no trusted proxy's: those before it are what the
client itself may have written.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import h11
import trio

from ...protocols.errors import BadRequestError
from ...protocols.server.signed_caller import HEADER, verify
from ..callers import Caller
from .asgi_scope import Address
from .tcp_stream import Wire

CALLER: Final = "sensorium.caller"
"""In a scope: the `Caller` whose key a gateway has checked."""
_FORWARDED_FOR: Final = b"x-forwarded-for"
_V2_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V2_HEAD_BYTES: Final = 16
_MAX_V1_BYTES: Final = 107
_MAX_V2_BYTES: Final = 4096
"""Behind the head: addresses, and extensions that are skipped."""
_V1: Final = re.compile(
    rb"PROXY (?:UNKNOWN[^\r\n]*|TCP[46] ([0-9A-Fa-f.:]+) [0-9A-Fa-f.:]+ (\d{1,5}) \d{1,5})\r\n"
)
_V1_BEGINS: Final = (b"PROXY TCP", b"PROXY UNKNOWN")
"""No request begins so: the first word of its target begins with `/`, `*` or a scheme."""
_PREAMBLE_S: Final = 10.0
_HOST: Final = re.compile(r"\[([^\]]+)\](?::\d+)?|([0-9.]+)(?::\d+)?|([0-9A-Fa-f:.]+)")


class ProxyProtocolError(BadRequestError):
    """What a trusted proxy sent before the first request is no header of the PROXY protocol."""


@dataclass(frozen=True, slots=True)
class Client:
    """Whom a request comes from."""

    address: Address
    caller: Caller | None = None
    """The holder of a key that a gateway has checked; None: whom the key that is shown, or the address,
    says."""


class TrustedProxies:
    """The proxies whose word counts, and a gateway's secret; by default there are none."""

    def __init__(
        self,
        networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network] = (),
        secret: str = "",
    ) -> None:
        self._networks = networks
        self._secret = secret.encode()

    def trusts(self, host: str) -> bool:
        """Whether that address is a trusted proxy's."""
        if not self._networks:
            return False
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return any(address.version == each.version and address in each for each in self._networks)

    def client_of(self, request: h11.Request, peer: Address, named: Address | None = None) -> Client:
        """Whom a request comes from. `named` is the address that the connection's PROXY header has.

        Raises InvalidCallerError for a gateway's field that is wrong: to ignore it would count all clients as
        one.
        """
        if not self.trusts(peer[0]):
            return Client(peer)
        signed = [bytes(value) for name, value in request.headers if name == HEADER]
        if signed and self._secret:
            found = verify(
                b", ".join(signed),
                self._secret,
                now_s=time.time(),
                method=request.method,
                target=request.target,
            )
            caller = Caller(found.key_digest, has_key=True) if found.key_digest else None
            return Client((found.address, 0), caller)
        forwarded = (bytes(value) for name, value in request.headers if name == _FORWARDED_FOR)
        host = self._last_foreign(b",".join(forwarded).decode("latin-1").split(","))
        if host is not None:
            return Client((host, 0))
        return Client(named or peer)

    def _last_foreign(self, hosts: Iterable[str]) -> str | None:
        """The last address that is not a trusted proxy's; None where there is none, or it cannot be read."""
        for text in reversed([host.strip() for host in hosts]):
            host = _plain_host(text)
            if host is None:
                return None
            if not self.trusts(host):
                return host
        return None


async def read_preamble(wire: Wire) -> Address | None:
    """The client's address that a PROXY header at the beginning of a connection has; None if there is no such
    header, or it names nobody. What follows it is still to be read.

    Raises ProxyProtocolError, and BrokenResourceError.
    """
    data = b""
    with trio.move_on_after(_PREAMBLE_S):
        data = await wire.receive()
        while _may_be_preamble(data):
            if (found := _split(data)) is not None:
                size, named = found
                wire.give_back(data[size:])
                return named
            more = await wire.receive()
            if not more:
                break
            data += more
        wire.give_back(data)
        return None
    if not data:  # a connection that a proxy has opened in advance
        return None
    raise ProxyProtocolError("The header of the PROXY protocol arrives too slowly.")


def _may_be_preamble(data: bytes) -> bool:
    """Whether the first bytes of a connection begin one, as far as they are there."""
    return bool(data) and any(
        begin.startswith(data) or data.startswith(begin) for begin in (_V2_SIGNATURE, *_V1_BEGINS)
    )


def _split(data: bytes) -> tuple[int, Address | None] | None:
    """The bytes of the header and whom it names; None while it is not whole. Raises ProxyProtocolError."""
    if data.startswith(_V2_SIGNATURE):
        return _split_v2(data)
    end = data.find(b"\r\n")
    if end < 0 or _V2_SIGNATURE.startswith(data):
        if len(data) > _MAX_V1_BYTES:
            raise ProxyProtocolError("The header of the PROXY protocol is too long.")
        return None
    found = _V1.fullmatch(data[: end + 2])
    if found is None:
        raise ProxyProtocolError("The header of the PROXY protocol is malformed.")
    if found[1] is None:
        return end + 2, None
    return end + 2, (_address(found[1].decode()), int(found[2]))


def _split_v2(data: bytes) -> tuple[int, Address | None] | None:
    if len(data) < _V2_HEAD_BYTES:
        return None
    size = int.from_bytes(data[14:16])
    if size > _MAX_V2_BYTES or data[12] not in (0x20, 0x21):
        raise ProxyProtocolError("The header of the PROXY protocol is of another version, or too long.")
    whole = _V2_HEAD_BYTES + size
    if len(data) < whole:
        return None
    is_local, family, body = data[12] == 0x20, data[13] >> 4, data[_V2_HEAD_BYTES:whole]
    width = {1: 4, 2: 16}.get(family, 0)
    if is_local or not width:
        return whole, None
    if len(body) < 2 * width + 4:
        raise ProxyProtocolError("The header of the PROXY protocol is shorter than its addresses.")
    host = str(ipaddress.ip_address(body[:width]))
    return whole, (_address(host), int.from_bytes(body[2 * width : 2 * width + 2]))


def _address(text: str) -> str:
    host = _plain_host(text)
    if host is None:
        raise ProxyProtocolError("The header of the PROXY protocol has an address that is none.")
    return host


def _plain_host(text: str) -> str | None:
    """A numeric address as proxies write it, with a port or without; None if it is none."""
    found = _HOST.fullmatch(text.strip('"'))
    if found is None:
        return None
    try:
        address = ipaddress.ip_address(found[1] or found[2] or found[3])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
