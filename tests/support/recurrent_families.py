"""Small shapes of the families of `transformers` whose layers keep states, alone or beside attention."""

from __future__ import annotations

from typing import Any, Final

from support.text_folder import byte_level_tokenizer
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCAB_SIZE: Final = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)
_COMMON: Final[dict[str, Any]] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "tie_word_embeddings": False,
}
_MAMBA: Final = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "state_size": 8,
    "conv_kernel": 4,
    "tie_word_embeddings": False,
}
_MAMBA_2: Final = {
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_expand": 2,
}
_DELTA: Final = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
_EXPERTS: Final = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
_CONVOLUTIONS: Final = {"conv_L_cache": 3, "layer_types": ["conv", "full_attention", "conv"]}

FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "lfm2": _COMMON | _CONVOLUTIONS,
    "lfm2_moe": _COMMON | _CONVOLUTIONS | _EXPERTS | {"num_dense_layers": 1},
    "mamba": _MAMBA,
    "falcon_mamba": _MAMBA,
    "jamba": _COMMON
    | _EXPERTS
    | {"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4},
    "mamba2": _MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 2},
    "bamba": _COMMON | _MAMBA_2 | {"attn_layer_indices": [1]},
    "granitemoehybrid": _COMMON
    | _MAMBA_2
    | {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_local_experts": 4},
    "nemotron_h": _COMMON
    | {
        "layer_types": ["linear_attention", "full_attention", "mlp", "linear_attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "n_groups": 2,
        "ssm_state_size": 8,
    },
    "falcon_h1": _COMMON
    | _MAMBA_2
    | {"mamba_d_ssm": 64, "ssm_in_multiplier": 0.5, "ssm_multipliers": [0.5, 1.5, 0.7, 1.2, 0.9]},
    "qwen3_next": _COMMON | _DELTA | _EXPERTS,
    "qwen3_5_text": _COMMON | _DELTA,
    "qwen3_5_moe_text": _COMMON | _DELTA | _EXPERTS,
    "olmo_hybrid": _COMMON | _DELTA,
}
"""By model type."""


def recurrent_config(model_type: str, **changes: Any) -> PreTrainedConfig:  # noqa: ANN401 (fields of a config)
    """A small config of one of `FAMILIES`."""
    return CONFIG_MAPPING[model_type](**FAMILIES[model_type] | changes)
