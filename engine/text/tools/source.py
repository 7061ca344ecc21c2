"""The text of an answer as it comes, read by generators: a format is written as if all of it were there.

Wherever more text is needed a reader yields, and what it does next depends on the text alone, not on how it
was cut. Knows no format; `engine/text/tools/json_text.py` reads JSON by these steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

_T = TypeVar("_T")

Steps = Generator[None, None, _T]
"""A reader: yields while it waits for more text, and returns what it found."""
Sink = Callable[[str], None]


class Source:
    """Text that is not read yet, and behind a mark what may have to be given back."""

    __slots__ = ("_before", "_mark", "_marker", "at", "is_ended", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        """Where the unread begins."""
        self.is_ended = False
        """No more will come."""
        self._before = 0
        """Characters in front of `text`."""
        self._mark: int | None = None
        self._marker = 0

    def feed(self, text: str) -> None:
        """More text."""
        start = self.at if self._mark is None else self._mark
        self._before += start
        self.text = self.text[start:] + text
        self.at -= start
        if self._mark is not None:
            self._mark = 0

    @property
    def num_read(self) -> int:
        """How much of all that came is read."""
        return self._before + self.at

    def more(self) -> Steps[bool]:
        """Wait for more; False at the end."""
        if not self.is_ended:
            yield
        return not self.is_ended

    def rest(self) -> str:
        """Everything unread, which counts as read then."""
        rest, self.at = self.text[self.at :], len(self.text)
        return rest

    def mark(self, length: int = 0) -> None:
        """The last `length` characters read, and what follows, may have to be given back."""
        self._mark, self._marker = self.at - length, length

    def let_go(self) -> None:
        """They need not any more."""
        self._mark = None

    def go_back(self) -> str:
        """Unread all that was read behind the marked characters, and give those."""
        assert self._mark is not None, "marked before"
        start, self._mark = self._mark, None
        self.at = start + self._marker
        return self.text[start : self.at]


def peek(source: Source, length: int = 1) -> Steps[str]:
    """The next characters, without reading them; fewer at the end."""
    while len(source.text) - source.at < length:
        if not (yield from source.more()):
            break
    return source.text[source.at : source.at + length]


def skip_space(source: Source) -> Steps[None]:
    """Read white space."""
    while True:
        rest = source.text[source.at :].lstrip()
        source.at = len(source.text) - len(rest)
        if rest or not (yield from source.more()):
            return


def literal(source: Source, *words: str) -> Steps[str | None]:
    """Read one of `words` if it comes next; none of them begins with another."""
    while True:
        ahead = source.text[source.at : source.at + max(map(len, words))]
        for word in words:
            if ahead.startswith(word):
                source.at += len(word)
                return word
        if not any(word.startswith(ahead) for word in words) or not (yield from source.more()):
            return None


def until(source: Source, markers: Sequence[str], sink: Sink, *, marks: bool = False) -> Steps[str | None]:
    """Give `sink` the text in front of the first marker, when that is read, and read the marker; None at the
    end of the text.

    None of the markers begins with another. Text is given as soon as it cannot belong to one. With `marks`
    the marker can be given back.
    """
    if marks:
        source.let_go()
    while True:
        text, start = source.text, source.at
        place = free = len(text)
        marker = None
        for each in markers:
            first = text.find(each[0], start)
            if first < 0:  # neither the marker nor its beginning: so with most pieces
                continue
            found = text.find(each, first, place + len(each) - 1)
            if found >= 0:
                place, marker = found, each
            elif not source.is_ended:
                free = min(free, _held_from(text, first, each))
        free = min(free, place)
        if free > start:
            source.at = free
            sink(text[start:free])
        if marker is not None and free == place:
            source.at = place + len(marker)
            if marks:
                source.mark(len(marker))
            return marker
        if not source.is_ended:  # as `Source.more`, without a generator for every piece
            yield
        if source.is_ended and source.at == len(source.text):
            return None


def collect(source: Source, markers: Sequence[str]) -> Steps[tuple[str, str | None]]:
    """The text in front of the first marker, and that."""
    found: list[str] = []
    marker = yield from until(source, markers, found.append)
    return "".join(found), marker


def read_run(source: Source, pattern: re.Pattern[str]) -> Steps[str]:
    """The longest run of what `pattern`, one character, matches; perhaps empty."""
    found: list[str] = []
    while True:
        start = source.at
        while source.at < len(source.text) and pattern.match(source.text[source.at]):
            source.at += 1
        found.append(source.text[start : source.at])
        if source.at < len(source.text) or not (yield from source.more()):
            return "".join(found)


def _held_from(text: str, start: int, marker: str) -> int:
    """Where the longest end of `text` begins that is the beginning of `marker`."""
    place = text.find(marker[0], max(start, len(text) - len(marker) + 1))
    while place >= 0 and not marker.startswith(text[place:]):
        place = text.find(marker[0], place + 1)
    return place if place >= 0 else len(text)
