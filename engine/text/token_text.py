"""Single tokens as text and bytes, for log-probabilities. Knows a tokenizer, no requests.

Unlike in decoding every token has a name here, special ones too, and half a character has its bytes.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from .token_bytes import bytes_of_token
from .tokenizer import TextTokenizer

_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")
_WORD_START: Final = "\u2581"


class TokenText:
    """Names tokens. Byte-level and SentencePiece vocabularies; others are taken as they are written."""

    def __init__(self, text: TextTokenizer) -> None:
        self._backend = text.backend
        added = text.backend.get_added_tokens_decoder()
        self._added = {key: token.content for key, token in added.items()}
        self._special = frozenset(key for key, token in added.items() if token.special)
        self._is_byte_level = "ByteLevel" in str(text.backend.decoder)
        self.bytes_of = lru_cache(maxsize=1 << 16)(self._bytes_of)

    def name(self, token_id: int) -> str:
        """The token as text; half a character shows as U+FFFD."""
        return self.bytes_of(token_id).decode("utf-8", errors="replace")

    def piece(self, token_id: int) -> str:
        """The token as the vocabulary writes it, no bytes lost; empty for ids that it lacks."""
        return self._backend.id_to_token(token_id) or ""

    def is_special(self, token_id: int) -> bool:
        """Whether decoding leaves it out."""
        return token_id in self._special

    def _bytes_of(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        piece: str | None = self._backend.id_to_token(token_id)
        if piece is None:  # the model's vocabulary is larger than the tokenizer's
            return b""
        if self._is_byte_level:
            return bytes_of_token(piece)
        if byte := _BYTE_PIECE.fullmatch(piece):
            return bytes.fromhex(byte[1])
        return piece.replace(_WORD_START, " ").encode()


class TokenPlaces:
    """Where tokens begin in their joined text, in characters, while they come; `start` is the first one's."""

    def __init__(self, tokens: TokenText, start: int = 0) -> None:
        self._tokens = tokens
        self._place = start
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Iterable[int], *, num_written: int = 0) -> list[int]:
        """The places of the next tokens.

        Special tokens take no room, as decoding leaves them out, but for those among the first `num_written`
        tokens, which are a text as its writer wrote it.
        """
        found = []
        for index, token_id in enumerate(token_ids):
            found.append(self._place)
            if index < num_written or not self._tokens.is_special(token_id):
                self._place += len(self._decoder.decode(self._tokens.bytes_of(token_id)))
        return found
