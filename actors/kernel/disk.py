"""A full disk is nobody's mistake: who needed room for a temporary file is told to come back."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...protocols.errors import OverloadedError

logger = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 10.0
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def has_no_room(error: BaseException) -> bool:
    """Whether something could not be written because the disk, or what we may use of it, is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


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
