"""A small shape of each causal language model type of `transformers`, made of its default config.

One of each kind of layer is kept, twice where there is room; every size is made small by the name of its
field. What a type needs besides is in a table. `examples/model_table.py` runs them all, tests some.
"""

from __future__ import annotations

from typing import Any, Final

from support.text_folder import byte_level_tokenizer
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES,
)

VOCAB_SIZE: Final = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)

_ENCODER_DECODERS: Final = (
    "bart bigbird_pegasus blenderbot blenderbot-small marian mbart mvp pegasus plbart prophetnet trocr "
    "whisper"
)
_ENCODERS: Final = (
    "bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta "
    "roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xlnet xmod"
)
NOT_TEXT_DECODERS: Final[dict[str, str]] = {
    **dict.fromkeys(_ENCODER_DECODERS.split(), "the decoder of an encoder-decoder"),
    **dict.fromkeys(_ENCODERS.split(), "an encoder: it attends both ways"),
    **dict.fromkeys(("musicgen", "musicgen_melody", "moshi"), "writes sound"),
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant"), "drafts for another model"),
    **{
        name: "takes pictures or sound, too"
        for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        if name in MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES
    },
}
"""Types that `transformers` lists as causal language models, and why they are no text decoders."""

_HEADS, _HEAD_DIM, _HIDDEN = 4, 16, 64
_HEADS_NAME: Final = "num_attention_heads"
_SIZES: Final[dict[str, Any]] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": _HIDDEN,
    "intermediate_size": 96,
    "num_attention_heads": _HEADS,
    "head_dim": _HEAD_DIM,
    "max_position_embeddings": 512,
    # Names of a few types.
    "embedding_size": _HIDDEN,
    "ffn_dim": 96,
    "ffn_hidden_size": 96,
    "word_embed_proj_dim": _HIDDEN,
    "dim_head": _HEAD_DIM,
    "kv_channels": _HEAD_DIM,
    "dim_ff": 96,
    "dff": 96,
    "rotary_dim": 8,
    "max_seq_len": 512,
    "dense_intermediate_size": 96,
    "intermediate_size_mlp": 96,
    "shared_intermediate_size": 32,
    # Windows and chunks.
    "sliding_window": 9,
    "sliding_window_size": 9,
    "window_size": 9,
    "local_attention": 18,
    "attention_chunk_size": 20,
    "attention_window_size": 9,
    # Experts.
    "moe_intermediate_size": 32,
    "expert_ffn_hidden_size": 32,
    "shared_expert_intermediate_size": 32,
    "shared_experts_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_k": 2,
    "moe_topk": 2,
    "zero_expert_num": 2,
    "n_group": 1,
    "num_expert_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    # Latent attention.
    "q_lora_rank": 24,
    "o_lora_rank": 24,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "qk_head_dim": 24,
    "v_head_dim": 16,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 512,
    # States.
    "state_size": 8,
    "ssm_state_size": 8,
    "mamba_d_state": 8,
    "time_step_rank": 4,
    "mamba_dt_rank": 4,
    "mamba_n_heads": 8,
    "mamba_num_heads": 8,
    "mamba_d_head": 16,
    "mamba_head_dim": 16,
    "mamba_headdim": 16,
    "mamba_d_ssm": 128,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_num_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_head_dim": 16,
    "lru_width": _HIDDEN,
    # Embeddings in each layer.
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "hidden_size_per_layer_input": 16,
    "global_head_dim": 32,
    "laurel_rank": 8,
    "swa_head_dim": _HEAD_DIM,
    "swa_num_attention_heads": _HEADS,
    "swa_num_key_value_heads": 2,
}
"""By the field's name, where the default config has a number there."""

_EVEN_IF_NONE: Final = ("head_dim", "num_experts_per_tok", "n_routed_experts")
_MAMBA: Final = {"num_hidden_layers": 2, "state_size": 8}
_OVERRIDES: Final[dict[str, dict[str, Any]]] = {
    "blt": {
        name: {
            "hidden_size": _HIDDEN,
            "hidden_size_global": _HIDDEN,
            "num_hidden_layers": 1,
            "num_attention_heads": _HEADS,
            "intermediate_size": 96,
            "vocab_size": VOCAB_SIZE,
        }
        for name in ("patcher_config", "encoder_config", "decoder_config", "global_config")
    }
    | {"encoder_hash_byte_group_vocab": 64},
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10_000.0}}
    },
    "dbrx": {
        "attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 2, "clip_qkv": 8},
        "ffn_config": {"hidden_size": _HIDDEN, "ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dots1": {"n_shared_experts": 1},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2,
        "intermediate_size": [96] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "granitemoehybrid": {
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    },
    "hrm_text": {"num_hidden_layers": 1, "L_cycles": 2},
    "jamba": {"attn_layer_period": 3, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "mamba2": _MAMBA | {"num_heads": 8, "head_dim": 16, "n_groups": 2},
    "mimo_v2_flash": {"v_head_dim": 8, "swa_v_head_dim": 8},
    "nemotron_h": {
        "layer_types": ["linear_attention", "full_attention", "mlp", "linear_attention"],
        "num_key_value_heads": 2,
        "mamba_num_heads": 8,
        "mamba_head_dim": 8,
        "n_groups": 2,
        "ssm_state_size": 8,
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 512,
        "indexer_compress_ratio": 4,
    },
    "reformer": {"is_decoder": True, "axial_pos_embds_dim": [16, 48]},
    "rwkv": {"rescale_every": 1, "attention_hidden_size": _HIDDEN},
    "zaya": {"num_experts_per_tok": 1},
}
"""What a type needs besides."""


def tiny_config(model_type: str) -> PreTrainedConfig:
    """The small shape of a type."""
    kind = CONFIG_MAPPING[model_type]
    default = kind()
    known, names = default.to_dict(), default.attribute_map
    fields: dict[str, Any] = {}
    for name, size in _SIZES.items():
        field = names.get(name, name)
        if isinstance(known.get(field), int | float) or (field in _EVEN_IF_NONE and field in known):
            fields[field] = size
    depth_name = names.get("num_hidden_layers", "num_hidden_layers")
    depth_name = depth_name if depth_name in known else "num_layers"
    if depth_name not in known:  # several decoders in one, or the list of layers says it
        return kind(**fields | _OVERRIDES[model_type])
    depth = known[depth_name]
    lists = {
        name: value
        for name, value in known.items()
        if isinstance(value, list) and len(value) == depth and not name.startswith("_")
    }
    chosen = _each_kind(lists, depth)
    fields[depth_name] = len(chosen)
    fields |= {name: [value[layer] for layer in chosen] for name, value in lists.items()}
    if "qk_rope_head_dim" in known and known.get("head_dim") == known["qk_rope_head_dim"]:
        fields["head_dim"] = fields["qk_rope_head_dim"]
    if "num_key_value_heads" in known:
        are_equal = known["num_key_value_heads"] == known.get(names.get(_HEADS_NAME, _HEADS_NAME))
        fields["num_key_value_heads"] = _HEADS if are_equal else 2
    fields |= {name: 0 for name in ("pad_token_id", "bos_token_id", "eos_token_id") if known.get(name)}
    return kind(**fields | _OVERRIDES.get(model_type, {}))


def _each_kind(lists: dict[str, list[Any]], depth: int) -> list[int]:
    """Layers that differ in what the config lists of each, in their order, and as many again of which there
    are; four where the config lists nothing."""
    if not lists:
        return list(range(min(depth, 3)))
    kinds: dict[str, list[int]] = {}
    for layer in range(depth):
        kinds.setdefault(repr([each[layer] for each in lists.values()]), []).append(layer)
    few = 1 if len(kinds) > 3 else 2
    return sorted(layer for layers in kinds.values() for layer in layers[:few])
