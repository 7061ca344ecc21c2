"""What is said of an option whose value is not allowed. Used by `actors/config.py`, which has the options."""

from __future__ import annotations

import math

from ..engine.models.memory import MemorySize


class ConfigError(ValueError):
    """An option has a value that is not allowed; the message is one line for a person."""


class AddressError(OSError):
    """The address cannot be listened on; the message is one line for a person."""


def check(option: str, value: float, low: float, high: float = math.inf) -> None:
    """Raise ConfigError unless the value is inside."""
    if not low <= value <= high or value == math.inf:
        allowed = f"{low:g} to {high:g}" if high < math.inf else f"at least {low:g}"
        allowed += ", and finite" if value == math.inf else ""
        raise ConfigError(f"--{option.replace('_', '-')} is {value!r}; allowed: {allowed}")


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
