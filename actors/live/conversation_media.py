"""The media of one session's conversation: opened once, named by their hashes, opened again only if need be.

A file is opened as soon as its item is there, so that what cannot be opened is refused at once. Its features
are large: they wait a moment for the first answer, then only their hash and size are kept (the file itself is
the conversation's). An engine that has encoded them, or has computed what follows from them, asks for no
features; one that has not any more (evicted, restarted) does, and then the file is opened again, unless the
cache of files has it, which sessions share with all requests of their key. Used by
`actors/live/responses.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import trio

from ...engine.models.prompts import Prompt, media_parts
from ...protocols.chat.content import MediaPart
from ...protocols.chat.request import Conversation
from ...protocols.engine.messages import ContentHash, Features, ItemId, Lane, MediaItems
from ...protocols.errors import BadRequestError, InternalError, SensoriumError
from ...realtime.dialogue.effects import MediaFact, MediaOpened, MediaRefused, OpenMedia
from ..inference.client import Place
from ..runtime.panic_guard import contained
from ..text.generation import TextModel
from .video import SessionVideo, VideoSnapshot

logger = logging.getLogger(__name__)

_WAIT_S: Final = 5.0
"""How long features wait for their first use; a question follows its picture sooner."""
_MAX_HOT: Final = 4
"""Items whose features wait so."""
_AT_A_TIME: Final = 2
"""Items of one session that are opened at a time."""

MediaOutcome = MediaOpened | MediaRefused


class SessionMedia:
    """What is known of the media of one session's items; `report` gets what becomes of new ones."""

    def __init__(
        self,
        model: TextModel,
        report: Callable[[MediaFact], Awaitable[None]],
        *,
        session_id: str,
        scope: str,
        num_frames: int,
        caller: str,
    ) -> None:
        """`scope`: who finds its files, `caller`: whose they are (`MediaOpening.opened`). `num_frames`: of
        live video, at most."""
        self.video = SessionVideo(
            model.prompter, report, session_id=session_id, num_frames=num_frames, caller=caller
        )
        self._model = model
        self._report = report
        self._session_id = session_id
        self._opened = partial(model.prompter.opened, scope=scope, caller=caller)
        self._known: dict[str, tuple[bytes, MediaItems]] = {}
        """By the name of a part, without features; and the file, for an item may be another one by now."""
        self._parts: dict[ItemId, tuple[str, ...]] = {}
        self._hot: dict[ContentHash, Features] = {}
        self._waiting: dict[trio.CancelScope, tuple[str, ...]] = {}
        """Where features wait, longest first, and the names of their parts."""
        self._opening: dict[ItemId, trio.CancelScope] = {}
        self._limiter = trio.CapacityLimiter(_AT_A_TIME)

    def open(self, effect: OpenMedia, nursery: trio.Nursery) -> None:
        """Open the files of a new item, in a task of its own."""
        self._opening[effect.item_id] = scope = trio.CancelScope()
        nursery.start_soon(self._open, effect, scope)

    def forget(self, item_id: ItemId) -> None:
        """The item is gone."""
        if (scope := self._opening.pop(item_id, None)) is not None:
            scope.cancel()
        for name in self._parts.pop(item_id, ()):
            self._known.pop(name, None)

    @asynccontextmanager
    async def placed(
        self, conversation: Conversation, lane: Lane, snapshot: VideoSnapshot, max_tokens: int | None = None
    ) -> AsyncIterator[tuple[Place, Prompt]]:
        """The session's place in the engine, and the prompt of a conversation with live video for it.

        Raises as `Prompter.chat` does, also for more than `max_tokens`, and as `EngineClient.placed`.
        """
        prompter, parts = self._model.prompter, media_parts(conversation)
        known = {part.param: found for part in parts if (found := self._found(part, snapshot)) is not None}
        fresh = [part for part in parts if part.param not in known]
        async with AsyncExitStack() as stack:
            async with self._opened(fresh) as opened:
                given = dict(zip((part.param for part in fresh), opened, strict=True))
                media = {part.param: known.get(part.param) or given[part.param] for part in parts}
                prompt = await prompter.build(conversation, [media[part.param] for part in parts])
                _check_tokens(prompt, max_tokens)
                fetch = partial(self._fetch, [(part, media[part.param]) for part in parts], snapshot)
                placed = self._model.engine.placed(
                    prompt.items, self._session_id, prompt.token_ids, lane=lane, fetch=fetch
                )
                place = await stack.enter_async_context(placed)
            self.video.was_read()
            for wait, names in tuple(self._waiting.items()):
                if not media.keys().isdisjoint(names):
                    wait.cancel()
            yield place, prompt

    def _found(self, part: MediaPart, snapshot: VideoSnapshot) -> MediaItems | None:
        data, found = self._known.get(part.param, (b"", None))
        return snapshot.items.get(part.param) or (found if data == part.data else None)

    async def _fetch(
        self,
        media: Sequence[tuple[MediaPart, MediaItems]],
        snapshot: VideoSnapshot,
        missing: Sequence[ContentHash],
    ) -> Sequence[Features]:
        """The features of a prompt's items: what is at hand, or else is opened again."""
        places = {item.content_hash: (part, item) for part, each in media for item in each.items}
        found: dict[ContentHash, Features] = {}
        for content_hash in missing:
            part, item = places[content_hash]
            features = item.features if item.features.data else self._hot.get(content_hash, item.features)
            if features.data:
                found[content_hash] = features
            elif content_hash in snapshot.files:
                found[content_hash] = await self.video.features(content_hash, snapshot.files[content_hash])
            elif content_hash not in found:
                async with self._opened([part]) as (again,):
                    found |= {each.content_hash: each.features for each in again.items}
        return [found[content_hash] for content_hash in missing]

    async def _open(self, effect: OpenMedia, scope: trio.CancelScope) -> None:
        outcome: MediaOutcome | None = None
        try:
            with contained, scope:
                await self._open_and_wait(effect)
        except SensoriumError as error:
            outcome = MediaRefused(effect.number, effect.item_id, error)
        except Exception:
            logger.exception("session %s: opening media failed", self._session_id)
            failure = InternalError("opening the item's media failed")
            outcome = MediaRefused(effect.number, effect.item_id, failure)
        finally:
            if self._opening.get(effect.item_id) is scope:  # not another item's of the same id
                del self._opening[effect.item_id]
        if outcome is not None:
            await self._report(outcome)

    async def _open_and_wait(self, effect: OpenMedia) -> None:
        async with AsyncExitStack() as stack:
            async with self._limiter:
                media = await stack.enter_async_context(self._opened(effect.media))
            await trio.lowlevel.checkpoint_if_cancelled()  # its names may be another item's by now
            names = tuple(part.param for part in effect.media)
            self._parts[effect.item_id] = names
            for part, each in zip(effect.media, media, strict=True):
                self._known[part.param] = part.data, each.lean()
            hot = {item.content_hash: item.features for each in media for item in each.items}
            self._hot.update(hot)
            try:
                num_tokens = sum(item.num_tokens for each in media for item in each.items)
                await self._report(MediaOpened(effect.number, effect.item_id, num_tokens))
                with trio.move_on_after(_WAIT_S) as wait:
                    self._waiting[wait] = names
                    try:
                        if len(self._waiting) > _MAX_HOT:
                            next(iter(self._waiting)).cancel()
                        await trio.sleep_forever()
                    finally:
                        del self._waiting[wait]
            finally:
                for content_hash, features in hot.items():
                    if self._hot.get(content_hash) is features:
                        del self._hot[content_hash]


def _check_tokens(prompt: Prompt, most: int | None) -> None:
    num_tokens = len(prompt.token_ids)
    if most is not None and num_tokens > most:
        raise BadRequestError(
            f"the conversation has {num_tokens} tokens; {most} leave room for an answer",
            code="context_length_exceeded",
        )
