"""Web servers that mean harm: loops, drips, lies about sizes, ways to addresses inside; made by a seed.

What is asked of a fetcher: the file, or a refusal of the right kind, within its time; and never a connection
to where it may not go. `examples/benchmarks/hostile_media.py` tries hundreds, the suite a few.
"""

from __future__ import annotations

import gzip
import random
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Final

import trio

from .file_host import Behave, FileHost, answer, redirect

ALLOWED, FORBIDDEN = "127.0.0.1", "127.0.0.2"
"""Where the host is, and where somebody listens whom nobody may be led to."""
GOOD: Final = "fetched"
_DRIP_S: Final = 0.05

_REFUSED: Final = frozenset({"url_refused"})
_NOT_GIVEN: Final = frozenset({"fetch_refused"})
_FAILED: Final = frozenset({"fetch_failed"})
_LATE: Final = frozenset({"fetch_timeout"})
_LARGE: Final = frozenset({"file_too_large"})


@dataclass(frozen=True, slots=True)
class HostileHost:
    """Where to fetch from, and how that may end: codes of refusals, or `GOOD`."""

    name: str
    url: str
    ends: frozenset[str]


class Names:
    """A resolver in an attacker's hands: `rebind-…` leads to the host first, and inside from then on."""

    def __init__(self) -> None:
        self._num_requests: dict[str, int] = {}

    def __call__(self, name: str, port: int) -> Sequence[str]:
        """See `sensorium.actors.fetching.dns.Resolve`."""
        if name.startswith("rebind"):
            self._num_requests[name] = self._num_requests.get(name, 0) + 1
            return [ALLOWED] if self._num_requests[name] == 1 else [FORBIDDEN]
        if name.endswith(".test"):
            return [ALLOWED]
        found = socket.getaddrinfo(
            name.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        return [str(address[0]) for *_, address in found]


def hostile_hosts(host: FileHost, seed: int, rounds: int = 1) -> Iterator[HostileHost]:
    """Have `host` answer as each of them; in every round with other numbers."""
    chance = random.Random(seed)
    numbers = count()

    def made(
        name: str, found: bytes | Behave, ends: frozenset[str], server: str = "files.test"
    ) -> HostileHost:
        path = f"/{next(numbers)}"
        host.answers[path] = found
        late = frozenset() if GOOD in ends else _LATE  # a busy machine's time is over sooner
        return HostileHost(f"{name} {path}", host.url(path, server), ends | late)

    for _ in range(rounds):
        length = chance.randrange(2, 9)
        names = [f"/loop{next(numbers)}" for _ in range(length)]
        for name, after in zip(names, [*names[1:], names[0]], strict=True):
            host.answers[name] = redirect(after, chance.choice([301, 302, 303, 307, 308]))
        yield HostileHost(f"redirect loop of {length}", host.url(names[0]), _NOT_GIVEN)
        length = chance.randrange(1, 10)
        names = [f"/chain{next(numbers)}" for _ in range(length + 1)]
        for name, after in pairwise(names):
            host.answers[name] = redirect(after)
        host.answers[names[-1]] = answer(b"here")
        ends = frozenset({GOOD}) if length <= 5 else _NOT_GIVEN
        yield HostileHost(f"{length} redirects", host.url(names[0]), ends)
        for location in _inside(host.port, chance):
            yield made(f"redirect to {location}", redirect(location), _REFUSED | _NOT_GIVEN)
        again = f"/again{next(numbers)}"
        server = f"rebind-{next(numbers)}.test"
        host.answers[again] = answer(b"never")
        yield made("rebinding by redirect", redirect(host.url(again, server)), _REFUSED, server)
        yield made("rebinding by retry", _closing(b""), _REFUSED | _FAILED, f"rebind-{next(numbers)}.test")
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
        for name, first in (("body", head), ("head", b""), ("status", b"HTTP/1.1 20")):
            yield made(f"slow drip of the {name}", _dripping(first, chance.randbytes(8)), _LATE | _FAILED)
        yield made("slow drip of chunks", _dripping(_CHUNKED, b"1\r\nx\r\n"), _LATE)
        yield made("slow drip of 100s", _dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), _LATE)
        yield made("silence", _dripping(chance.choice([b"", head, b"HTTP/1.1 200 OK\r\n"]), b""), _LATE)
        yield made("headers without end", _flooding(b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n" * 500), _FAILED)
        yield made(
            "100s without end", _flooding(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500), _LATE | _FAILED
        )
        yield made("a body without end", _flooding(b"HTTP/1.0 200 OK\r\n\r\n", bytes(60_000)), _LARGE)
        yield made("chunks without end", _flooding(_CHUNKED, b"400\r\n" + bytes(1024) + b"\r\n"), _LARGE)
        yield made("crumbs without end", _flooding(_CHUNKED, b"1\r\nx\r\n" * 1000), _LARGE | _LATE)
        size = chance.choice([10**7, 10**18, 10**40])
        yield made(f"says it has {size} bytes", answer(b"x", length=size), _LARGE | _FAILED)
        for size in (-1, chance.randrange(5, 9999)):
            yield made(f"says it has {size} bytes", answer(b"few", length=size), _FAILED)
        packed = gzip.compress(bytes(10**6))
        yield made("packed", answer(packed, head="Content-Encoding: gzip\r\n"), _NOT_GIVEN)
        for status in (204, 206, 304, 400, 401, 403, 404, 410, 418, 451, 599):
            yield made(f"status {status}", answer(status=status), _NOT_GIVEN)
        for status in (408, 425, 429, 500, 502, 503, 504):
            wait = f"Retry-After: {chance.choice(['0', '99999', 'soon', '-1'])}\r\n"
            yield made(f"status {status}", answer(status=status, head=wait), _FAILED)
        yield made("redirect without a place", answer(status=302), _NOT_GIVEN)
        for garbage in (
            *(chance.randbytes(300), b"<html>", b"HTTP/1.1 abc OK\r\n\r\n"),
            *(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", b"\0" * 100, b""),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
        ):
            yield made(f"garbage {garbage[:20]!r}", _closing(garbage), _FAILED | _LARGE)
        yield made("what is right", answer(b"here"), frozenset({GOOD}))


_CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _inside(port: int, chance: random.Random) -> list[str]:
    """Addresses that nobody outside may be sent to, in some of the ways to write them."""
    inside = [
        *(FORBIDDEN, "127.2", "2130706434", "0x7f000002", "0177.0.0.2", "127.0.0.02", "[::ffff:127.0.0.2]"),
        *("[::1]", "[::]", "0.0.0.0", "0", "[::ffff:7f00:2]", "[64:ff9b::7f00:2]", "[2002:7f00:2::]"),
        *("10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "[fe80::1]", "[fd00::1]"),
        *("[fd00:ec2::254]", "224.0.0.1", "255.255.255.255", "168.63.129.16", "[::127.0.0.2]", "[ff02::1]"),
    ]
    addresses = [f"http://{name}:{port}/" for name in inside]
    addresses += [f"//{FORBIDDEN}:{port}/", f"http:{FORBIDDEN}/", f"http://files.test@{FORBIDDEN}:{port}/"]
    addresses += [f"http://files.test:{port}\\@{FORBIDDEN}:{port}/", f"HTTP://{FORBIDDEN}:{port}/a#b"]
    addresses += ["file:///etc/passwd", "data:image/png;base64,aGVyZQ==", "ftp://files.test/a", "gopher://a/"]
    addresses += [
        "http://",
        "http:///a",
        "http://a:99999/",
        "http://[",
        "javascript:alert(1)",
        "\x07http://a/",
    ]
    return chance.sample(addresses, len(addresses))


def _dripping(first: bytes, drop: bytes) -> Behave:
    async def behave(stream: trio.SocketStream, _path: str) -> None:
        await stream.send_all(first)
        while True:
            await trio.sleep(_DRIP_S)
            for at in range(0, len(drop), 7):
                await stream.send_all(drop[at : at + 7])

    return behave


def _flooding(first: bytes, more: bytes) -> Behave:
    async def behave(stream: trio.SocketStream, _path: str) -> None:
        await stream.send_all(first)
        while True:
            await stream.send_all(more)

    return behave


def _closing(data: bytes) -> Behave:
    async def behave(stream: trio.SocketStream, _path: str) -> None:
        if data:
            await stream.send_all(data)

    return behave
