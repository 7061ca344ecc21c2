"""Qwen3's greedy answers equal `transformers` `generate` in float32, whatever the shape and however run."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sensorium.engine.models.base import MediaEmbedding, Model, StepBatch, WantedRows
from sensorium.engine.models.dense.config import decoder_config, decoder_tensors
from sensorium.engine.models.dense.model import Decoder, EmbeddedRows
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.weights import read_tensors
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch, with_tables
from sensorium.kernels.rms_norm import rms_norm
from sensorium.kernels.rotary import interleaved_axes
from sensorium.protocols.engine.messages import Features
from support.exactness import check_every_way, reference_case, run_model
from support.text_folder import QwenShape, make_qwen3_folder
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

NUM_CHECKPOINTS = 52
_ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": "default", "rope_theta": 10_000.0},
    {"rope_type": "default", "rope_theta": 1_000_000.0},
    {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0},
    {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0},
    {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128},
    {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
)


def random_shape(rng: random.Random) -> QwenShape:
    """Small, in all the ways a config can vary."""
    num_kv_heads = rng.choice((1, 2, 3))
    return QwenShape(
        hidden_size=rng.choice((24, 32, 48)),
        intermediate_size=rng.choice((32, 40, 72)),
        num_layers=rng.randint(1, 3),
        num_heads=num_kv_heads * rng.choice((1, 2, 4)),
        num_kv_heads=num_kv_heads,
        head_dim=rng.choice((8, 16, 24)),
        tied=rng.random() < 0.5,
        attention_bias=rng.random() < 0.3,
        window=rng.choice((None, None, 5, 20)),
        rope=rng.choice(_ROPES),
    )


def load(folder: Path) -> tuple[Model, Any]:
    """Ours, and the reference."""
    torch.set_num_threads(1)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return open_model(folder, device="cpu", dtype="float32").load(), reference


def random_prompts(rng: random.Random, vocab_size: int) -> list[list[int]]:
    """A short one, perhaps of a few tokens, and one of several blocks."""
    lengths = (rng.choice((3, 9, 20, 32)), rng.randint(40, 70))
    return [[rng.randrange(vocab_size) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize("seed", range(NUM_CHECKPOINTS))
@torch.inference_mode()
def test_greedy_equals_transformers_every_way(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    model, reference = load(make_qwen3_folder(tmp_path, seed=seed, shape=random_shape(rng)))
    stop = model.info.stop_token_ids if rng.random() < 0.3 else ()
    prompts = random_prompts(rng, model.info.vocab_size)
    cases = [reference_case(reference, prompt, stop_token_ids=stop) for prompt in prompts]
    check_every_way(model, cases, seed=seed, stop_token_ids=stop)


@torch.inference_mode()
def test_ragged_batches_through_the_model_alone(tmp_path: Path) -> None:
    """Without scheduler or runner: any chunks, scattered blocks of any size, other prompts in between."""
    rng = random.Random(7)
    for seed, block_size in enumerate((1, 3, 16)):
        model, reference = load(make_qwen3_folder(tmp_path / str(seed), seed=seed, shape=random_shape(rng)))
        cases = [reference_case(reference, prompt) for prompt in random_prompts(rng, model.info.vocab_size)]
        answers = run_model(model, cases, seed=seed, block_size=block_size)
        for case, answer in zip(cases, answers, strict=True):
            case.check(answer, f"in blocks of {block_size}")


def step(token_ids: list[int], positions: torch.Tensor, media: tuple[MediaEmbedding, ...] = ()) -> StepBatch:
    """All tokens of one sequence at once."""
    sequence = PagedSequence(tuple(range(9)), 0, len(token_ids))
    paged = paged_batch([sequence], 16, torch.device("cpu"))
    return StepBatch(torch.tensor(token_ids), positions, paged, media)


@torch.inference_mode()
def test_rows_of_encodings_take_the_place_of_placeholders(tmp_path: Path) -> None:
    """The same hidden states as `inputs_embeds` gives; the span begins in the middle of the encoding."""
    model, reference = load(make_qwen3_folder(tmp_path))
    token_ids = [5, 9, 1, 1, 1, 7, 30]
    rows = torch.randn(6, 32)
    embeds = reference.get_input_embeddings()(torch.tensor([token_ids]))
    embeds[0, 2:5] = rows[3:6]
    expected = reference(inputs_embeds=embeds).logits[0]
    media = (MediaEmbedding(EmbeddedRows(rows), 2, 3, 3),)
    cache = torch.zeros(2, 9, 2, 2, 16, 8)
    hidden = model.forward(step(token_ids, torch.arange(7), media), cache)
    torch.testing.assert_close(model.logits(hidden), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_rows_of_encodings_are_added_where_a_family_adds_them(tmp_path: Path) -> None:
    """To the embeddings of tokens of any kind, in two spans; the others are as they were."""
    folder = make_qwen3_folder(tmp_path)
    _, reference = load(folder)
    config = Qwen3Config.from_pretrained(folder)
    numbers = decoder_config(config, folder, tied=True)
    renames = (("model.", ""),)
    tensors = read_tensors(
        folder, decoder_tensors(numbers), torch.device("cpu"), torch.float32, renames=renames
    )
    decoder = Decoder(numbers, tensors, adds_media=True)
    token_ids, rows = [5, 9, 1, 40, 1, 7, 30], torch.randn(6, 32)
    embeds = reference.get_input_embeddings()(torch.tensor([token_ids]))
    embeds[0, 2:5] += rows[3:6]
    embeds[0, 6] += rows[1]
    expected = reference(inputs_embeds=embeds).logits[0]
    encoding = EmbeddedRows(rows)
    media = (MediaEmbedding(encoding, 2, 3, 3), MediaEmbedding(encoding, 6, 1, 1))
    hidden = decoder.forward(step(token_ids, torch.arange(7), media), torch.zeros(2, 9, 2, 2, 16, 8))
    torch.testing.assert_close(decoder.logits(hidden), expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_deepstack_and_three_axes_equal_qwen3_vl(tmp_path: Path) -> None:
    """The decoder inside transformers' Qwen3-VL, with its positions and its additions to the first layers."""
    torch.manual_seed(3)
    config = Qwen3VLTextConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]},
    )
    reference = Qwen3VLTextModel(config).eval()
    save_file(reference.state_dict(), tmp_path / "model.safetensors")
    numbers = decoder_config(config, tmp_path, tied=True)
    tensors = read_tensors(tmp_path, decoder_tensors(numbers), torch.device("cpu"), torch.float32)
    decoder = Decoder(numbers, tensors, axes=interleaved_axes((4, 2, 2)))
    tensors.finish()

    positions = torch.tensor([[0, 1, 2, 2, 2, 2, 4, 5], [0, 1, 2, 2, 3, 3, 4, 5], [0, 1, 2, 3, 2, 3, 4, 5]])
    token_ids, rows, deepstack = [3, 4, 9, 9, 9, 9, 7, 8], torch.randn(4, 32), torch.randn(2, 4, 32)
    embeds = reference.embed_tokens(torch.tensor([token_ids]))
    embeds[0, 2:6] = rows
    mask = torch.tensor([[token == 9 for token in token_ids]])
    expected = reference(
        inputs_embeds=embeds,
        position_ids=positions[:, None],
        visual_pos_masks=mask,
        deepstack_visual_embeds=list(deepstack),
    ).last_hidden_state[0]
    media = (MediaEmbedding(EmbeddedRows(rows, tuple(deepstack)), 2, 4, 0),)
    hidden = decoder.forward(step(token_ids, positions, media), torch.zeros(3, 9, 2, 2, 16, 16))
    normed = rms_norm(hidden, reference.norm.weight, config.rms_norm_eps)
    torch.testing.assert_close(normed, expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("num_levels", [0, 1, 2], ids="deepstack of {}".format)
def test_rows_that_are_looked_at_are_as_in_a_whole_step(
    tmp_path: Path, window: int | None, num_levels: int
) -> None:
    """Of three sequences the last 1, 4 and all rows, behind what is cached already."""
    torch.manual_seed(1)
    model, _ = load(make_qwen3_folder(tmp_path, shape=QwenShape(window=window)))
    counts, wanted = (19, 7, 2), (1, 4, 2)
    fed = [PagedSequence((4 * n, 4 * n + 1, 4 * n + 2), 6 * n, rows) for n, rows in enumerate(counts)]
    paged = paged_batch(fed, 16, torch.device("cpu"))
    rows = torch.tensor([18, 22, 23, 24, 25, 26, 27])
    starts = torch.tensor([0, 1, 5, 7], dtype=torch.int32)
    others = [each._replace(block_table=[entry + 12 for entry in each.block_table]) for each in fed]
    groups = (paged, with_tables(paged, others))[: len(model.kv_shape.layout(model.dtype).groups)]
    assert len(groups) == (1 if window is None else 2)
    alone = tuple(
        replace(each, query_starts=starts, write_slots=each.write_slots[rows], num_queries=wanted)
        for each in groups
    )
    levels = tuple(torch.randn(3, 32) for _ in range(num_levels))
    media = (MediaEmbedding(EmbeddedRows(torch.randn(3, 32), levels), 17, 3, 0),)
    token_ids = torch.randint(0, 300, (28,))
    batch = StepBatch(token_ids, torch.arange(28), paged, media, more_paged=groups[1:])
    shape = model.kv_shape.cache_shape(24, 16, model.dtype)
    caches = [torch.randn(shape, generator=torch.Generator().manual_seed(2)) for _ in range(2)]
    whole = model.forward(batch, caches[0])
    some = model.forward(replace(batch, wanted=WantedRows(rows, alone)), caches[1])
    torch.testing.assert_close(some[rows], whole[rows], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(caches[1], caches[0], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path, shape=QwenShape(tied=False, attention_bias=True))
    token_ids = list(range(40, 80))
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        model = open_model(folder, device="cpu", dtype=str(dtype).removeprefix("torch.")).load()
        cache = torch.zeros(2, 9, 2, 2, 16, 8, dtype=dtype)
        hidden = model.forward(step(token_ids, torch.arange(40)), cache)
        assert (model.dtype, hidden.dtype) == (dtype, dtype)
        logits.append(model.logits(hidden))
    assert logits[1].dtype is torch.float32
    assert float((logits[0] - logits[1]).abs().mean() / logits[0].std()) < 0.05


@torch.inference_mode()
def test_a_stored_head_that_differs_is_believed_over_the_config(tmp_path: Path) -> None:
    """As `transformers` does; equal or missing, the embedding is used."""
    make_qwen3_folder(tmp_path, shape=QwenShape(tied=False))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tie_word_embeddings": True}))
    model, reference = load(tmp_path)
    expected = reference(torch.arange(9)[None]).logits[0]
    hidden = model.forward(step(list(range(9)), torch.arange(9)), torch.zeros(2, 9, 2, 2, 16, 8))
    torch.testing.assert_close(model.logits(hidden), expected, rtol=1e-4, atol=1e-4)


def test_it_takes_text_only(tmp_path: Path) -> None:
    model = open_model(make_qwen3_folder(tmp_path), device="cpu", dtype="float32").load()
    with pytest.raises(ValueError, match="takes text only"):
        model.check_features(Features((1, 1), bytes(4)))


def test_weights_are_counted_as_a_step_reads_them(tmp_path: Path) -> None:
    """Of embedding and head only the head: it is tied to the embedding, a copy of it, or its own."""
    for tied in (True, False):
        folder = make_qwen3_folder(tmp_path / str(tied), shape=QwenShape(tied=tied))
        source = open_model(folder, device="cpu", dtype="bfloat16")
        assert source.load().weight_bytes == source.weight_bytes - source.info.vocab_size * 32 * 2
