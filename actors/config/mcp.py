"""Which MCP servers a request may have called: one of the value objects of `actors/config/server.py`.

None, unless an operator names them: their addresses are written by clients, and what they answer reaches the
model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import httpx

from ..errors import ConfigError
from .blocked_networks import Network, read_networks
from .host_patterns import check_networks
from .urls import has_port, host_of, read_url
from .validation import check

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class McpConfig:
    """MCP servers whose tools are called for /v1/responses (docs/responses.md).

    Attributes
    ----------
    allowed_mcp_servers
        Address of an MCP server that requests may name, as https://mcp.example.com/mcp, and of all below it;
        repeat it for several. Without it, no request may name one.
    allowed_mcp_networks
        Private network in which such servers are allowed, as 10.1.0.0/16; repeat it for several.
    mcp_timeout_s
        Seconds in which an MCP server must list its tools, or return the result of a call.
    """

    allowed_mcp_servers: tuple[str, ...] = ()
    allowed_mcp_networks: tuple[str, ...] = ()
    mcp_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        for address in self.allowed_mcp_servers:
            found = read_mcp_address(address)
            if found is None or found.query or found.fragment:
                raise ConfigError(
                    f"--allowed-mcp-servers is {address!r}; allowed: an address as "
                    "https://mcp.example.com/mcp, without a user's name, ? and #"
                )
        check_networks("--allowed-mcp-networks", self.allowed_mcp_networks)
        check("mcp_timeout_s", self.mcp_timeout_s, 0.1, 600)

    @property
    def networks(self) -> tuple[Network, ...]:
        """`allowed_mcp_networks`, read."""
        return read_networks(self.allowed_mcp_networks)

    def allowed_as(self, address: httpx.URL) -> str:
        """Which of those named it is, or is below; empty: none."""
        for named in self.allowed_mcp_servers:
            known = read_mcp_address(named)
            if known is not None and _is_below(address, known):
                return named
        return ""


def read_mcp_address(text: str) -> httpx.URL | None:
    """An http: or https: address in its parts, None if it is none that can be connected to."""
    found = read_url(text)
    if found is None or found.scheme not in _PORTS or not found.raw_host or found.userinfo:
        return None
    return found if has_port(found) else None


def _is_below(address: httpx.URL, known: httpx.URL) -> bool:
    if _place(address) != _place(known):
        return False
    # As a server may read them: a part written as %2e%2e is one that leads up, too.
    parts = unquote(address.path.replace("\\", "/")).split("/")
    if ".." in parts or "." in parts:
        return False
    path = known.path.rstrip("/")
    return address.path == path or address.path.startswith(f"{path}/")


def _place(address: httpx.URL) -> tuple[str, str, int]:
    host = host_of(address).rstrip(".").lower()
    return address.scheme, host, address.port or _PORTS[address.scheme]
