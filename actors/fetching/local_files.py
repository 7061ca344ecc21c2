"""Files of this machine, `file:` addresses, from the folders an operator has named and from nowhere else.

What is checked is what was opened: the path of the open descriptor, after every link on the way. Only plain
files are read, so that no pipe or device keeps anybody waiting.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ...protocols.errors import FetchError

_DESCRIPTORS: Final = "/proc/self/fd"


def read_local_file(url: str, folders: Sequence[Path], max_bytes: int) -> bytes:
    """The file at a `file:` address. Raises FetchError; that of a file elsewhere does not tell whether it is
    there."""
    if not folders:
        raise FetchError(
            "Addresses with file: are not served here (--allowed-media-folder).", code="url_refused"
        )
    path = _path(url)
    try:
        _check_inside(path, folders)  # so that nothing elsewhere is even opened
        with open(path, "rb", opener=_opener) as file:
            _check_inside(f"{_DESCRIPTORS}/{file.fileno()}", folders)
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _refusal()
            data = file.read(max_bytes + 1) if status.st_size <= max_bytes else b""
    except (OSError, ValueError):
        raise _refusal() from None
    if status.st_size > max_bytes or len(data) > max_bytes:
        raise FetchError(f"The file has more than {max_bytes:,} bytes.", code="file_too_large")
    return data


def _path(url: str) -> str:
    unreadable = FetchError("A file: address is written as file:///folder/name.", code="url_refused")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise unreadable from None
    path = unquote(parts.path, errors="surrogateescape")
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or "\0" in path:
        raise unreadable
    return path


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _check_inside(path: str, folders: Sequence[Path]) -> None:
    found = Path(os.path.realpath(path))
    if not any(found.is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise _refusal()


def _refusal() -> FetchError:
    return FetchError("There is no such file in the folders that are served here.", code="url_refused")
