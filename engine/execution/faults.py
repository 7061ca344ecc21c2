"""What a failed computation means: whether the device had no memory left, and how to say so to a client."""

from __future__ import annotations

import re

import torch

_ASKED_FOR = re.compile(r"tried to allocate ([\d.]+ ?\w+)", re.IGNORECASE)
_PHRASES = ("out of memory", "not enough memory", "can't allocate memory")
_MAX_LENGTH = 200


def out_of_memory(error: BaseException) -> str | None:
    """What to say if this error means that the device (or the host) has no memory left, else None.

    On CPUs torch has no class for it; its own messages name devices and processes, ours how much was asked.
    """
    text = str(error)
    is_known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    if not is_known and not any(phrase in text.lower() for phrase in _PHRASES):
        return None
    asked = _ASKED_FOR.search(text)
    reason = "the device is out of memory"
    return f"{reason} (it was asked for {asked[1]})" if asked else reason


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or else its kind."""
    lines = str(error).strip().splitlines()
    return lines[0][:_MAX_LENGTH] if lines else type(error).__name__
