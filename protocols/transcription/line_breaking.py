"""What a subtitle can show at once: a text in lines, which break between words.

Where there are no spaces between words, lines break between characters (never within what is read as one:
`protocols/shared/scripts.py`). `protocols/transcription/subtitles.py` makes cues of such texts.
"""

from __future__ import annotations

import itertools
import unicodedata
from bisect import bisect_left, bisect_right
from typing import Final

from ..shared.scripts import is_wide, word_starts
from .transcript import CueLayout

_MARKS: Final = ".!?…。！？,;:，、；："
_AFTER_MARK: Final = 12
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
    return Breaks(text, layout).num_lines(0, len(text)) <= layout.max_line_count


def lines(text: str, layout: CueLayout) -> list[str]:
    """A text in one line, broken into as few as it can be, the last two of about one length and broken behind
    punctuation if possible. A word that is too long for a line has one of its own."""
    return Breaks(text, layout).lines()


class Breaks:
    """Where the lines of a text (in one line, without space around it) may begin. Parts of it are asked about
    by their first character and the one behind their last."""

    def __init__(self, text: str, layout: CueLayout) -> None:
        self._text = text
        self._layout = layout
        self._columns = list(itertools.accumulate(map(columns, text), initial=0))
        """In front of each character."""
        self._places = word_starts(text)
        self._stops = [self._stop(place) for place in self._places]

    def width(self, begin: int, end: int) -> int:
        """Columns of a part in one line."""
        return self._stop(end) - self._columns[begin]

    def num_lines(self, begin: int, end: int) -> int:
        """As few as a part can have."""
        count = 1
        while (begin := self._farthest(begin, end)) != end:
            count += 1
        return count

    def lines(self) -> list[str]:
        """The whole text, see `lines`."""
        found: list[str] = []
        begin, end = 0, len(self._text)
        num_lines = {end: 0}  # from each place on; counted anew for each line, an hour's text took seconds
        for place in reversed(self._places[: bisect_left(self._places, end)]):
            num_lines[place] = 1 + num_lines[self._farthest(place, end)]
        while (farthest := self._farthest(begin, end)) != end:
            num_left = num_lines[farthest]
            places = self._places[bisect_right(self._places, begin) : bisect_right(self._places, farthest)]
            places = [place for place in places if num_lines[place] == num_left]
            if num_left == 1:
                begin_last = min(places, key=lambda place: self._cost(begin, place, end))
            else:
                begin_last = max(places, key=lambda place: (-self._badness(place), place))
            found.append(self._text[begin:begin_last].rstrip())
            begin = begin_last
            if num_left == 1:
                break
        return [*found, self._text[begin:end]]

    def _stop(self, place: int) -> int:
        """Columns of the text up to there, but for a space at the end."""
        return self._columns[place - 1 if self._text[place - 1 : place] == " " else place]

    def _farthest(self, begin: int, end: int) -> int:
        """Where the line behind one from `begin` on can begin, at most; `end` if all of that is one."""
        first = bisect_right(self._places, begin)
        stop = bisect_left(self._places, end, lo=first)
        limit = self._layout.max_words_per_line
        num_words = stop - first + 1 if limit is None else limit
        most = self._columns[begin] + self._layout.max_line_width
        if first == stop or (self._stop(end) <= most and stop - first < num_words):
            return end
        last = min(bisect_right(self._stops, most, lo=first, hi=stop), first + num_words) - 1
        return self._places[max(last, first)]

    def _badness(self, place: int) -> int:
        """Of a line's end there: it may be within a word, in scripts without spaces that have long ones, or
        must not be there if that can be helped."""
        before, after = self._text[place - 1], self._text[place]
        if before == " ":
            return 0
        if after in _NEVER_FIRST or before in _NEVER_LAST:
            return 2
        return 0 if is_wide(before) or is_wide(after) else 1

    def _cost(self, begin: int, middle: int, end: int) -> int:
        """How ill two lines go together: columns of difference, fewer behind punctuation."""
        cost = abs(self.width(begin, middle) - self.width(middle, end))
        cost -= _AFTER_MARK if self._text[begin:middle].rstrip()[-1:] in _MARKS else 0
        return cost + _BAD * self._badness(middle)
