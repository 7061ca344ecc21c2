"""Any other language model of `transformers` answers as `generate` does in float32, or is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.source import ModelSource
from sensorium.engine.models.transformers import attention
from sensorium.engine.models.transformers import source as transformers_source
from sensorium.engine.models.transformers.caches import SeenLayer
from sensorium.protocols.engine.messages import Features
from sensorium.protocols.errors import ModelLoadError
from support.exactness import check_every_way, reference_case
from support.planned_bytes import held_bytes
from support.text_folder import byte_level_tokenizer, make_text_folder
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

_VOCAB_SIZE = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)
_COMMON: dict[str, Any] = {
    "vocab_size": _VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}
_PER_LAYER: dict[str, Any] = {
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 9,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": _VOCAB_SIZE,
}
"""Of those that add an embedding in each layer."""
_ARCHITECTURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("granite", {"attention_bias": True, "tie_word_embeddings": True, "embedding_multiplier": 3.0}),
    ("gemma", {"head_dim": 16}),
    ("gemma2", {"sliding_window": 6, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0}),
    (
        "gemma3_text",
        {
            "sliding_window": 9,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
        },
    ),
    (
        "gpt_oss",
        {
            "sliding_window": 8,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    ("gemma4_text", _PER_LAYER | {"num_kv_shared_layers": 0, "global_head_dim": 16}),
    ("gemma4_text", _PER_LAYER | {"num_kv_shared_layers": 2, "global_head_dim": 16}),
    (
        "gemma3n_text",
        _PER_LAYER
        | {
            "num_kv_shared_layers": 2,
            "laurel_rank": 4,
            "intermediate_size": [48] * 4,
            "activation_sparsity_pattern": [0.0] * 4,
        },
    ),
    (
        "llama4_text",
        {
            "num_hidden_layers": 4,
            "layer_types": ["chunked_attention", "full_attention"] * 2,
            "no_rope_layers": [1, 0, 1, 0],
            "attention_chunk_size": 20,
            "num_local_experts": 2,
            "intermediate_size_mlp": 48,
            "interleave_moe_layer_step": 2,
        },
    ),
    ("starcoder2", {"sliding_window": 7}),
    ("phi", {"num_key_value_heads": 4}),
    ("phi3", {"pad_token_id": 0}),
    ("gpt_neox", {"num_key_value_heads": 4}),
    ("olmo2", {}),
    ("cohere", {"logit_scale": 0.25}),
    ("mixtral", {"num_local_experts": 4}),
    ("qwen3_moe", {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}),
    ("gpt2", {"n_positions": 512}),
)


def config_of(model_type: str, **changes: Any) -> PreTrainedConfig:  # noqa: ANN401 (fields of a config)
    return CONFIG_MAPPING[model_type](**_COMMON | changes)


def make(folder: Path, model_type: str, seed: int = 0, **changes: Any) -> Path:  # noqa: ANN401
    return make_text_folder(folder, config_of(model_type, **changes), seed=seed)


def opened(folder: Path) -> ModelSource:
    torch.set_num_threads(1)
    return open_model(folder, device="cpu", dtype="float32")


def refusal(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        opened(folder).load()
    return str(caught.value)


@pytest.mark.parametrize("seed", range(len(_ARCHITECTURES)))
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(tmp_path: Path, seed: int) -> None:
    model_type, changes = _ARCHITECTURES[seed]
    rng = random.Random(seed)
    folder = make(tmp_path, model_type, seed, **changes)
    source = opened(folder)
    assert source.info.family == "transformers"
    model = source.load()
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = [[rng.randrange(_VOCAB_SIZE) for _ in range(length)] for length in (rng.randint(3, 30), 45)]
    cases = [reference_case(reference, prompt) for prompt in prompts]
    check_every_way(model, cases, seed=seed)


def test_bfloat16_passes_its_own_check(tmp_path: Path) -> None:
    model = open_model(make(tmp_path, "olmo2"), device="cpu", dtype="bfloat16").load()
    assert model.dtype is torch.bfloat16


def test_reading_writes_no_bars_between_the_lines_of_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = opened(make(tmp_path, "olmo2"))
    logging.enable_progress_bar()
    try:
        source.load()
        assert logging.is_progress_bar_enabled(), "who shows them goes on doing so"
    finally:
        logging.disable_progress_bar()
    assert capsys.readouterr().err == ""


def test_what_is_known_before_the_weights_are_read(tmp_path: Path) -> None:
    folder = make(tmp_path, "gemma", head_dim=16)
    source = opened(folder)
    shape = source.kv_shape
    assert (shape.num_layers, shape.num_kv_heads, shape.head_dim) == (2, 2, 16)
    tensors = load_file(folder / "model.safetensors")
    products = [each for name, each in tensors.items() if "proj" in name]
    filled_up = sum(-each.shape[0] % 64 * each.shape[1] * 4 for each in products)
    assert source.weight_bytes == sum(t.nbytes for t in tensors.values()) + filled_up
    assert source.weight_bytes == held_bytes(source.load())
    assert (source.info.vocab_size, source.info.max_context) == (_VOCAB_SIZE, 512)
    assert len(source.info.stop_token_ids) == 2


def test_a_model_whose_own_code_fails_is_refused(tmp_path: Path) -> None:
    """Some need a padding token, which only shows when they run."""
    message = refusal(make(tmp_path, "camembert", is_decoder=True))
    assert f"{tmp_path}: this model cannot be run through transformers' attention interface: TypeE" in message
    assert "\n" not in message


def test_a_size_that_overflows_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = make(tmp_path, "granite")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 10**30}))
    assert "\n" not in refusal(folder)


def test_a_model_that_differs_when_packed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check at the start is a real one: an attention that loses the cache is found out."""

    def forgetful(query: torch.Tensor, *args: object, **options: object) -> torch.Tensor:
        return torch.zeros_like(query)

    monkeypatch.setattr(attention, "paged_attention", forgetful)
    message = refusal(make(tmp_path, "granite"))
    assert "logits differ by" in message
    assert "when sequences share a step" in message


def test_layers_of_windows_have_tables_of_their_own(tmp_path: Path) -> None:
    """A window that is as long as the context is none."""
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    folder = make(tmp_path, "gemma3_text", num_hidden_layers=3, layer_types=kinds, sliding_window=9)
    layout = opened(folder).layout
    assert [(group.spec.reach, group.layers) for group in layout.groups] == [
        (None, (2,)),
        (8, (0,)),
        (8, (1,)),
    ]
    assert layout.token_bytes == 2 * 2 * 8 * 4
    folder = make(tmp_path / "all", "gemma3_text", num_hidden_layers=3, layer_types=kinds, sliding_window=512)
    assert [group.layers for group in opened(folder).layout.groups] == [(0, 1, 2)]


def test_layers_share_a_cache_and_differ_in_heads(tmp_path: Path) -> None:
    """A block is one layer with twice as wide heads, or two layers."""
    sliding, full = "sliding_attention", "full_attention"
    changes = _PER_LAYER | {
        "num_hidden_layers": 5,
        "layer_types": [sliding, sliding, full, sliding, full],
        "num_kv_shared_layers": 1,
        "global_head_dim": 16,
    }
    source = opened(make(tmp_path, "gemma4_text", **changes))
    layout = source.layout
    assert [group.layers for group in layout.groups] == [(2,), (0, 1), (3,)]
    assert layout.token_bytes == 2 * 2 * 16 * 4
    assert layout.places == ((1, 0), (1, 1), (0, 0), (2, 0), (0, 0)), "the last layer reads the third's"


def test_a_window_made_by_masks_alone_limits_the_context() -> None:
    """Masks are not made for us: up to the window's size they make no difference."""
    config = config_of("mistral", sliding_window=7)
    nothing = torch.empty(1, 1, 1, 8)
    passed = attention.AttentionStep(seen={layer: SeenLayer(nothing, nothing, 7) for layer in range(2)})
    assert list(transformers_source._limits(config, passed, sees_whole_prompts=False)) == []
    passed.seen[1] = SeenLayer(nothing, nothing, None)
    assert list(transformers_source._limits(config, passed, sees_whole_prompts=False)) == [7]


def test_frequencies_that_depend_on_the_neighbours_limit_the_context(tmp_path: Path) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 256,
    }
    folder = make(
        tmp_path, "phi3", pad_token_id=0, rope_parameters=rope, original_max_position_embeddings=256
    )
    assert opened(folder).info.max_context == 256
    per_layer = {"full_attention": rope, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    other = make(tmp_path / "other", "gemma3_text", rope_parameters=per_layer)
    assert opened(other).info.max_context == 256


def test_tensors_are_accounted_for(tmp_path: Path) -> None:
    folder = make(tmp_path, "granite")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.7.mlp.up_proj.weight"] = torch.zeros(2)
    tensors["model.norm.weight"] = torch.zeros(31)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    message = refusal(folder)
    assert "1 missing: model.layers.1.mlp.up_proj.weight" in message
    assert "1 unexpected: model.layers.7.mlp.up_proj.weight" in message
    assert "1 misshapen: model.norm.weight is [31], expected [32]" in message


def test_a_checkpoints_own_code_is_never_run(tmp_path: Path) -> None:
    folder = make(tmp_path, "granite")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.EvilConfig"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('this must never run')")
    assert opened(folder).load().info.family == "transformers"


def test_it_takes_text_only(tmp_path: Path) -> None:
    model = opened(make(tmp_path, "granite")).load()
    with pytest.raises(ValueError, match="takes text only"):
        model.check_features(Features((1, 1), bytes(4)))
