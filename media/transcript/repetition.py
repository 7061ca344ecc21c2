"""Answers that are one utterance again and again: how often it stands there, and fewer copies of it. Pure.

`media/speech/repetition.py` says how often it was said.
"""

from __future__ import annotations

import re
from typing import Final

MOST_UNIT: Final = 8
"""Words of the longest utterance that is looked for."""
LEAST_COPIES: Final = 4
"""Fewer are counted right."""
_WORD: Final = re.compile(r"\d|[^\W\d]+(?:['’][^\W\d]+)*")
"""Figures are words, each by itself: "77" is said twice."""


def copies(text: str) -> tuple[int, ...]:
    """Where each copy of the utterance ends in a text that is nothing but copies, `LEAST_COPIES` at least;
    else nothing. Case and punctuation do not count; the last copy may be cut short."""
    found = list(_WORD.finditer(text))
    words = [word.group().casefold() for word in found]
    for size in range(1, min(MOST_UNIT, len(words) // LEAST_COPIES) + 1):
        if words[size:] == words[:-size]:
            return tuple(word.end() for word in found[size - 1 :: size])
    return ()


def with_copies(text: str, count: int) -> str:
    """A text of more `copies` than `count` without those that are too many, and with its last mark."""
    ends = copies(text)
    if count >= len(ends):
        return text
    last = [word.end() for word in _WORD.finditer(text)][-1]
    return text[: ends[count - 1]] + text[last:]
