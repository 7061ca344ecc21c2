"""Scripts that are written without spaces between words."""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSPACED: Final = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN")
_OPENING: Final = ("Ps", "Pi")
"""Unicode's categories of opening brackets and quotes."""


def is_unspaced(character: str) -> bool:
    """Whether a character is of such a script."""
    return ord(character) > 0x0E00 and unicodedata.name(character, "").startswith(_UNSPACED)


def is_wide(character: str) -> bool:
    """Whether a character is Chinese or Japanese, or of their punctuation."""
    is_hangul = "\uac00" <= character <= "\ud7a3"  # wide, but with spaces
    return unicodedata.east_asian_width(character) in ("W", "F") and not is_hangul


def parts_words(left: str, right: str) -> bool:
    """Whether a new word begins between two characters that no space parts."""
    before, behind = unicodedata.category(left), unicodedata.category(right)
    if behind in _OPENING:
        return is_unspaced(left)
    if behind[0] in "MPS" or before in _OPENING:  # these stay with what they follow
        return False
    return is_unspaced(left) or is_unspaced(right) or (before[0] == "P" and is_wide(left))
