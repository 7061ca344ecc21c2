"""The text side of Qwen3-ASR: the prompt around an utterance's windows, and the answer's language and text.

A prompt is what transformers' `Qwen3ASRProcessor` builds: the user's context as system message, the audio,
and the header of an answer, with a forced language if one is given. An answer is `language
English<asr_text>…`. Torch-free; counting is `engine/models/qwen3_asr/windows.py`'s. Text from outside never
becomes a control token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from ....protocols.engine.messages import EncoderItem, MediaSpan, Phrases
from ....protocols.errors import BadRequestError, ModelLoadError
from ....protocols.shared.languages import check_language
from ...text.keyword_boosting import phrases_of
from ...text.tokenizer import TextTokenizer
from ..prompts import Prompt, unique
from .info import Qwen3AsrInfo

LANGUAGES: Final[dict[str, str]] = {
    "ar": "Arabic",
    "yue": "Cantonese",
    "zh": "Chinese",
    "cs": "Czech",
    "da": "Danish",
    "nl": "Dutch",
    "en": "English",
    "fil": "Filipino",
    "fi": "Finnish",
    "fr": "French",
    "de": "German",
    "el": "Greek",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "mk": "Macedonian",
    "ms": "Malay",
    "fa": "Persian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "es": "Spanish",
    "sv": "Swedish",
    "th": "Thai",
    "tr": "Turkish",
    "vi": "Vietnamese",
}
"""ISO code → the name the models were trained with."""

TEXT_TAG: Final = "<asr_text>"
MAX_HEADER: Final = 64
"""Characters within which an answer's tag must begin. The longest header of a known language has 19."""

_KEPT_CONTEXTS: Final = 64
"""A live turn asks with the same context again and again; a long one takes milliseconds to encode."""
_KEPT_PHRASES: Final = 128

_CODES: Final = {name.lower(): code for code, name in LANGUAGES.items()}
_HEADER: Final = "language "


def language_code(name: str | None) -> str | None:
    """The code of a language's name or code in any case; None if it is not one the models know."""
    lowered = (name or "").strip().lower()
    return lowered if lowered in LANGUAGES else _CODES.get(lowered)


def languages_of(names: object) -> tuple[str, ...]:
    """Codes of the languages that a config lists by name; all that are known if it lists none of them."""
    listed = names if isinstance(names, list) else []
    codes = dict.fromkeys(language_code(name) for name in listed if isinstance(name, str))
    return tuple(code for code in codes if code is not None) or tuple(LANGUAGES)


def without_controls(text: str) -> str:
    """`text` without `<|…|>` and the answer's tag, also where removing one would join another."""
    kept: list[str] = []
    for character in text:
        kept.append(character)
        if character == ">":
            del kept[len(kept) - _control_length(kept) :]
    return "".join(kept)


def _control_length(kept: Sequence[str]) -> int:
    """Characters of the control token's name that `kept` ends with, or 0. Looks back to the last delimiter
    only, so that all of a text costs no more than its length."""
    if "".join(kept[-len(TEXT_TAG) :]) == TEXT_TAG:
        return len(TEXT_TAG)
    if len(kept) < 4 or kept[-2] != "|":
        return 0
    start = len(kept) - 3
    while start > 0 and kept[start] not in "<|>":
        start -= 1
    return len(kept) - start + 1 if start > 0 and kept[start - 1 : start + 1] == ["<", "|"] else 0


class Qwen3AsrText:
    """Prompts of one checkpoint."""

    def __init__(self, tokenizer: TextTokenizer, info: Qwen3AsrInfo) -> None:
        """Raises ModelLoadError naming a token that the tokenizer lacks."""
        self.tokenizer = tokenizer
        self.info = info
        token = partial(tokenizer.required_id, folder=info.folder)
        self._message_start, self._message_end = token("<|im_start|>"), token("<|im_end|>")
        self._audio_start, self._audio_end = token("<|audio_start|>"), token("<|audio_end|>")
        self._system = lru_cache(_KEPT_CONTEXTS)(self._encode_system)
        self.phrases = lru_cache(_KEPT_PHRASES)(self._phrases)
        """Those of keywords, made likelier by so much."""
        self.text_tag = token(TEXT_TAG)
        """The token between an answer's language and its text."""
        if token("<|audio_pad|>") != info.audio_token_id:
            raise ModelLoadError(
                f"{info.folder}: audio_token_id {info.audio_token_id} is not the tokenizer's <|audio_pad|>"
            )

    def prompt(
        self, windows: Sequence[EncoderItem], *, context: str = "", language: str | None = None
    ) -> Prompt:
        """The prompt for an utterance.

        `context` is what the user says of it (names, key words). With a `language` (code or name) the answer
        is text only; else it starts with the language and `AnswerReader` parses it. Raises BadRequestError
        for an unknown language and for an utterance without audio.
        """
        return self.question(windows, context=context) + self.answer_start(language)

    def question(self, windows: Sequence[EncoderItem], *, context: str = "") -> Prompt:
        """All of the prompt but the answer's own beginning (`answer_start`)."""
        if not windows:
            raise BadRequestError("there is no audio to transcribe", param="file", code="empty_audio")
        ids = [*self._system(context)]
        ids += [*self._open("user\n"), self._audio_start]
        spans: list[MediaSpan] = []
        for item in windows:
            spans.append(MediaSpan(item.content_hash, len(ids), item.num_tokens))
            ids += [self.info.audio_token_id] * item.num_tokens
        ids += [self._audio_end, *self._close()]
        return Prompt(tuple(ids), unique(windows), tuple(spans))

    def answer_start(self, language: str | None = None) -> tuple[int, ...]:
        """Where the answer begins: up to its header, or behind it if it says this language."""
        if language is None:
            return self._open("assistant\n")
        name = LANGUAGES[check_language(language, LANGUAGES)]
        return (*self._open(f"assistant\n{_HEADER}{name}"), self.text_tag)

    def answer_begun(self, text: str) -> tuple[int, ...]:
        """Where the answer goes on behind `text`, in which the answer's tag is the tag."""
        encode = partial(self.tokenizer.encode, allow_special=False)
        header, tag, spoken = text.partition(TEXT_TAG)
        written = (*encode(header), self.text_tag, *encode(spoken)) if tag else encode(text)
        return (*self.answer_start(), *written)

    def header(self, language: str) -> tuple[int, ...]:
        """What an answer in this language begins with by itself; () if that cannot be told."""
        free, forced = self.answer_start(), self.answer_start(language)
        return forced[len(free) :] if forced[: len(free)] == free else ()

    def num_header(self, token_ids: Sequence[int]) -> int:
        """Tokens of an answer before its text: its header with the tag, or none."""
        return token_ids.index(self.text_tag) + 1 if self.text_tag in token_ids else 0

    def _phrases(self, keywords: tuple[str, ...], boost: float) -> Phrases | None:
        encode = partial(self.tokenizer.encode, allow_special=False)
        return phrases_of(keywords, boost, encode, start_token=self.text_tag)

    def _encode_system(self, context: str) -> tuple[int, ...]:
        return (*self._open("system\n" + without_controls(context)), *self._close())

    def _open(self, text: str) -> tuple[int, ...]:
        return (self._message_start, *self.tokenizer.encode(text, allow_special=False))

    def _close(self) -> tuple[int, ...]:
        return (self._message_end, *self.tokenizer.encode("\n", allow_special=False))


@dataclass(frozen=True, slots=True)
class Answer:
    """A parsed answer. `language` is a name as the model gave it; None: not given, or no speech."""

    language: str | None
    text: str


class AnswerReader:
    """Parses an answer while it grows: `feed` gives text that can no longer change, `finish` the rest.

    Joins of what both give equal `parse_answer` of the whole, however it is cut. Nothing is given before the
    tag, or before it is clear that there is none. White space around the text is left out.
    """

    def __init__(self, *, has_header: bool = True) -> None:
        """`has_header` is false if the prompt forced the language."""
        self.language: str | None = None
        self._held = ""
        """Not given yet: the header so far, or white space that more text may follow."""
        self._in_header = has_header
        self._is_empty = True

    def feed(self, text: str) -> str:
        """More of the answer → more of its text."""
        self._held += text
        if self._in_header:
            self._held = self._held.lstrip()
            tag = self._held.find(TEXT_TAG, 0, MAX_HEADER + len(TEXT_TAG))
            if tag >= 0:
                self.language = _language_of(self._held[:tag])
                self._held = self._held[tag + len(TEXT_TAG) :]
            elif len(self._held) < MAX_HEADER + len(TEXT_TAG):
                return ""
            self._in_header = False
        if self._is_empty:
            self._held = self._held.lstrip()
        given = self._held.rstrip()
        self._held = self._held[len(given) :]
        self._is_empty &= not given
        return given

    def finish(self) -> str:
        """The answer has ended: one without a tag is text."""
        return self._held.rstrip() if self._in_header else ""


def parse_answer(text: str, *, has_header: bool = True) -> Answer:
    """Language and text of a whole answer, as `Qwen3ASRProcessor` reads it.

    Two differences: a tag that begins behind `MAX_HEADER` characters is text, and repetitions stay.
    """
    reader = AnswerReader(has_header=has_header)
    parsed = reader.feed(text) + reader.finish()
    return Answer(reader.language, parsed)


def _language_of(header: str) -> str | None:
    lines = [line.strip() for line in header.splitlines() if line.strip()]
    if not lines or header.strip().lower() == f"{_HEADER}none":
        return None
    first = lines[0]
    return first[len(_HEADER) :].strip() or None if first.lower().startswith(_HEADER) else first
