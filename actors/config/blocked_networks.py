"""Which addresses of the network a server may be made to connect to by what a client writes.

Only those that everybody can reach: whatever is private, of this machine, of this link, of a provider's
inside or of many at once is refused, and so is IPv4 inside IPv6, whose inner address a router would go to.
What an operator allows beside is given as networks. Knows no names and no sockets; read next:
`actors/fetching/fetcher.py`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC_4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("168.63.129.16/32", "224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
"""IANA's special-purpose registry (RFC 6890 and its updates) as a whole, multicast, what is reserved, and the
one public address that a cloud answers its own machines at."""
_PUBLIC_6: Final = ipaddress.IPv6Network("2000::/3")
"""The only unicast addresses that are routed between networks (RFC 4291); the rest is refused unread, and
with it IPv4-mapped (::ffff:0:0/96), IPv4-compatible (::/96) and NAT64 addresses (64:ff9b::/96)."""
_NOT_PUBLIC_6: Final = tuple(
    map(
        ipaddress.IPv6Network,
        ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)
"""Of those: Teredo and other protocol assignments, documentation, 6to4, AS112."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks as 10.0.0.0/8 or fd00::/8, or single addresses. Raises ValueError."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def is_reachable(text: str, allowed: Sequence[Network] = ()) -> bool:
    """Whether a numeric address may be connected to: it is public, or in one of `allowed`.

    Where a network is allowed that holds IPv4 addresses inside IPv6, these have to be allowed, too.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if not _is_public(address) and not _is_in(address, allowed):
        return False
    inner = _inner(address)
    return inner is None or _is_public(inner) or _is_in(inner, allowed)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _inner(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a packet to this one ends at."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
