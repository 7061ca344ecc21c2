"""Timed words → segments a subtitle can show: sentences, cut at clauses and pauses where they are long.

`media/word_times.py` or Whisper's alignment times the words; `protocols/subtitles.py` says what can be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..protocols.subtitles import FEW_WORDS, LINE_COLUMNS, MAX_CUE_S, columns, fits_cue
from ..protocols.transcript import Word
from .spoken_length import phrase_end

PAUSE_S: Final = 1.0
"""A silence this long ends a segment, whatever the punctuation."""
MAX_COLUMNS: Final = 2 * LINE_COLUMNS
_FAINT_PAUSE_S: Final = 0.2
"""A silence behind which a long sentence is better cut than in mid-phrase."""
_MID_PHRASE_COST: Final = 0.6
_PAUSE_COST: Final = 0.2
_FEW_WORDS_COST: Final = 10.0
_PIECE_COST: Final = 1.0
_MAX_PIECE_WORDS: Final = MAX_COLUMNS


@dataclass(frozen=True, slots=True)
class TimedText:
    """A stretch of text as it was spoken, with the space in front of it; seconds as its words have them."""

    text: str
    start: float
    end: float


def segments_of(text: str, words: Sequence[Word]) -> tuple[TimedText, ...]:
    """Sentences of `text`, whose words in order are `words`; their texts join to it.

    A segment ends at a sentence's end or a pause of 1 s. One that takes more than two lines of a subtitle, or
    7 s, is cut into as few pieces as can be, at clauses and pauses if there are any, none of one or two
    words; a word by itself may be longer. No words: no segments.
    """
    segments: list[TimedText] = []
    spans = _spans(text, words)
    first = begin = 0
    while first < len(words):
        stop = _sentence_stop(words, first)
        for last in _pieces(text, words, spans, first, stop):
            end = spans[last][1] if last + 1 < len(words) else len(text)
            segments.append(TimedText(text[begin:end], words[first].start, words[last].end))
            first, begin = last + 1, end
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


def _sentence_stop(words: Sequence[Word], first: int) -> int:
    """One past the last word of the sentence, or of what is said without a long pause, from `first` on."""
    for index in range(first, len(words) - 1):
        pause_s = words[index + 1].start - words[index].end
        if phrase_end(words[index].word) == "." or pause_s >= PAUSE_S:
            return index + 1
    return len(words)


def _pieces(
    text: str, words: Sequence[Word], spans: Sequence[tuple[int, int]], first: int, stop: int
) -> list[int]:
    """Last words of the pieces of a sentence: the cheapest way to cut it, by dynamic programming.

    A piece costs what it leaves of two lines or 7 s, squared, and where it is cut; so that pieces are few and
    of about one length, and words that belong together stay so.
    """
    if _fits(text, words, spans, first, stop):
        return [stop - 1]
    best = [0.0] + [float("inf")] * (stop - first)
    origin = [0] * (stop - first + 1)
    for end in range(first + 1, stop + 1):
        cut_cost = 0.0 if end == stop else _cut_cost(words, end)
        for start in range(end - 1, max(first, end - _MAX_PIECE_WORDS) - 1, -1):
            if end - start > 1 and not _fits(text, words, spans, start, end):
                break
            room = 1.0 - columns(text[spans[start][0] : spans[end - 1][1]]) / MAX_COLUMNS
            cost = best[start - first] + _PIECE_COST + max(0.0, room) ** 2 + cut_cost
            cost += _FEW_WORDS_COST if end - start <= FEW_WORDS else 0.0
            if cost < best[end - first]:
                best[end - first], origin[end - first] = cost, start
    lasts: list[int] = []
    end = stop
    while end > first:
        lasts.append(end - 1)
        end = origin[end - first]
    return lasts[::-1]


def _fits(text: str, words: Sequence[Word], spans: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Whether words `start` to `end` (exclusive) can be shown at once."""
    if words[end - 1].end - words[start].start > MAX_CUE_S:
        return False
    piece = text[spans[start][0] : spans[end - 1][1]]
    return columns(piece) <= MAX_COLUMNS and fits_cue(" ".join(piece.split()))


def _cut_cost(words: Sequence[Word], end: int) -> float:
    """What it costs to cut behind word `end - 1`."""
    if phrase_end(words[end - 1].word):
        return 0.0
    return _PAUSE_COST if words[end].start - words[end - 1].end >= _FAINT_PAUSE_S else _MID_PHRASE_COST
