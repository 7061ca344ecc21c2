"""Whether what was said so far sounds finished: how `semantic_vad` knows how long to wait. Pure text.

It goes by what a transcript shows: the last mark and the last word. A model puts a full stop behind every
pause it takes for the end of a sentence, and leaves it out where the voice stayed up.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

Ending = Literal["finished", "open", "unknown"]

_FINAL_MARKS: Final = frozenset(".?!。？！｡।॥؟۔።᙮။។")
_OPEN_MARKS: Final = frozenset(",;:-–—…、，；：،؛¿¡")
_CLOSING: Final = "\"'»”’)]}」』）"
_UNMARKED: Final = re.compile(r"[\u0e00-\u0eff]$")
"""Thai and Lao are written without marks between sentences."""
_WORD: Final = re.compile(r"([^\W\d_]+)\W*$")
_LEADING_WORDS: Final = frozenset(
    (
        # English
        *("a", "an", "and", "as", "because", "but", "er", "if", "my", "or", "our", "than", "the"),
        *("their", "uh", "um", "unless", "until", "whether", "your"),
        # German
        *("aber", "als", "äh", "ähm", "bis", "dass", "dem", "den", "der", "des", "ein", "eine"),
        *("einem", "einen", "einer", "mein", "meine", "oder", "ob", "sondern", "und", "weil", "wenn", "zum"),
        # Spanish and Portuguese
        *("aunque", "con", "cuando", "del", "e", "el", "la", "las", "los", "mi", "o", "para", "pero"),
        *("porque", "que", "si", "sin", "su", "tu", "un", "una", "y", "um", "uma", "mas", "ou"),
        # French and Italian
        *("au", "aux", "avec", "car", "des", "du", "et", "euh", "il", "le", "les", "ma", "mais", "mon"),
        *("parce", "pour", "quand", "un", "une", "che", "con", "di", "gli", "ma", "o", "perché", "però"),
    )
)
"""Words that something follows: conjunctions, articles, possessives, and sounds of thinking."""


def ending(text: str) -> Ending:
    """How `text` ends: as a sentence does, in the middle of one, or in a way that tells nothing."""
    text = text.rstrip().rstrip(_CLOSING)
    if not text:
        return "unknown"
    if text.endswith("...") or text[-1] in _OPEN_MARKS:
        return "open"
    word = _WORD.search(text)
    if word is not None and text[-1] not in "?？؟" and word[1].lower() in _LEADING_WORDS:
        return "open"
    if text[-1] in _FINAL_MARKS:
        return "finished"
    if _UNMARKED.search(text) or unicodedata.category(text[-1])[0] not in "LNM":
        return "unknown"
    return "open"
