"""Scripts that are written without spaces between words."""

from __future__ import annotations

import unicodedata
from typing import Final

_UNSPACED: Final = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER", "TIBETAN")


def is_unspaced(character: str) -> bool:
    """Whether a character is of such a script."""
    return ord(character) > 0x0E00 and unicodedata.name(character, "").startswith(_UNSPACED)


def is_wide(character: str) -> bool:
    """Whether a character is Chinese or Japanese, or of their punctuation."""
    is_hangul = "\uac00" <= character <= "\ud7a3"  # wide, but with spaces
    return unicodedata.east_asian_width(character) in ("W", "F") and not is_hangul
