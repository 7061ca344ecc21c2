"""What is not public is not reached, however it is written; what an operator allows is."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.config.blocked_networks import is_reachable, read_networks


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1"])
def test_public_addresses_are_reached(address: str) -> None:
    assert is_reachable(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
        *("192.168.1.1", "169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.8", "198.18.0.1"),
        *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.88.99.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1", "fec0::1"),
        *("::ffff:127.0.0.1", "::ffff:1.1.1.1", "::127.0.0.1", "2002:7f00:1::", "2002:101:101::1"),
        *("64:ff9b::7f00:1", "64:ff9b::1.1.1.1", "64:ff9b:1::1", "2001:0:1::1", "2001:db8::1", "100::1"),
        *("3fff::1", "5f00::1", "fd00:ec2::254"),
    ],
)
def test_all_else_is_refused(address: str) -> None:
    assert not is_reachable(address)


def test_allowed_networks_are_reached_and_nothing_beside_them() -> None:
    allowed = read_networks(["10.1.0.0/16", "fd00:1::/32", "127.0.0.1"])
    assert is_reachable("10.1.2.3", allowed)
    assert is_reachable("fd00:1::5", allowed)
    assert is_reachable("127.0.0.1", allowed)
    assert not is_reachable("10.2.0.1", allowed)
    assert not is_reachable("127.0.0.2", allowed)
    assert not is_reachable("fd00:2::5", allowed)


def test_a_translating_network_that_is_allowed_reaches_public_addresses_only() -> None:
    allowed = read_networks(["64:ff9b::/96"])
    assert is_reachable("64:ff9b::1.1.1.1", allowed)
    assert not is_reachable("64:ff9b::127.0.0.1", allowed)
    assert not is_reachable("64:ff9b::10.0.0.1", allowed)
    assert is_reachable("64:ff9b::10.0.0.1", [*allowed, *read_networks(["10.0.0.0/8"])])


@given(st.ip_addresses())
def test_what_python_calls_not_global_is_never_reached(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not address.is_global or address.is_multicast:
        assert not is_reachable(str(address))
