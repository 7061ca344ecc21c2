"""What a Whisper checkpoint holds: its numbers, and its tensors by name.

Tensors keep their Hugging Face names without `model.` in front; `engine/models/whisper/source.py` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ....kernels.activation import Activation
from ....kernels.linear.weight_codes import Quantization
from ..base import KvShape
from ..weights import Shape, num_bytes


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

    @property
    def kv_shape(self) -> KvShape:
        """Of the decoder's self-attention."""
        return KvShape(self.decoder_layers, self.decoder_heads, self.d_model // self.decoder_heads)


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


def step_bytes(a: WhisperArchitecture, dtype: torch.dtype, quantization: Quantization) -> int:
    """Bytes a decode step reads."""
    shapes = {
        name: shape
        for name, shape in expected_tensors(a).items()
        if name.startswith("decoder.") and "embed_positions" not in name
    }
    shapes["proj_out.weight"] = shapes.pop("decoder.embed_tokens.weight")
    return num_bytes(shapes, dtype, quantization)
