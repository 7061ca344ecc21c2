"""Small shapes of the families of `transformers` whose layers compress keys and values to latents (MLA)."""

from __future__ import annotations

from typing import Any, Final

from support.text_folder import byte_level_tokenizer
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCAB_SIZE: Final = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)
RANK, SHARED = 16, 8
"""Numbers of a latent, and of the part of a key that all heads share."""
_COMMON: Final[dict[str, Any]] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "pad_token_id": None,
    "tie_word_embeddings": False,
    "kv_lora_rank": RANK,
    "q_lora_rank": 12,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": SHARED,
    "v_head_dim": 10,
}
_EXPERTS: Final = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 12,
    "routed_scaling_factor": 1.7,
}
_GROUPS: Final = {"n_group": 4, "topk_group": 2}
_CHOICE: Final = {"index_topk": 16, "index_n_heads": 24, "index_head_dim": 12}
"""Positions that a row attends to at most. Of few heads many scores would be 0, and of equal scores any may
be chosen."""
_YARN: Final = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "mscale": 1.0,
    "mscale_all_dim": 0.8,
}

CASES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "deepseek_v2": ("deepseek_v2", _EXPERTS | {"first_k_dense_replace": 1, "topk_method": "greedy"}),
    "deepseek_v2 of groups": (
        "deepseek_v2",
        _EXPERTS
        | _GROUPS
        | {"topk_method": "group_limited_greedy", "q_lora_rank": None, "rope_parameters": _YARN},
    ),
    "deepseek_v3": ("deepseek_v3", _EXPERTS | _GROUPS | {"first_k_dense_replace": 1, "norm_topk_prob": True}),
    "deepseek_v3, yarn": (
        "deepseek_v3",
        _EXPERTS
        | _GROUPS
        | {
            "first_k_dense_replace": 2,
            "norm_topk_prob": False,
            "q_lora_rank": None,
            "rope_interleave": False,
            "rope_parameters": _YARN,
        },
    ),
    "minicpm3": ("minicpm3", {"tie_word_embeddings": True}),
    "minicpm3 without a rank of queries": ("minicpm3", {"q_lora_rank": None}),
    "youtu": ("youtu", {}),
    "axk1": ("axk1", _EXPERTS | _GROUPS),
    "glm4_moe_lite": ("glm4_moe_lite", _EXPERTS | {"n_group": 1, "topk_group": 1}),
    "longcat_flash": (
        "longcat_flash",
        {
            "num_layers": 2,
            "ffn_hidden_size": 48,
            "n_routed_experts": 6,
            "zero_expert_num": 2,
            "moe_topk": 3,
            "expert_ffn_hidden_size": 12,
            "head_dim": SHARED,
        },
    ),
    "deepseek_v32": ("deepseek_v32", _EXPERTS | _GROUPS | _CHOICE | {"first_k_dense_replace": 1}),
    "glm_moe_dsa": (
        "glm_moe_dsa",
        _EXPERTS
        | _CHOICE
        | {
            "n_group": 1,
            "topk_group": 1,
            "indexer_types": ["full", "shared", "full"],
            "first_k_dense_replace": 1,
        },
    ),
    "axk2": ("axk2", _EXPERTS | _CHOICE),
    "hy_v4": (
        "hy_v4",
        _EXPERTS | _CHOICE | {"n_group": 1, "topk_group": 1, "learnable_sink_init": 0.5},
    ),
    "dots3_note_text": (
        "dots3_note_text",
        _EXPERTS
        | _CHOICE
        | {
            "n_group": 1,
            "topk_group": 1,
            "shared_experts_intermediate_size": 24,
            "per_layer_config": {  # of the layer with a window, whose heads are of 256 numbers
                "2": {
                    "num_attention_heads": 2,
                    "num_key_value_heads": 2,
                    "q_lora_rank": 12,
                    "kv_lora_rank": 24,
                    "qk_nope_head_dim": 192,
                    "v_head_dim": 6,
                    "qk_rope_head_dim": 64,
                }
            },
        },
    ),
}
"""By a name: the type of model, and what its config has besides."""


def latent_config(case: str) -> PreTrainedConfig:
    """The config of one."""
    model_type, changes = CASES[case]
    return CONFIG_MAPPING[model_type](**_COMMON | changes)
