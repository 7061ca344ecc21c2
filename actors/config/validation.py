"""What is said of an option whose value is not allowed. Used by what `actors/config/server.py` composes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from ...engine.models.memory import MemorySize
from ...protocols.chat.request import check_template_kwargs
from ...protocols.errors import BadRequestError
from ..errors import ConfigError

MIB: Final = 1024 * 1024
MAX_PORT: Final = 65_535
_MAX_PORT_DIGITS: Final = 5


def is_whole(kind: object) -> bool:
    """Whether a type of an option has whole numbers, also in a list, or None beside them."""
    return kind is int or any(map(is_whole, get_args(kind)))


def check(option: str, value: float, low: float, high: float = math.inf) -> None:
    """Raise ConfigError unless the value is inside."""
    if not low <= value <= high or value == math.inf:
        allowed = f"{low:g} to {high:g}" if high < math.inf else f"at least {low:g}"
        allowed += ", and finite" if value == math.inf else ""
        raise ConfigError(f"--{option.replace('_', '-')} is {value!r}; allowed: {allowed}")


def check_bytes(option: str, value: str) -> None:
    """Raise ConfigError unless the value is a size, not a share."""
    size = memory_size(option, value)
    if size is None or size.unit != "bytes":
        name = option.replace("_", "-")
        raise ConfigError(f"--{name} is {value!r}; allowed: a size as 2GiB or 512MiB")


def check_word(option: str, value: str, allowed: Sequence[str]) -> None:
    """Raise ConfigError unless the value is one of these."""
    if value not in allowed:
        raise ConfigError(f"--{option.replace('_', '-')} is {value!r}; allowed: {', '.join(allowed)}")


def check_file(option: str, value: str) -> None:
    """Raise ConfigError for a path of no file; empty: there is none."""
    if value and not Path(value).is_file():
        raise ConfigError(f"--{option.replace('_', '-')} is {value!r}: no such file")


def memory_size(option: str, value: str) -> MemorySize | None:
    """A size or a share; None for auto. Raises ConfigError."""
    if value == "auto":
        return None
    try:
        return MemorySize.parse(value)
    except ValueError:
        raise ConfigError(
            f"--{option.replace('_', '-')} is {value!r}; allowed: auto, a size as 2GiB or 512MiB, or a share "
            "as 0.5"
        ) from None


def read_pins(value: str) -> dict[str, str]:
    """`linear=c,attention=fused` as a mapping. Raises ConfigError."""
    pairs = [part.split("=") for part in value.split(",") if part.strip()]
    if not all(len(pair) == 2 and pair[0].strip() and pair[1].strip() for pair in pairs):
        raise ConfigError(f"--pin-kernels is {value!r}; allowed: as linear=onednn,attention=fused")
    return {operation.strip(): candidate.strip() for operation, candidate in pairs}


def read_template_kwargs(value: str) -> dict[str, Any]:
    """The JSON of `default_chat_template_kwargs`; empty: nothing. Raises ConfigError."""
    try:
        kwargs: object = msgspec.json.decode(value or "{}")
        if isinstance(kwargs, dict):
            check_template_kwargs(kwargs)
            return kwargs
        problem = 'allowed: a JSON object, as {"enable_thinking": false}'
    except (msgspec.DecodeError, BadRequestError) as error:
        problem = str(error)
    raise ConfigError(f"--default-chat-template-kwargs is {value!r}: {problem}")


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address of TCP. `str` writes it as `read_host_port` reads it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_host_port(option: str, value: str, *, lowest_port: int = 1) -> HostPort:
    """HOST:PORT or [ADDRESS]:PORT; `lowest_port` is 0 where the system may choose. Raises ConfigError."""
    host, _, port = value.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_number = port.isascii() and port.isdecimal() and len(port) <= _MAX_PORT_DIGITS
    is_host = bool(host) and (is_bracketed or ":" not in host) and not set(host) & set("[]/ ")
    if not is_host or not is_number or not lowest_port <= int(port) <= MAX_PORT:
        raise ConfigError(
            f"--{option.replace('_', '-')} is {value!r}; allowed: HOST:PORT or [ADDRESS]:PORT with a port of "
            f"{lowest_port} to {MAX_PORT}, as 10.0.0.2:9000"
        )
    return HostPort(host, int(port))
