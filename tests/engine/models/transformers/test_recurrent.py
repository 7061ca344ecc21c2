"""Models with recurrent layers, alone or beside attention, answer as `generate` does on the whole prompt."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from sensorium.engine.models.registry import open_model
from support.exactness import check_every_way, reference_case
from support.recurrent_families import FAMILIES, VOCAB_SIZE, recurrent_config
from support.text_folder import make_text_folder
from transformers import AutoModelForCausalLM


@pytest.mark.parametrize("model_type", FAMILIES)
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(tmp_path: Path, model_type: str) -> None:
    torch.set_num_threads(1)
    seed = list(FAMILIES).index(model_type)
    folder = make_text_folder(tmp_path, recurrent_config(model_type), seed=seed)
    source = open_model(folder, device="cpu", dtype="float32")
    assert source.info.family == "transformers"
    assert source.layout.state_bytes
    model = source.load()
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rng = random.Random(seed)
    prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (rng.randint(3, 30), 45)]
    cases = [reference_case(reference, prompt) for prompt in prompts]
    check_every_way(model, cases, seed=seed)
