"""What a client asks → token ids and the encoder items that lie among them, within the model's bounds.

How a conversation with media becomes tokens is its family's own way, a `ChatPrompts`; `TextPrompts` is that
of models that read text only. Media come here as encoder items: opening files and making features is
`actors/text/prompts.py`'s business, by the family's `MediaRules`. Torch-free.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Protocol

import msgspec

from ...protocols.chat.content import ChatMessage, MediaPart, TextPart
from ...protocols.chat.request import Conversation
from ...protocols.engine.messages import EncoderItem, MediaItems, MediaKind, MediaSpan, Replaced
from ...protocols.errors import BadRequestError
from ...protocols.shared.json_body import refuse, unsupported
from ..text.chat_size import field_sizes
from ..text.chat_template import ChatTemplate
from ..text.token_text import TokenText
from ..text.tokenizer import TextTokenizer
from ..text.tools.machine import ToolParser, answer_format
from ..text.tools.thinking import Thinking
from .info import ModelInfo

MAX_CHARS_PER_TOKEN: Final = 64
"""A text this much longer than the context cannot fit, and is not worth tokenizing to find out."""


_TAIL: Final = 16
"""Tokens at a prompt's end, among which are those that open an answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and what lies among them. `items` holds each item once, `spans` every place."""

    token_ids: tuple[int, ...]
    items: tuple[EncoderItem, ...] = ()
    spans: tuple[MediaSpan, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    """What is shown for damaged frames of videos, by the part that names each."""

    def __add__(self, token_ids: tuple[int, ...]) -> Prompt:
        """The prompt with more tokens behind."""
        return dataclasses.replace(self, token_ids=self.token_ids + token_ids)


AudioCut = Literal["shorter", "padded", "trimmed", "apart"]
"""Of audio in windows: the last is as long as what is left ("trimmed": with silence behind it); it is filled
up with silence; or each one is filled up, and computed as if there were no other. See
`media/audio/encoder_windows.py`."""


@dataclass(frozen=True, slots=True)
class AudioWindows:
    """Audio becomes windows of up to `window_frames` mel frames, of `num_tokens(frames)` tokens each."""

    window_frames: int
    num_tokens: Callable[[int], int]
    cut: AudioCut = "shorter"
    """What the last window of a recording, and frames at the edges of windows, are like."""
    max_windows: int | None = None
    """Of one recording."""
    extractors: Mapping[str, int] = field(default_factory=dict)
    """The feature extractors that a checkpoint may name, with their mel bins; empty: those of its
    `ModelInfo`."""


@dataclass(frozen=True, slots=True)
class AudioClips:
    """Audio becomes what a rule makes of the whole of it."""

    rule: str
    """The module whose `open_rule(folder)` gives an `AudioRule`, a name in `sensorium.media.audio`."""
    num_tokens: Callable[[int], int]
    """Of an item whose features have so many rows."""
    max_seconds: float
    """Of one recording."""


@dataclass(frozen=True, slots=True)
class EmbedsRule:
    """What an encoding made elsewhere must be: rows of `width` numbers, with all levels of the deepstack."""

    width: int
    merge_size: int | None = None
    """Patches on a side of what becomes one token, for pictures."""


IMAGES: Final[frozenset[MediaKind]] = frozenset({"image"})


@dataclass(frozen=True, slots=True)
class MediaRules:
    """How media become a model's encoder items; None for what it does not take."""

    pixels: str | None = None
    """Images and videos: the module whose `open_rule` gives a `PixelRule`, a name in `sensorium.media.vision`
    (".merged_patches") or an absolute one that imports no engine."""
    pixel_kinds: frozenset[MediaKind] = IMAGES | {"video"}
    """What the module opens for it."""
    is_live: bool = True
    """Where videos are taken, so are live frames, in pairs."""
    audio: AudioWindows | AudioClips | None = None
    embeds: EmbedsRule | None = None
    """Of images, or of audio where the model takes no images."""

    @property
    def kinds(self) -> frozenset[MediaKind]:
        """Media the model takes."""
        pictures: frozenset[MediaKind] = frozenset() if self.pixels is None else self.pixel_kinds
        return pictures if self.audio is None else pictures | {"audio"}


class ChatPrompts(Protocol):
    """How one family's conversations become prompts. Thread-safe; long texts take a while."""

    @property
    def text(self) -> TextTokenizer:
        """The tokenizer, also of prompts that are no conversation."""

    @property
    def media(self) -> MediaRules:
        """What may lie in a conversation."""

    @property
    def has_template(self) -> bool:
        """Whether it has a way to write conversations."""

    def chat(self, conversation: Conversation, media: Sequence[MediaItems]) -> Prompt:
        """A conversation; `media` are those of its parts, in order. Raises BadRequestError."""


class TextPrompts:
    """Conversations as the checkpoint's template writes them, without media (a `ChatPrompts`)."""

    def __init__(self, text: TextTokenizer, media: MediaRules | None = None) -> None:
        self.text = text
        self.media = media or MediaRules()

    @cached_property
    def template(self) -> ChatTemplate:
        """The model's chat template. Raises BadRequestError if there is none."""
        return ChatTemplate(self.text)

    @property
    def has_template(self) -> bool:
        """See `ChatPrompts`."""
        return self.text.chat_template is not None

    def chat(self, conversation: Conversation, media: Sequence[MediaItems]) -> Prompt:
        """See `ChatPrompts`."""
        assert not media, "kinds are checked"
        return Prompt(self.template.encode(conversation))


class PromptBuilder:
    """Builds one model's prompts. Thread-safe; long texts take a while."""

    def __init__(
        self,
        info: ModelInfo,
        prompts: ChatPrompts,
        tool_parser: ToolParser = "auto",
        *,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """`template_kwargs` is what the template is told where a conversation does not say."""
        self.info = info
        self.text = prompts.text
        templates = filter(None, (prompts.text.chat_template, prompts.text.tool_template))
        self.answers = answer_format("".join(templates), tool_parser)
        """How answers to conversations are read."""
        self.shown = {
            with_tools: prompts.text.hidden_ids(self.answers.marks(with_tools=with_tools))
            for with_tools in (False, True)
        }
        """Special tokens that reading them needs in their text, with tools and without."""
        self.tokens = TokenText(prompts.text)
        self.media = prompts.media
        self._prompts = prompts
        self._is_counting = False
        self._template_kwargs = template_kwargs or {}

    @cached_property
    def counting(self) -> PromptBuilder:
        """The same for prompts of which only the length is asked: longer ones than the context, and none."""
        found = copy.copy(self)
        found._is_counting = True
        return found

    @property
    def has_template(self) -> bool:
        """Whether the model has a way to write conversations."""
        return self._prompts.has_template

    def completion(
        self,
        prompt: str | Sequence[int],
        *,
        param: str = "prompt",
        with_start: bool = True,
        most: int | None = None,
    ) -> Prompt:
        """A raw prompt: control tokens in a text are control tokens. Those that the tokenizer puts in front
        stand there, unless `with_start` is false. Of more than `most` tokens the last are kept, behind those
        in front. Raises BadRequestError."""
        if isinstance(prompt, str):
            self._check_chars({param: len(prompt)})
            ids = self.text.encode(prompt, allow_special=True)
            start = self.text.start_ids if with_start else ()
            ids = start + (ids if most is None else ids[-max(1, most - len(start)) :])
        else:
            ids = tuple(prompt if most is None else prompt[-most:])
            self._check_tokens(len(ids), param)
            for index, token_id in enumerate(ids):
                if not 0 <= token_id < self.info.vocab_size:
                    raise refuse(
                        f"{param}[{index}]", token_id, f"token ids from 0 to {self.info.vocab_size - 1}"
                    )
        return self._checked(Prompt(ids), param)

    def chat(self, conversation: Conversation, media: Sequence[MediaItems] = ()) -> Prompt:
        """A conversation; `media` are those of its parts, in order. Raises BadRequestError."""
        self._check_chars(field_sizes(conversation))
        kwargs = {**self._template_kwargs, **conversation.template_kwargs}
        conversation = dataclasses.replace(conversation, template_kwargs=kwargs)
        prompt = self._prompts.chat(conversation, media)
        replaced = tuple(
            msgspec.structs.replace(each, param=part.param)
            for part, found in zip(media_parts(conversation), media, strict=True)
            for each in found.replaced
        )
        if replaced:
            prompt = dataclasses.replace(prompt, replaced=replaced)
        return self._checked(prompt, "messages")

    def thinking(self, prompt: Prompt, conversation: Conversation) -> Thinking:
        """How the answer to a conversation begins."""
        tags = self.answers.thinking
        if tags is None:
            return "closed"
        if conversation.continue_final_message:
            return tags.state_after(plain_text(conversation.messages[-1]))
        return tags.state_of(self.text.decode_all(prompt.token_ids[-_TAIL:]))

    def check_kind(self, part: MediaPart) -> None:
        """Raise BadRequestError naming the part if the model does not take its kind of media."""
        if part.kind not in self.media.kinds:
            takes = ", ".join(sorted(self.media.kinds | {"text"}))
            raise BadRequestError(
                f"`{part.param}` is {_article(part.kind)}; the model {self.info.name} takes {takes}",
                param=part.param,
                code="unsupported_media",
            )

    def check_embeds(self, part: MediaPart) -> None:
        """Raise BadRequestError naming the field if a part's embeddings are not as the model's own are."""
        rule, embeds, param = self.media.embeds, part.embeds, f"{part.param}.{part.kind}_embeds"
        if embeds is None:
            return
        if rule is None:
            raise unsupported(param, f"is not what the model {self.info.name} takes")
        rows, width = embeds.shape
        if not rows:  # those that were sent before, by name
            return
        if width != rule.width:
            raise refuse(
                f"{param}.shape", embeds.shape, f"rows of {rule.width} numbers, [rows, {rule.width}]"
            )
        if embeds.grid is not None and rule.merge_size is not None:
            _, height, wide = embeds.grid
            merge = rule.merge_size
            if height % merge or wide % merge or height * wide != rows * merge**2:
                raise refuse(
                    f"{param}.image_grid_thw",
                    embeds.grid,
                    f"sides that divide by {merge}, with {merge**2} patches for each of the {rows} rows",
                )

    def num_room(self, prompt: Prompt) -> int:
        """Tokens the context leaves for an answer, at least one."""
        return self.info.max_context - len(prompt.token_ids)

    def _check_chars(self, sizes: dict[str, int]) -> None:
        """`sizes` are characters by field; the largest is the one to blame."""
        num_chars = sum(sizes.values())
        if num_chars > self.info.max_context * MAX_CHARS_PER_TOKEN:
            param = max(sizes, key=lambda name: sizes[name])
            raise BadRequestError(
                f"The prompt is too long: {num_chars} characters, {sizes[param]} of them in `{param}`, and "
                f"{self._limit}",
                param=param,
                code="context_length_exceeded",
            )

    def _checked(self, prompt: Prompt, param: str) -> Prompt:
        if not prompt.token_ids and not self._is_counting:
            raise BadRequestError("The prompt has no tokens.", param=param)
        self._check_tokens(len(prompt.token_ids), param)
        return prompt

    @property
    def _limit(self) -> str:
        """In the words of OpenAI's and vLLM's servers, as "too long" is in Anthropic's: LiteLLM, LangChain
        and others read them to know that a conversation has to be cut."""
        return (
            f"this model's maximum context length is {self.info.max_context} tokens, "
            "which must hold prompt and answer."
        )

    def _check_tokens(self, num_tokens: int, param: str) -> None:
        if num_tokens >= self.info.max_context and not self._is_counting:
            raise BadRequestError(
                f"The prompt is too long: {num_tokens} tokens, and {self._limit}",
                param=param,
                code="context_length_exceeded",
            )


def media_parts(conversation: Conversation) -> tuple[MediaPart, ...]:
    """The media of a conversation, in order."""
    return tuple(
        part
        for message in conversation.messages
        if isinstance(message.content, tuple)
        for part in message.content
        if isinstance(part, MediaPart)
    )


def plain_text(message: ChatMessage) -> str:
    """A message's text, media left out."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content if isinstance(part, TextPart))


def unique(items: Sequence[EncoderItem]) -> tuple[EncoderItem, ...]:
    """Each content once, in the order of the first."""
    return tuple({item.content_hash: item for item in items}.values())


def _article(kind: MediaKind) -> str:
    return {"image": "an image", "audio": "audio", "video": "a video"}[kind]
