"""An opened model, checked but not yet read into memory: what `open_model` gives and a family's file makes.

`actors/models.py` sizes the caches with it and hands it to the device's thread, which calls `load`. What a
family can do is asked of this object and of its `info`, never by the family's name. A new family is a folder
with `open_source(opening) -> ModelSource`, a line in `engine/models/registry.py`, and a file in
`actors/speech/` if it listens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .base import KvShape, Model
from .info import Listens, ModelInfo, ModelText
from .prompts import ChatPrompts
from .weights import Shape, TensorReader, read_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a family gets to open a checkpoint with. `config` is the parsed `config.json`."""

    name: str
    folder: Path
    config: dict[str, Any]
    device: torch.device
    dtype: torch.dtype


def tensor_reader(
    opening: Opening,
    expected: Mapping[str, Shape],
    *,
    renames: Sequence[tuple[str, str]] = (),
    tied: Mapping[str, str] | None = None,
) -> Callable[[], TensorReader]:
    """Check the headers as `read_tensors` does; what is given reads the tensors, once they are wanted."""
    folder, device, dtype = opening.folder, opening.device, opening.dtype
    reader = partial(read_tensors, folder, expected, device, dtype, renames=renames, tied=tied)
    reader()
    return reader


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Configs, tokenizer and tensor names are checked; `load` reads the tensors."""

    info: ModelInfo
    device: torch.device
    dtype: torch.dtype
    kv_shape: KvShape
    weight_bytes: int
    """On the device, once loaded."""
    text: ModelText
    load: Callable[[], Model]
    """Reads every tensor; called once, in the thread that will use the model. Raises ModelLoadError."""
    encoder_bytes: Callable[[int], int] | None = None
    """Bytes the encoding of an item of so many tokens will hold on the device; None if it has no encoder."""
    activation_bytes: Callable[[int], int] | None = None
    """Bytes that encoding an item of so many pixels takes while it lasts; None if the model sees nothing."""
    prompts: ChatPrompts | None = None
    """How it is prompted; None if it answers no prompts of clients."""
    listens: Listens | None = None
    """How it is served as a speech model, if it is one."""

    @property
    def folder(self) -> Path:
        """Where the checkpoint lies."""
        return self.info.folder
