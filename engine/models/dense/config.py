"""The numbers of a decoder, read from a config and checked; which tensors it must have.

Shared by the text, audio and vision models, whose language models are one and the same. How the decoders of
one architecture differ from another's is said in `traits.py`; the computation is `model.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ....kernels.linear.weight_codes import Quantization
from ....protocols.errors import ModelLoadError
from ..base import KvShape, attention_spec
from ..info import generation_config, token_ids
from ..weights import Shape, num_bytes
from .traits import QWEN3, Traits

_MAX_SIZE: Final = 2**24
"""No size in a config is larger; what is, would only run out of memory later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """What shapes the computation of a decoder."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    has_head_norms: bool
    """Of queries and keys."""
    has_qkv_bias: bool
    has_out_bias: bool
    has_mlp_bias: bool
    tied: bool
    """The output projection is the embedding."""
    windows: tuple[int | None, ...]
    """Per layer: positions a token sees, itself included; None: all."""
    has_rotary: tuple[bool, ...]
    """Per layer: whether queries and keys are turned by their positions."""
    inverse_frequencies: tuple[float, ...]
    """Of the rotary embedding, head_dim / 2 of them."""
    rotary_scaling: float
    """Factor of its sines and cosines."""
    max_context: int

    @property
    def kv_shape(self) -> KvShape:
        """What the cache holds of a position."""
        specs = tuple(attention_spec(window, self.max_context) for window in self.windows)
        return KvShape(self.num_layers, self.num_kv_heads, self.head_dim, specs)


def parse_config(
    raw: dict[str, Any], parse: Callable[[dict[str, Any]], PreTrainedConfig], path: Path
) -> PreTrainedConfig:
    """A `transformers` config object. Raises ModelLoadError naming the file and, mostly, the field."""
    try:
        return parse(raw)
    except Exception as error:  # transformers checks with the exceptions of several libraries
        reason = " ".join(str(error).split())
        raise ModelLoadError(f"{path}: {reason or type(error).__name__}") from error


def check_size(config: PreTrainedConfig, field: str, path: Path, *, minimum: int = 1) -> int:
    """One field that must be a positive whole number of sensible size."""
    value = getattr(config, field, None)
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= _MAX_SIZE:
        raise ModelLoadError(
            f"{path}: {field} is {value!r}, not a whole number from {minimum} to {_MAX_SIZE}"
        )
    return value


def decoder_config(
    config: PreTrainedConfig, path: Path, *, tied: bool, traits: Traits = QWEN3
) -> DecoderConfig:
    """Check a `transformers` config of an architecture with such traits. `path` is named in errors.

    `tied` is given because multimodal configs say it outside the text part.
    """
    heads, kv_heads = (check_size(config, f"num_{kind}_heads", path) for kind in ("attention", "key_value"))
    if heads % kv_heads:
        raise ModelLoadError(
            f"{path}: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    hidden_size = check_size(config, "hidden_size", path)
    if getattr(config, "head_dim", None) is None:
        config.head_dim = hidden_size // heads
    head_dim = check_size(config, "head_dim", path, minimum=2)
    if not 0.0 <= float(config.rms_norm_eps) < 1.0:
        raise ModelLoadError(f"{path}: rms_norm_eps is {config.rms_norm_eps}, not a small positive number")
    if config.hidden_act != "silu":
        raise ModelLoadError(f"{path}: hidden_act {config.hidden_act!r} is not silu")
    if not getattr(config, "is_causal", True):
        raise ModelLoadError(f"{path}: is_causal is false: it reads both ways, to embed texts, not to write")
    frequencies, scaling = rotary_frequencies(config, path)
    bias = traits.biases == "config" and bool(config.attention_bias)
    return DecoderConfig(
        vocab_size=check_size(config, "vocab_size", path),
        hidden_size=hidden_size,
        intermediate_size=check_size(config, "intermediate_size", path),
        num_layers=check_size(config, "num_hidden_layers", path),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        norm_eps=float(config.rms_norm_eps),
        has_head_norms=traits.has_head_norms,
        has_qkv_bias=bias or traits.biases == "qkv",
        has_out_bias=bias,
        has_mlp_bias=traits.may_have_mlp_bias and bool(config.mlp_bias),
        tied=tied,
        windows=_windows(config, path, traits),
        has_rotary=_has_rotary(config, path, traits),
        inverse_frequencies=tuple(frequencies.tolist()),
        rotary_scaling=scaling,
        max_context=max_context(config, path),
    )


def rotary_frequencies(config: PreTrainedConfig, path: Path) -> tuple[Tensor, float]:
    """Inverse frequencies float32 [head_dim / 2], and the factor of sines and cosines."""
    rope = config.rope_parameters or {}
    kind = rope.get("rope_type", "default")
    if kind != "default" and kind not in ROPE_INIT_FUNCTIONS:
        raise ModelLoadError(
            f"{path}: rope_type {kind!r} is not one of default, {', '.join(ROPE_INIT_FUNCTIONS)}"
        )
    try:
        if kind != "default":
            frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
        else:
            exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float) / config.head_dim
            frequencies, scaling = 1.0 / (float(rope["rope_theta"]) ** exponents), 1.0
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelLoadError(f"{path}: rope_parameters: {type(error).__name__}: {error}") from error
    if frequencies.shape != (config.head_dim // 2,) or not bool(torch.isfinite(frequencies).all()):
        raise ModelLoadError(f"{path}: rope_parameters: no finite frequency for each half of head_dim")
    return frequencies, float(scaling)


def max_context(config: PreTrainedConfig, path: Path) -> int:
    """Positions the model can tell apart: `max_position_embeddings`, or what YaRN stretches it to.

    LongRoPE's frequencies change beyond its original length, by the longest neighbour in a batch: it ends
    there.
    """
    positions = check_size(config, "max_position_embeddings", path)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "yarn":
        original = rope.get("original_max_position_embeddings") or positions
        return max(positions, int(original * rope["factor"]))
    for each in (rope, *rope.values()):  # some configs have one for each kind of layer
        if isinstance(each, dict) and each.get("rope_type") == "longrope":
            original = each.get("original_max_position_embeddings")
            positions = min(positions, int(original or config.original_max_position_embeddings))
    return positions


def _windows(config: PreTrainedConfig, path: Path, traits: Traits) -> tuple[int | None, ...]:
    if traits.windows != "layers":
        has_window = traits.windows == "all" and config.sliding_window is not None
        window = check_size(config, "sliding_window", path) if has_window else None
        return (window,) * int(config.num_hidden_layers)
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    if len(types) != config.num_hidden_layers:
        raise ModelLoadError(
            f"{path}: layer_types has {len(types)} entries for num_hidden_layers {config.num_hidden_layers}"
        )
    unknown = sorted(set(types) - {"full_attention", "sliding_attention"})
    if unknown:
        raise ModelLoadError(f"{path}: layer_types {', '.join(unknown)} is not supported")
    if "sliding_attention" not in types:
        return (None,) * len(types)
    window = check_size(config, "sliding_window", path)
    return tuple(window if kind == "sliding_attention" else None for kind in types)


def _has_rotary(config: PreTrainedConfig, path: Path, traits: Traits) -> tuple[bool, ...]:
    num = int(config.num_hidden_layers)
    if not traits.may_skip_rotary:
        return (True,) * num
    flags = config.no_rope_layers
    if not isinstance(flags, list) or len(flags) != num:
        raise ModelLoadError(f"{path}: no_rope_layers is not a list of num_hidden_layers {num}")
    return tuple(map(bool, flags))


def stop_token_ids(folder: Path, of_config: object, of_tokenizer: Sequence[int]) -> tuple[int, ...]:
    """`eos_token_id` of the generation config, or else `of_config`; and what the tokenizer calls its end.

    Fine-tunes often have the first from their base model, which never says it. vLLM takes both, too.
    """
    found = token_ids(generation_config(folder), "eos_token_id", folder)
    if not found and isinstance(of_config, int | list | tuple):
        found = (of_config,) if isinstance(of_config, int) else tuple(of_config)
    return tuple(dict.fromkeys((*found, *of_tokenizer)))


def decoder_tensors(c: DecoderConfig) -> dict[str, Shape]:
    """Name (without `model.`) and shape of every tensor a decoder must have."""
    hidden, queries, keys = c.hidden_size, c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    shapes: dict[str, Shape] = {"embed_tokens.weight": (c.vocab_size, hidden), "norm.weight": (hidden,)}
    for layer in range(c.num_layers):
        prefix = f"layers.{layer}"
        for part, rows in (("q", queries), ("k", keys), ("v", keys)):
            shapes[f"{prefix}.self_attn.{part}_proj.weight"] = (rows, hidden)
            if c.has_qkv_bias:
                shapes[f"{prefix}.self_attn.{part}_proj.bias"] = (rows,)
        shapes[f"{prefix}.self_attn.o_proj.weight"] = (hidden, queries)
        if c.has_out_bias:
            shapes[f"{prefix}.self_attn.o_proj.bias"] = (hidden,)
        for part in ("q", "k") if c.has_head_norms else ():
            shapes[f"{prefix}.self_attn.{part}_norm.weight"] = (c.head_dim,)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}.{norm}.weight"] = (hidden,)
        middle = c.intermediate_size
        for part, rows, columns in (
            ("gate", middle, hidden),
            ("up", middle, hidden),
            ("down", hidden, middle),
        ):
            shapes[f"{prefix}.mlp.{part}_proj.weight"] = (rows, columns)
            if c.has_mlp_bias:
                shapes[f"{prefix}.mlp.{part}_proj.bias"] = (rows,)
    if not c.tied:
        shapes["lm_head.weight"] = (c.vocab_size, hidden)
    return shapes


def step_bytes(c: DecoderConfig, dtype: torch.dtype, quantization: Quantization) -> int:
    """Bytes a step reads whole: not an embedding that is only looked up."""
    tensors = decoder_tensors(c)
    tensors["lm_head.weight"] = tensors.pop("embed_tokens.weight")
    return num_bytes(tensors, dtype, quantization)
