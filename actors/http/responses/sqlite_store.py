"""Responses in an SQLite file, within bounds that callers share fairly. Everything here blocks: it is called
by one thread at a time, and never by the loop. `actors/http/responses/store_location.py` opens the file.

A file in a conversation is stored once for each caller, however many responses hold it, in pieces: what is
handed to SQLite is copied, and nothing else runs meanwhile. A transaction is whole or not there at all, also
where the server is killed. Rows are `actors/http/responses/row_codec.py`; read next:
`actors/http/responses/store.py`, who calls.
"""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from ....protocols.server.front_tags import is_tag, new_tag
from ...callers import Caller, give_back, greediest
from .row_codec import ENDED, KeptResponse, Row, UnreadableRowError, from_row, to_row
from .store_location import ResponsePlace, naming

logger = logging.getLogger(__name__)

MAX_KEPT: Final = 1_000_000
APPLICATION_ID: Final = 0x73656E73
"""Of our files, in their header: "sens"."""
_VERSION: Final = 1
_PIECE_BYTES: Final = 1 << 20
_LEAST_BYTES: Final = 512
"""What SQLite needs for a row beside its body."""
_SCHEMA: Final = """
CREATE TABLE responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, has_key INTEGER NOT NULL, written REAL NOT NULL,
    is_finished INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX by_owner ON responses (owner, has_key, written);
CREATE INDEX by_age ON responses (written);
CREATE INDEX unfinished ON responses (id) WHERE NOT is_finished;
CREATE TABLE media (
    place INTEGER PRIMARY KEY, owner TEXT NOT NULL, has_key INTEGER NOT NULL, digest TEXT NOT NULL,
    size INTEGER NOT NULL, UNIQUE (owner, has_key, digest));
CREATE TABLE pieces (
    media INTEGER NOT NULL REFERENCES media ON DELETE CASCADE, number INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (media, number));
CREATE TABLE uses (
    response TEXT NOT NULL REFERENCES responses ON DELETE CASCADE, media INTEGER NOT NULL REFERENCES media,
    PRIMARY KEY (response, media)) WITHOUT ROWID;
CREATE INDEX users ON uses (media);
"""
_WRONG_MEDIA: Final = (
    "typeof(owner) != 'text' OR typeof(has_key) != 'integer' OR typeof(digest) != 'text' "
    "OR typeof(size) != 'integer' OR size < 0"
)
_WRONG_RESPONSES: Final = (
    "typeof(id) != 'text' OR typeof(owner) != 'text' OR typeof(has_key) != 'integer' "
    "OR typeof(written) != 'real' OR typeof(is_finished) != 'integer' OR typeof(size) != 'integer' "
    "OR size < 0 OR typeof(body) != 'blob'"
)
"""Rows that nothing could count or name: SQLite takes any type in any column."""


class ResponseFile:
    """One file, opened. Raises sqlite3.Error or OSError where it fails, and changes nothing then."""

    def __init__(
        self, path: Path, *, now: float, max_bytes: int, kept_s: float, max_kept: int = MAX_KEPT
    ) -> None:
        """Open or make the file; `now` is in Unix seconds. Raises ConfigError for one that cannot be used.

        What was not finished when the server ended has failed."""
        self._max_bytes, self._max_kept, self.kept_s = max_bytes, max_kept, kept_s
        with naming(path):
            self._place = ResponsePlace(path, _SCHEMA, application_id=APPLICATION_ID, version=_VERSION)
            try:
                self._drop_what_has_wrong_types()
                self._held, self.num_kept = self._counted()
                self._end_what_was_not_finished(now)
            except BaseException:
                self._base.close()
                raise

    @property
    def num_bytes(self) -> int:
        """What is kept."""
        return self._held.total()

    @property
    def _base(self) -> sqlite3.Connection:
        return self._place.base

    def refresh(self) -> bool:
        """See that what is open is what lies at the path, and may be written; True: another file is open now.

        One that was removed is written again from what is open; where another lies, that is opened. What is
        open can be read also where neither could be done.
        """
        is_other = self._place.refresh()
        if is_other:
            self._held, self.num_kept = self._counted()
        return is_other

    def probe(self) -> None:
        """Write what is there already."""
        with self._changing():
            self._base.execute(f"PRAGMA user_version = {_VERSION}")

    def save(self, kept: KeptResponse, *, now: float) -> None:
        """Keep one, or what has become of it. Others go for it where there is no more room."""
        row, name, owner = to_row(kept), kept.response.id, kept.owner
        size = _LEAST_BYTES + len(row.body)
        with self._changing():
            before = [place for (place,) in self._rows("SELECT media FROM uses WHERE response = ?", name)]
            self._forget_row(name)
            if size + sum(map(len, row.media.values())) > self._max_bytes:  # nobody else goes for it
                self._forget_unused(before)
                return
            self._base.execute(
                "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)",
                (name, owner.name, owner.has_key, now, kept.is_finished, size, row.body),
            )
            self._held[owner] += size
            self.num_kept += 1
            for digest, data in row.media.items():
                self._base.execute("INSERT INTO uses VALUES (?, ?)", (name, self._media(owner, digest, data)))
            self._forget_unused(before)
            self._make_room(owner, now)

    def load(self, name: str, *, now: float) -> KeptResponse | None:
        """One that is kept; None if it is not, or not any more."""
        oldest = now - self.kept_s
        columns = "owner, has_key, body"
        found = self._rows(f"SELECT {columns} FROM responses WHERE id = ? AND written >= ?", name, oldest)
        for owner, has_key, body in found:
            places = self._rows(
                "SELECT digest, place FROM uses JOIN media ON media = place WHERE response = ?", name
            )
            media = {digest: self._whole(place) for digest, place in places}
            return from_row(Caller(owner, bool(has_key)), Row(body, media))
        return None

    def delete(self, name: str) -> None:
        """Forget one, if it is there."""
        with self._changing():
            self._forget(name)

    def front_tag(self) -> str:
        """The tag of the front of a cluster whose store it is, made when it is first asked for: it is the
        same after a restart, so that other fronts find what is kept here."""
        with self._changing():
            self._base.execute("CREATE TABLE IF NOT EXISTS front (tag TEXT NOT NULL)")
            for (tag,) in self._rows("SELECT tag FROM front"):
                if is_tag(tag):
                    return tag
            tag = new_tag()
            self._base.execute("INSERT INTO front VALUES (?)", (tag,))
            return tag

    def close(self) -> None:
        """Nothing may be called after. One that was removed is written again, if it can be."""
        with suppress(sqlite3.Error, OSError):
            self._place.refresh()
        self._base.close()

    def _drop_what_has_wrong_types(self) -> None:
        num_before = self._base.total_changes
        media = f"SELECT place FROM media WHERE {_WRONG_MEDIA}"
        self._base.execute("BEGIN IMMEDIATE")
        self._base.execute(f"DELETE FROM responses WHERE {_WRONG_RESPONSES}")
        self._base.execute(f"DELETE FROM uses WHERE media IN ({media})")
        self._base.execute(f"DELETE FROM media WHERE {_WRONG_MEDIA}")
        self._base.execute("COMMIT")
        if num_dropped := self._base.total_changes - num_before:
            logger.error("the store of responses: %d damaged rows were dropped", num_dropped)

    def _end_what_was_not_finished(self, now: float) -> None:
        for name in [name for (name,) in self._rows("SELECT id FROM responses WHERE NOT is_finished")]:
            try:
                kept = self.load(name, now=0.0)
            except UnreadableRowError as error:
                logger.error("the store of responses: %.80s cannot be read: %s", name, error)
                continue
            if kept is None:
                continue
            failed = msgspec.structs.replace(kept.response, status="failed", error=ENDED)
            self.save(dataclasses.replace(kept, response=failed), now=now)

    def _media(self, owner: Caller, digest: str, data: bytes) -> int:
        """Where a file is, which is stored if it was not."""
        key = (owner.name, owner.has_key, digest)
        where = "owner = ? AND has_key = ? AND digest = ?"
        for (place,) in self._rows(f"SELECT place FROM media WHERE {where}", *key):
            return int(place)
        columns = "owner, has_key, digest, size"
        made = self._base.execute(f"INSERT INTO media ({columns}) VALUES (?, ?, ?, ?)", (*key, len(data)))
        place = made.lastrowid
        assert place is not None, "just inserted"
        for number, at in enumerate(range(0, len(data), _PIECE_BYTES)):
            piece = memoryview(data)[at : at + _PIECE_BYTES]
            self._base.execute("INSERT INTO pieces VALUES (?, ?, ?)", (place, number, piece))
        self._held[owner] += len(data)
        return place

    def _whole(self, place: int) -> bytes:
        pieces = self._rows("SELECT data FROM pieces WHERE media = ? ORDER BY number", place)
        # By way of a file: the system puts them together while others run, and Python would not.
        with tempfile.TemporaryFile("w+b", buffering=0, prefix="sensorium-") as file:
            size = sum(file.write(piece) for (piece,) in pieces)
            file.seek(0)
            return file.read(size)

    def _make_room(self, caller: Caller, now: float) -> None:
        too_old = self._rows("SELECT id FROM responses WHERE written < ?", now - self.kept_s)
        for (name,) in list(too_old):
            self._forget(name)
        while self._held.total() > self._max_bytes or self.num_kept > self._max_kept:
            greedy = greediest(self._held, caller)
            oldest = "SELECT id FROM responses WHERE owner = ? AND has_key = ? ORDER BY written LIMIT 1"
            found = list(self._rows(oldest, greedy.name, greedy.has_key))
            assert found, "who holds something keeps something"
            self._forget(found[0][0])

    def _forget(self, name: str) -> None:
        before = [place for (place,) in self._rows("SELECT media FROM uses WHERE response = ?", name)]
        self._forget_row(name)
        self._forget_unused(before)

    def _forget_row(self, name: str) -> None:
        found = self._base.execute(
            "DELETE FROM responses WHERE id = ? RETURNING owner, has_key, size", (name,)
        ).fetchall()
        for owner, has_key, size in found:
            give_back(self._held, Caller(owner, bool(has_key)), size)
            self.num_kept -= 1

    def _forget_unused(self, places: list[int]) -> None:
        for place in places:
            found = self._base.execute(
                "DELETE FROM media WHERE place = ? AND NOT EXISTS (SELECT 1 FROM uses WHERE media = place) "
                "RETURNING owner, has_key, size",
                (place,),
            ).fetchall()
            for owner, has_key, size in found:
                give_back(self._held, Caller(owner, bool(has_key)), size)

    def _counted(self) -> tuple[Counter[Caller], int]:
        held: Counter[Caller] = Counter()
        for table in ("responses", "media"):
            for owner, has_key, size in self._rows(
                f"SELECT owner, has_key, SUM(size) FROM {table} GROUP BY owner, has_key"
            ):
                held[Caller(owner, bool(has_key))] += size
        ((num_kept,),) = self._rows("SELECT COUNT(*) FROM responses")
        return held, num_kept

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:  # a full disk has ended it already
                self._base.execute("ROLLBACK")
            self._held, self.num_kept = self._counted()
            raise

    def _rows(self, statement: str, *values: object) -> Iterator[tuple[Any, ...]]:
        return iter(self._base.execute(statement, values))
