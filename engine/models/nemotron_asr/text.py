"""Tokens of a transducer or a CTC head as text: pieces of words, and tags that name the language.

Torch-free. A model of many languages writes a tag (`<de-DE>`) with what it recognised; a tag is the language
of the text, never a part of it. Tokenizers are SentencePiece's: `▁` begins a word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...text.tokenizer import TextTokenizer

_TAG: Final = re.compile(r"<([a-z]{2}|[a-z]{2,3}-[A-Za-z]{2,4})>")
_CONTROL: Final = frozenset({"<unk>", "<pad>"})
"""Are no text, though tokenizers need not call them special."""
_BEGINS_WORD: Final = "▁"
_BYTE: Final = re.compile(r"<0x([0-9A-F]{2})>")
"""A token that is one byte of a character that has no token."""


class TransducerText:
    """The tokenizer of one checkpoint."""

    grammar_json = None
    """Transcripts follow no grammar."""
    byte_table = None
    """The space in front of a text is not written, so bytes cannot be joined."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        names: dict[str, int] = tokenizer.backend.get_vocab(with_added_tokens=True)
        self._names = {token_id: name for name, token_id in names.items()}
        tags = {token_id: _TAG.fullmatch(name) for token_id, name in self._names.items()}
        self.tags = {token_id: match[1] for token_id, match in tags.items() if match}
        """The locale of each tag, by its id."""
        control = {token_id for token_id, name in self._names.items() if name in _CONTROL}
        self._without_text = control | self.tags.keys()

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids, without tags and control tokens, and without a space in front."""
        return self.tokenizer.decode(each for each in token_ids if each not in self._without_text)

    def language_of(self, token_ids: Sequence[int]) -> str | None:
        """The locale that the newest tag among them names; None if there is none."""
        return next((self.tags[each] for each in reversed(token_ids) if each in self.tags), None)

    def bytes_of(self, token_id: int) -> bytes:
        """Of one token, without a space in front: maybe a part of a character."""
        byte = _BYTE.fullmatch(self._names.get(token_id, ""))
        return bytes.fromhex(byte[1]) if byte else self.decode((token_id,)).encode()

    def begins_word(self, token_id: int) -> bool:
        """Whether a word begins with this token."""
        return self._names.get(token_id, "").startswith(_BEGINS_WORD)
