"""Host memory in pages of 2 MiB, and memory that nobody has touched.

A step reads all weights once. In pages of 4 KiB the processor looks up an address every 64 cache lines, and
stops fetching ahead there, which may cost half of the rate. So what is read whole is asked for in large
pages. Linux may refuse, or have none left: then all stays as it was.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import mmap
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

LARGE_PAGE: Final = 1 << 21
"""Bytes. Other sizes that some processors have do no harm: then larger or smaller pieces are asked for."""
_WORTH_IT: Final = 1 << 18
"""Bytes below which memory stays where it is: a core's own cache holds it."""
_MADV_COLLAPSE: Final = 25  # Linux 6.1


def use_large_pages(address: int, num_bytes: int) -> None:
    """Move what lies there into large pages, now where Linux can, or by and by.

    It stays at its address, and so does what lies around it in the same pages. Takes about 0.2 ms a MiB.
    """
    advise = _madvise()
    if num_bytes < _WORTH_IT or advise is None:
        return
    # One after the other: what lies around the ends may be memory that cannot be moved, which ends a call.
    for begin in range(address // LARGE_PAGE * LARGE_PAGE, address + num_bytes, LARGE_PAGE):
        advise(begin, LARGE_PAGE, mmap.MADV_HUGEPAGE)
        advise(begin, LARGE_PAGE, _MADV_COLLAPSE)


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return function


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, which on a CPU take memory only where they have been written to, by large pages."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = max(1, math.prod(shape) * dtype.itemsize)
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype, count=math.prod(shape)).view(shape)
