"""Reading a Whisper checkpoint: its config is checked, then its tensors are taken.

What it must hold is `engine/models/whisper/checkpoint.py`; `engine/models/whisper/model.py` arranges it for
speed, `engine/models/whisper/text.py` is the tokenizer's side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import WhisperConfig

from ....kernels.activation import Activation
from ....kernels.codes import HEAD_GRID
from ....kernels.kv_codes import CODED, MULTIPLE
from ....kernels.linear_bits import num_packed_bytes
from ....protocols.errors import ModelLoadError
from ..base import Model
from ..info import generation_config, misfit
from ..source import ModelSource, Opening
from ..weights import TensorReader, num_bytes, read_tensors
from .checkpoint import Checkpoint, WhisperArchitecture, expected_tensors
from .model import WhisperModel
from .side import side_of
from .text import WhisperText

_ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu", "relu": "relu"}


def open_source(opening: Opening) -> ModelSource:
    """Check configs, tokenizer and tensor names of a Whisper folder."""
    opening.refuse_published()
    folder, architecture = opening.folder, _read_architecture(opening)
    text = WhisperText.from_folder(folder, name=opening.name)
    heads = _alignment_heads(folder, architecture)
    _reader(opening, architecture)

    def load() -> Model:
        tensors = _tensors(opening, architecture)
        checkpoint = Checkpoint(
            architecture,
            tensors,
            text,
            heads,
            opening.device,
            opening.dtype,
            opening.quantization,
            opening.kv_dtype,
        )
        return WhisperModel(checkpoint)

    a = architecture
    window_bytes = a.num_positions * a.kv_shape.num_bytes(opening.dtype)
    if opening.kv_dtype == "int8":
        window_bytes = -(-a.num_positions // MULTIPLE) * MULTIPLE * a.kv_shape.num_bytes(CODED)
    return ModelSource(
        info=text.info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=architecture.kv_shape,
        weight_bytes=_loaded_bytes(architecture, opening),
        side=side_of(text),
        load=load,
        encoder_bytes=lambda _: window_bytes,
    )


def _loaded_bytes(a: WhisperArchitecture, opening: Opening) -> int:
    """Bytes of weights once loaded. A rounded head stands beside its own rows, whose largest are exact."""
    num = num_bytes(expected_tensors(a), opening.dtype, opening.quantization)
    if opening.quantization == "none":
        return num
    head = a.vocab_size * a.d_model * opening.dtype.itemsize
    return num + (num_packed_bytes(a.vocab_size, a.d_model, HEAD_GRID) if a.tied else head)


def _reader(opening: Opening, architecture: WhisperArchitecture) -> TensorReader:
    # A tied output projection may be stored beside the embedding it equals.
    tied = {"proj_out.weight": "decoder.embed_tokens.weight"} if architecture.tied else None
    expected = expected_tensors(architecture)
    return read_tensors(
        opening.folder, expected, opening.device, opening.dtype, renames=(("model.", ""),), tied=tied
    )


def _tensors(opening: Opening, architecture: WhisperArchitecture) -> dict[str, Tensor]:
    reader = _reader(opening, architecture)
    tensors = {name: reader.take(name) for name in expected_tensors(architecture)}
    reader.skip("proj_out.weight")
    reader.finish()
    return tensors


def _read_architecture(opening: Opening) -> WhisperArchitecture:
    folder, raw = opening.folder, opening.config
    try:
        config: Any = WhisperConfig.from_dict(raw)
    except Exception as error:  # transformers checks with the exceptions of several libraries
        reason = " ".join(str(error).split())
        raise ModelLoadError(f"{folder / 'config.json'}: {reason or type(error).__name__}") from error
    activation = _ACTIVATIONS.get(config.activation_function)
    if activation is None:
        raise ModelLoadError(
            f"{folder / 'config.json'}: activation_function {config.activation_function!r} is not one of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    for side in ("encoder", "decoder"):
        heads = getattr(config, f"{side}_attention_heads")
        if heads < 1 or config.d_model % heads:
            raise ModelLoadError(
                f"{folder / 'config.json'}: d_model {config.d_model} is not a multiple of "
                f"{side}_attention_heads {heads}"
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
        activation=activation,
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
