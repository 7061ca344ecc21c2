"""The texts of ranges, joined in order: into one stream while they grow, into one transcript at the end.

Used by `actors/speech/recipe.py`. Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ...protocols.transcript import Segment, Transcript, Word
from .answer_guard import LoopCutter, may_echo
from .family import RangeAnswer

UNSPACED_LANGUAGES: Final = frozenset({"zh", "ja", "th", "lo", "my", "yue", "km", "bo"})
"""Written without spaces between words: the texts of ranges are joined as they are."""


def separator(language: str | None, following: str | None) -> str:
    """What stands between two texts of these languages."""
    return "" if language in UNSPACED_LANGUAGES and following in UNSPACED_LANGUAGES else " "


def join_texts(texts: Iterable[tuple[str, str | None]]) -> str:
    """Texts and their languages as one text; empty ones leave no trace."""
    whole, before = "", None
    for text, language in texts:
        if text:
            whole += (separator(before, language) if whole else "") + text
            before = language
    return whole


class DeltaJoiner:
    """Puts the growing texts of ranges into one stream, in order, equal to the joined transcript.

    A range's text is released when every range before it has finished; the white space around each
    range's text is dropped, and a `separator` put between texts that are not empty. What may be an echo of
    the `context` waits for the end of its range; loops are left out (`actors/speech/answer_guard.py`).
    """

    def __init__(
        self,
        num_ranges: int,
        emit: Callable[[str], None],
        *,
        context: str = "",
        written: Callable[[str, str | None], str] = lambda said, _: said,
    ) -> None:
        """`written` says what is shown of a growing text in a language, which stays."""
        self._languages: list[tuple[str | None, str | None]] = [(None, None)] * num_ranges
        """Of each range's beginning and end."""
        self._last: str | None = None
        """Of the end of what was released."""
        self._said = [""] * num_ranges
        """What was fed, and below, what of it may be shown."""
        self._texts = [""] * num_ranges
        self._finished = [False] * num_ranges
        self._emit = emit
        self._context = context
        self._written = written
        self._head = 0
        self._num_released = 0  # characters of the head range's stripped text
        self._any_released = False

    def feeder(self, index: int, language: str | None = None) -> Callable[[str], None]:
        """Takes pieces of the range's text, which is in `language`."""

        cutter = LoopCutter()
        self._languages[index] = language, language

        def feed(text: str) -> None:
            self._said[index] += cutter.feed(text)
            self._texts[index] = self._written(self._said[index], language)
            self._flush()

        return feed

    def grow(self, index: int, text: str, first: str | None, last: str | None) -> None:
        """The range's text so far, as it will be shown, is `text`; see `finish`."""
        self._said[index] = self._texts[index] = text
        self._languages[index] = first, last
        self._flush()

    def finish(self, index: int, text: str, first: str | None = None, last: str | None = None) -> None:
        """The range's whole text, without loops, is `text`; what was fed is its beginning. `first` and `last`
        are the languages in which it begins and ends."""
        self._texts[index] = text
        self._languages[index] = first, last
        self._finished[index] = True
        self._flush()

    def _flush(self) -> None:
        while self._head < len(self._texts):
            text = self._texts[self._head].strip()
            is_new = not self._finished[self._head] and not self._num_released
            if is_new and self._context and may_echo(self._said[self._head].strip(), self._context):
                return
            first, last = self._languages[self._head]
            fresh = text[self._num_released :]
            if fresh:
                is_next = self._any_released and not self._num_released
                self._emit((separator(self._last, first) if is_next else "") + fresh)
                self._any_released = True
                self._num_released = len(text)
            if not self._finished[self._head]:
                return
            self._last = last if text else self._last
            self._head += 1
            self._num_released = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One range's share of a transcript. Times count from the start of the recording."""

    answer: RangeAnswer
    segments: tuple[Segment, ...] = ()
    words: tuple[Word, ...] = ()
    language: str | None = None


def shifted(words: Sequence[Word], by_s: float) -> tuple[Word, ...]:
    """The words, as much later."""
    return tuple(
        msgspec.structs.replace(word, start=round(word.start + by_s, 3), end=round(word.end + by_s, 3))
        for word in words
    )


def joined(
    parts: Sequence[Part], *, language: str, duration_s: float, language_probability: float = 1.0
) -> Transcript:
    """The transcript of a recording whose ranges became `parts`. Texts of segments join to the text, with
    the space in front of each, as OpenAI's do."""
    answers = [part.answer for part in parts]
    logprobs = [logprob for answer in answers for logprob in answer.logprobs]
    heard = [language, *(part.language for part in parts if part.answer.text and part.language)]
    segments: list[Segment] = []
    before: str | None = None
    for part in parts:
        for number, segment in enumerate(part.segments):
            space = "" if number else separator(before or part.language, part.language)
            text = segment.text if number else space + segment.text.lstrip()
            segments.append(msgspec.structs.replace(segment, text=text))
        before = part.language if part.answer.text else before
    return Transcript(
        text=join_texts((part.answer.text, part.language) for part in parts),
        language=language,
        duration=duration_s,
        languages=tuple(dict.fromkeys(heard)) if language else (),
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
