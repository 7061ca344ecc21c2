"""The side of a model that needs no device: its tokenizer, its prompts, how it transcribes.

A process that faces clients has this of a model that another process runs: what is known of it comes from
there, as do the checkpoint's small files (`actors/engine_process/small_files.py`). Torch-free. Read
`engine/models/source.py` for the other side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import msgspec

from ...protocols.shared.json_file import read_json
from ..text.tokenizer import TextTokenizer
from .families import FALLBACK, entry_of
from .info import ModelInfo, ModelText, SpeechEntry
from .prompts import ChatPrompts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSide:
    """What a model's text is made with. Thread-safe."""

    text: ModelText
    prompts: ChatPrompts | None = None
    """How it is prompted; None if it answers no prompts of clients."""
    embeds: TextTokenizer | None = None
    """What texts to embed are tokenized by, if `ModelInfo.embedding` says how they are embedded."""
    speech: SpeechEntry | None = None
    """How it is served as a speech model, if it is one."""


class _SideModule(Protocol):
    INFO: ClassVar[type[ModelInfo]]

    def open_side(self, info: ModelInfo) -> ModelSide: ...


def info_fields(info: ModelInfo) -> dict[str, Any]:
    """What is known of a model as plain data, for `open_side` in another process."""
    fields: dict[str, Any] = msgspec.to_builtins(info, enc_hook=str)
    return fields


def open_side(fields: Mapping[str, Any]) -> tuple[ModelInfo, ModelSide]:
    """What `info_fields` gave, and the model's text side, read from its folder.

    Takes as long as its tokenizer does: for a thread. Raises ModelLoadError naming the file at fault, or
    msgspec.ValidationError for fields that are of another family.
    """
    config = read_json(Path(fields["folder"]) / "config.json")
    entry = entry_of(config) or FALLBACK
    module = cast(_SideModule, import_module(entry.side, __package__))
    info = msgspec.convert(fields, module.INFO, dec_hook=lambda kind, text: kind(text))
    return info, module.open_side(info)
