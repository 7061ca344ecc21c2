"""How an operator names web pages and the server's own hosts; what they mean is `actors/http/origins.py`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s]*", re.IGNORECASE)
_HOST: Final = re.compile(r"\*|(\*\.)?[^\s:/*]+")


def wrong_origin(origins: Sequence[str]) -> str | None:
    """What to say of the first that is no origin."""
    allowed = "*, null, or a scheme and a host as https://app.example.com, without a path"
    wrong = (each for each in origins if not _ORIGIN.fullmatch(each))
    return next((f"--allowed-origins is {each!r}; allowed: {allowed}" for each in wrong), None)


def wrong_host(names: Sequence[str]) -> str | None:
    """What to say of the first that is no host's name."""
    allowed = "*, or a name as asr.example.com or *.example.com, without scheme and port"
    wrong = (each for each in names if not _HOST.fullmatch(each))
    return next((f"--allowed-hosts is {each!r}; allowed: {allowed}" for each in wrong), None)
