"""A Whisper checkpoint's tokenizer, also one that is but a vocabulary and merges, as many fine-tunes have it.

`transformers` could make that into a tokenizer, too, but brings torch along.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ....protocols.errors import ModelLoadError
from ....protocols.shared.panics import native_call
from ...text.tokenizer import TextTokenizer, check_added, check_ids


def read_tokenizer(folder: Path) -> TextTokenizer:
    """Read `tokenizer.json`, or `vocab.json` + `merges.txt` (+ `added_tokens.json`).

    Raises ModelLoadError naming the file that is missing or cannot be read.
    """
    path = folder / "vocab.json"
    if (folder / "tokenizer.json").is_file() or not (path.is_file() and (folder / "merges.txt").is_file()):
        return TextTokenizer.from_folder(folder)
    try:
        with native_call:
            return TextTokenizer(check_ids(_from_vocabulary(folder)))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise ModelLoadError(f"{path}: not a readable tokenizer ({error})") from error


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
    check_added(len(names))
    ordered = sorted(names, key=names.__getitem__)
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in ordered])
    return tokenizer
