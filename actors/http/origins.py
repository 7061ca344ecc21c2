"""Which web pages may use the server: the rules on `Origin` and `Host`, and CORS's answers.

A page that a user opens runs on the user's machine, and so reaches a server that only listens there, with or
without a key. Its browser tells on it, though. `Origin` names the page's own address in every request that
does something, WebSockets included; only the server's own pages and those of `--allowed-origins` pass. `Host`
is the name by which the server was called: a page that has its own name resolved to our address (DNS
rebinding) is of the server's own origin, but comes with that name. Programs send no `Origin`, and call the
server by a name they know. Knows no sockets; `actors/http/routes.py` asks.

Sources: the Fetch standard (CORS protocol, preflight), RFC 6454 (Origin), RFC 6455 §10.2.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final

from starlette.datastructures import Headers

from ...protocols.errors import ForbiddenError
from ..config.host_patterns import is_named
from ..config.server import ListenConfig

Fields = list[tuple[bytes, bytes]]
"""Header fields as ASGI has them."""

_PRIVATE_ENDINGS: Final = (
    ".localhost",
    ".local",
    ".internal",
    ".svc",
    ".cluster.local",
    ".lan",
    ".home.arpa",
)
"""Names that the public DNS never has, so that no page of somebody else's can be served under them."""
_PORT: Final = re.compile(r":\d*$")
_MAX_AGE_S: Final = b"600"
"""How long a browser may remember a preflight's answer."""


class Origins:
    """The rules of one server."""

    def __init__(self, config: ListenConfig) -> None:
        self._allowed_origins = frozenset(each.lower() for each in config.allowed_origins)
        self._allowed_hosts = config.allowed_hosts
        self._takes_private_names = not is_loopback(config.host)
        self._machine = socket.gethostname().lower()
        if not self._allowed_hosts and self._takes_private_names and config.needs_key:
            self._allowed_hosts = ("*",)  # a page that cannot know a key gains nothing by a name

    def check(self, headers: Headers) -> None:
        """Raise ForbiddenError for a request that a page makes which may not."""
        host = headers.get("host")
        if host is not None and not self._takes_host(_name(host)):
            raise ForbiddenError(
                f"The server is not called {_name(host)[:80]!r}. If it is, start it with `--allowed-hosts` "
                "and that name.",
                code="host_not_allowed",
            )
        origin = headers.get("origin")
        if origin is not None and not self._takes_origin(origin, host):
            raise ForbiddenError(
                f"Pages of {origin[:80]!r} may not use this server. To allow it, start the server with "
                "`--allowed-origins` and that origin.",
                code="origin_not_allowed",
            )

    def fields(self, headers: Headers) -> Fields:
        """What an answer needs for the page of an allowed origin to read it."""
        found: Fields = []
        if self._allowed_origins:
            found.append((b"vary", b"Origin"))
        origin = headers.get("origin")
        if origin is not None and self._is_listed(origin):
            found.append((b"access-control-allow-origin", origin.encode("latin-1")))
            found.append((b"access-control-expose-headers", b"*"))
        return found

    def preflight(self, headers: Headers) -> Fields:
        """The fields of the answer to a preflight of a page that passed `check`; `fields` come with it."""
        found = [
            (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE, OPTIONS"),
            (b"access-control-max-age", _MAX_AGE_S),
        ]
        if wanted := headers.get("access-control-request-headers"):
            found.append((b"access-control-allow-headers", wanted.encode("latin-1")))
        if "access-control-request-private-network" in headers:
            found.append((b"access-control-allow-private-network", b"true"))
        return found

    def _takes_host(self, name: str) -> bool:
        if name == "localhost" or _is_address(name):
            return True
        if self._allowed_hosts:
            return "*" in self._allowed_hosts or is_named(name, self._allowed_hosts)
        if not self._takes_private_names:
            return name.endswith(".localhost")
        return "." not in name or name.endswith(_PRIVATE_ENDINGS) or name == self._machine

    def _takes_origin(self, origin: str, host: str | None) -> bool:
        if self._is_listed(origin):
            return True
        scheme, _, own = origin.lower().partition("://")
        # Which of the two schemes is not looked at: a proxy may have taken the TLS off.
        return scheme in ("http", "https") and host is not None and own == host.lower()

    def _is_listed(self, origin: str) -> bool:
        return "*" in self._allowed_origins or origin.lower() in self._allowed_origins


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks what a page may do before it does it."""
    return method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is one that only this machine reaches."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def _name(host: str) -> str:
    """A `Host` without port, and a root dot."""
    return _PORT.sub("", host.strip().lower()).rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
