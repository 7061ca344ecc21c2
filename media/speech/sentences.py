"""Timed words → segments a subtitle can show: sentences, cut at clauses and pauses where they are long.

`media/speech/word_times.py` or Whisper's alignment times the words; `protocols/transcription/subtitles.py`
says what can be shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...protocols.shared.scripts import is_unspaced
from ...protocols.transcription.line_breaking import Breaks
from ...protocols.transcription.subtitles import FEW_COLUMNS, FEW_WORDS, MAX_CUE_S
from ...protocols.transcription.transcript import USUAL_LAYOUT, CueLayout, Word
from .spoken_length import phrase_end

PAUSE_S: Final = 1.0
"""A silence this long ends a segment, whatever the punctuation."""
_FAINT_PAUSE_S: Final = 0.2
"""A silence behind which a long sentence is better cut than in mid-phrase."""
_MID_PHRASE_COST: Final = 0.6
_PAUSE_COST: Final = 0.2
_FEW_WORDS_COST: Final = 10.0
_PIECE_COST: Final = 1.0
_MAX_PIECE_WORDS: Final = 84
"""Of a sentence that has to be cut. Nobody says so many in 7 s."""


@dataclass(frozen=True, slots=True)
class TimedText:
    """A stretch of text as it was spoken, with the space in front of it; seconds as its words have them."""

    text: str
    start: float
    end: float


def segments_of(text: str, words: Sequence[Word], layout: CueLayout = USUAL_LAYOUT) -> tuple[TimedText, ...]:
    """Sentences of `text`, whose words in order are `words`; their texts join to it.

    A segment ends at a sentence's end or a pause of 1 s. One that a subtitle of that layout cannot show at
    once, or of more than 7 s, is cut into as few pieces as can be, at clauses and pauses if there are any,
    none of one or two words if there is room for more; a word by itself may be longer. No words: no segments.
    """
    if not words:
        return ()
    segments: list[TimedText] = []
    cutter = _Cutter(text, words, layout)
    first = begin = 0
    while first < len(words):
        stop = _sentence_stop(words, first)
        for last in cutter.pieces(first, stop):
            end = cutter.spans[last][1] if last + 1 < len(words) else len(text)
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


class _Cutter:
    """Cuts sentences of a text where they are too long to be shown at once."""

    def __init__(self, text: str, words: Sequence[Word], layout: CueLayout) -> None:
        self._words = words
        self.spans = _spans(text, words)
        line = " ".join(text.split())
        self._breaks = Breaks(line, layout)
        self._in_line = _spans(line, words)
        self._layout = layout
        self._max_columns = layout.max_line_width * layout.max_line_count
        self._max_words = _MAX_PIECE_WORDS
        if layout.max_words_per_line is not None:
            self._max_words = min(self._max_words, layout.max_words_per_line * layout.max_line_count)
        self._few_words = min(FEW_WORDS, self._max_columns // FEW_COLUMNS, self._max_words // 3)
        """A piece has more, if it can."""

    def pieces(self, first: int, stop: int) -> list[int]:
        """Last words of the pieces of a sentence: the cheapest way to cut it, by dynamic programming.

        A piece costs what it leaves of its room or 7 s, squared, and where it is cut; so that pieces are few
        and of about one length, and words that belong together stay so.
        """
        if self._fits(first, stop):
            return [stop - 1]
        best = [0.0] + [float("inf")] * (stop - first)
        origin = [0] * (stop - first + 1)
        reach = [self._reach(start, stop) for start in range(first, stop)]
        for end in range(first + 1, stop + 1):
            cut_cost = 0.0 if end == stop else self._cut_cost(end)
            for start in range(end - 1, first - 1, -1):
                if reach[start - first] < end:
                    break
                taken = max(self._width(start, end) / self._max_columns, (end - start) / self._max_words)
                cost = best[start - first] + _PIECE_COST + max(0.0, 1.0 - taken) ** 2 + cut_cost
                cost += _FEW_WORDS_COST if end - start <= self._few_words else 0.0
                if cost < best[end - first]:
                    best[end - first], origin[end - first] = cost, start
        lasts: list[int] = []
        end = stop
        while end > first:
            lasts.append(end - 1)
            end = origin[end - first]
        return lasts[::-1]

    def _width(self, start: int, end: int) -> int:
        return self._breaks.width(self._in_line[start][0], self._in_line[end - 1][1])

    def _reach(self, start: int, stop: int) -> int:
        """The farthest end, up to `stop`, of a piece from the word `start` on: behind that word at least."""
        ends = range(start + 2, min(stop, start + self._max_words) + 1)
        return start + 1 + bisect_left(ends, True, key=lambda end: not self._fits(start, end))

    def _fits(self, start: int, end: int) -> bool:
        """Whether words `start` to `end` (exclusive) can be shown at once."""
        if self._words[end - 1].end - self._words[start].start > MAX_CUE_S:
            return False
        begin, stop = self._in_line[start][0], self._in_line[end - 1][1]
        return self._breaks.num_lines(begin, stop) <= self._layout.max_line_count

    def _cut_cost(self, end: int) -> float:
        """What it costs to cut behind word `end - 1`."""
        before, after = self._words[end - 1], self._words[end]
        if phrase_end(before.word):
            return 0.0
        is_space = self.spans[end - 1][1] < self.spans[end][0]
        if is_space and is_unspaced(before.word[-1:] or " "):
            return 0.0  # it is written for a comma
        return _PAUSE_COST if after.start - before.end >= _FAINT_PAUSE_S else _MID_PHRASE_COST
