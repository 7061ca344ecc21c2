"""What a failed computation means: no memory left, or a device that is lost, and how to say so."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

import torch

from ...protocols.errors import DeviceLostError
from ..memory_limits import reports_shortage

P = ParamSpec("P")
T = TypeVar("T")

_REQUESTED = re.compile(r"tried to allocate ([\d.]+ ?\w+)", re.IGNORECASE)
_MAX_LENGTH = 200
NO_KERNELS: Final = "this thread can compile no kernels any more, for want of memory"
_NO_KERNEL = "could not create a primitive"
"""oneDNN's words. It has others for what it cannot compute at all ("… a primitive descriptor …")."""


def out_of_memory(error: BaseException) -> str | None:
    """What to say if this error means that the device (or the host) has no memory left, else None.

    On CPUs torch has no class for it; its own messages name devices and processes, ours how much was asked.
    """
    text = str(error)
    is_known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    if not is_known and not reports_shortage(text):
        return None
    requested = _REQUESTED.search(text)
    reason = "the device is out of memory"
    return f"{reason} (it was asked for {requested[1]})" if requested else reason


def spoils_thread(error: BaseException) -> bool:
    """Whether this thread can compile no kernel any more: oneDNN's compiler keeps its first error, which is
    want of memory, for as long as the thread lives that it happened in. In another thread it works."""
    return str(error) == _NO_KERNEL


def naming_device_loss(function: Callable[P, T]) -> Callable[P, T]:
    """Raise an accelerator's own error as DeviceLostError: nothing works on it in this process after one."""

    @wraps(function)
    def named(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except torch.AcceleratorError as error:
            raise DeviceLostError(f"the device failed: {first_line(error)}") from error

    return named


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or else its kind."""
    lines = str(error).strip().splitlines()
    return lines[0][:_MAX_LENGTH] if lines else type(error).__name__
