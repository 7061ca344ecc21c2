"""Opening a checkpoint with a decoder of Llama's shape: what is the same for texts, sound and pictures.

A family adds its own parts and says how they are loaded: `model.py` here, in `qwen3_asr` and in `qwen3_vl`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict

from ....kernels.linear.quantized_linear import num_packed_bytes
from ....kernels.linear.weight_codes import HEAD_GRID
from ...planning.positions import PositionRule, plain_positions
from ...text.tokenizer import TextTokenizer
from ..base import Model
from ..info import ModelInfo
from ..side import ModelSide
from ..source import ModelSource, Opening, tensor_reader
from ..weights import Shape, TensorReader, num_bytes
from .config import DecoderConfig, decoder_tensors, stop_token_ids

DECODER: Final = "language_model."
"""In front of the decoder's tensors where a model has other parts, whatever its checkpoint calls them."""


class DecoderFacts(TypedDict):
    """Fields of a `ModelInfo` that the decoder decides."""

    name: str
    folder: Path
    vocab_size: int
    max_context: int
    stop_token_ids: tuple[int, ...]
    replayable: bool
    is_adaptable: bool


def decoder_facts(
    opening: Opening, decoder: DecoderConfig, text: TextTokenizer, eos_token_id: object
) -> DecoderFacts:
    """Those of a checkpoint; `eos_token_id` as the model's config has it."""
    return {
        "name": opening.name,
        "folder": opening.folder,
        "vocab_size": decoder.vocab_size,
        "max_context": decoder.max_context,
        "stop_token_ids": stop_token_ids(opening.folder, eos_token_id, text.end_ids),
        "replayable": True,
        "is_adaptable": opening.adaptable,
    }


def decoder_source(
    opening: Opening,
    decoder: DecoderConfig,
    info: ModelInfo,
    side: ModelSide,
    load: Callable[[TensorReader], Model],
    *,
    others: Mapping[str, Shape] | None = None,
    renames: Sequence[tuple[str, str]] = (),
    num_levels: int = 1,
    activation_bytes: Callable[[int], int] | None = None,
    positions: PositionRule = plain_positions,
) -> ModelSource:
    """Check names and shapes of all tensors: the decoder's and, if it has an encoder, the `others`, each of
    whose rows takes `num_levels` vectors as wide as the decoder. `renames` come before those of all."""
    prefix = DECODER if others else ""
    own = {f"{prefix}{name}": shape for name, shape in decoder_tensors(decoder).items()}
    expected = {**own, **(others or {})}
    tied = {f"{prefix}lm_head.weight": f"{prefix}embed_tokens.weight"} if decoder.tied else None
    renames = (*renames, ("model.", ""), ("lm_head.", f"{prefix}lm_head."))
    tensors = tensor_reader(opening, expected, renames=renames, tied=tied)
    row_bytes = num_levels * decoder.hidden_size * opening.dtype.itemsize
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=decoder.kv_shape,
        weight_bytes=_loaded_bytes(decoder, expected, opening) - tensors.saved_bytes,
        side=side,
        load=lambda: load(tensors.read()),
        encoder_bytes=(lambda num_tokens: num_tokens * row_bytes) if others else None,
        activation_bytes=activation_bytes,
        positions=positions,
    )


def _loaded_bytes(c: DecoderConfig, tensors: Mapping[str, Shape], opening: Opening) -> int:
    """Bytes a model of these tensors holds once loaded."""
    num, head = num_bytes(tensors, opening.dtype, opening.quantization), (c.vocab_size, c.hidden_size)
    if not c.tied:
        return num
    as_it_is = head[0] * head[1] * opening.dtype.itemsize
    if opening.quantization != "none":  # the embedding is the head's
        return num + num_packed_bytes(*head, HEAD_GRID) - as_it_is
    # On CPUs a tied head is a packed copy of the embedding.
    return num + (as_it_is if opening.device.type == "cpu" else 0)
