"""The texts of ranges, joined in order: into one stream while they grow, into one transcript at the end.

Used by `actors/speech/recipe.py`. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ...protocols.transcript import Segment, Transcript, Word
from .answer_guard import LoopCutter, may_echo
from .family import RangeAnswer

UNSPACED_LANGUAGES: Final = frozenset({"zh", "ja", "th", "lo", "my", "yue", "km", "bo"})
"""Written without spaces between words: the texts of ranges are joined as they are."""


def separator(language: str | None) -> str:
    """What stands between the texts of two ranges."""
    return "" if language in UNSPACED_LANGUAGES else " "


class DeltaJoiner:
    """Puts the growing texts of ranges into one stream, in order, equal to the joined transcript.

    A range's text is released when every range before it has finished; the white space around each
    range's text is dropped, and `separator` put between texts that are not empty. What may be an echo of
    the `context` waits for the end of its range; loops are left out (`actors/speech/answer_guard.py`).
    """

    def __init__(
        self, num_ranges: int, separator: str, emit: Callable[[str], None], *, context: str = ""
    ) -> None:
        self.separator = separator
        """May be changed until the second text begins."""
        self._texts = [""] * num_ranges
        self._finished = [False] * num_ranges
        self._emit = emit
        self._context = context
        self._head = 0
        self._num_released = 0  # characters of the head range's stripped text
        self._any_released = False

    def feeder(self, index: int) -> Callable[[str], None]:
        """Takes pieces of the range's text."""

        cutter = LoopCutter()

        def feed(text: str) -> None:
            self._texts[index] += cutter.feed(text)
            self._flush()

        return feed

    def finish(self, index: int, text: str) -> None:
        """The range's whole text, without loops, is `text`; what was fed is its beginning."""
        self._texts[index] = text
        self._finished[index] = True
        self._flush()

    def _flush(self) -> None:
        while self._head < len(self._texts):
            text = self._texts[self._head].strip()
            is_new = not self._finished[self._head] and not self._num_released
            if is_new and self._context and may_echo(text, self._context):
                return
            fresh = text[self._num_released :]
            if fresh:
                prefix = self.separator if self._any_released and not self._num_released else ""
                self._emit(prefix + fresh)
                self._any_released = True
                self._num_released = len(text)
            if not self._finished[self._head]:
                return
            self._head += 1
            self._num_released = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One range's share of a transcript. Times count from the start of the recording."""

    answer: RangeAnswer
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()


def shifted(words: Sequence[Word], by_s: float) -> tuple[Word, ...]:
    """The words, as much later."""
    return tuple(Word(word.word, round(word.start + by_s, 3), round(word.end + by_s, 3)) for word in words)


def joined(
    parts: Sequence[Part], *, language: str, duration_s: float, language_probability: float = 1.0
) -> Transcript:
    """The transcript of a recording whose ranges became `parts`. Texts of segments join to the text, with
    the space in front of each, as OpenAI's do."""
    answers = [part.answer for part in parts]
    logprobs = [logprob for answer in answers for logprob in answer.logprobs]
    segments = [
        segment
        if number
        else msgspec.structs.replace(segment, text=separator(language) + segment.text.lstrip())
        for part in parts
        for number, segment in enumerate(part.segments)
    ]
    return Transcript(
        text=separator(language).join(answer.text for answer in answers if answer.text),
        language=language,
        duration=duration_s,
        language_probability=language_probability,
        segments=tuple(
            msgspec.structs.replace(segment, id=number) for number, segment in enumerate(segments)
        ),
        words=tuple(word for part in parts for word in part.words),
        num_input_tokens=sum(answer.num_input_tokens for answer in answers),
        num_output_tokens=sum(answer.num_output_tokens for answer in answers),
        avg_logprob=sum(logprobs) / len(logprobs) if logprobs else None,
        no_speech_prob=min((answer.no_speech_prob for answer in answers), default=1.0),
        tokens=tuple(token for answer in answers for token in answer.tokens),
    )
