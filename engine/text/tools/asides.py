"""Names of special tokens in an answer that no format reads, taken out of what the formats are given.

They show in the text because the request wants to see them (`skip_special_tokens: false`); calls and
reasoning are read as if they were not there. Read next: `engine/text/tools/machine.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence


class Asides:
    """Finds `names` in a text that comes in pieces: the leftmost, and of those that begin together the
    longest, however it was cut."""

    def __init__(self, names: Sequence[str]) -> None:
        self._pattern = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
        self._beginnings = {name[:end] for name in names for end in range(1, len(name))}
        self._most = max(map(len, names))
        self._held = ""

    def split(self, text: str, *, is_last: bool = False) -> Iterator[tuple[str, str]]:
        """Pairs of a text and the name behind it, which is empty at the end."""
        text = self._held + text
        start = 0
        while True:
            held = len(text) if is_last else self._held_from(text, start)
            found = self._pattern.search(text, start)
            if found is None or found.start() > held or text[found.start() :] in self._beginnings:
                break
            yield text[start : found.start()], found[0]
            start = found.end()
        self._held = text[held:]
        yield text[start:held], ""

    def _held_from(self, text: str, start: int) -> int:
        """Where the longest end of the text begins that may become a name."""
        for place in range(max(start, len(text) - self._most), len(text)):
            if text[place:] in self._beginnings:
                return place
        return len(text)
