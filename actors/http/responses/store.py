"""Responses that can be asked for again, answered further or given up: kept in memory, within bounds, and in
a file where the operator named one.

Each belongs to who made it: a key's to that key, another's to whoever knows its id. The oldest of whoever
keeps most goes first. Responses made in the background are made here, by a task each. A file is written by a
thread of its own, in the order in which things were kept; `saved` waits for it. While it cannot be written
nothing is begun that is to be kept, and what was begun waits in memory. Read next:
`actors/http/responses/sqlite_store.py`, and `actors/http/responses/routes.py` for who asks.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio

from ....engine.text.chat_size import message_strings
from ....protocols.chat.content import MediaPart
from ....protocols.errors import InternalError, NotFoundError, OverloadedError, UnavailableError
from ....protocols.responses.output_items import ResponseFault, ResponseObject
from ...callers import Caller, give_back, greediest
from ...runtime.panic_guard import contained
from ...runtime.threads import in_thread
from .background_events import EventBook
from .row_codec import KeptResponse, UnreadableRowError
from .sqlite_store import ResponseFile

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

MAX_BYTES: Final = 256 * 1024 * 1024
MAX_KEPT: Final = 10_000
KEPT_S: Final = 3600.0
_LEAST_BYTES: Final = 2048
"""Of one that says next to nothing."""
_RETRY_S: Final = 1.0
"""From one try to write a file that could not be written to the next."""
_LAST_SAVES_S: Final = 5.0
"""How long a server that ends waits for its file."""


@dataclass(slots=True)
class _Place:
    """One in memory."""

    kept: KeptResponse
    expires_at: float
    num_bytes: int


@dataclass(frozen=True, slots=True)
class _Making:
    """One in the background."""

    kept: KeptResponse
    scope: trio.CancelScope


class ResponseStore:
    """The responses of one server."""

    def __init__(
        self,
        file: ResponseFile | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        max_kept: int = MAX_KEPT,
        kept_s: float = KEPT_S,
    ) -> None:
        """The bounds are those of memory; `file` has its own."""
        self._file = file
        self._max_bytes = max_bytes
        self._max_kept = max_kept
        self._kept_s = kept_s
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._names: dict[Caller, OrderedDict[str, None]] = {}
        """Of each owner's, the oldest in front: whose goes is found at once, however many there are."""
        self._bytes: Counter[Caller] = Counter()
        self._unsaved: OrderedDict[str, KeptResponse] = OrderedDict()
        """As they are to be written; requests wait for theirs, so that there are no more than those."""
        self._is_away = False
        """The file could not be written when it was last tried."""
        self._changed = trio.lowlevel.ParkingLot()
        self._thread = trio.CapacityLimiter(1)
        self.events = EventBook()
        """Of those that are streamed while they are made in the background."""
        self._nursery: trio.Nursery | None = None
        self._made: dict[str, _Making] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, response_id: str) -> bool:
        return response_id in self._places

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make responses in the background, and write the file, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._save_all)
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._nursery = None
        finally:
            if self._file is not None:
                with trio.move_on_after(_LAST_SAVES_S, shield=True), suppress(UnavailableError):
                    while self._unsaved:
                        await self._save_next(self._file)
                if self._unsaved:
                    logger.error("the store of responses lacks %d of the last", len(self._unsaved))
                with trio.CancelScope(shield=True):
                    await self._in_thread(self._file.close)

    def put(self, kept: KeptResponse) -> None:
        """Keep one, or what has become of it. Others go for it where there is no more room."""
        self._forget_old()
        self._put_in_memory(kept)
        if self._file is not None and kept.within is None:
            # As it is now: what becomes of it is put again.
            self._unsaved[kept.response.id] = replace(kept)
            self._changed.unpark_all()

    async def ready(self) -> None:
        """See that what is put can be written. Raises UnavailableError where it could not be."""
        if self._is_away:
            raise _away()
        if self._file is not None:
            await self._write(self._file, lambda: None)

    async def saved(self, response_id: str) -> None:
        """Wait until what was put is in the file, or could not be written: it stays in memory until it is."""
        while response_id in self._unsaved and not self._is_away:
            await self._changed.park()

    async def get(self, caller: Caller, response_id: str, within: object = None) -> KeptResponse:
        """One of `caller`'s, and of the connection `within` where it is that one's alone.

        Raises NotFoundError, and UnavailableError where the file cannot be read."""
        # An input may refer to items of thousands, and others have their turn between them.
        await trio.lowlevel.checkpoint()
        self._forget_old()
        kept = self._at_hand(response_id)
        if kept is None and self._file is not None:
            kept = await self._loaded(self._file, response_id)
        is_there = kept is not None and caller.may_resume(kept.owner) and kept.within in (None, within)
        if kept is None or not is_there:
            longest_s = self._kept_s if self._file is None else self._file.kept_s
            raise NotFoundError(
                f"No response `{response_id[:80]}` is kept; they are for {longest_s / 3600:g} h at most.",
                code="response_not_found",
            )
        return kept

    async def forget(self, response_id: str) -> None:
        """Forget one, if it is there; it is made no further. After an UnavailableError it may be there."""
        await self.ready()
        self._drop(response_id)
        self.events.forget(response_id)
        if (making := self._made.pop(response_id, None)) is not None:
            making.scope.cancel()
        if self._unsaved.pop(response_id, None) is not None:
            self._changed.unpark_all()
        if self._file is not None:
            await self._write(self._file, partial(self._file.delete, response_id))
            self._drop(response_id)  # somebody may have read it from the file meanwhile

    def start(self, kept: KeptResponse, work: Callable[[], Awaitable[None]]) -> None:
        """Keep one, and do `work` in the background; where that raises, the response has failed."""
        if self._nursery is None:
            raise OverloadedError("The server is shutting down.", code="draining", retry_after_s=5.0)
        name, making = kept.response.id, _Making(kept, trio.CancelScope())
        self.put(kept)  # first: what cannot be kept is not made
        self._made[name] = making

        async def make() -> None:
            with making.scope:
                try:
                    with contained:
                        await work()
                except Exception:
                    logger.exception("a response in the background failed")
                    self._fail(kept)
            if self._made.get(name) is making:
                del self._made[name]

        self._nursery.start_soon(make)

    def become(self, kept: KeptResponse, response: ResponseObject) -> None:
        """How far one that is made in the background is, unless it was forgotten or given up meanwhile."""
        if kept.response.status != "cancelled" and response.id in self._made:
            kept.response = response
            self.put(kept)

    def _fail(self, kept: KeptResponse) -> None:
        """Without what it has said, of which something cannot be kept."""
        if not kept.is_finished:
            fault = ResponseFault("server_error", "The server failed on this request.")
            self.become(kept, msgspec.structs.replace(kept.response, status="failed", error=fault, output=[]))

    def give_up(self, kept: KeptResponse) -> None:
        """One that is made in the background is made no further."""
        if (making := self._made.get(kept.response.id)) is not None:
            self.become(kept, msgspec.structs.replace(kept.response, status="cancelled"))
            making.scope.cancel()

    def _at_hand(self, response_id: str) -> KeptResponse | None:
        """Without the file."""
        if (making := self._made.get(response_id)) is not None:
            return making.kept
        place = self._places.get(response_id)
        return self._unsaved.get(response_id) if place is None else place.kept

    def _put_in_memory(self, kept: KeptResponse) -> None:
        self._drop(kept.response.id)
        place = _Place(kept, trio.current_time() + self._kept_s, _size(kept))
        self._places[kept.response.id] = place
        self._names.setdefault(kept.owner, OrderedDict())[kept.response.id] = None
        self._bytes[kept.owner] += place.num_bytes
        while len(self._places) > self._max_kept or self._bytes.total() > self._max_bytes:
            greedy = greediest(self._bytes, kept.owner)
            self._evict(next(iter(self._names[greedy])))

    def leave(self, response_id: str) -> None:
        """The connection that alone could go on from one needs it no more."""
        self._drop(response_id)

    def _evict(self, response_id: str) -> None:
        self._drop(response_id)
        if response_id not in self._made:
            self.events.forget(response_id)

    def _drop(self, response_id: str) -> None:
        place = self._places.pop(response_id, None)
        if place is not None:
            give_back(self._bytes, place.kept.owner, place.num_bytes)
            names = self._names[place.kept.owner]
            del names[response_id]
            if not names:
                del self._names[place.kept.owner]

    def _forget_old(self) -> None:
        now = trio.current_time()
        while self._places:
            name, oldest = next(iter(self._places.items()))
            if oldest.expires_at > now:
                return
            self._evict(name)

    async def _loaded(self, file: ResponseFile, response_id: str) -> KeptResponse | None:
        kept = await self._in_thread(partial(file.load, response_id, now=time.time()))
        if kept is not None and response_id not in self._places:
            self._put_in_memory(kept)
        return kept

    async def _save_all(self) -> None:
        while self._file is not None:
            if self._is_away:
                await trio.sleep(_RETRY_S)
            elif not self._unsaved:
                await self._changed.park()
            with suppress(UnavailableError):  # it is logged, and in memory
                if self._unsaved:
                    await self._save_next(self._file)
                elif self._is_away:
                    await self._write(self._file, self._file.probe)

    async def _save_next(self, file: ResponseFile) -> None:
        """Raises UnavailableError."""
        name, kept = next(iter(self._unsaved.items()))
        try:
            await self._write(file, partial(file.save, kept, now=time.time()))
        except UnavailableError:
            raise
        except Exception:
            logger.exception("a response cannot be written to the store: it is in memory only")
        if self._unsaved.get(name) is kept:
            del self._unsaved[name]
            self._changed.unpark_all()

    async def _write(self, file: ResponseFile, work: Callable[[], None]) -> None:
        """Do `work` on the file as it lies at its path now. Raises UnavailableError where that fails."""

        def refresh_and_work() -> bool:
            is_other = file.refresh()
            work()
            return is_other

        is_other = await self._in_thread(refresh_and_work)
        if is_other:
            logger.warning("the store of responses was removed or replaced: %d are in it now", file.num_kept)
            for name, place in self._places.items():
                if place.kept.within is None:
                    self._unsaved.setdefault(name, place.kept)
            self._changed.unpark_all()
        elif self._is_away:
            logger.warning("the store of responses is written again")
        self._is_away = False

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Raises UnavailableError where the file fails, or no thread is left, which is logged once."""
        try:
            return await in_thread(work, limiter=self._thread)
        except (sqlite3.Error, OSError, OverloadedError) as error:
            if not self._is_away:
                logger.error("the store of responses failed: %r", error)
            self._is_away = True
            self._changed.unpark_all()
            raise _away() from error
        except UnreadableRowError as error:
            logger.error("the store of responses holds what cannot be read: %s", error)
            raise InternalError("The store of responses failed.") from error


def _away() -> UnavailableError:
    return UnavailableError(
        "The store of responses cannot be used now; with `store` false a response needs none.",
        code="response_store_unavailable",
    )


def _size(kept: KeptResponse) -> int:
    """About how much memory it takes."""
    media = sum(
        len(part.data)
        for message in kept.messages
        if isinstance(message.content, tuple)
        for part in message.content
        if isinstance(part, MediaPart)
    )
    texts = sum(len(text) for message in kept.messages for text in message_strings(message))
    items = sum(len(memoryview(item)) for item in kept.input_items)
    encoded_bytes = len(msgspec.json.encode((kept.response, kept.listed)))
    return _LEAST_BYTES + media + texts + items + encoded_bytes
