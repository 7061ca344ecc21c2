"""The servers behind a gateway, and what it may hold for their clients: the value object of `sensorium
gateway`.

Beside it a gateway has the objects of a server for where it listens (`network.py`) and what it logs. Read
next: `actors/gateway/gateway.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from ..errors import ConfigError
from .urls import has_port, read_url
from .validation import MIB, check

_DRAIN: Final = "drain"
_MAX_FILE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is: nothing that a client sends has a part in it."""

    url: str
    """As it is named in logs and metrics."""
    is_tls: bool
    host: str
    port: int
    authority: str
    """What `Host` says."""
    prefix: str
    """What paths begin with, empty for most."""


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server, and whether it is to be left alone."""

    address: ServerAddress
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The servers behind a gateway, and what it may hold for their clients.

    Attributes
    ----------
    servers
        Addresses of servers, as http://10.0.0.5:8000 or https://api.example.com/v1.
    servers_file
        File with the address of one server per line (# begins a comment). It may change while the gateway
        runs. A line `http://10.0.0.5:8000 drain` gives that server nothing new; requests that it has are
        finished.
    server_api_key
        API key that the gateway shows to the servers in place of the client's.
    health_interval_s
        Seconds between two probes of a server.
    dead_after_s
        Seconds without an answer to a probe after which a server's requests are given up.
    max_requests
        Requests at a time, of all clients together; one more is answered 503.
    max_sessions
        WebSockets at a time, of all clients together; one more is answered 503.
    max_requests_per_server
        Requests and WebSockets that one server has at most; 0: the server decides.
    replay_mib
        Largest body that is kept until its answer begins, so that another server can be tried.
    replay_memory_mib
        What all such bodies may take together.
    max_upload_mib
        Largest body of a request.
    max_message_mib
        Largest WebSocket message.
    """

    servers: Annotated[tuple[str, ...], Parameter(parse=False, help="Addresses of servers.")] = ()
    servers_file: Path | None = None
    server_api_key: str = field(default="", repr=False)
    health_interval_s: float = 1.0
    dead_after_s: float = 5.0
    max_requests: int = 1024
    max_sessions: int = 4096
    max_requests_per_server: int = 0
    replay_mib: float = 4.0
    replay_memory_mib: float = 256.0
    max_upload_mib: float = 512.0
    max_message_mib: float = 20.0

    def __post_init__(self) -> None:
        check("health_interval_s", self.health_interval_s, 0.05, 3600)
        check("dead_after_s", self.dead_after_s, 0.1, 3600)
        check("max_requests", self.max_requests, 1)
        check("max_sessions", self.max_sessions, 1)
        check("max_requests_per_server", self.max_requests_per_server, 0)
        check("replay_mib", self.replay_mib, 0, 1024)
        check("replay_memory_mib", self.replay_memory_mib, 0, 1024 * 1024)
        check("max_upload_mib", self.max_upload_mib, 0.001, 1024 * 1024)
        check("max_message_mib", self.max_message_mib, 0.001, 256)

    def listed(self) -> tuple[ListedServer, ...]:
        """The servers, those of the file as it is now. Raises ConfigError."""
        found = [ListedServer(read_address(url)) for url in self.servers]
        if self.servers_file is not None:
            found += _read(self.servers_file)
        urls = [each.address.url for each in found]
        if not urls and self.servers_file is None:
            raise ConfigError("no server named; allowed: at least one address, or --servers-file")
        if not urls:
            raise ConfigError(
                f"--servers-file is {str(self.servers_file)!r}: it has no server; allowed: one a line"
            )
        if len(set(urls)) < len(urls):
            twice = next(url for url in urls if urls.count(url) > 1)
            raise ConfigError(f"the server {twice} is named twice; allowed: once")
        return tuple(found)

    @property
    def replay_bytes(self) -> int:
        """Largest body that is kept to be sent again."""
        return int(self.replay_mib * MIB)

    @property
    def replay_memory_bytes(self) -> int:
        """What all of them may take."""
        return int(self.replay_memory_mib * MIB)

    @property
    def max_upload_bytes(self) -> int:
        """Largest body."""
        return int(self.max_upload_mib * MIB)

    @property
    def max_message_bytes(self) -> int:
        """Largest WebSocket message."""
        return int(self.max_message_mib * MIB)


def read_address(text: str) -> ServerAddress:
    """The parts of a server's address; one that ends in `/v1` is the same without. Raises ConfigError."""
    url = read_url(text)
    if (
        url is None
        or url.scheme not in ("http", "https")
        or not url.host
        or not has_port(url)
        or url.userinfo
        or url.query
        or url.fragment
    ):
        raise ConfigError(f"the server is {text!r}; allowed: an address as http://10.0.0.5:8000")
    prefix = url.raw_path.decode("ascii").rstrip("/").removesuffix("/v1").rstrip("/")
    authority = url.netloc.decode("ascii")
    is_tls = url.scheme == "https"
    host = url.raw_host.decode("ascii").strip("[]")
    return ServerAddress(
        f"{url.scheme}://{authority}{prefix}",
        is_tls,
        host,
        url.port or (443 if is_tls else 80),
        authority,
        prefix,
    )


def _read(file: Path) -> list[ListedServer]:
    option = f"--servers-file is {str(file)!r}"
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_FILE_BYTES + 1).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{option}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option}: not UTF-8") from None
    if len(text) > _MAX_FILE_BYTES:
        raise ConfigError(f"{option}: larger than {_MAX_FILE_BYTES:,} bytes")
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > 2 or words[1:] not in ([], [_DRAIN]):
            raise ConfigError(
                f"{option}, line {number} is {line.strip()!r}; allowed: an address, or one and `{_DRAIN}`"
            )
        try:
            found.append(ListedServer(read_address(words[0]), words[1:] == [_DRAIN]))
        except ConfigError as error:
            raise ConfigError(f"{option}, line {number}: {error}") from None
    return found
