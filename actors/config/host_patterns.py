"""How an operator names hosts, networks and web pages: what is said of what is no name, and who is meant.

Pages are `actors/http/origins.py`'s business, networks `actors/config/blocked_networks.py`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..errors import ConfigError
from .blocked_networks import read_networks

_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]*", re.IGNORECASE)
_OWN_HOST: Final = re.compile(r"\*|(\*\.)?[^\s:/*]+")
_HOST: Final = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?", re.IGNORECASE)


def check_origins(origins: Sequence[str]) -> None:
    """Raise ConfigError for the first that is no origin."""
    allowed = "*, null, or a scheme and a host as https://app.example.com, without a path"
    _check("--allowed-origins", origins, _ORIGIN, allowed)


def check_own_hosts(names: Sequence[str]) -> None:
    """Raise ConfigError for the first that is no host's name."""
    allowed = "*, or a name as asr.example.com or *.example.com, without scheme and port"
    _check("--allowed-hosts", names, _OWN_HOST, allowed)


def check_hosts(option: str, names: Sequence[str], example: str) -> None:
    """Raise ConfigError for the first that is no name in DNS, nor one with all below it."""
    allowed = f"a name as {example}.example.com or *.example.com, without scheme and port"
    _check(option, names, _HOST, allowed)


def check_networks(option: str, networks: Sequence[str]) -> None:
    """Raise ConfigError for the first that is no network."""
    for network in networks:
        try:
            read_networks([network])
        except ValueError:
            allowed = "a network as 10.1.0.0/16 or fd00::/8, or an address"
            raise ConfigError(f"{option} is {network!r}; allowed: {allowed}") from None


def is_named(host: str, names: Sequence[str]) -> bool:
    """Whether a host, in lower case, is one of those named, or below one as *.example.com."""
    known = [name.lower() for name in names]
    return any(host == name or (name[:2] == "*." and host.endswith(name[1:])) for name in known)


def _check(option: str, given: Sequence[str], pattern: re.Pattern[str], allowed: str) -> None:
    for each in given:
        if not pattern.fullmatch(each):
            raise ConfigError(f"{option} is {each!r}; allowed: {allowed}")
