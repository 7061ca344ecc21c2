"""The bytes each id of a byte-level tokenizer stands for, where its decoder does nothing but join them.

With this table text can be made incrementally by joining bytes, exactly and at a cost that does not depend
on what came before. Read `engine/text/text_decoder.py` next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from tokenizers import Tokenizer


def byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, inverted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return table


_BYTE_OF: Final = byte_of_character()


def bytes_of_token(token: str) -> bytes:
    """What a byte-level decoder makes of one token's name: its bytes, or the name itself if it is no such
    name (an added token with a space in it)."""
    try:
        return bytes(map(_BYTE_OF.__getitem__, token))
    except KeyError:
        return token.encode()


def make_table(vocabulary: dict[str, int], is_silent: Callable[[int], bool]) -> tuple[bytes, ...]:
    """Bytes by id; empty for ids that are not in the vocabulary or for which `is_silent`."""
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, token_id in vocabulary.items():
        if not is_silent(token_id):
            table[token_id] = bytes_of_token(token)
    return tuple(table)


def byte_table(backend: Tokenizer) -> Sequence[bytes] | None:
    """Bytes by id, special tokens empty; None if the tokenizer's decoder does anything else than join them
    (SentencePiece-like ones, which drop a space in front)."""
    description: dict[str, Any] = json.loads(backend.to_str())
    decoder = description.get("decoder") or {}
    if decoder.get("type") == "Sequence" and len(decoder.get("decoders", ())) == 1:
        decoder = decoder["decoders"][0]
    if decoder.get("type") != "ByteLevel":
        return None
    special = {int(token["id"]) for token in description["added_tokens"] if token["special"]}
    return make_table(backend.get_vocab(with_added_tokens=True), special.__contains__)
