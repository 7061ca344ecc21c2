"""Host memory in pages of 2 MiB, memory that nobody has touched or soon will, and memory that is used again.

A step reads all weights once. In pages of 4 KiB the processor looks up an address every 64 cache lines, and
stops fetching ahead there, which may cost half of the rate. So what is read whole is asked for in large
pages. Linux may refuse, or have none left: then all stays as it was.

Linux hands out pages full of zeros, which for the encoding of a window (18 MB of whisper-base) takes 3 ms,
and 20 where a virtual machine gets them from its host first. So what was used for one is kept for the next.
Keys and values of 1024 positions of Qwen3-0.6B (117 MB) take 200 there, so their pages are asked for ahead.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import math
import mmap
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import torch
from torch import Tensor

LARGE_PAGE: Final = 1 << 21
"""Bytes. Other sizes that some processors have do no harm: then larger or smaller pieces are asked for."""
_WORTH_IT: Final = 1 << 18
"""Bytes below which memory stays where it is: a core's own cache holds it."""
_MADV_COLLAPSE: Final = 25  # Linux 6.1
_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14
_MAX_KEPT: Final = 1 << 26
"""Bytes that are kept for whoever comes next; one piece may be larger."""
_POSITIONS_AHEAD: Final = 8192
_MAX_AHEAD: Final = 1 << 29
"""Bytes of a cache that are there before they are wanted."""
_PAUSE_S: Final = 0.005
"""Without a step, before a large page is asked for, which takes 0.2 ms, or 2 in a virtual machine."""


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
    if device.type != "cpu" or 0 in shape:
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.frombuffer(_new_pages(_num_bytes(shape, dtype)), dtype=dtype).view(shape)


class Ahead:
    """Has pages of `cache` [layers, blocks, 2, heads, block_size, size] there before blocks are written to:
    those of the first blocks, and of as many behind whichever was reached. Contents stay what they are.

    A thread asks for them while no step computes. Nothing happens on GPUs and where Linux cannot.
    """

    def __init__(self, cache: Tensor) -> None:
        self._cache = cache
        num_bytes = max(cache.nbytes, 1)  # a model without a cache has one of no layers
        self._margin = min(_POSITIONS_AHEAD // cache.shape[4], _MAX_AHEAD * cache.shape[1] // num_bytes)
        self._done = 0  # blocks
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._thread: threading.Thread | None = None
        self._is_possible = cache.device.type == "cpu" and cache.nbytes > 0 and _madvise() is not None
        self._reach(0)

    @contextlib.contextmanager
    def waiting(self, blocks: Iterable[int]) -> Iterator[None]:
        """While a step computes that writes to these blocks."""
        self._is_idle.clear()
        try:
            yield
        finally:
            self._is_idle.set()
            self._reach(max(blocks, default=0))

    def _reach(self, block: int) -> None:
        is_busy = self._thread is not None and self._thread.is_alive()
        if not self._is_possible or is_busy or block + self._margin // 2 < self._done:
            return
        begin, self._done = max(self._done, block), min(block + self._margin, self._cache.shape[1])
        if begin < self._done:
            some = range(begin, self._done, max(self._margin // 16, 1))
            parts = [layer[at : min(at + some.step, self._done)] for at in some for layer in self._cache]
            self._thread = threading.Thread(target=_populate, args=(parts, self._is_idle), daemon=True)
            with contextlib.suppress(RuntimeError):  # no memory for a thread: pages come as they are used
                self._thread.start()


def _populate(parts: list[Tensor], is_idle: threading.Event) -> None:
    advise, never = _madvise(), threading.Event()
    assert advise is not None
    for part in parts:
        begin, end = part.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE, part.data_ptr() + part.nbytes
        for at in range(begin, end, LARGE_PAGE):
            is_idle.wait()
            while never.wait(_PAUSE_S) or not is_idle.wait(0):  # not between two steps
                is_idle.wait()
            advise(at, min(LARGE_PAGE, end - at), _MADV_POPULATE_WRITE)


def recycled(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor with anything in it, for what comes and goes in like sizes: on a CPU in large pages that
    another one was in, if it is not used any more."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    pages = _kept.take(_num_bytes(shape, dtype))
    lease = (ctypes.c_char * len(pages)).from_buffer(pages)  # torch holds on to it as long as anybody reads
    weakref.finalize(lease, _kept.give_back, pages)
    return torch.frombuffer(lease, dtype=dtype, count=math.prod(shape)).view(shape)


class _Kept:
    """Pages that are used again, the longest unused first in line to go. Any thread may come."""

    def __init__(self) -> None:
        self._pieces: list[mmap.mmap] = []
        self._lock = threading.RLock()  # what is collected meanwhile may be given back by the same thread

    def take(self, num_bytes: int) -> mmap.mmap:
        """At least so many bytes, and at most a quarter more or a page."""
        with self._lock:
            most = num_bytes + max(num_bytes // 4, LARGE_PAGE)
            fitting = [piece for piece in self._pieces if num_bytes <= len(piece) <= most]
            if fitting:
                self._pieces.remove(smallest := min(fitting, key=len))
                return smallest
        return _new_pages(num_bytes)

    def give_back(self, pages: mmap.mmap) -> None:
        """Nobody reads them any more."""
        with self._lock:
            self._pieces.append(pages)
            while len(self._pieces) > 1 and sum(map(len, self._pieces)) > _MAX_KEPT:
                del self._pieces[0]


_kept = _Kept()


def _new_pages(num_bytes: int) -> mmap.mmap:
    """Raises MemoryError that states the size where the system refuses it."""
    try:
        pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(f"cannot allocate memory: tried to allocate {num_bytes} bytes") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _num_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return max(1, math.prod(shape)) * dtype.itemsize
