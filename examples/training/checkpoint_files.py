"""What the exported folders share: a byte-level tokenizer that splits words as Qwen's does, the weights, and
how files are replaced.

Knows no network. `tiny_whisper_model.py`, `tiny_qwen3_asr_model.py` and `tiny_qwen3_vl_model.py` use it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

END: Final = "<|endoftext|>"
MESSAGE_START, MESSAGE_END = "<|im_start|>", "<|im_end|>"

_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def byte_level_tokenizer(texts: Iterable[str], num_text_tokens: int, controls: Sequence[str]) -> Tokenizer:
    """A BPE of so many tokens of the texts, and behind them the control tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_text_tokens,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    bpe.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in controls])
    return bpe


class Encoder:
    """Texts as a tokenizer's ids; those of fixed parts, such as control tokens, are kept."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._fixed: dict[str, list[int]] = {}

    def encoded(self, text: str) -> list[int]:
        """Plain text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else []

    def ids(self, *parts: str) -> list[int]:
        """Parts that come again and again, one behind the other."""
        for part in parts:
            if part not in self._fixed:
                self._fixed[part] = self.encoded(part)
        return [token for part in parts for token in self._fixed[part]]


def write_tokenizer(folder: Path, tokenizer: Tokenizer, template: str, extra: dict[str, object]) -> None:
    """The tokenizer's files and the chat template; `extra` goes into `tokenizer_config.json`."""
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": MESSAGE_END,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
        **extra,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")
    (folder / "chat_template.jinja").write_text(template, "utf-8")


def write_weights(folder: Path, weights: Mapping[str, Tensor], head: str) -> None:
    """As float16. The output layer, `head`, is the embedding and not stored twice."""
    stored = {n: weight.to(torch.float16).contiguous() for n, weight in weights.items() if n != head}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


@contextmanager
def replaced_files(folder: Path) -> Iterator[Path]:
    """A fresh folder to write to, whose files then replace those of `folder` one by one, each at once. Other
    files of it, such as the model card, stay."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".exporting-") as temporary:
        fresh = Path(temporary)
        yield fresh
        for path in sorted(fresh.iterdir()):
            path.chmod(0o644)
            os.replace(path, folder / path.name)
