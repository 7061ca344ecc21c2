"""What a subtitle can show at once: a text in lines, which break between words.

Where there are no spaces between words, lines break between characters (never within what is read as one:
`protocols/scripts.py`). `protocols/subtitles.py` makes cues of such texts.
"""

from __future__ import annotations

import itertools
import unicodedata
from typing import Final

from .scripts import is_wide, word_starts
from .transcript import CueLayout

_MARKS: Final = ".!?…。！？,;:，、；："
_BEHIND_MARK: Final = 12
_BAD: Final = 1000
"""Columns of difference that a better place between two lines is worth."""
_NEVER_FIRST: Final = "ーぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々ะาๅๆฯ"
"""No line begins with these: drawn-out and small kana, repetitions, vowels of the consonant before."""
_NEVER_LAST: Final = "เแโใไເແໂໃໄ"
"""Vowels of the consonant behind."""


def columns(text: str) -> int:
    """How wide a text is."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def fits_cue(text: str, layout: CueLayout) -> bool:
    """Whether a text in one line can be shown at once."""
    return len(lines(text, layout)) <= layout.max_line_count


def lines(text: str, layout: CueLayout) -> list[str]:
    """A text in one line, broken into as few as it can be, the last two of about one length and broken behind
    punctuation if possible. A word that is too long for a line has one of its own."""
    if layout.max_words_per_line is None and _fits(text, layout):
        return [text]
    return _Breaker(text, layout).lines()


class _Breaker:
    """Words of a text and the lines they make: words `first` to before `stop` of it."""

    def __init__(self, text: str, layout: CueLayout) -> None:
        self._text = text
        self._layout = layout
        self._places = [*word_starts(text), len(text)]
        words = [text[first:stop] for first, stop in itertools.pairwise(self._places)]
        self._starts = list(itertools.accumulate(map(columns, words), initial=0))
        self._stops = [
            start + columns(word.rstrip()) for start, word in zip(self._starts, words, strict=False)
        ]
        """Columns of the whole text in front of each word, and up to its end."""

    def lines(self) -> list[str]:
        first, num_words = 0, len(self._places) - 1
        found: list[str] = []
        while not self._is_line(first, num_words):
            ends = self._ends(first)
            if not ends:
                break
            halves = [end for end in ends if self._is_line(end, num_words)]
            if halves:
                best = min(halves, key=lambda end: self._cost(first, end, num_words))
                return [*found, self._line(first, best), self._line(best, num_words)]
            end = max(ends, key=lambda end: (-self._badness(end), end))
            found.append(self._line(first, end))
            first = end
        return [*found, self._line(first, num_words)]

    def _line(self, first: int, stop: int) -> str:
        return self._text[self._places[first] : self._places[stop]].rstrip()

    def _is_line(self, first: int, stop: int) -> bool:
        limit = self._layout.max_words_per_line
        if limit is not None and stop - first > limit:
            return False
        return self._width(first, stop) <= self._layout.max_line_width

    def _width(self, first: int, stop: int) -> int:
        """Columns of a line."""
        return self._stops[stop - 1] - self._starts[first]

    def _ends(self, first: int) -> list[int]:
        """Behind which words the first line may end, in order; behind the first one if that is too long."""
        ends: list[int] = []
        for end in range(first + 1, len(self._places) - 1):
            if ends and not self._is_line(first, end):
                break
            ends.append(end)
        return ends

    def _badness(self, end: int) -> int:
        """Of a line's end there: it may be within a word, in scripts without spaces that have long ones, or
        must not be there if that can be helped."""
        place = self._places[end]
        before, behind = self._text[place - 1], self._text[place]
        if before == " ":
            return 0
        if behind in _NEVER_FIRST or before in _NEVER_LAST:
            return 2
        return 0 if is_wide(before) or is_wide(behind) else 1

    def _cost(self, first: int, middle: int, stop: int) -> int:
        """How ill two lines go together: columns of difference, fewer behind punctuation."""
        cost = abs(self._width(first, middle) - self._width(middle, stop))
        cost -= _BEHIND_MARK if self._line(first, middle)[-1:] in _MARKS else 0
        return cost + _BAD * self._badness(middle)


def _fits(text: str, layout: CueLayout) -> bool:
    return len(text) <= layout.max_line_width and columns(text) <= layout.max_line_width
