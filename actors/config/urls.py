"""Parts of a URL, as they are checked and connected to."""

from __future__ import annotations

import httpx


def read_url(text: str) -> httpx.URL | None:
    """An address in its parts, None if it cannot be read. What is checked is what is connected to: it is
    parsed once."""
    try:
        return httpx.URL(text)
    except (httpx.InvalidURL, ValueError, UnicodeError):
        return None


def host_of(target: httpx.URL) -> str:
    """The host as DNS has it. `.host` would read punycode back, and raise for names that IDNA refuses."""
    return target.raw_host.decode("ascii")


def has_port(target: httpx.URL) -> bool:
    """Whether its port, if it names one, is one that there is."""
    return target.port is None or 0 < target.port < 1 << 16
