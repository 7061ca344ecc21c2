"""What is asked of a model that sees or hears without running it: its tokenizer, and prompts with media.

A chat template writes a mark for each medium. In its place comes the family's text, in which one token stands
for each item, and each of those becomes as many placeholders as its item has rows. Torch-free.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain

import msgspec

from ....protocols.chat.content import ChatMessage, MediaPart, Part, TextPart
from ....protocols.chat.request import Conversation
from ....protocols.engine.messages import EncoderItem, Features, MediaItems, MediaKind, MediaSpan
from ....protocols.errors import BadRequestError
from ...text.chat_template import ChatTemplate
from ...text.tokenizer import TextTokenizer
from ..info import ModelInfo, SpeechEntry
from ..prompts import Prompt, TextPrompts, unique
from ..side import ModelSide
from .family import Checkpoint, MediaFamily, open_family

INFO = ModelInfo
_Placed = tuple[MediaKind, EncoderItem, int | None]
"""An item, and `MediaSpan.since_start`."""


def open_side(info: ModelInfo) -> ModelSide:
    """Read the tokenizer and the JSON files. Raises ModelLoadError naming the file or field at fault."""
    text = TextTokenizer.from_folder(info.folder)
    return side_of(text, open_family(Checkpoint.of(info.folder, text)), info)


def side_of(text: TextTokenizer, family: MediaFamily, info: ModelInfo) -> ModelSide:
    """It answers prompts of text and media, and may transcribe."""
    if text.chat_template is None:
        text.chat_template = text.tool_template = family.template
    prompts = MediaPrompts(text, family, info.vocab_size)
    speech = None
    if family.transcription is not None:
        speech = SpeechEntry(".multimodal", TranscriptionPrompts(prompts, family, info.stop_token_ids))
    return ModelSide(text=text, prompts=prompts, speech=speech)


class MediaPrompts(TextPrompts):
    """Conversations with media among their text (a `ChatPrompts`)."""

    def __init__(self, text: TextTokenizer, family: MediaFamily, vocab_size: int) -> None:
        super().__init__(text, family.media)
        self._family = family
        self._places = {place.written: kind for kind, place in family.places.items()}
        self._pattern = re.compile("|".join(map(re.escape, sorted(self._places, key=len, reverse=True))))
        self._ids = {kind: text.id_of(place.token) or 0 for kind, place in family.places.items()}
        self._tokens = frozenset(self._ids.values())
        self._vocab_size = vocab_size

    @cached_property
    def template(self) -> ChatTemplate:
        """See `TextPrompts`. One that takes no parts gets each medium's place in its string."""
        return ChatTemplate(self.text, {kind: written for written, kind in self._places.items()})

    def chat(self, conversation: Conversation, media: Sequence[MediaItems]) -> Prompt:
        """See `ChatPrompts`."""
        if not media:
            return Prompt(self.template.encode(conversation))
        placed: list[MediaItems] = []

        def rewrite(rendered: str) -> str:
            found, placed[:] = self.with_media(rendered, media)
            return found

        ids = self.template.encode(conversation, rewrite)
        return self.expand(ids, placed)

    def with_media(self, rendered: str, media: Sequence[MediaItems]) -> tuple[str, list[MediaItems]]:
        """What a template wrote with the text of each medium in its place, and the media in the order of
        their places. Raises BadRequestError if there are more or fewer places than media."""
        left = {kind: deque(each for each in media if each.kind == kind) for kind in self._places.values()}
        numbers = {kind: len(given) for kind, given in left.items()}
        places = dict.fromkeys(left, 0)
        placed: list[MediaItems] = []

        def replacement(match: re.Match[str]) -> str:
            kind = self._places[match[0]]
            places[kind] += 1
            if not left[kind]:
                return ""
            placed.append(left[kind].popleft())
            place = self._family.places[kind]
            in_front = place.in_front(places[kind] - 1) if place.in_front is not None else ""
            return in_front + place.text_of(placed[-1])

        found = self._pattern.sub(replacement, rendered)
        for kind, number in numbers.items():
            if places[kind] != number:
                raise BadRequestError(
                    f"The prompt has {places[kind]} places for {kind}, but {number} were given.",
                    param="messages",
                )
        return found, placed

    def expand(self, token_ids: Sequence[int], media: Sequence[MediaItems]) -> Prompt:
        """A prompt with one token for each item → with placeholders for its rows; `media` in the order of
        their places."""
        left = chain.from_iterable(map(self._spread, media))
        ids: list[int] = []
        items: list[EncoderItem] = []
        spans: list[MediaSpan] = []
        beside = self._beside_pictures(media)
        for token_id in token_ids:
            if token_id not in self._tokens:
                ids.append(token_id)
                continue
            kind, item, since_start = _next(left)
            if token_id != self._ids[kind]:
                raise _mismatch()
            item = self._with_rows(item)
            grid = merged_grid(item.features, self._family.merge_size)
            spans.append(MediaSpan(item.content_hash, len(ids), item.num_tokens, grid, kind, since_start))
            items.append(item)
            # Their embeddings are never looked up, and some families' tokens have none.
            ids += self._row_ids(beside if kind == "audio" and beside is not None else token_id, item)
        if next(left, None) is not None:
            raise _mismatch()
        return Prompt(tuple(ids), unique(items), tuple(spans))

    def _spread(self, media: MediaItems) -> Iterable[_Placed]:
        """A medium's items, with the positions in time by which each follows the first of them."""
        place = self._family.places[media.kind]
        later: list[int | None] = [None] * len(media.items)
        if place.later is not None:
            later[1:] = place.later(media.starts_s)[1:]
        for item, since_start in zip(media.items, later, strict=True):
            yield media.kind, item, since_start
        if place.closing is not None:
            yield media.kind, place.closing, None

    def _beside_pictures(self, media: Sequence[MediaItems]) -> int | None:
        """See `AudioEncoding.id_beside_pictures`."""
        audio = self._family.audio
        return audio.id_beside_pictures if audio and any(each.kind == "image" for each in media) else None

    def _row_ids(self, token_id: int, item: EncoderItem) -> Iterable[int]:
        if self._family.row_tokens is None:
            found = [token_id] * item.num_tokens
        else:
            found = [self.text.id_of(name) or 0 for name in self._family.row_tokens(item.features)]
        return (each if each < self._vocab_size else 0 for each in found)

    def _with_rows(self, item: EncoderItem) -> EncoderItem:
        """An item as who prepared it has it knows nothing of what becomes of it."""
        return msgspec.structs.replace(item, num_tokens=self._family.num_rows(item.features))


class TranscriptionPrompts:
    """Prompts that ask for the transcript of a recording."""

    def __init__(self, prompts: MediaPrompts, family: MediaFamily, stop_token_ids: Sequence[int]) -> None:
        assert family.transcription is not None, "that is why it is made"
        self.rule = family.transcription
        self.media = family.media
        self.text = prompts.text
        self.stop_token_ids = tuple(stop_token_ids)
        self._prompts = prompts
        self._place = family.places["audio"]

    def prompt(self, items: Sequence[EncoderItem], language: str | None) -> Prompt:
        """The question about a recording with these items, whose language may be known. Raises
        BadRequestError."""
        media = MediaItems("audio", tuple(items))
        if self.rule.written is not None:
            written = self.rule.written(self._place.text_of(media), language)
            return self._prompts.expand(self.text.encode(written, allow_special=True), [media])
        parts: tuple[Part, ...] = (MediaPart("audio", b"", param="file"), TextPart(self.rule.instruction))
        if self.rule.is_instruction_first:
            parts = parts[::-1]
        message = ChatMessage(role="user", content=parts, extra={}, param="file")
        return self._prompts.chat(Conversation(messages=(message,), template_kwargs={}), [media])


def merged_grid(features: Features, merge_size: int | None) -> tuple[int, int, int] | None:
    """The grid of an item's rows, where positions follow it."""
    if merge_size is None or features.grid is None:
        return None
    time, height, width = features.grid
    return time, height // merge_size, width // merge_size


def _next(items: Iterator[_Placed]) -> _Placed:
    item = next(items, None)
    if item is None:
        raise _mismatch()
    return item


def _mismatch() -> BadRequestError:
    return BadRequestError("The prompt's places and its media do not match.", param="messages")
