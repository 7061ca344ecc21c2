"""The memory that the limits of a process (`ulimit -v`, `prlimit --as`) leave it, and errors of refused
memory: refused by such a limit, or by a machine that has none left.

Torch-free: the serving process asks, too. `engine/models/memory.py` shares out what is left.
"""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..protocols.errors import ModelLoadError

_STATUS: Final = Path("/proc/self/status")
_LIMITS: Final = (
    (resource.RLIMIT_AS, "VmSize", "address space (ulimit -v)"),
    (resource.RLIMIT_DATA, "VmData", "data (ulimit -d)"),
)
"""Each limit, what counts against it, and what it is called."""
_WANTED: Final = re.compile(r"allocate (\d+) bytes|\bsize (\d+)\b", re.IGNORECASE)
_PHRASES: Final = ("allocate memory", "not enough memory", "out of memory", "std::bad_alloc")
_LIBRARY: Final = re.compile(r"(\S+): (?:failed to map segment|cannot (?:map|allocate)|cannot create shared)")
_MIB: Final = 1 << 20


def limited_bytes(status: Path = _STATUS) -> int | None:
    """Bytes that the limits of this process leave it, never below 0; None: it has no limits."""
    left = [limit - used for limit, used, _ in _limits(status)]
    return max(0, min(left)) if left else None


def shortage(error: BaseException) -> str | None:
    """What was wanted, where `error` (or one in its group) means that memory was refused; else None."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(shortage, error.exceptions)), None)
    text = str(error)
    match error:
        case MemoryError():
            pass
        case OSError(errno=errno.ENOMEM):
            pass
        case ImportError() | OSError() if library := _LIBRARY.search(text):
            return _refused(f"loading {library[1]}")
        case RuntimeError() if "start new thread" in text:
            return _refused("one more thread")
        case RuntimeError() | ImportError() if reports_shortage(text):
            pass
        case _:
            return None
    wanted = _WANTED.search(text)
    return _refused(f"{int(wanted[1] or wanted[2]) / _MIB:.1f} MiB" if wanted else "some memory")


def reports_shortage(message: str) -> bool:
    """Whether a library's message means that memory was refused: torch has no error class for it on CPUs."""
    return any(phrase in message.lower() for phrase in _PHRASES)


@contextmanager
def naming_shortage(name: str) -> Iterator[None]:
    """Raises ModelLoadError in one line for refused memory, which would be a long traceback."""
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        if (problem := shortage(error)) is None:
            raise
        raise ModelLoadError(f"{name}: {problem}") from error


def _refused(wanted: str) -> str:
    limits = [
        f"the limit of {what} is {limit / _MIB:.1f} MiB, with {used / _MIB:.1f} MiB in use"
        for limit, used, what in _limits(_STATUS)
    ]
    where = "; ".join(limits) or "the machine has none left"
    return (
        f"not enough memory: {wanted} was wanted and refused ({where}); allow more, or take a smaller model, "
        "a smaller --kv-memory or --max-context"
    )


def _limits(status: Path) -> Iterator[tuple[int, int, str]]:
    """Of those that are set: the limit, what is in use of it, and its name."""
    for kind, field, what in _LIMITS:
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY:
            yield limit, _used(field, status), what


def _used(field: str, status: Path) -> int:
    try:
        found = re.search(rf"^{field}:\s*(\d+) kB", status.read_text(), re.MULTILINE)
    except OSError:  # not Linux
        return 0
    return int(found[1]) * 1024 if found else 0
