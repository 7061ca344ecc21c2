"""Where the server listens and who may come in: one of the value objects of `actors/config/server.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from .host_patterns import check_origins, check_own_hosts
from .validation import check


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Where the server listens, who may come in, and how it leaves.

    Attributes
    ----------
    host
        Address to listen on.
    port
        Port to listen on; 0 takes a free one.
    health_port
        A second port of the same address, for nothing but /live, /health and /ping. Open to what probes the
        server and not to clients, it is not affected by connections to the first one. 0: none.
    api_key
        Accepted API key; repeat for several. Without one, everybody may come in.
    api_key_file
        File with one accepted API key a line (# begins a comment). It may change while the server runs.
    allowed_origins
        Origin of web pages that may use the server, as https://app.example.com; repeat for several, or * for
        every page there is. Pages of the server's own address always may.
    allowed_hosts
        Name by which the server may be called, as asr.example.com or *.example.com; repeat for several, or *
        for any. IP addresses and localhost always are. If none is given: no other name where only this
        machine reaches the server, else any name with an API key, and without one only names that public DNS
        does not have.
    drain_s
        Seconds that open turns and requests may take to finish after SIGINT or SIGTERM.
    send_timeout_s
        Seconds a client may read nothing of what we send before its connection is cut.
    keep_alive_s
        Seconds a connection may be without a request before it is closed.
    max_connections
        Connections at once, never more than the process' limit of descriptors (`ulimit -n`) allows less a
        third. One more closes the one that has been idle longest; where none is idle it is answered 503,
        all but /health. 0 takes 4096.
    max_connections_per_address
        Of them, those of one address (of IPv6: one /64). Behind a proxy all have its address: give it all of
        max_connections then. 0 takes half of them.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    health_port: int = 0
    api_key: tuple[str, ...] = ()
    api_key_file: Path | None = None
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    drain_s: float = 10.0
    send_timeout_s: float = 10.0
    keep_alive_s: float = 30.0
    max_connections: int = 0
    max_connections_per_address: int = 0

    def __post_init__(self) -> None:
        if not self.host.strip():  # the system would take it for every address
            raise ConfigError("--host is ''; allowed: an address or a name; 0.0.0.0 is every address")
        check("port", self.port, 0, 65_535)
        check("health_port", self.health_port, 0, 65_535)
        if self.health_port and self.health_port == self.port:
            raise ConfigError(f"--health-port is {self.port}, as --port; allowed: another one, or 0 for none")
        check("keep_alive_s", self.keep_alive_s, 0.1)
        check("max_connections", self.max_connections, 0)
        check("max_connections_per_address", self.max_connections_per_address, 0)
        check("drain_s", self.drain_s, 0)
        check("send_timeout_s", self.send_timeout_s, 0.1)
        if any(not key.strip() for key in self.api_key):
            raise ConfigError("--api-key is ''; allowed: a text that is not empty")
        check_origins(self.allowed_origins)
        check_own_hosts(self.allowed_hosts)

    @property
    def needs_key(self) -> bool:
        """Whether only who shows a key may come in."""
        return bool(self.api_key) or self.api_key_file is not None
