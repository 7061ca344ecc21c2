"""Where the server listens and who may come in: one of the value objects of `actors/config/server.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...protocols.server.signed_caller import MIN_SECRET_CHARS
from ..errors import ConfigError
from .blocked_networks import Network, read_networks
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
        A second port of the same address, for /live, /health and /ping only: for probes, unaffected by the
        connections of clients. 0: none.
    api_key
        Accepted API key; repeat it for several. Without one, no key is needed.
    api_key_file
        File with one accepted API key per line (# begins a comment). It may change while the server runs.
    allowed_origins
        Origin of web pages that may use the server, as https://app.example.com; repeat it for several; * is
        every page. Pages of the server's own address always may.
    allowed_hosts
        Host name of the server, as asr.example.com or *.example.com; repeat it for several; * is any. IP
        addresses and localhost are always allowed. Default: no other name if only this machine can reach the
        server; else any name if there is an API key, and names that are not in public DNS if there is none.
    drain_s
        Seconds that open turns and requests may take to finish after SIGINT or SIGTERM.
    send_timeout_s
        Seconds a client may read nothing of an answer before its connection is closed.
    keep_alive_s
        Seconds a connection may be without a request before it is closed.
    max_connections
        Connections at a time, at most two thirds of the process' limit of descriptors (`ulimit -n`). One more
        closes the one that has been idle longest; if none is idle it is answered 503, except /health. 0 takes
        4096.
    max_connections_per_address
        Connections of one address (IPv6: one /64) at a time; those of trusted proxies are not counted. 0
        takes half of max_connections.
    trusted_proxies
        Address or network of a proxy, as 10.0.0.0/8; repeat it for several. Who the client is, is believed of
        these proxies only: by X-Forwarded-For, by the PROXY protocol, or as a gateway has signed it.
    caller_secret
        Secret shared with `sensorium gateway`, of at least 16 characters: callers are distinguished as the
        gateway has signed, where it is one of the trusted proxies.
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
    trusted_proxies: tuple[str, ...] = ()
    caller_secret: str = field(default="", repr=False)

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
        if self.caller_secret and len(self.caller_secret) < MIN_SECRET_CHARS:
            raise ConfigError(
                f"--caller-secret is too short; allowed: at least {MIN_SECRET_CHARS} characters"
            )
        self.proxy_networks  # noqa: B018 (says what is wrong with them)
        check_origins(self.allowed_origins)
        check_own_hosts(self.allowed_hosts)

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        """Where trusted proxies are. Raises ConfigError."""
        try:
            return read_networks(self.trusted_proxies)
        except ValueError as error:
            raise ConfigError(
                f"--trusted-proxies: {error}; allowed: an address or a network, as 10.0.0.0/8"
            ) from None

    @property
    def needs_key(self) -> bool:
        """Whether only who shows a key may come in."""
        return bool(self.api_key) or self.api_key_file is not None
