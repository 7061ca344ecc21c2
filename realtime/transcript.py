"""Which text of a growing transcript can be shown, so that it never has to be taken back.

Local agreement (Liu et al. 2020, arXiv:2005.11185; Macháček et al. 2023, arXiv:2307.14743): words on which
the last two hypotheses agree from the beginning are released, except the newest words of the hypothesis,
which the edge of the audio may have cut. Scripts written without spaces agree by character.
"""

from __future__ import annotations

import re
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
_MARKS: Final = "\u0300-\u036f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u3099\u309a"
_PIECE: Final = re.compile(rf"\s*(?:[{_UNSPACED}][{_MARKS}]*|[^\s{_UNSPACED}]+)|\s+$")


def pieces(text: str) -> list[str]:
    """Cut into words (each with the space before it) or single characters; the joined pieces are `text`."""
    return _PIECE.findall(text)


class TranscriptPolicy:
    """The releases of one item. What was released, joined, is `released`; it only grows."""

    def __init__(self, hold_words: int = 1) -> None:
        self._hold = hold_words
        self._previous: list[str] = []
        self.released = ""
        self.corrected = False
        """The final text did not begin with what was released."""

    def observe(self, text: str) -> str:
        """Take a newer hypothesis; return the text to release now ("" if none)."""
        current = pieces(text)
        agreed = 0
        for old, new in zip(self._previous, current, strict=False):
            if old != new:
                break
            agreed += 1
        self._previous = current
        stable = "".join(current[: max(0, min(agreed, len(current) - self._hold))])
        return self._extend(stable)

    def finish(self, text: str) -> str:
        """Take the final text; return the rest to release, "" where what was released contradicts it."""
        self.corrected = not text.startswith(self.released)
        return self._extend(text)

    def _extend(self, text: str) -> str:
        if not text.startswith(self.released):
            return ""
        rest = text[len(self.released) :]
        self.released = text
        return rest
