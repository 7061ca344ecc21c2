"""Cuts text where it may be shown in parts: into words, and single characters of scripts that are written
without spaces. Never inside what a reader sees as one character.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from typing import Final

_UNSPACED: Final = (
    "\u0e00-\u0e7f"  # Thai
    "\u0e80-\u0eff"  # Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u2e80-\u30ff"  # CJK radicals, punctuation, hiragana, katakana
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U00020000-\U0003ffff"
)
_TRAILING: Final = ".,!?;:…%)]}\"'»”’।॥؟،؛۔"
"""Punctuation that stands behind a word without a space; wide punctuation (。！) is a piece anyway."""
_PIECE: Final = re.compile(rf"\s*(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)|\s+$")
_FIRST_UNSPACED: Final = re.compile(rf"\s*[{_UNSPACED}]")
_JOINERS: Final = ("\u200d", "\u1039", "\u17d2")
"""Zero-width joiner, Myanmar virama, Khmer coeng: what follows is part of the same character."""
_CONTINUING: Final = "\u0e33\u0eb3\uff9e\uff9f\u200c\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
"""Thai and Lao am, halfwidth voicing marks, non-joiner, skin colours: no marks to Unicode, but parts of the
character before them to a reader."""


def pieces(text: str) -> list[str]:
    """Cut into words (each with the space before it) or single characters; the joined pieces are `text`."""
    found: list[str] = []
    for piece in _PIECE.findall(text):
        if found and (_continues(piece[0]) or _leads_on(found[-1])):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def units(text: str) -> list[str]:
    """The pieces of `text`, punctuation behind a word being one of its own."""
    return [part for piece in pieces(text) for part in _split_punctuation(piece)]


def weight(piece: str) -> int:
    """How much speech a piece stands for: 2 for a word, 1 for a character of an unspaced script, 0 for
    punctuation and space.
    """
    if not any(map(str.isalnum, piece)):
        return 0
    return 1 if _FIRST_UNSPACED.match(piece) else 2


def plain(piece: str) -> str:
    """A word without case and punctuation."""
    return "".join(char for char in piece.casefold() if char.isalnum()) or piece.strip()


def _split_punctuation(piece: str) -> list[str]:
    word = piece.rstrip(_TRAILING)
    return [word, piece[len(word) :]] if word.strip() and word != piece else [piece]


def _leads_on(piece: str) -> bool:
    """Whether what follows belongs to the last character of `piece`: a joiner is among its marks."""
    marks = itertools.takewhile(_continues, reversed(piece))
    return any(char in _JOINERS for char in marks)


def _continues(char: str) -> bool:
    """Whether `char` belongs to the character before it (accents, vowel signs, joiners, variants)."""
    return unicodedata.category(char)[0] == "M" or char in _CONTINUING or char in _JOINERS
