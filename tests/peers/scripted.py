"""A family for suites of other projects: Qwen3-VL whose next token a script decides (`peers/script.py`).

Everything around it is the server's own: tokenizer, pictures, batching, cache, grammars, parsers. The tokens
fed are kept per position of the cache, as keys and values would be, so that a sequence's text is read through
its block table.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from peers.script import TEMPLATE, preferences
from sensorium.engine.models.base import EncoderOutput, Model, StepBatch
from sensorium.engine.models.embedded import CHECKPOINTS
from sensorium.engine.models.families import FamilyEntry
from sensorium.engine.models.qwen3_vl.model import open_source as open_qwen3_vl
from sensorium.engine.models.source import ModelSource, Opening
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.protocols.engine.messages import Features
from torch import Tensor

ENTRY: Final = FamilyEntry(
    "ScriptedQwen3VL", "scripted", "peers.scripted", "sensorium.engine.models.qwen3_vl.side"
)
"""The family's line in the registry."""


def make_scripted_folder(path: Path) -> Path:
    """A checkpoint of the family: tiny-qwen3-vl with another template; return its path."""
    shutil.copytree(CHECKPOINTS / "tiny-qwen3-vl", path)
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = [ENTRY.architecture]
    (path / "config.json").write_text(json.dumps(config))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


class ScriptedModel:
    """See `Model`: pictures are really encoded, tokens are the script's."""

    def __init__(self, model: Model, text: TextTokenizer) -> None:
        self._model = model
        self.device, self.dtype, self.kv_shape = model.device, model.dtype, model.kv_shape
        self.rotary_axes, self.weight_bytes, self.info = model.rotary_axes, model.weight_bytes, model.info
        table = text.byte_table
        assert table is not None, "the embedded tokenizer is byte-level"
        self._pieces = [bytes(piece) for piece in table]
        self._text = text
        self._start, self._end = text.encode("<|im_start|><|im_end|>", allow_special=True)
        self._fed: dict[int, int] = {}
        self._rows: list[tuple[int, ...]] = []

    def check_features(self, features: Features) -> None:
        """See `Model`."""
        self._model.check_features(features)

    def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
        """See `Model`."""
        return self._model.encode(items)

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """Each row's number in this step, in place of a hidden state."""
        del cache
        paged = batch.paged
        self._fed.update(zip(paged.write_slots.tolist(), batch.token_ids.tolist(), strict=True))
        self._rows = []
        size, tables = paged.block_size, paged.block_tables.tolist()
        for table, end, num in zip(tables, paged.context_lengths.tolist(), paged.num_queries, strict=True):
            tokens = tuple(self._fed[table[at // size] * size + at % size] for at in range(end))
            self._rows.extend(tokens[: end - num + 1 + row] for row in range(num))
        return torch.arange(len(self._rows), dtype=self.dtype)[:, None]

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Model`."""
        logits = torch.zeros(hidden.shape[0], self.info.vocab_size)
        for row, number in enumerate(hidden[:, 0].long().tolist()):
            for token, preferred in self._preferred(self._rows[number]).items():
                logits[row, token] = preferred
        return logits

    def _preferred(self, tokens: Sequence[int]) -> dict[int, float]:
        """A last message that is the assistant's is what was generated; a plain text is all generated."""
        prompt, generated = "", b"".join(self._pieces[token] for token in tokens)
        if self._start in tokens:
            begun = len(tokens) - tokens[::-1].index(self._start)
            after = b"".join(self._pieces[token] for token in tokens[begun:])
            prompt, generated = self._text.decode_all(tokens[: begun - 1]), after.removeprefix(b"assistant\n")
        return preferences(prompt, generated, self._pieces, self._end)


def open_source(opening: Opening) -> ModelSource:
    """Open the real checkpoint and put the script in front of it."""
    source = open_qwen3_vl(opening)
    assert isinstance(source.side.text, TextTokenizer)
    text = source.side.text
    return replace(source, load=lambda: ScriptedModel(source.load(), text))
