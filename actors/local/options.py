"""What users of `LocalEngine` write and get: sampling options, prompts of many kinds, completions, deltas.

Translates to what requests over HTTP become, so that limits and messages are the same. Knows no engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from ...media.audio.decode import MAX_CHANNELS
from ...media.audio.downmix import Mixer
from ...media.audio.resample import StreamingResampler
from ...media.vision.images import PixelArray
from ...protocols.chat.content import ChatMessage, MediaPart, Part, TextPart, read_messages
from ...protocols.chat.request import Conversation
from ...protocols.engine.messages import MediaKind, PromptLogprobs, SamplingParams, TopLogprobs
from ...protocols.errors import BadRequestError, wrong
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.generation import GenerationRequest, sampling_params
from ...protocols.shared.json_body import check_ranges
from ...protocols.shared.sampling import (
    MAX_INT,
    NO_SAMPLING_DEFAULTS,
    DecodingFields,
    NumLogprobs,
    SamplingDefaults,
)
from ...protocols.shared.structured_outputs import StructuredOutputs
from ..text.media_opening import Frames, Samples, Source

Message = Mapping[str, Any]
"""An OpenAI chat message: `{"role": …, "content": …}`."""
Prompt = str | Sequence[int] | Sequence[Message] | Mapping[str, Any]
"""A text, token ids, chat messages, or `{"text" or "messages": …, "images": […], "video": …, "audio": …}`."""

_KINDS: Final[tuple[tuple[str, MediaKind], ...]] = (
    ("images", "image"),
    ("video", "video"),
    ("audio", "audio"),
)
_KNOWN: Final = frozenset({"text", "messages", "images", "video", "audio", "fps"})
_DEFAULT_FPS: Final = 2.0
MAX_PEAK: Final = 100.0
"""Whose samples go beyond has not divided those of a file; clipped recordings go up to some ten."""


class SamplingOptions(DecodingFields, frozen=True, kw_only=True):
    """How to choose tokens. The options are those of `protocols/shared/sampling.py`, as a server has them.

    What is None is as the checkpoint's `generation_config.json` says, and greedy if it says nothing.

    `json_schema` (a schema as an object or text), `regex`, `choice` and `grammar` (Lark) say what the whole
    answer must match; at most one of them.
    """

    max_tokens: int | None = 256
    """None: what the context leaves."""
    logit_bias: Mapping[int, float] | None = None
    logprobs: NumLogprobs | None = None
    """Report each token's log-probability, and this many of the likeliest alternatives."""
    json_schema: Mapping[str, Any] | str | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None

    @property
    def forbidden(self) -> list[str]:
        """`bad_words`, also where it is one."""
        return [self.bad_words] if isinstance(self.bad_words, str) else list(self.bad_words or ())

    def params(self, vocab_size: int, defaults: SamplingDefaults = NO_SAMPLING_DEFAULTS) -> SamplingParams:
        """For an engine whose checkpoint says `defaults`. Raises BadRequestError naming the option."""
        check_ranges(self)
        given = {name: getattr(self, name) for name in DecodingFields.__struct_fields__}
        for name, value in given.items():
            if isinstance(value, Iterable) and not isinstance(value, str):
                given[name] = list(value)
        max_tokens = MAX_INT if self.max_tokens is None else self.max_tokens
        request = GenerationRequest(
            **given
            | {
                "bad_words": self.forbidden,
                "max_tokens": max_tokens,
                "logit_bias": {str(key): bias for key, bias in (self.logit_bias or {}).items()},
                "structured_outputs": self._structured(),
            }
        )
        return sampling_params(
            request,
            max_tokens=max_tokens,
            vocab_size=vocab_size,
            logprobs=self.logprobs,
            defaults=defaults,
            temperature=0.0,
        )

    def _structured(self) -> StructuredOutputs | None:
        if self.json_schema is None and self.regex is None and self.choice is None and self.grammar is None:
            return None
        schema = self.json_schema
        return StructuredOutputs(
            json=msgspec.UNSET if schema is None else msgspec.Raw(msgspec.json.encode(schema)),
            regex=self.regex,
            choice=None if self.choice is None else list(self.choice),
            grammar=self.grammar,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One finished answer."""

    text: str
    token_ids: tuple[int, ...]
    """Every token that was sampled: also what ended the answer and is no part of the text, a stop token or
    those of a stop string. Log-probabilities are as many."""
    finish_reason: str
    """`stop` (a stop token or string, or a complete grammar) or `length`."""
    num_prompt_tokens: int
    num_cached_tokens: int
    """Prompt tokens whose keys and values were there already."""
    logprobs: tuple[float, ...] | None = None
    top_logprobs: tuple[TopLogprobs, ...] | None = None
    prompt_logprobs: PromptLogprobs | None = None
    stop: str | None = None
    """The stop string that ended it."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What follows what came before. The last one has a finish reason."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedPrompt:
    """A user's prompt as the engine's side takes it: raw, or a conversation with its media."""

    raw: str | tuple[int, ...] | None
    conversation: Conversation | None
    sources: dict[str, Source]


NO_PROMPT: Final = "A prompt is a text, token ids, chat messages, or a mapping of them."


def read_prompt(prompt: Prompt, **template_kwargs: object) -> ParsedPrompt:
    """Sort out what a user gave; opens and reads the files it names. Raises BadRequestError and OSError."""
    if isinstance(prompt, str):
        return ParsedPrompt(prompt, None, {})
    if isinstance(prompt, Mapping):
        return _read_mapping(prompt, template_kwargs)
    given: object = prompt
    if not isinstance(given, Iterable):
        raise BadRequestError(NO_PROMPT, param="prompt")
    items: list[Any] = list(given)
    if items and isinstance(items[0], Mapping):
        return ParsedPrompt(None, _conversation(_messages(items), template_kwargs), {})
    if all(isinstance(item, int | np.integer) for item in items):
        return ParsedPrompt(tuple(map(int, items)), None, {})
    raise BadRequestError(NO_PROMPT, param="prompt")


def _read_mapping(prompt: Mapping[str, Any], template_kwargs: dict[str, Any]) -> ParsedPrompt:
    if "role" in prompt:
        return ParsedPrompt(None, _conversation(_messages([prompt]), template_kwargs), {})
    unknown = sorted(set(prompt) - _KNOWN)
    if unknown or ("text" in prompt) == ("messages" in prompt):
        raise BadRequestError(
            f"A prompt mapping has text or messages, and {', '.join(sorted(_KNOWN - {'text', 'messages'}))}; "
            f"not {', '.join(map(str, prompt))}.",
            param="prompt",
        )
    sources: dict[str, Source] = {}
    parts: list[Part] = []
    for name, kind in _KINDS:
        given = prompt.get(name)
        listed = [] if given is None else list(given) if name == "images" and not _is_one(given) else [given]
        for index, each in enumerate(listed):
            param = f"{name}[{index}]" if name == "images" else name
            sources[param] = _source(kind, each, param, float(prompt.get("fps") or _DEFAULT_FPS))
            parts.append(MediaPart(kind, b"", param))
    if "text" in prompt:
        if not parts:
            return ParsedPrompt(str(prompt["text"]), None, {})
        parts.append(TextPart(str(prompt["text"])))
        return ParsedPrompt(None, _conversation((_user(tuple(parts)),), template_kwargs), sources)
    return ParsedPrompt(
        None, _conversation(_with_media(_messages(prompt["messages"]), parts), template_kwargs), sources
    )


def check_template(kwargs: Mapping[str, object]) -> None:
    """Raise BadRequestError for an option of sampling among the variables of a chat template, where nothing
    would read it."""
    for name in SamplingOptions.__struct_fields__:
        if name in kwargs:
            shown = f"{name}={kwargs[name]!r}"
            raise BadRequestError(f"`{shown}` is of sampling: SamplingOptions({shown})", param=name)


def _user(content: tuple[Part, ...]) -> ChatMessage:
    return ChatMessage(role="user", content=content, extra={}, param="messages[0]")


def _with_media(messages: tuple[ChatMessage, ...], parts: list[Part]) -> tuple[ChatMessage, ...]:
    """Media lie in front of the last user message's text."""
    if not parts:
        return messages
    for index in reversed(range(len(messages))):
        if messages[index].role == "user":
            content = messages[index].content
            own: tuple[Part, ...] = (TextPart(content),) if isinstance(content, str) else content or ()
            changed = replace(messages[index], content=(*parts, *own))
            return (*messages[:index], changed, *messages[index + 1 :])
    raise BadRequestError("Media need a user message to lie in.", param="messages")


def _messages(messages: Sequence[Message]) -> tuple[ChatMessage, ...]:
    try:
        return read_messages([msgspec.Raw(msgspec.json.encode(message)) for message in messages])
    except (TypeError, UnicodeEncodeError) as error:
        raise BadRequestError(f"The messages are not plain data: {error}", param="messages") from None


def _conversation(messages: tuple[ChatMessage, ...], template_kwargs: dict[str, Any]) -> Conversation:
    own = {field.name for field in fields(Conversation)} & set(template_kwargs)
    own -= {"messages", "template_kwargs", "tool_use", "thinking_budget", "is_budget_optional"}
    settings = {name: template_kwargs.pop(name) for name in own}
    return Conversation(messages=messages, template_kwargs=template_kwargs, **settings)


def _is_one(images: Any) -> bool:  # noqa: ANN401
    """A picture by itself: an array of three dimensions has rows, columns and colours."""
    return isinstance(images, Image.Image) or is_file(images) or getattr(images, "ndim", 4) == 3


def is_file(given: object) -> bool:
    """A path, bytes, or a file object."""
    is_named = isinstance(given, str | os.PathLike | bytes | bytearray | memoryview)
    return is_named or hasattr(given, "read")


def file_bytes(given: Any) -> bytes:  # noqa: ANN401
    """What is in it, from its beginning, wherever a file object was left. Raises OSError, and BadRequestError
    for one opened as text."""
    if isinstance(given, str | os.PathLike):
        return Path(given).read_bytes()
    if hasattr(given, "seekable") and given.seekable():
        given.seek(0)
    data = given.read() if hasattr(given, "read") else given
    if isinstance(data, str):
        raise BadRequestError('A file is opened as text: open it with "rb".', param="file")
    return bytes(data)


def _source(kind: MediaKind, given: Any, param: str, fps: float) -> Source:  # noqa: ANN401 - users' own types
    if is_file(given):
        return file_bytes(given)
    match kind:
        case "image":
            return _pixels(given, param)
        case "video":
            pictures = [_pixels(each, f"{param}[{index}]") for index, each in enumerate(given)]
            return Frames(pictures, [index / fps for index in range(len(pictures))])
        case "audio":
            return Samples(read_samples(given, param))


def _pixels(given: Any, param: str) -> PixelArray:  # noqa: ANN401
    if isinstance(given, Image.Image):
        return np.asarray(_opaque(ImageOps.exif_transpose(given)))
    array = np.asarray(given)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        raise wrong(
            param,
            f"is {array.dtype} {list(array.shape)}; allowed: a file, a PIL image, or uint8 "
            "[height, width, 3]",
        )
    return array


def _opaque(image: Image.Image) -> Image.Image:
    """RGB on white, as image files are read."""
    if "A" not in image.getbands() and image.info.get("transparency") is None:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, (255, 255, 255, 255)), layer).convert("RGB")


def full_scale(samples: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Samples of any shape as float32 whose full scale is 1. Raises TypeError for integers that may mean
    anything."""
    if samples.dtype.newbyteorder("=") in (np.int16, np.int32):
        return (samples / -float(np.iinfo(samples.dtype).min)).astype(np.float32)
    if not np.issubdtype(samples.dtype, np.floating):
        raise TypeError(f"samples of type {samples.dtype}")
    return samples.astype(np.float32)


NOT_FINITE: Final = "has samples that are NaN or infinite; set them to 0 first, as by numpy.nan_to_num."


def is_array(given: object) -> bool:
    """An array of NumPy, or what becomes one: a torch tensor, an array of JAX."""
    return hasattr(given, "__array__")


def read_samples(given: Any, param: str) -> npt.NDArray[np.float32]:  # noqa: ANN401
    """(samples, rate) as mono samples [n] at 16 kHz; an array alone is at that rate. Raises BadRequestError
    naming `param`."""
    try:
        samples, given_rate = (given, INTERNAL_RATE) if is_array(given) else given
        array, rate = full_scale(np.asarray(samples)), int(given_rate)
    except (TypeError, ValueError, OverflowError):
        array, rate, given_rate = np.zeros((0, 0), np.float32), 0, 0
    if rate and not array.size:
        raise wrong(param, "holds no audio samples")
    if not np.isfinite(array).all():
        raise wrong(param, NOT_FINITE)
    if array.ndim == 2 and 0 < array.shape[1] <= MAX_CHANNELS:
        array = Mixer().mix(array.T, rate)
    is_sound = array.ndim == 1 and array.size
    if not is_sound or rate != given_rate or not 4000 <= rate <= 384_000:
        raise BadRequestError(
            f"`{param}`: allowed are a file, or (samples, rate): float [n] or [n, channels], full scale 1, "
            "or int16 or int32, at 4000 to 384000 Hz",
            param=param,
        )
    if (peak := float(np.abs(array).max())) > MAX_PEAK:
        raise BadRequestError(
            f"`{param}`: samples go up to {peak:g}, and full scale is 1: divide them, or give int16",
            param=param,
        )
    if rate == INTERNAL_RATE:
        return array
    resampler = StreamingResampler(rate, INTERNAL_RATE)
    return resampler.push(array, last=True)
