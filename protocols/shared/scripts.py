"""Scripts that are written without spaces between words, and so where words begin."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

_UNSPACED: Final = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN")
_OPENING: Final = ("Ps", "Pi")
"""Unicode's categories of opening brackets and quotes."""
_JOINED: Final = "\u0e33\u0eb3\uff9e\uff9f"
"""Letters by their category that are one character with the one before: am of Thai and Lao, narrow kana's
voice marks."""
_JOINING: Final = "\u1039\u17d2\u200d"
"""What makes one of the characters on both sides: stacked consonants of Burmese and Khmer, joined emoji."""


def is_unspaced(character: str) -> bool:
    """Whether a character is of such a script."""
    return ord(character) > 0x0E00 and unicodedata.name(character, "").startswith(_UNSPACED)


def is_wide(character: str) -> bool:
    """Whether a character is Chinese or Japanese, or of their punctuation."""
    is_hangul = "\uac00" <= character <= "\ud7a3"  # wide, but with spaces
    return unicodedata.east_asian_width(character) in ("W", "F") and not is_hangul


@lru_cache(maxsize=4096)
def parts_words(left: str, right: str) -> bool:
    """Whether a new word begins between two characters that no space parts."""
    before, after = unicodedata.category(left), unicodedata.category(right)
    if after in _OPENING:
        return is_unspaced(left)
    if after[0] in "CMPS" or before in _OPENING:  # these stay with what they follow
        return False
    if right in _JOINED or left in _JOINING:
        return False
    return is_unspaced(left) or is_unspaced(right) or (before[0] == "P" and is_wide(left))


def word_starts(text: str) -> list[int]:
    """Where the words of a text without leading space begin: behind spaces, and between the characters of
    scripts without them. Signs by themselves (a dash between spaces) are of the word before them."""
    starts: list[int] = []
    at = 0
    for chunk in text.split(" "):
        if not starts or any(character.isalnum() for character in chunk):
            starts.append(at)
            if not chunk.isascii():
                places = range(1, len(chunk))
                starts += [at + place for place in places if parts_words(chunk[place - 1], chunk[place])]
        at += len(chunk) + 1
    return starts
