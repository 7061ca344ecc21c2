"""Architectures of Llama's shape answer as `transformers` does in float32, whatever their configs choose."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.dense.model import DenseModel
from sensorium.engine.models.registry import open_model
from sensorium.protocols.errors import ModelLoadError
from support.exactness import check_every_way, reference_case
from support.text_folder import byte_level_tokenizer, make_text_folder
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCAB_SIZE = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.5] * 8,  # of heads of 64 / 4
    "long_factor": [3.0] * 8,
    "original_max_position_embeddings": 256,
}
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama", {"rope_parameters": _LLAMA3, "tie_word_embeddings": True}),
    ("llama", {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}),
    ("llama", {"num_key_value_heads": 4, "head_dim": None, "hidden_size": 64, "rope_parameters": _LONGROPE}),
    ("llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 36, "head_dim": 32}),
    ("mistral", {"sliding_window": 7, "head_dim": 16}),
    ("mistral", {"sliding_window": None, "tie_word_embeddings": True}),
    ("qwen2", {"tie_word_embeddings": True}),
    (
        "ministral",
        {"sliding_window": 9, "head_dim": 16, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    ("smollm3", {"no_rope_layers": [1, 0, 1], "num_hidden_layers": 3, "pad_token_id": 0}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
)


def config_of(model_type: str, **changes: Any) -> PreTrainedConfig:  # noqa: ANN401 (fields of a config)
    sizes: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }
    return CONFIG_MAPPING[model_type](**sizes | changes)


def edit(folder: Path, **changes: Any) -> None:  # noqa: ANN401 (fields of a config)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("seed", range(len(KINDS)))
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(tmp_path: Path, seed: int) -> None:
    torch.set_num_threads(1)
    (model_type, changes), rng = KINDS[seed], random.Random(seed)
    folder = make_text_folder(tmp_path, config_of(model_type, **changes), seed=seed)
    model = open_model(folder, device="cpu", dtype="float32").load()
    assert isinstance(model, DenseModel)
    assert model.info.family == model_type
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (rng.randint(3, 30), 45)]
    check_every_way(model, [reference_case(reference, prompt) for prompt in prompts], seed=seed)


def test_longrope_ends_where_its_frequencies_would_change(tmp_path: Path) -> None:
    folder = make_text_folder(tmp_path, config_of("llama", hidden_size=64, rope_parameters=_LONGROPE))
    assert open_model(folder, device="cpu").info.max_context == 256


def test_fields_that_an_architecture_does_not_know_do_not_count(tmp_path: Path) -> None:
    """As in `transformers`: Mistral has no biases and Llama no window, whatever a config says."""
    for model_type, changes in (
        ("mistral", {"attention_bias": True, "mlp_bias": True}),
        ("llama", {"sliding_window": 4, "layer_types": ["sliding_attention"] * 2}),
    ):
        folder = make_text_folder(tmp_path / model_type, config_of(model_type))
        before = open_model(folder, device="cpu", dtype="float32").load()
        edit(folder, **changes)
        after = open_model(folder, device="cpu", dtype="float32").load()
        assert isinstance(before, DenseModel)
        assert isinstance(after, DenseModel)
        assert after._decoder.config == before._decoder.config


def test_frequencies_that_early_checkpoints_store_are_computed(tmp_path: Path) -> None:
    folder = make_text_folder(tmp_path, config_of("llama"))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert open_model(folder, device="cpu", dtype="float32").load()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not silu"),
        ({"is_causal": False}, "is_causal is false"),
        ({"sliding_window": -3}, "sliding_window is -3, not a whole number from 1"),
        ({"num_attention_heads": 5}, "num_attention_heads 5 is not a multiple of num_key_value_heads 2"),
    ],
)
def test_what_it_cannot_be_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    folder = make_text_folder(tmp_path, config_of("mistral"))
    edit(folder, **changes)
    with pytest.raises(ModelLoadError) as caught:
        open_model(folder, device="cpu")
    assert named in str(caught.value)
