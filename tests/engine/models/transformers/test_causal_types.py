"""Types of `transformers` that need something of their own answer as `generate` does, or are refused in time.

`examples/model_table.py` checks all types so.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from sensorium.engine.models.registry import open_model
from sensorium.protocols.errors import ModelLoadError
from support.causal_types import NOT_TEXT_DECODERS, VOCAB_SIZE, tiny_config
from support.exactness import check_every_way, reference_case
from support.text_folder import make_text_folder
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

_TYPES = (
    # Attention that does not ask transformers' interface, or differs from it.
    "bloom",
    "falcon",
    "gpt_neo",
    "gptj",
    "mpt",
    "openai-gpt",
    "diffllama",
    "hrm_text",
    "mimo_v2_flash",
    # States.
    "lfm3",
    "minimax",
    "recurrent_gemma",
    "rwkv",
    "zamba",
    "zamba2",
    # Windows.
    "cohere2",
    "ministral3",
)


@pytest.mark.parametrize("model_type", _TYPES)
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(tmp_path: Path, model_type: str) -> None:
    torch.set_num_threads(1)
    folder = make_text_folder(tmp_path, tiny_config(model_type), seed=0)
    model = open_model(folder, device="cpu", dtype="float32").load()
    assert model.info.runs == "transformers"
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rng = random.Random(0)
    prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (21, 45)]
    check_every_way(model, [reference_case(reference, prompt) for prompt in prompts], seed=0)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [
        ("doge", "its attention has masks of its own"),
        ("inkling_text", "its attention adds a position_bias to scores"),
        ("zaya", "of its modules convolve neighbouring tokens"),
        ("cpmant", "it puts a prompt of its own in front"),
    ],
)
def test_what_cannot_be_run_is_refused_before_weights_are_read(
    tmp_path: Path, model_type: str, reason: str
) -> None:
    folder = make_text_folder(tmp_path, tiny_config(model_type), seed=0)
    with pytest.raises(ModelLoadError) as caught:
        open_model(folder, device="cpu", dtype="float32")
    message = str(caught.value)
    assert message.startswith(
        f"{tmp_path}: this model cannot be run through transformers' attention interface"
    )
    assert reason in message
    assert message.endswith("; docs/models.md lists those that can")


def test_an_encoder_is_no_decoder(tmp_path: Path) -> None:
    folder = make_text_folder(tmp_path, tiny_config("bert"), seed=0)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertLMHeadModel"]}))
    with pytest.raises(ModelLoadError, match="its attention looks both ways: it is an encoder"):
        open_model(folder, device="cpu", dtype="float32")


def test_positions_beyond_what_a_number_holds_are_exact_in_any_dtype(tmp_path: Path) -> None:
    """Biases by distance are numbers of keys, which bfloat16 has up to 256."""
    folder = make_text_folder(tmp_path, tiny_config("bloom"), seed=0)
    model = open_model(folder, device="cpu", dtype="bfloat16").load()
    assert model.kv_shape.head_dim == 24, "16 and what a position needs, in eights"


def test_blocks_that_are_chosen_limit_the_context(tmp_path: Path) -> None:
    """Up to so many tokens all are."""
    config = tiny_config("minimax_m3_vl_text")
    config.index_topk_blocks, config.index_block_size = 3, 16
    folder = make_text_folder(tmp_path, config, seed=0)
    assert open_model(folder, device="cpu", dtype="float32").info.max_context == 48


def test_every_type_is_a_text_decoder_or_has_a_reason() -> None:
    assert set(NOT_TEXT_DECODERS) <= set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    page = (Path(__file__).parents[4] / "docs" / "models.md").read_text()
    missing = [name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if f"| `{name}` |" not in page]
    assert not missing, "examples/model_table.py writes the page"
