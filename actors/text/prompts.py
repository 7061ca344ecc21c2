"""Requests → prompts: has their media fetched and opened, and tokenizes long texts in a thread.

Files are opened by `actors/text/media_opening.py`, fetched by `actors/text/media_urls.py`. What becomes of
the results is `engine/models/prompts.py`'s business.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import Final

import msgspec

from ...engine.models.prompts import MAX_CHARS_PER_TOKEN, Prompt, PromptBuilder, media_parts
from ...engine.text.bad_words import bad_word_ids
from ...engine.text.chat_size import is_short
from ...protocols.chat.content import MediaPart
from ...protocols.chat.request import Conversation
from ...protocols.engine.messages import MediaItems, SamplingParams
from ...protocols.errors import TooLargeError
from ...protocols.shared.json_body import unsupported
from ..fetching.fetcher import Fetcher
from ..media_decoding.cache import MediaCache
from ..media_decoding.memory_budget import MediaBudget
from ..runtime.off_loop import INLINE_CHARS, off_loop
from .media_opener import MediaOpener
from .media_opening import MediaLimits, MediaOpening, Source, media_bytes
from .media_urls import AddressBook

_CHARS_OF_A_CALL: Final = 50
"""A word is encoded as fast as it would be in a text of so many characters more."""


class Prompter:
    """Makes one model's prompts. Shared by all its requests; `budget` also by other models."""

    def __init__(
        self,
        builder: PromptBuilder,
        opener: MediaOpener,
        *,
        budget: MediaBudget | None = None,
        limits: MediaLimits | None = None,
        fetcher: Fetcher | None = None,
        cache: MediaCache[MediaItems] | None = None,
    ) -> None:
        self.builder = builder
        self._limits = limits or MediaLimits()
        budget, cache = budget or MediaBudget(), cache or MediaCache(0, media_bytes)
        self._addresses = AddressBook(budget, fetcher)
        self._media = MediaOpening(builder, opener, budget=budget, limits=self._limits, cache=cache)
        self.opened = self._media.opened
        self.open_frame = self._media.open_frame
        self.paired = self._media.paired
        self.video_fps = self._media.video_fps

    @cached_property
    def counting(self) -> Prompter:
        """See `PromptBuilder.counting`."""
        found = copy.copy(self)
        found.builder = self.builder.counting
        return found

    async def completion(
        self,
        prompt: str | Sequence[int],
        *,
        param: str = "prompt",
        with_start: bool = True,
        most: int | None = None,
    ) -> Prompt:
        """See `PromptBuilder.completion`."""
        build = partial(self.builder.completion, prompt, param=param, with_start=with_start, most=most)
        return await off_loop(build, size=len(prompt))

    async def prediction(self, text: str) -> tuple[int, ...]:
        """The ids of a predicted answer, no more than the context has."""
        most = self.builder.info.max_context
        part = text[: most * MAX_CHARS_PER_TOKEN]
        ids = await off_loop(partial(self.builder.text.encode, part, allow_special=False), size=len(part))
        return ids[:most]

    async def without(self, params: SamplingParams, words: Sequence[str] | None) -> SamplingParams:
        """`params` of answers that hold none of these words."""
        if not words:
            return params
        encode = partial(self.builder.text.encode, allow_special=False)
        size = sum(_CHARS_OF_A_CALL + len(word) for word in words)
        found = await off_loop(partial(bad_word_ids, words, encode), size=size)
        return msgspec.structs.replace(params, bad_words=found)

    async def decode(self, token_ids: Sequence[int], *, shows_special: bool = False) -> str:
        """The text of ids; special tokens are left out, or shown by their names."""
        text = self.builder.text
        return await off_loop(
            partial(text.decode_all if shows_special else text.decode, token_ids), size=len(token_ids)
        )

    @asynccontextmanager
    async def chat(
        self,
        conversation: Conversation,
        sources: Mapping[str, Source] | None = None,
        *,
        scope: str | None = None,
        caller: str = "",
    ) -> AsyncIterator[Prompt]:
        """The prompt of a conversation with its media opened; their memory is held until it is left.

        `sources` gives a part's content by its path where it does not hold the file itself. What files come
        to is kept for whoever has the same `scope`; without one it is not kept. `caller` is who has them
        fetched and kept (`Lane.caller`). Raises BadRequestError, MediaError or TooLargeError naming the part,
        OverloadedError if there is no memory for media now, and the opener's errors. Cancellation stops the
        opening of files.
        """
        async with (
            self.fetched(conversation, caller=caller) as whole,
            self.read(whole, sources, scope=scope, caller=caller) as prompt,
        ):
            yield prompt

    @asynccontextmanager
    async def read(
        self,
        whole: Conversation,
        sources: Mapping[str, Source] | None = None,
        *,
        scope: str | None = None,
        caller: str = "",
    ) -> AsyncIterator[Prompt]:
        """`chat` of a conversation that was `fetched`."""
        parts, processor_options = self.media_of(whole), whole.processor_options
        async with self.opened(
            parts, sources, scope=scope, caller=caller, processor_options=processor_options
        ) as media:
            yield await self.build(whole, media)

    @asynccontextmanager
    async def fetched(self, conversation: Conversation, *, caller: str = "") -> AsyncIterator[Conversation]:
        """The conversation with the files in it that it names by address; their memory is held until it is
        left. Raises as `media_of` does, and as `AddressBook.fetched`."""
        parts = self.media_of(conversation)
        self._media.pixel_rule(conversation.processor_options)
        async with self._addresses.fetched(conversation, parts, caller) as whole:
            yield whole

    def media_of(self, conversation: Conversation) -> tuple[MediaPart, ...]:
        """Its media, in order. Raises BadRequestError for a kind that the model does not take, and
        TooLargeError for too many."""
        parts = media_parts(conversation)
        for part in parts:
            self.builder.check_kind(part)
            if part.embeds is not None and not self._limits.takes_embeds:
                raise unsupported(
                    f"{part.param}.{part.kind}_embeds", "is not taken by this server (`--enable-mm-embeds`)"
                )
            self.builder.check_embeds(part)
        if len(parts) > self._limits.max_items:
            first = parts[self._limits.max_items].param
            raise TooLargeError(
                f"`{first}`: the request has {len(parts):,} media parts; the limit is "
                f"{self._limits.max_items} (--max-media-items)",
                param=first,
            )
        return parts

    async def build(self, conversation: Conversation, media: Sequence[MediaItems]) -> Prompt:
        """The prompt of a conversation; `media` are those of its parts, in order: features may be missing.

        Raises BadRequestError."""
        build = partial(self.builder.chat, conversation, media)
        size = 0 if is_short(conversation, INLINE_CHARS) else INLINE_CHARS + 1
        return await off_loop(build, size=size)
