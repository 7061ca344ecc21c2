"""Which addresses of MCP servers an operator allows."""

from __future__ import annotations

import pytest
from sensorium.actors.config.mcp import McpConfig, read_mcp_address
from sensorium.actors.errors import ConfigError


def is_allowed(url: str, *allowed: str) -> bool:
    address = read_mcp_address(url)
    return address is not None and bool(McpConfig(allowed).allowed_as(address))


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/mcp",
        "https://a.example/mcp/",
        "https://a.example:443/mcp/x?y=1",
        "https://A.EXAMPLE./mcp",
    ],
)
def test_an_address_and_all_below_it_is_allowed(url: str) -> None:
    assert is_allowed(url, "http://b.example", "https://a.example/mcp")
    assert is_allowed(url, "https://a.example")
    assert not is_allowed(url)


def test_a_name_that_idna_refuses_is_a_name_like_others() -> None:
    """DNS has such names; httpx would read them back, and raise."""
    assert is_allowed("https://xn--ls8h.la/mcp", "https://xn--ls8h.la/mcp")
    assert not is_allowed("https://xn--ls8h.la/mcp", "https://a.example/mcp")


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/mcp",
        "https://a.example:8443/mcp",
        "https://b.example/mcp",
        "https://a.example.b.example/mcp",
        "https://a.example/",
        "https://a.example/mcps",
        "https://a.example/mcp/../admin",
        "https://a.example/mcp/%2e%2e/admin",
        "https://a.example/mcp/%252e%252e/admin",
        "https://a.example/mcp/..\\admin",
        "https://user@a.example/mcp",
        "https://a.example@b.example/mcp",
        "ftp://a.example/mcp",
        "https:///mcp",
        "a.example/mcp",
        "",
    ],
)
def test_no_other_is(url: str) -> None:
    assert not is_allowed(url, "https://a.example/mcp")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"allowed_mcp_servers": ("a.example",)}, "--allowed-mcp-servers is 'a.example'"),
        ({"allowed_mcp_servers": ("https://a.example/?b",)}, "--allowed-mcp-servers"),
        ({"allowed_mcp_networks": ("here",)}, "--allowed-mcp-networks is 'here'"),
        ({"mcp_timeout_s": 0.0}, "--mcp-timeout-s is 0.0"),
    ],
)
def test_what_is_wrong_names_the_option(fields: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        McpConfig(**fields)  # type: ignore[arg-type]
