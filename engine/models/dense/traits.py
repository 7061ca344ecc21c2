"""What the decoders of one architecture differ in from those of another, where their configs do not say it.

A new architecture of this shape is a line here and one in `engine/models/families.py`. Read `config.py` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..families import entry_of


class Traits(NamedTuple):
    """Which parts a decoder has, and which fields of its config count."""

    has_head_norms: bool = False
    """Queries and keys are normed, each head by itself."""
    biases: Literal["config", "qkv", "none"] = "none"
    """Of attention's projections: all or none, as `attention_bias` says; of all but the last; of none."""
    may_have_mlp_bias: bool = False
    """As `mlp_bias` says."""
    may_skip_rotary: bool = False
    """Layers that `no_rope_layers` has a 0 for do not know positions."""
    windows: Literal["none", "all", "layers"] = "none"
    """Which layers see no further back than `sliding_window`: `layer_types` names them."""


QWEN3: Final = Traits(has_head_norms=True, biases="config", windows="layers")

_TRAITS: Final[dict[str, Traits]] = {
    "LlamaForCausalLM": Traits(biases="config", may_have_mlp_bias=True),
    "MinistralForCausalLM": Traits(windows="layers"),
    "MistralForCausalLM": Traits(windows="all"),
    "Qwen2ForCausalLM": Traits(biases="qkv", windows="layers"),
    "Qwen3ForCausalLM": QWEN3,
    "SmolLM3ForCausalLM": Traits(
        biases="config", may_have_mlp_bias=True, windows="layers", may_skip_rotary=True
    ),
}


def architecture_traits(config: Mapping[str, Any]) -> tuple[type[PreTrainedConfig], Traits]:
    """Of a config that the registry gave to this family."""
    entry = entry_of(config)
    assert entry is not None, "the registry knows it"
    # Each config is imported when asked for: Llama's brings torch's compiler along, which takes seconds.
    return CONFIG_MAPPING[entry.model_type], _TRAITS[entry.architecture]
