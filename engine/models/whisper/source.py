"""What a Whisper checkpoint must hold, and its reading; `engine/models/whisper/model.py` arranges it for
speed.

Tensors keep their Hugging Face names without the `model.` prefix. `engine/models/whisper/text.py` is the
tokenizer's side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import WhisperConfig

from ....kernels.codes import HEAD_GRID, Quantization
from ....kernels.kv_codes import CODED, MULTIPLE, KvDtype
from ....kernels.linear import Activation
from ....kernels.linear_bits import num_packed_bytes
from ....protocols.errors import ModelLoadError
from ..base import KvShape, Model
from ..info import generation_config
from ..source import ModelSource, Opening
from ..weights import Shape, TensorReader, num_bytes, read_tensors
from .side import side_of
from .text import WhisperText

_ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu", "relu": "relu"}


@dataclass(frozen=True, slots=True)
class WhisperArchitecture:
    """The numbers of a Whisper config that shape the computation.

    `scale_embedding` is not among them: neither openai/whisper nor transformers applies it.
    """

    d_model: int
    encoder_layers: int
    encoder_heads: int
    encoder_ffn: int
    decoder_layers: int
    decoder_heads: int
    decoder_ffn: int
    num_mel_bins: int
    num_positions: int
    max_target_positions: int
    vocab_size: int
    activation: Activation
    tied: bool
    median_filter_width: int

    @property
    def num_frames(self) -> int:
        """Mel frames per window."""
        return 2 * self.num_positions


@dataclass(slots=True)
class Checkpoint:
    """A checked Whisper checkpoint in memory. The model takes what it needs out of `tensors`."""

    architecture: WhisperArchitecture
    tensors: dict[str, Tensor]
    text: WhisperText
    alignment_heads: tuple[tuple[int, int], ...]
    """(layer, head) pairs whose cross-attention follows the audio."""
    device: torch.device
    dtype: torch.dtype
    quantization: Quantization
    kv_dtype: KvDtype = "auto"
    """Of the encodings that the decoder attends to."""

    @property
    def kv_shape(self) -> KvShape:
        """Of the decoder's self-attention."""
        return _kv_shape(self.architecture)


def open_source(opening: Opening) -> ModelSource:
    """Check configs, tokenizer and tensor names of a Whisper folder."""
    opening.refuse_published()
    folder, architecture = opening.folder, _read_architecture(opening)
    text = WhisperText.from_folder(folder, name=opening.name)
    heads = _alignment_heads(folder, architecture)
    _reader(opening, architecture)

    def load() -> Model:
        from .model import WhisperModel

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
    window_bytes = a.num_positions * _kv_shape(a).num_bytes(opening.dtype)
    if opening.kv_dtype == "int8":
        window_bytes = -(-a.num_positions // MULTIPLE) * MULTIPLE * _kv_shape(a).num_bytes(CODED)
    return ModelSource(
        info=text.info,
        device=opening.device,
        dtype=opening.dtype,
        kv_shape=_kv_shape(architecture),
        weight_bytes=_loaded_bytes(architecture, opening),
        side=side_of(text),
        load=load,
        encoder_bytes=lambda _: window_bytes,
    )


def _kv_shape(a: WhisperArchitecture) -> KvShape:
    return KvShape(a.decoder_layers, a.decoder_heads, a.d_model // a.decoder_heads)


def _loaded_bytes(a: WhisperArchitecture, opening: Opening) -> int:
    """Bytes of weights once loaded. A rounded head stands beside its own rows, whose largest are exact."""
    num = num_bytes(expected_tensors(a), opening.dtype, opening.quantization)
    if opening.quantization == "none":
        return num
    head = a.vocab_size * a.d_model * opening.dtype.itemsize
    return num + (num_packed_bytes(a.vocab_size, a.d_model, HEAD_GRID) if a.tied else head)


def step_bytes(a: WhisperArchitecture, dtype: torch.dtype, quantization: Quantization) -> int:
    """Bytes a decode step reads."""
    shapes = {
        name: shape
        for name, shape in expected_tensors(a).items()
        if name.startswith("decoder.") and "embed_positions" not in name
    }
    shapes["proj_out.weight"] = shapes.pop("decoder.embed_tokens.weight")
    return num_bytes(shapes, dtype, quantization)


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
    for layer, head in heads:
        if not (0 <= layer < architecture.decoder_layers and 0 <= head < architecture.decoder_heads):
            raise ModelLoadError(f"{folder}: alignment_heads names layer {layer}, head {head}; there is none")
    return tuple((int(layer), int(head)) for layer, head in heads)


def expected_tensors(a: WhisperArchitecture) -> dict[str, Shape]:
    """Name (without `model.`) and shape of every tensor a checkpoint must hold."""
    d = a.d_model
    shapes: dict[str, Shape] = {
        "encoder.conv1.weight": (d, a.num_mel_bins, 3),
        "encoder.conv1.bias": (d,),
        "encoder.conv2.weight": (d, d, 3),
        "encoder.conv2.bias": (d,),
        "encoder.embed_positions.weight": (a.num_positions, d),
        "decoder.embed_tokens.weight": (a.vocab_size, d),
        "decoder.embed_positions.weight": (a.max_target_positions, d),
    }
    for side, layers, ffn in (
        ("encoder", a.encoder_layers, a.encoder_ffn),
        ("decoder", a.decoder_layers, a.decoder_ffn),
    ):
        shapes |= _norm(f"{side}.layer_norm", d)
        for layer in range(layers):
            prefix = f"{side}.layers.{layer}"
            attentions = ("self_attn",) if side == "encoder" else ("self_attn", "encoder_attn")
            for attention in attentions:
                shapes |= _norm(f"{prefix}.{attention}_layer_norm", d)
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes[f"{prefix}.{attention}.{part}.weight"] = (d, d)
                    if part != "k_proj":  # Whisper's keys have no bias
                        shapes[f"{prefix}.{attention}.{part}.bias"] = (d,)
            shapes |= _norm(f"{prefix}.final_layer_norm", d)
            shapes[f"{prefix}.fc1.weight"], shapes[f"{prefix}.fc1.bias"] = (ffn, d), (ffn,)
            shapes[f"{prefix}.fc2.weight"], shapes[f"{prefix}.fc2.bias"] = (d, ffn), (d,)
    if not a.tied:
        shapes["proj_out.weight"] = (a.vocab_size, d)
    return shapes


def _norm(name: str, size: int) -> dict[str, Shape]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}
