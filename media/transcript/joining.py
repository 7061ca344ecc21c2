"""The texts of ranges, joined in order: into one stream while they grow, into one transcript at the end.

Used by `actors/speech/recipe.py`. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ...protocols.shared.scripts import is_unspaced, is_wide
from ...protocols.transcription.transcript import (
    Coverage,
    Retranscription,
    Segment,
    SpokenText,
    TimedSegment,
    TokenLogProb,
    Transcript,
    Word,
    words_of,
)
from .answer_guard import LoopCutter, may_echo
from .range_answer import RangeAnswer

_SHARED_MARKS: Final = "“”‘’…—"
"""Punctuation of scripts with and without spaces."""


def separator(before: str, following: str) -> str:
    """What stands between two texts: nothing where there is a script without spaces on both sides."""
    first = following[0]
    runs_on = first in _SHARED_MARKS or _is_unspaced(first)
    return "" if runs_on and any(map(_is_unspaced, before.rstrip(_SHARED_MARKS)[-1:])) else " "


def _is_unspaced(character: str) -> bool:
    return is_unspaced(character) or is_wide(character)


def join_texts(texts: Iterable[str]) -> str:
    """Texts as one; empty ones leave no trace."""
    whole = ""
    for text in texts:
        if text:
            whole += (separator(whole, text) if whole else "") + text
    return whole


class DeltaJoiner:
    """Puts the growing texts of ranges into one stream, in order, equal to the joined transcript.

    A range's text is released when every range before it has finished; the white space around each
    range's text is dropped, and a `separator` put between texts that are not empty. What may be an echo of
    the `context` waits for the end of its range; loops are left out (`media/transcript/answer_guard.py`).
    What comes as `SpokenText` is released with its tokens: all that came until then.
    """

    def __init__(
        self,
        num_ranges: int,
        emit: Callable[[str], None],
        *,
        context: str = "",
        written: Callable[[str, str | None], str] = lambda spoken, _: spoken,
    ) -> None:
        """`written` says what is shown of a growing text in a language, which stays."""
        self._whole = ""
        """The text of the ranges in front of the head, which were released."""
        self._fed = [""] * num_ranges
        """What was fed, and below, what of it may be shown."""
        self._texts = [""] * num_ranges
        self._tokens: list[tuple[TokenLogProb, ...]] = [()] * num_ranges
        self._num_passed = 0
        """Tokens of the head range that were released."""
        self._finished = [False] * num_ranges
        self._emit = emit
        self._context = context
        self._written = written
        self._head = 0
        self._num_released = 0  # characters of the head range's stripped text

    def feeder(self, index: int, language: str | None = None) -> Callable[[str], None]:
        """Takes pieces of the range's text, which is in `language`."""

        cutter = LoopCutter()

        def feed(piece: str) -> None:
            if isinstance(piece, SpokenText):
                self._tokens[index] += piece.tokens
            self._fed[index] += cutter.feed(piece)
            self._texts[index] = self._written(self._fed[index], language)
            self._flush()

        return feed

    def grow(self, index: int, text: str) -> None:
        """The range's text so far, as it will be shown, is `text`."""
        self._fed[index] = self._texts[index] = text
        self._keep_tokens(index, text)
        self._flush()

    def finish(self, index: int, text: str) -> None:
        """The range's whole text, without loops, is `text`; what was fed is its beginning."""
        self._texts[index] = text
        self._keep_tokens(index, text)
        self._finished[index] = True
        self._flush()

    def _keep_tokens(self, index: int, whole: str) -> None:
        if isinstance(whole, SpokenText):
            self._tokens[index] = whole.tokens

    def _flush(self) -> None:
        while self._head < len(self._texts):
            text = self._texts[self._head].strip()
            is_new = not self._finished[self._head] and not self._num_released
            if is_new and self._context and may_echo(self._fed[self._head].strip(), self._context):
                return
            fresh = text[self._num_released :]
            if fresh:
                is_next = self._whole and not self._num_released
                tokens = self._tokens[self._head][self._num_passed :]
                self._emit(SpokenText((separator(self._whole, text) if is_next else "") + fresh, tokens))
                self._num_released, self._num_passed = len(text), len(self._tokens[self._head])
            if not self._finished[self._head]:
                return
            self._whole = join_texts((self._whole, text))
            self._head += 1
            self._num_released = self._num_passed = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One range's share of a transcript. Times count from the start of the recording."""

    answer: RangeAnswer
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()
    language: str | None = None
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, slots=True)
class Passage:
    """One range's segments and words as they stand in the whole transcript."""

    segments: tuple[Segment, ...]
    words: tuple[Word, ...]

    def timed_segments(self) -> Iterator[TimedSegment]:
        """The segments, each with its words: as many as its letters."""
        dealt = words_of((segment.text for segment in self.segments), self.words)
        for segment, words in zip(self.segments, dealt, strict=True):
            yield TimedSegment(**{**msgspec.structs.asdict(segment), "words": words})


class PassageJoiner:
    """Puts the segments of parts in order into one transcript: numbered, their texts joining to its text,
    with the space in front of each, as OpenAI's do."""

    def __init__(self) -> None:
        self.text = ""
        """Of the parts so far."""
        self._num_segments = 0

    def push(self, part: Part) -> Passage:
        """The next part's share."""
        spoken = part.answer.text
        space = separator(self.text or spoken[0], spoken) if spoken else ""
        segments: list[Segment] = []
        for number, segment in enumerate(part.segments):
            text = segment.text if number else space + segment.text.lstrip()
            segments.append(msgspec.structs.replace(segment, id=self._num_segments + number, text=text))
        self._num_segments += len(segments)
        self.text = join_texts((self.text, spoken))
        return Passage(tuple(segments), part.words)


def shifted(words: Sequence[Word], by_s: float) -> tuple[Word, ...]:
    """The words, as much later."""
    return tuple(
        msgspec.structs.replace(word, start=round(word.start + by_s, 3), end=round(word.end + by_s, 3))
        for word in words
    )


def joined(
    parts: Sequence[Part],
    *,
    language: str,
    duration_s: float,
    language_probability: float = 1.0,
    retranscribed: Iterable[Retranscription] = (),
) -> Transcript:
    """The transcript of a recording whose ranges became `parts`."""
    answers = [part.answer for part in parts]
    logprobs = [logprob for answer in answers for logprob in answer.logprobs]
    detected = [language, *(part.language for part in parts if part.answer.text and part.language)]
    joiner = PassageJoiner()
    passages = [joiner.push(part) for part in parts]
    return Transcript(
        text=joiner.text,
        language=language,
        duration=duration_s,
        languages=tuple(dict.fromkeys(detected)) if language else (),
        language_probability=language_probability if language else 0.0,
        segments=tuple(segment for passage in passages for segment in passage.segments),
        words=tuple(word for passage in passages for word in passage.words),
        num_input_tokens=sum(answer.num_input_tokens for answer in answers),
        num_audio_tokens=sum(answer.num_audio_tokens for answer in answers),
        num_output_tokens=sum(answer.num_output_tokens for answer in answers),
        avg_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        no_speech_prob=min((answer.no_speech_prob for answer in answers), default=1.0),
        tokens=tuple(token for answer in answers for token in answer.tokens),
        coverage=sum((part.coverage for part in parts), Coverage()),
        retranscribed=tuple(retranscribed),
    )
