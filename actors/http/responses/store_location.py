"""Where the file of responses lies: opened there, and looked for again, since others may move or remove it.

Knows SQLite and paths, nothing of responses. Read next: `actors/http/responses/sqlite_store.py`, whose file
it is.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ...errors import ConfigError

_Identity = tuple[int, int] | None
"""Device and number of a file; None where there is none."""


class ResponsePlace:
    """An open file, and the path it was opened at. Raises sqlite3.Error and OSError."""

    def __init__(self, path: Path, schema: str, *, application_id: int, version: int) -> None:
        """Open it, or make it with `schema`; both numbers are in the header of our files."""
        self._path, self._log = path, Path(f"{path}-wal")
        self._schema, self._application_id, self._version = schema, application_id, version
        self.base = self._opened()
        self._identities = _identity(self._path), _identity(self._log)

    def refresh(self) -> bool:
        """Whether another file is open than before: see `ResponseFile.refresh`."""
        found = _identity(self._path)
        if found is not None and not _may_be_written(self._path):
            raise PermissionError(errno.EACCES, "it may not be written")
        if found == self._identities[0]:
            return False
        if found is None:
            self._write_again()
        if _identity(self._log) == self._identities[1]:
            self._log.unlink(missing_ok=True)  # SQLite would take it for the new one's
        base = self._opened()
        self.base.close()
        self.base, self._identities = base, (_identity(self._path), _identity(self._log))
        return True

    def _write_again(self) -> None:
        """What is open, at its path once more."""
        copy = Path(f"{self._path}-copy")
        with suppress(FileNotFoundError):
            copy.unlink()
        try:
            _make(copy)
            self.base.execute("VACUUM INTO ?", (str(copy),))
            if _identity(self._log) == self._identities[1]:
                self._log.unlink(missing_ok=True)
            copy.rename(self._path)
        finally:
            with suppress(OSError):
                copy.unlink()

    def _opened(self) -> sqlite3.Connection:
        _make(self._path)
        base = sqlite3.connect(self._path, timeout=0.0, isolation_level=None, check_same_thread=False)
        base.text_factory = partial(str, encoding="utf-8", errors="replace")  # a damaged text fails no query
        try:
            base.execute("PRAGMA locking_mode = EXCLUSIVE")
            base.execute("PRAGMA secure_delete = ON")
            base.execute("BEGIN EXCLUSIVE")
            ((made_by,),) = base.execute("PRAGMA application_id")
            ((version,),) = base.execute("PRAGMA user_version")
            ((num_tables,),) = base.execute("SELECT COUNT(*) FROM sqlite_master")
            is_new = not (made_by or version or num_tables)
            if not is_new and made_by != self._application_id:
                raise sqlite3.DatabaseError("it is not a store of responses")
            if not is_new and version != self._version:
                raise sqlite3.DatabaseError(f"it is of version {version}; this server reads {self._version}")
            base.execute("ROLLBACK")
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("PRAGMA synchronous = NORMAL")
            base.execute("PRAGMA foreign_keys = ON")
            if is_new:
                numbers = (
                    f"PRAGMA application_id = {self._application_id}; PRAGMA user_version = {self._version};"
                )
                base.executescript(f"BEGIN; {self._schema} {numbers} COMMIT;")
            ((found,),) = base.execute("PRAGMA quick_check(1)")
            if found != "ok":
                raise sqlite3.DatabaseError(f"it is damaged ({' '.join(str(found).split())[:200]})")
        except BaseException:
            base.close()
            raise
        return base


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What is wrong with a file at the start, in one line that names the option."""
    option = f"--response-store is {str(path)!r}"
    try:
        yield
    except sqlite3.Error as error:
        is_locked = "locked" in str(error)
        raise ConfigError(f"{option}: {'another server uses it' if is_locked else error}") from None
    except OSError as error:
        raise ConfigError(f"{option}: {error.strerror or error}") from None


def _make(path: Path) -> None:
    """A file that can be written, empty if there was none: what clients say is nobody else's business."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):  # SQLite would write its log beside a device
            raise OSError(errno.EINVAL, "it is not a regular file")
    finally:
        os.close(opened)


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _may_be_written(path: Path) -> bool:
    """By us, and by anybody at all: a superuser's server takes a hint, too."""
    return bool(path.stat().st_mode & 0o222) and os.access(path, os.W_OK)
