"""An opened model, checked but not yet read into memory: what `open_model` gives and a family's file makes.

`actors/model_loading.py` sizes the caches with it and hands it to the device's thread, which calls `load`.
What a family can do is asked of this object and of its `info`, never by the family's name. A new family is a
folder with `open_source(opening) -> ModelSource` and `open_side`, a line in `engine/models/families.py`, and
a file in `actors/speech/families/` if it transcribes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...kernels.attention.kv_quantization import CODED, MULTIPLE, KvDtype
from ...kernels.linear.weight_codes import Quantization
from ...protocols.errors import ModelLoadError
from ..planning.kv.groups import CacheLayout
from ..planning.positions import PositionRule, plain_positions
from .base import KvShape, Model
from .info import ModelInfo
from .quantization_config import Published
from .side import ModelSide
from .weights import Shape, TensorReader, read_tensors

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a family gets to open a checkpoint with. `config` is the parsed `config.json`."""

    name: str
    folder: Path
    config: dict[str, Any]
    device: torch.device
    dtype: torch.dtype
    quantization: Quantization = "none"
    kv_dtype: KvDtype = "auto"
    published: Published | None = None
    """How the checkpoint's weights are in fewer bits, if they are."""
    adaptable: bool = False
    """Whether adapters may change its products, each in rows of its own."""


@dataclass(frozen=True, slots=True)
class CheckedTensors:
    """Headers that fit; `read` gives the tensors, once they are wanted."""

    read: Callable[[], TensorReader]
    headers: TensorReader
    """To be asked what is stored; nothing is taken of it."""

    @property
    def saved_bytes(self) -> int:
        """That weights published as codes take less than as numbers."""
        return self.headers.saved_bytes()


def tensor_reader(
    opening: Opening,
    expected: Mapping[str, Shape],
    *,
    renames: Sequence[tuple[str, str]] = (),
    tied: Mapping[str, str] | None = None,
    as_numbers: Collection[str] = (),
) -> CheckedTensors:
    """Check the headers as `read_tensors` does."""
    folder, device, dtype = opening.folder, opening.device, opening.dtype
    reader = partial(
        read_tensors,
        folder,
        expected,
        device,
        dtype,
        renames=renames,
        tied=tied,
        quantization=opening.quantization,
        published=opening.published,
        adaptable=opening.adaptable,
        as_numbers=as_numbers,
    )
    checked = reader()
    if opening.published is not None:
        logger.info("%s: %s; %s", opening.name, opening.published.method, checked.describe_packed())
    return CheckedTensors(reader, checked)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Configs, tokenizer and tensor names are checked; `load` reads the tensors."""

    info: ModelInfo
    device: torch.device
    dtype: torch.dtype
    kv_shape: KvShape
    weight_bytes: int
    """On the device, once loaded."""
    side: ModelSide
    """What is asked of it without a device."""
    load: Callable[[], Model]
    """Reads every tensor; called once, in the thread that will use the model. Raises ModelLoadError."""
    encoder_bytes: Callable[[int], int] | None = None
    """Bytes the encoding of an item of so many tokens will hold on the device; None if it has no encoder."""
    activation_bytes: Callable[[int], int] | None = None
    """Bytes that encoding an item of so many pixels takes while it lasts; None if the model sees nothing."""
    positions: PositionRule = plain_positions
    """Where the tokens of its prompts lie on rotary axes."""
    sees_whole_items: bool = False
    """Rows of an item attend to all of it, and so are fed in one step."""
    kv_dtype: KvDtype = "auto"

    @property
    def cache_dtype(self) -> torch.dtype:
        """Of the elements in the cache of keys and values."""
        return CODED if self.kv_dtype == "int8" else self.dtype

    @property
    def layout(self) -> CacheLayout:
        """How the caches of its layers share blocks."""
        return self.kv_shape.layout(self.cache_dtype)

    @property
    def cache_name(self) -> str:
        """The same for people."""
        return str(self.dtype).removeprefix("torch.") if self.kv_dtype == "auto" else self.kv_dtype

    def check_cache(self, block_size: int) -> None:
        """Raise ModelLoadError naming the option if a cache of such blocks cannot be kept as wished."""
        if self.kv_dtype == "auto":
            return
        if self.kv_shape.num_vectors == 1:
            raise ModelLoadError(
                f"--kv-dtype {self.kv_dtype} is for keys and values, and {self.info.name} keeps latents; "
                "leave it auto"
            )
        odd = [head_dim for _, head_dim in self.kv_shape.heads_of_layers if head_dim % MULTIPLE]
        if odd:
            raise ModelLoadError(
                f"--kv-dtype {self.kv_dtype} is for heads of a multiple of {MULTIPLE}; those of "
                f"{self.info.name} are of {odd[0]}"
            )
        if block_size % MULTIPLE:
            raise ModelLoadError(
                f"--kv-dtype {self.kv_dtype} needs a --block-size that is a multiple of {MULTIPLE}, "
                f"not {block_size}"
            )

    @property
    def folder(self) -> Path:
        """Where the checkpoint lies."""
        return self.info.folder
