"""Models that keep latents (MLA) answer as `generate` does, and keep exactly the numbers of a latent."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from sensorium.engine.models.registry import open_model
from support.exactness import check_every_way, reference_case
from support.latent_families import CASES, RANK, SHARED, VOCAB_SIZE, latent_config
from support.text_folder import make_text_folder
from transformers import AutoModelForCausalLM


@pytest.mark.parametrize("case", CASES)
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(tmp_path: Path, case: str) -> None:
    torch.set_num_threads(1)
    seed = list(CASES).index(case)
    folder = make_text_folder(tmp_path, latent_config(case), seed=seed)
    source = open_model(folder, device="cpu", dtype="float32")
    assert source.info.family == "transformers"
    model = source.load()
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rng = random.Random(seed)
    prompts = [[rng.randrange(VOCAB_SIZE) for _ in range(length)] for length in (rng.randint(3, 30), 45)]
    cases = [reference_case(reference, prompt) for prompt in prompts]
    check_every_way(model, cases, seed=seed)


@pytest.mark.parametrize("case", ["deepseek_v3", "longcat_flash"])
def test_a_token_takes_the_numbers_of_a_latent_in_each_layer(tmp_path: Path, case: str) -> None:
    source = open_model(make_text_folder(tmp_path, latent_config(case)), device="cpu", dtype="bfloat16")
    num_blocks, block_size = 7, 16
    num_layers = latent_config(case).num_hidden_layers
    cache = torch.zeros(source.kv_shape.cache_shape(num_blocks, block_size, source.dtype), dtype=source.dtype)
    assert cache.nbytes == num_layers * num_blocks * block_size * (RANK + SHARED) * 2
    assert source.layout.token_bytes == num_layers * (RANK + SHARED) * 2
    assert len(source.layout.groups) == 1
