"""Utterances that stand in an answer again and again: how often, and fewer copies of them. Pure.

`media/speech/repetition.py` says how often they were said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...protocols.transcription.transcript import Word

MOST_UNIT: Final = 8
"""Words of the longest utterance that is looked for."""
LEAST_COPIES: Final = 4
"""Fewer are counted right."""
_WORD: Final = re.compile(r"\d|[^\W\d]+(?:['’][^\W\d]+)*")
"""Figures are words, each by itself: "77" is said twice."""


@dataclass(frozen=True, slots=True)
class Row:
    """Copies of an utterance that follow each other, as places in a text."""

    start: int
    ends: tuple[int, ...]
    """Of each whole copy."""
    end: int
    """Behind the last copy, which may be cut short."""

    def is_all(self, text: str) -> bool:
        """Whether there is nothing else in the text."""
        return not _has_words(text[: self.start]) and not _has_words(text[self.end :])

    def shortened(self, text: str, count: int) -> str:
        """The text with no more copies than `count`, which is at least 1."""
        return text if count >= len(self.ends) else text[: self.ends[count - 1]] + text[self.end :]

    def times_s(self, text: str, words: Sequence[Word]) -> tuple[float, float] | None:
        """From when to when it is said by the `words` of the text; None: it is a part of a word."""
        place, within = 0, list[Word]()
        for word in words:
            first = text.find(word.word, place)
            place = max(first, place) + len(word.word)
            if place <= self.start or first >= self.end:
                continue
            if first < 0 or _has_words(text[first : self.start]) or _has_words(text[self.end : place]):
                return None
            within.append(word)
        return (within[0].start, within[-1].end) if within else None


def rows(text: str) -> Iterator[Row]:
    """The rows of `LEAST_COPIES` or more in a text, from its end on. Case and punctuation do not count."""
    found = list(_WORD.finditer(text))
    words = [word.group().casefold() for word in found]
    rows, place = list[Row](), 0
    while place < len(words):
        lengths = {size: _row_length(words, place, size) for size in range(1, MOST_UNIT + 1)}
        size = next((size for size, length in lengths.items() if length >= LEAST_COPIES * size), None)
        if size is None:
            place += 1
            continue
        end = place + lengths[size]
        ends = tuple(found[last].end() for last in range(place + size - 1, end, size))
        rows.append(Row(found[place].start(), ends, found[end - 1].end()))
        place = end
    yield from reversed(rows)


def _row_length(words: Sequence[str], start: int, size: int) -> int:
    """How many words from `start` on repeat those `size` before, with the first of them."""
    end = start + size
    while end < len(words) and words[end] == words[end - size]:
        end += 1
    return end - start


def _has_words(text: str) -> bool:
    return any(map(str.isalnum, text))
