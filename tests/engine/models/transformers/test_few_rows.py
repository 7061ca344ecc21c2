"""Steps of few rows of a mixture's decoder, in one call of C, answer as `generate` does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.transformers.model import TransformersModel
from sensorium.kernels.layers import Layers
from sensorium.kernels.linear.row_adapters import ALL_ROWS, AdaptedRows, RowChange, adapting
from sensorium.kernels.native import library
from sensorium.protocols.errors import ModelLoadError
from support.exactness import check_every_way, reference_case
from support.planned_bytes import held_bytes
from support.text_folder import byte_level_tokenizer, make_text_folder
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler")
_VOCAB_SIZE = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)
_COMMON: dict[str, Any] = {
    "vocab_size": _VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 48,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "num_experts_per_tok": 2,
}
_YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
_FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_oss": (
        "gpt_oss",
        {
            "num_local_experts": 4,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "swiglu_limit": 0.05,
            "rope_parameters": _YARN,
        },
    ),
    "mixtral": ("mixtral", {"num_local_experts": 4, "sliding_window": 9}),
    "qwen3_moe": ("qwen3_moe", {"num_experts": 6, "norm_topk_prob": True}),
    "qwen3_moe, shares below one": ("qwen3_moe", {"num_experts": 6, "norm_topk_prob": False}),
}


class Unchanging:
    """An adapter of no product."""

    def change_of(self, names: Sequence[str]) -> RowChange | None:
        return None


def make(folder: Path, model_type: str, **changes: Any) -> Path:  # noqa: ANN401 (fields of a config)
    return make_text_folder(folder, CONFIG_MAPPING[model_type](**_COMMON | changes))


def loaded(folder: Path, **options: Any) -> TransformersModel:  # noqa: ANN401
    torch.set_num_threads(1)
    source = open_model(folder, device="cpu", dtype="float32", **options)
    model = source.load()
    assert isinstance(model, TransformersModel)
    assert source.weight_bytes == held_bytes(model)
    return model


@pytest.mark.parametrize("name", _FAMILIES)
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_type, changes = _FAMILIES[name]
    rng = random.Random(name)
    folder = make(tmp_path, model_type, **changes)
    model = loaded(folder)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = [[rng.randrange(_VOCAB_SIZE) for _ in range(length)] for length in (rng.randint(3, 30), 45)]
    cases = [reference_case(reference, prompt) for prompt in prompts]
    rows: list[int] = []
    run = Layers.run

    def counted(self: Layers, x: torch.Tensor, *args: Any, **options: Any) -> None:  # noqa: ANN401
        rows.append(x.shape[0])
        run(self, x, *args, **options)

    monkeypatch.setattr(Layers, "run", counted)
    check_every_way(model, cases, seed=0)
    assert {1, 2} <= set(rows), "steps of few rows went through C"


def test_what_is_not_known_runs_by_the_modules(tmp_path: Path) -> None:
    assert loaded(make(tmp_path / "narrow", "qwen3_moe", num_experts=4, num_key_value_heads=1))._few is None
    assert loaded(make(tmp_path / "some", "qwen3_moe", num_experts=4, mlp_only_layers=[1]))._few is None, (
        "one of its layers has no experts"
    )
    folder = make(tmp_path / "int8", "qwen3_moe", num_experts=4)
    assert loaded(folder, quantization="int8")._few is None
    dense = make(tmp_path / "dense", "granite")
    assert loaded(dense)._few is None


def test_steps_with_adapters_run_by_the_modules(tmp_path: Path) -> None:
    model = loaded(make(tmp_path, "qwen3_moe", num_experts=4), adaptable=True)
    few = model._few
    assert few is not None
    shape = model.kv_shape.cache_shape(2, 16, torch.float32)
    cache = torch.zeros(shape)
    assert few.take(4, cache)
    with adapting([AdaptedRows(Unchanging(), ALL_ROWS)]):
        assert not few.take(4, cache)


def test_c_that_computes_another_thing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(tmp_path, "mixtral", num_local_experts=4)
    monkeypatch.setattr(Layers, "run", lambda self, x, *_, **__: x.zero_())
    with pytest.raises(ModelLoadError, match="logits differ"):
        loaded(folder)
