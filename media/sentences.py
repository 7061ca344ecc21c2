"""Timed words → segments a subtitle can show: sentences, cut further where they are long.

`media/word_times.py` or Whisper's alignment times the words.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ..protocols.transcript import Segment, Word
from .spoken_length import phrase_end

MAX_SEGMENT_S: Final = 30.0
MAX_SEGMENT_CHARACTERS: Final = 80
PAUSE_S: Final = 1.0
"""A silence this long ends a segment, whatever the punctuation."""


@dataclass(frozen=True, slots=True)
class TimedText:
    """A stretch of text as it was spoken; seconds as its words have them."""

    text: str
    start: float
    end: float


def segments_of(text: str, words: Sequence[Word]) -> tuple[TimedText, ...]:
    """Sentences of `text`, whose words in order are `words`; together they are the text but for outer spaces.

    A segment ends at a sentence's end or a pause of 1 s; one that would pass 30 s or 80 characters ends
    earlier, at its last clause's end if there is one. No words: no segments.
    """
    segments: list[TimedText] = []
    spans = _spans(text, words)
    first = 0
    while first < len(words):
        last = _last_word(words, spans, first)
        begin = spans[first][0] if segments else 0
        stop = spans[last + 1][0] if last + 1 < len(words) else len(text)
        segments.append(TimedText(text[begin:stop].strip(), words[first].start, words[last].end))
        first = last + 1
    return tuple(segments)


def _spans(text: str, words: Sequence[Word]) -> list[tuple[int, int]]:
    """Where each word lies in the text."""
    spans: list[tuple[int, int]] = []
    position = 0
    for word in words:
        found = text.find(word.word, position)
        start = position if found < 0 else found
        position = min(len(text), start + len(word.word))
        spans.append((start, position))
    return spans


def _last_word(words: Sequence[Word], spans: Sequence[tuple[int, int]], first: int) -> int:
    """The last word of the segment that begins with word `first`."""
    clause_end: int | None = None
    for index in range(first, len(words)):
        too_long = spans[index][1] - spans[first][0] > MAX_SEGMENT_CHARACTERS
        if index > first and (too_long or words[index].end - words[first].start > MAX_SEGMENT_S):
            return index - 1 if clause_end is None else clause_end
        mark = phrase_end(words[index].word)
        if mark == ".":
            return index
        if index + 1 < len(words) and words[index + 1].start - words[index].end >= PAUSE_S:
            return index
        if mark == ",":
            clause_end = index
    return len(words) - 1


def retimed(segments: Sequence[Segment], words: Sequence[Word]) -> tuple[Segment, ...]:
    """The same segments, each from the start of its first word to the end of its last.

    `words` are those of the segments' texts, in order. A segment whose words have no times keeps its own, but
    does not begin before the one in front of it ends.
    """
    edges = list(itertools.accumulate(_num_letters(word.word) for word in words))
    starts = [0, *edges]
    result: list[Segment] = []
    position, reached_s = 0, 0.0
    for segment in segments:
        first = bisect.bisect_left(starts, position, hi=len(words))
        position += _num_letters(segment.text)
        last = bisect.bisect_left(starts, position, hi=len(words))
        start_s, end_s = segment.start, segment.end
        if first < last:
            start_s, end_s = words[first].start, words[last - 1].end
        start_s = max(start_s, reached_s)
        reached_s = max(start_s, end_s)
        result.append(msgspec.structs.replace(segment, start=start_s, end=reached_s))
    return tuple(result)


def _num_letters(text: str) -> int:
    return sum(not character.isspace() for character in text)
