"""An opened model, checked but not yet read into memory: what `open_model` gives and a family's file makes.

`actors/models.py` sizes the caches with it and hands it to the device's thread, which calls `load`. A new
family is one file with `open_source(opening) -> ModelSource` and one line in `engine/models/registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...protocols.messages import EncoderItem
from ..text.tokenizer import TextTokenizer
from .base import KvShape, Model
from .info import ModelInfo
from .whisper.text import WhisperText


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a family gets to open a checkpoint with. `config` is the parsed `config.json`."""

    name: str
    folder: Path
    config: dict[str, Any]
    device: torch.device
    dtype: torch.dtype


def _no_encoder(item: EncoderItem) -> int:
    raise AssertionError("a text model encodes nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Configs, tokenizer and tensor names are checked; `load` reads the tensors."""

    info: ModelInfo
    device: torch.device
    dtype: torch.dtype
    kv_shape: KvShape
    weight_bytes: int
    """On the device, once loaded."""
    text: WhisperText | TextTokenizer
    load: Callable[[], Model]
    """Reads every tensor; called once, in the thread that will use the model. Raises ModelLoadError."""
    encoder_bytes: Callable[[EncoderItem], int] = _no_encoder
    """Bytes the encoding of an item will hold on the device."""
    activation_bytes: Callable[[int], int] | None = None
    """Bytes that encoding an item of so many pixels takes while it lasts; None if the model sees nothing."""

    @property
    def folder(self) -> Path:
        """Where the checkpoint lies."""
        return self.info.folder
