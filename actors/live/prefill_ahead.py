"""What one session has read while nobody asks, so that a question costs its own tokens.

There are two kinds of wishes, and of each the newest counts. The conversation as it is (`Warm`) is read under
the session's key, where the next answer goes on from. As it will be once some live video is forgotten
(`ReadAhead`), it is nobody's: what is computed is found by what it is. Both are of the class `batch`:
everything else goes first, in short steps (`engine/planning/policies/service_classes.py`). Used by
`actors/live/responses.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
import trio

from ...protocols.engine.messages import Lane, Outcome, Prefill, Prefilled, Request, RequestId, SessionKey
from ...protocols.errors import SensoriumError
from ...realtime.dialogue.effects import HasReadAhead, ReadAhead, Warm
from ..runtime.panic_guard import contained
from .conversation_media import SessionMedia
from .video import VideoSnapshot

logger = logging.getLogger(__name__)

_Prefill = tuple[Warm | ReadAhead, VideoSnapshot]


@dataclass(slots=True)
class _Reader:
    """One kind of wishes."""

    next: _Prefill | None = None
    is_running: bool = False
    scope: trio.CancelScope | None = None
    """Of the wish that is being read."""


class ReadingAhead:
    """Reads for one session; `report` gets what was read ahead."""

    def __init__(
        self,
        media: SessionMedia,
        report: Callable[[HasReadAhead], Awaitable[None]],
        *,
        session_id: str,
        lane: Lane,
        cache_salt: str,
        new_name: Callable[[], str],
    ) -> None:
        self._media = media
        self._report = report
        self._session_id = session_id
        self._lane = msgspec.structs.replace(lane, service="batch")
        self._cache_salt = cache_salt
        self._new_name = new_name
        self._readers = {Warm: _Reader(), ReadAhead: _Reader()}

    @property
    def is_running(self) -> bool:
        """Something is being read."""
        return any(reader.is_running for reader in self._readers.values())

    def request(self, effect: Warm | ReadAhead, nursery: trio.Nursery, stopped: Callable[[], None]) -> None:
        """Have it read, behind what is being read; `stopped` is told when nothing of its kind is."""
        reader = self._readers[type(effect)]
        reader.next = (effect, self._media.video.snapshot(effect.clips))
        if not reader.is_running:
            reader.is_running = True
            nursery.start_soon(self._read_all, reader, stopped)

    def make_way(self) -> None:
        """An answer goes on from what was read under the session's key."""
        self._stop(self._readers[Warm])

    def stop(self) -> None:
        """Nobody is there to ask."""
        for reader in self._readers.values():
            self._stop(reader)

    def _stop(self, reader: _Reader) -> None:
        reader.next = None
        if reader.scope is not None:
            reader.scope.cancel()

    async def _read_all(self, reader: _Reader, stopped: Callable[[], None]) -> None:
        try:
            while reader.next is not None:
                (effect, snapshot), reader.next = reader.next, None
                with trio.CancelScope() as reader.scope:
                    was_read = await self._read(effect, snapshot)
                    if was_read and isinstance(effect, ReadAhead) and reader.next is None:
                        await self._report(HasReadAhead(effect.plan))
        finally:
            reader.is_running, reader.scope = False, None
            stopped()

    async def _read(self, effect: Warm | ReadAhead, snapshot: VideoSnapshot) -> bool:
        try:
            with contained:
                outcome = await self._prefill(effect, snapshot)
        except SensoriumError as error:
            logger.info("session %s: reading ahead: %s", self._session_id, error)
            return False
        except Exception:
            logger.exception("session %s: reading ahead failed", self._session_id)
            return False
        return isinstance(outcome, Prefilled)

    async def _prefill(self, effect: Warm | ReadAhead, snapshot: VideoSnapshot) -> Outcome:
        session = SessionKey(self._session_id) if isinstance(effect, Warm) else None
        async with self._media.placed(effect.conversation, self._lane, snapshot) as (place, prompt):
            request = Request(
                RequestId(self._new_name()),
                prompt.token_ids,
                Prefill(),
                media=prompt.spans,
                session=session,
                cache_salt=self._cache_salt,
                lane=self._lane,
            )
            async with place.run(request) as run:
                return await run.outcome()
