"""What a process that decodes may do: little memory and time, no network, no files but its folder's.

It limits itself before its first job, for good; what is open already stays so. Linux has what it takes, but
not every kernel or container lets a process use it: `Protections` says what holds. **Files**: Landlock lets
it read what Python and the libraries are installed in, and use its own folder, and nothing else; where there
is no Landlock its root becomes that folder, and everything is loaded before. Sources: landlock(7),
unshare(2), getrlimit(2). What runs inside is `media/worker.py`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import math
import mmap
import os
import pkgutil
import resource
import signal
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

import av
from PIL import Image

from ..protocols.shared.panics import contained_job

_T = TypeVar("_T")

FileGuard = Literal["landlock", "chroot", "none"]

_PR_SET_NO_NEW_PRIVS: Final = 38
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
"""Of `unshare(2)`."""
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
"""System calls of Landlock, the same on every processor; glibc has no functions for them."""
_QUERY_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_FILE_RIGHTS: Final = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 5: 1 << 16}
"""All rights that Landlock has for files lie below this bit, by the version that is served at least."""
_TCP_RIGHTS: Final = 0b11
"""Binding and connecting, from version 4."""
_SCOPES: Final = 0b11
"""Abstract sockets and signals of processes outside, from version 6."""
_WRITE_FILE: Final = 1 << 1
_READ_FILE: Final = 1 << 2
_READ_DIR: Final = 1 << 3
_TRUNCATE: Final = 1 << 14
_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_STATUS: Final = Path("/proc/self/status")
_RETIRE_FRACTION: Final = 0.5
"""Of the address space: a worker that once needed this much resident memory is replaced by a fresh one."""
_LEFT_BYTES: Final = 1 << 20
"""Less than the rest of the address space is asked for: reading how much is used takes some."""
_status_file: int | None = None
"""Held open by a process that may open it no more."""
_held: Protections | None = None
_max_bytes: int | None = None
"""The address space that `confine` left this process."""


class Protections(NamedTuple):
    """What holds for this process, beside its limits."""

    has_no_network: bool
    files: FileGuard
    """How it is kept from files: by Landlock, by a root without any, or not at all."""


def confine(max_bytes: int, folder: str, niceness: int = 0) -> None:
    """Bound this process's address space and the size of files it writes, keep clients' media out of core
    dumps, and take network and files away, where the system lets a process do that.

    `folder` becomes its working directory, whose files it may read and write. `niceness` is added to what the
    system gives way by: speech goes before files.
    """
    global _held, _max_bytes, _status_file
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that closes is for the server, which drains
    os.nice(niceness)
    has_no_network = leave_network()  # for whoever is not root only while there is one thread
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else one for each core, with 40 MB of its own
    importlib.import_module(".worker", __package__)  # NumPy and all: what is installed elsewhere can be read
    for limit, most in (
        (resource.RLIMIT_AS, max_bytes),
        (resource.RLIMIT_FSIZE, max_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        now, _ = resource.getrlimit(limit)
        most = most if now == resource.RLIM_INFINITY else min(now, most)
        resource.setrlimit(limit, (most, most))
        if limit == resource.RLIMIT_AS:
            _max_bytes = most
    if sys.platform == "linux":
        _status_file = os.open(_STATUS, os.O_RDONLY | os.O_CLOEXEC)
    os.chdir(folder)
    files: FileGuard = "landlock" if leave_files(folder) else "chroot" if _leave_root(folder) else "none"
    _held = Protections(has_no_network, files)


def protections() -> Protections | None:
    """What holds here; None before `confine`."""
    return _held


def as_job(job: Callable[[], _T]) -> _T:
    """Do `job`. Whatever it raises, also a panic or an exit, is an `Exception`."""
    with contained_job:
        return job()


def within(cpu_s: float, job: Callable[[], _T]) -> _T:
    """Do `job`; the system ends this process by SIGXCPU if that takes more processor time, in whole seconds
    and of all threads, whoever spends it."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(used.ru_utime + used.ru_stime + cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (end if most == resource.RLIM_INFINITY else min(end, most), most))
    return job()


def leave_network() -> bool:
    """Whether this process is now in a network of its own, without any way out: a decoder that was made to
    run what a file holds reaches nobody."""
    if sys.platform != "linux":
        return False
    system = ctypes.CDLL(None)
    is_left: bool = system.unshare(_CLONE_NEWNET) == 0 or system.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
    return is_left


def leave_files(folder: str) -> bool:
    """Whether Landlock keeps this process from now on from all files but the installation's, to be read, and
    the `folder`'s; and, as far as its version goes, from addresses and other processes."""
    if sys.platform != "linux":
        return False
    system = ctypes.CDLL(None)
    version = system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_QUERY_VERSION))
    if version < 1:
        return False
    rights = next(end for least, end in sorted(_FILE_RIGHTS.items(), reverse=True) if version >= least) - 1
    handled = [rights, _TCP_RIGHTS if version >= 4 else 0, _SCOPES if version >= 6 else 0]
    size = 8 * (3 if version >= 6 else 2 if version >= 4 else 1)
    ruleset = system.syscall(
        _CREATE_RULESET, (ctypes.c_uint64 * 3)(*handled), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        return False
    try:
        for path in _installation():
            _allow(system, ruleset, path, _READ_FILE | _READ_DIR)
        _allow(system, ruleset, folder, rights & (_READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE))
        is_set = system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        is_restricted: bool = system.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) == 0
        return is_set and is_restricted
    finally:
        os.close(ruleset)


def _installation() -> list[str]:
    """Where modules and libraries may yet be loaded from; a package may lie elsewhere than it seems."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {sysconfig.get_path(name) for name in names} | {*_LIBRARIES}
    for name, module in tuple(sys.modules.items()):
        place = getattr(module, "__file__", None)
        if "." not in name and place is not None and place.endswith("__init__.py"):
            folder = os.path.dirname(os.path.realpath(place))
            above = os.path.dirname(folder)  # has its libraries, too
            paths.add(above if os.path.basename(above).endswith("-packages") else folder)
    return sorted(path for path in paths if os.path.exists(path))


def _allow(system: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Raises OSError where it cannot be allowed; a file has no directory's rights."""
    if not os.path.isdir(path):
        rights &= ~_READ_DIR
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = rights.to_bytes(8, sys.byteorder) + beneath.to_bytes(4, sys.byteorder)  # a packed struct
        if system.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0)) < 0:
            raise OSError(f"Landlock takes no rule for {path}")
    finally:
        os.close(beneath)


def _leave_root(folder: str) -> bool:
    """Whether this process's root is now its folder."""
    try:
        _load_all()
        os.chroot(folder)
        os.chdir("/")
    except OSError:
        return False
    return True


def _load_all() -> None:
    """What is loaded when it is needed cannot be any more. Only our own rules of pixels can be used."""
    importlib.import_module(".vision.merged_patches", __package__)
    rules = importlib.import_module(".vision.rules", __package__)
    for rule in pkgutil.iter_modules(rules.__path__):
        importlib.import_module(f"{rules.__name__}.{rule.name}")
    Image.init()
    if importlib.util.find_spec("pi_heif") is not None:
        importlib.import_module("pi_heif")
    for found in pkgutil.walk_packages(av.__path__, "av."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def peak_bytes() -> int:
    """Most resident memory this program has had.

    Not `ru_maxrss` where that can be avoided: it includes the process this one was forked from, a server
    with its weights, and every worker would retire after its first job.
    """
    peak = _status(b"VmHWM:")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if peak is None else peak


def has_its_memory() -> bool:
    """Whether the system gives this process all the address space that `confine` left it.

    If so, what was refused memory was too large. If not, the system has none left, or somebody has lowered
    the limit, and the same may succeed later.
    """
    try:
        used = _status(b"VmSize:")
    except MemoryError:
        used = _max_bytes  # so little is left that even that cannot be read
    if _max_bytes is None or used is None:
        return True
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _max_bytes:
        return False
    left = _max_bytes - used - _LEFT_BYTES
    try:
        if left > 0:
            mmap.mmap(-1, left, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return False
    return True


_STATUS_BYTES: Final = 4096
"""Three times what there is: it is read where memory was refused."""


def _status(field: bytes) -> int | None:
    """Bytes that the system counts for this process; None where it does not say."""
    try:
        status = _STATUS.read_bytes() if _status_file is None else os.pread(_status_file, _STATUS_BYTES, 0)
    except OSError:
        return None
    values = (line.split()[1] for line in status.splitlines() if line.startswith(field))
    return next((int(value) * 1024 for value in values), None)


def should_retire(max_bytes: int) -> bool:
    """Whether this process has grown so much (a leak, a hostile file) that it should end after its job."""
    return peak_bytes() > max_bytes * _RETIRE_FRACTION
