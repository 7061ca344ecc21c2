"""Temporary files. A full disk is nobody's mistake: who needed room on it is told to come back."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import trio

from ...protocols.errors import OverloadedError
from ..errors import ConfigError

logger = logging.getLogger(__name__)

_PREFIX: Final = "sensorium-scratch-"
_NEW_S: Final = 60.0
"""A folder that is newer may be about to be locked."""
_RETRY_AFTER_S: Final = 10.0
_AGAIN_S: Final = 5.0
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def has_no_room(error: BaseException) -> bool:
    """Whether something could not be written because the disk, or what we may use of it, is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


@contextmanager
def own_folder() -> Iterator[str]:
    """A folder that nobody else looks into, for as long as this lasts.

    It is locked: what clears away old temporary files (systemd-tmpfiles) leaves such folders alone, and so do
    we. Those that are locked no more, of servers that were killed, are removed first: clients' files may lie
    there.
    """
    _remove_left()
    with disk_room(), tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield folder
        finally:
            os.close(handle)


async def in_own_folders(serve: Callable[[str], Awaitable[None]]) -> None:
    """Have `serve` work with an `own_folder`; it returns when that was removed, and is given another one.

    What clears /tmp by age may not look at locks, and people do not. Raises ConfigError where the first
    folder cannot be made; another one is tried again until there is room for it. Runs until cancelled.
    """
    is_first = True
    while True:
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(own_folder())
            except (OSError, OverloadedError) as error:
                why = f"no folder for temporary files can be made: {error.__cause__ or error}"
                if is_first:
                    raise ConfigError(f"{why}; TMPDIR names where to") from error
                logger.error(why)
                await trio.sleep(_AGAIN_S)
                continue
            is_first = False
            await serve(folder)
        logger.warning("somebody has removed %s; there will be another folder", folder)


def is_there(folder: str) -> bool:
    """Whether nobody has removed it. Takes microseconds."""
    return os.path.isdir(folder)


def _remove_left() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}????????"):
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # somebody else's, or gone
            continue
        try:
            status = os.fstat(handle)
            if status.st_uid == os.getuid() and status.st_mtime < time.time() - _NEW_S:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(handle)


@contextmanager
def disk_room() -> Iterator[None]:
    """Raises OverloadedError for what needs more room on the disk than there is."""
    try:
        yield
    except OSError as error:
        if not has_no_room(error):
            raise
        logger.error("no room for temporary files: %s", error)
        raise OverloadedError(
            "The server has no room for the file now; try again.",
            code="insufficient_storage",
            retry_after_s=_RETRY_AFTER_S,
        ) from error
