"""Opening a Whisper checkpoint: its config and the names of its tensors are checked.

What it must hold is `engine/models/whisper/checkpoint.py`; `engine/models/whisper/model.py` arranges it for
speed, `engine/models/whisper/text.py` is the tokenizer's side.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import WhisperConfig

from ....kernels.attention.kv_quantization import CODED, MULTIPLE
from ....kernels.linear.quantized_linear import num_packed_bytes
from ....kernels.linear.weight_codes import HEAD_GRID
from ....protocols.errors import ModelLoadError
from ..dense.config import parse_config
from ..info import generation_config, misfit
from ..layer import activation_of
from ..source import ModelSource, Opening, tensor_reader
from ..weights import num_bytes
from .checkpoint import WhisperArchitecture, expected_tensors
from .model import WhisperModel
from .side import side_of
from .text import WhisperText


def open_source(opening: Opening) -> ModelSource:
    """Check configs, tokenizer and tensor names of a Whisper folder."""
    folder, a = opening.folder, _read_architecture(opening)
    text = WhisperText.from_folder(folder, name=opening.name)
    info = replace(text.info, is_adaptable=opening.adaptable)
    heads = _alignment_heads(folder, a)
    # A tied output projection may be stored beside the embedding it equals.
    tied = {"proj_out.weight": "decoder.embed_tokens.weight"} if a.tied else None
    tensors = tensor_reader(opening, expected_tensors(a), renames=(("model.", ""),), tied=tied)
    codes_windows = opening.kv_dtype == "int8"
    window_bytes = a.num_positions * a.kv_shape.num_bytes(opening.dtype)
    if codes_windows:
        window_bytes = -(-a.num_positions // MULTIPLE) * MULTIPLE * a.kv_shape.num_bytes(CODED)
    return ModelSource(
        info=info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=a.kv_shape,
        weight_bytes=_loaded_bytes(a, opening) - tensors.saved_bytes,
        side=side_of(text),
        load=lambda: WhisperModel(info, a, heads, tensors.read(), codes_windows=codes_windows),
        encoder_bytes=lambda _: window_bytes,
    )


def _loaded_bytes(a: WhisperArchitecture, opening: Opening) -> int:
    """Bytes of weights once loaded. A rounded head stands beside its own rows, whose largest are exact."""
    num = num_bytes(expected_tensors(a), opening.dtype, opening.quantization)
    if opening.quantization == "none":
        return num
    head = a.vocab_size * a.d_model * opening.dtype.itemsize
    return num + (num_packed_bytes(a.vocab_size, a.d_model, HEAD_GRID) if a.tied else head)


def _read_architecture(opening: Opening) -> WhisperArchitecture:
    path, raw = opening.folder / "config.json", opening.config
    config: Any = parse_config(raw, WhisperConfig.from_dict, path)
    for side in ("encoder", "decoder"):
        heads = getattr(config, f"{side}_attention_heads")
        if heads < 1 or config.d_model % heads:
            raise ModelLoadError(
                f"{path}: d_model {config.d_model} is not a multiple of {side}_attention_heads {heads}"
            )
    return WhisperArchitecture(
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        encoder_heads=config.encoder_attention_heads,
        encoder_ffn=config.encoder_ffn_dim,
        decoder_layers=config.decoder_layers,
        decoder_heads=config.decoder_attention_heads,
        decoder_ffn=config.decoder_ffn_dim,
        num_mel_bins=config.num_mel_bins,
        num_positions=config.max_source_positions,
        max_target_positions=config.max_target_positions,
        vocab_size=config.vocab_size,
        activation=activation_of(config, path),
        tied=bool(raw.get("tie_word_embeddings", True)),
        median_filter_width=config.median_filter_width,
    )


def _alignment_heads(folder: Path, architecture: WhisperArchitecture) -> tuple[tuple[int, int], ...]:
    heads = generation_config(folder).get("alignment_heads")
    if not heads:
        # openai/whisper without a table: every head of the upper half of the decoder.
        upper = range(architecture.decoder_layers // 2, architecture.decoder_layers)
        return tuple((layer, head) for layer in upper for head in range(architecture.decoder_heads))
    if not all(isinstance(pair, list) and [type(each) for each in pair] == [int, int] for pair in heads):
        raise misfit(folder, "alignment_heads", heads, "a list of pairs of layer and head")
    for layer, head in heads:
        if not (0 <= layer < architecture.decoder_layers and 0 <= head < architecture.decoder_heads):
            raise ModelLoadError(f"{folder}: alignment_heads names layer {layer}, head {head}; there is none")
    return tuple((layer, head) for layer, head in heads)
