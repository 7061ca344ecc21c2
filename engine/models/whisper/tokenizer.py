"""A byte-level BPE tokenizer as Whisper's: text ↔ ids ↔ bytes. Knows files and bytes, no prompts.

Text that comes from outside is encoded without the added tokens, so that no text whatever can become a
control or timestamp token. `engine/models/whisper/text.py` knows what the special tokens mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ....protocols.errors import ModelLoadError
from ...text.token_bytes import make_table
from ...text.tokenizer import check_ids


class ByteLevelTokenizer:
    """Text to ids and back. Added tokens (control tokens, timestamps) have no text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        description: dict[str, Any] = json.loads(tokenizer.to_str())
        self._added = {str(t["content"]): int(t["id"]) for t in description["added_tokens"]}
        description["added_tokens"] = []
        description["post_processor"] = None
        # Without the added tokens their names are ordinary characters.
        self._plain = Tokenizer.from_str(json.dumps(description))
        self._added_ids = frozenset(self._added.values())
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.byte_table = make_table(vocabulary, self._added_ids.__contains__)
        """The UTF-8 bytes (perhaps a part of a character) of each id; empty for added tokens."""

    @classmethod
    def from_folder(cls, folder: Path) -> ByteLevelTokenizer:
        """Read `tokenizer.json`, or `vocab.json` + `merges.txt` (+ `added_tokens.json`).

        Raises ModelLoadError naming the file that is missing or cannot be read.
        """
        path = folder / "tokenizer.json"
        try:
            if path.is_file():
                return cls(check_ids(Tokenizer.from_file(str(path))))
            path = folder / "vocab.json"
            if path.is_file() and (folder / "merges.txt").is_file():
                return cls(check_ids(_from_vocabulary(folder)))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise ModelLoadError(f"{path}: not a readable tokenizer ({error})") from error
        raise ModelLoadError(f"{folder}: no tokenizer (tokenizer.json, or vocab.json and merges.txt)")

    @property
    def added_tokens(self) -> dict[str, int]:
        """Name → id of control tokens and timestamps."""
        return dict(self._added)

    def id_of(self, name: str) -> int | None:
        """The id of an added token, or None."""
        return self._added.get(name)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text`, whatever it contains: never an added token."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return tuple(token_id for token_id in ids if token_id not in self._added_ids)

    def token_bytes(self, token_id: int) -> bytes:
        """The UTF-8 bytes (perhaps a part of a character) one id stands for; empty for added tokens."""
        return self.byte_table[token_id] if 0 <= token_id < len(self.byte_table) else b""

    def decode(self, token_ids: Iterable[int]) -> str:
        """Text of the ids, added tokens left out; broken UTF-8 becomes U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", errors="replace")


def _from_vocabulary(folder: Path) -> Tokenizer:
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#version"))
    merges = [(left, right) for left, _, right in pairs]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    added = folder / "added_tokens.json"
    names: dict[str, int] = json.loads(added.read_text(encoding="utf-8")) if added.is_file() else {}
    names |= {token: token_id for token, token_id in vocabulary.items() if token.startswith("<|")}
    ordered = sorted(names, key=names.__getitem__)
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in ordered])
    return tokenizer
