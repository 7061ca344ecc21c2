"""Text with control tokens → ids, where most of it was encoded before: a talk grows by its newest turn.

A tokenizer first cuts a text at its control tokens, and what lies between two of them is encoded by itself.
So a piece, from one control token to the next, has the same ids wherever it stands, and those of the newest
pieces are kept. Tokens that take the spaces in front of them, or look at their neighbours, are no places to
cut at. Knows no templates; used by `engine/text/chat_template.py`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from .tokenizer import TextTokenizer

MAX_CHARS: Final = 1 << 20
"""Text of the pieces that are kept: twice that at most, with four bytes for each of its ids."""
_MAX_PIECE: Final = 1 << 14
"""Characters; one that is longer is encoded anew."""


@lru_cache(maxsize=16)
def names_pattern(names: frozenset[str]) -> re.Pattern[str]:
    """Matches any of the names, longer ones first, as one group; nothing where there are none.

    Kept: of tens of thousands of names it takes seconds to compile, and one tokenizer is asked for three."""
    ordered = sorted(names, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, ordered))})" if ordered else "((?!))")


class PieceEncoder:
    """Encodes as `text.encode(…, allow_special=True)` does. Thread-safe."""

    def __init__(self, text: TextTokenizer, *, max_chars: int = MAX_CHARS) -> None:
        self._text = text
        self._max_chars = max_chars
        self._num_chars = 0
        self._young: dict[str, array[int]] = {}
        self._old: dict[str, array[int]] = {}
        tokens = text.backend.get_added_tokens_decoder().values()
        # Those that are found in a text as it was given; the others only in what lies between them.
        found = [token for token in tokens if not token.normalized]
        plain = {token.content for token in found if not token.lstrip}
        self._begins = frozenset() if any(token.single_word for token in tokens) else frozenset(plain)
        self._any = names_pattern(frozenset(token.content for token in found))

    @property
    def num_chars(self) -> int:
        """Of the text that is kept, at most."""
        return self._num_chars + sum(map(len, self._old))

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text`; names of control tokens in it are control tokens."""
        ids: array[int] = array("i")
        for piece in self._cut(text):
            ids += self._ids_of(piece)
        return tuple(ids)

    def _cut(self, text: str) -> Iterator[str]:
        """Pieces that begin with a control token, and what stands before the first of them."""
        start = 0
        if self._begins:
            for match in self._any.finditer(text):
                if match[0] in self._begins and match.start():
                    yield text[start : match.start()]
                    start = match.start()
        yield text[start:]

    def _ids_of(self, piece: str) -> array[int]:
        ids = self._young.get(piece)
        if ids is None:
            # Two threads may do this at once: then both do the same, and count it twice.
            ids = self._old.get(piece)
            if ids is None:
                ids = array("i", self._text.encode(piece, allow_special=True))
            if len(piece) <= _MAX_PIECE:
                if self._num_chars + len(piece) > self._max_chars:
                    self._old, self._young, self._num_chars = self._young, {}, 0
                self._young[piece] = ids
                self._num_chars += len(piece)
        return ids
