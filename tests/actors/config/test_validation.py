"""Addresses of options."""

from __future__ import annotations

import pytest
from sensorium.actors.config.validation import HostPort, read_host_port
from sensorium.actors.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.2:9000", HostPort("10.0.0.2", 9000)),
        ("node.internal:1", HostPort("node.internal", 1)),
        ("[::1]:65535", HostPort("::1", 65_535)),
    ],
)
def test_an_address_is_written_as_it_is_read(text: str, address: HostPort) -> None:
    assert read_host_port("engines", text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nowhere",
        ":9000",
        "a:",
        "a:0",
        "a:65536",
        "a:-1",
        "a:٣",
        "a:b",
        "::1:9000",
        "[::1:9000",
        "http://a:80",
    ],
)
def test_what_is_no_address_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--some-option is '.*'; allowed: HOST:PORT or \[ADDRESS\]:PORT"):
        read_host_port("some_option", text)


def test_port_0_is_for_those_who_listen() -> None:
    assert read_host_port("listen", "127.0.0.1:0", lowest_port=0) == HostPort("127.0.0.1", 0)
