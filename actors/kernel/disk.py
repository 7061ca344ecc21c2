"""A full disk is nobody's mistake: who needed room for a temporary file is told to come back."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...protocols.errors import OverloadedError

logger = logging.getLogger(__name__)

_PREFIX: Final = "sensorium-scratch-"
_NEW_S: Final = 60.0
"""A folder that is newer may be about to be locked."""
_RETRY_AFTER_S: Final = 10.0
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
