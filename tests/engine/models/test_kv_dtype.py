"""Keys and values kept in 8 bits: what is refused, what fits, and what answers still depend on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.model_loading import open_engine
from sensorium.engine.models.base import CrossAttendingRows, Model, StepBatch
from sensorium.engine.models.registry import open_model
from sensorium.kernels.attention.kv_quantization import CODED
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch
from sensorium.protocols.engine.messages import Align, ContentHash, Features, Request, RequestId
from sensorium.protocols.errors import ModelLoadError
from support.exactness import NUM_TOKENS, TIE, Case, Engine, check_every_way
from support.text_folder import QwenShape, make_qwen3_folder
from support.whisper_folder import WhisperShape, make_whisper_folder
from torch import Tensor

SHAPE = QwenShape(hidden_size=128, intermediate_size=192, num_heads=4, num_kv_heads=2, head_dim=32)
CLOSE = 0.05
"""Difference of logits as a part of their size that codes of keys and values may make here."""
NEAR_TIE = 0.1
"""Sums in another order may take a number over the edge between two codes: smaller margins do not count."""
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3_folder(tmp_path_factory.mktemp("qwen3"), shape=SHAPE)


def logits_of(
    model: Model, token_ids: Tensor, dtype: torch.dtype, cross_attending: tuple[CrossAttendingRows, ...] = ()
) -> Tensor:
    """Of each token of a prompt."""
    num_blocks, num = -(-len(token_ids) // 16), len(token_ids)
    cache = torch.zeros(model.kv_shape.cache_shape(num_blocks, 16, dtype), dtype=dtype)
    paged = paged_batch([PagedSequence(range(num_blocks), 0, num)], 16, CPU)
    with torch.inference_mode():
        batch = StepBatch(token_ids, torch.arange(num), paged, cross_attending=cross_attending)
        return model.logits(model.forward(batch, cache))


def distance(got: Tensor, want: Tensor) -> float:
    return float((got - want).norm() / want.norm())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_decoder_answers_nearly_as_with_its_own_numbers(folder: Path, dtype: str) -> None:
    model = open_model(folder, device="cpu", dtype=dtype).load()
    token_ids = torch.arange(40) * 7 % model.info.vocab_size
    want, got = logits_of(model, token_ids, model.dtype), logits_of(model, token_ids, CODED)
    assert 0 < distance(got, want) < CLOSE


def test_answers_depend_on_their_prompt_alone_in_any_batch_chunk_and_cache(folder: Path) -> None:
    model = open_model(folder, device="cpu", dtype="float32").load()
    cases: list[Case] = []
    for number in range(4):
        prompt = tuple(
            (7 * i * (number + 3) + number) % model.info.vocab_size for i in range(20 + 9 * number)
        )
        engine = Engine(model, num_blocks=16, kv_dtype=CODED)
        request_id = engine.submit(Case(prompt, (), ()))
        engine.run()
        answer = engine.tokens(request_id)
        rows = logits_of(model, torch.tensor([*prompt, *answer]), CODED)[len(prompt) - 1 : -1]
        best = rows.topk(2).values
        margins = ((best[:, 0] - best[:, 1]) * (TIE / NEAR_TIE)).tolist()
        cases.append(Case(prompt, tuple(answer), tuple(margins)))
    certain = [next((i for i, m in enumerate(c.margins) if m < TIE), NUM_TOKENS) for c in cases]
    assert sum(certain) > 40, "these cases prove little"
    check_every_way(model, cases, seed=1, kv_dtype=CODED)


def test_whisper_hears_nearly_as_with_its_own_numbers_and_says_when(tmp_path: Path) -> None:
    folder = make_whisper_folder(tmp_path, shape=WhisperShape(d_model=64))
    plain, coded = (
        open_model(folder, device="cpu", dtype="float32", kv_dtype=kind).load() for kind in ("auto", "int8")
    )
    shape = plain.info.attended_shape
    assert shape is not None
    features = Features((shape[0], shape[1] - 6), torch.randn(shape[0], shape[1] - 6).numpy().tobytes())
    token_ids = torch.arange(20) * 7 % plain.info.vocab_size
    outputs = [model.encode([features])[0] for model in (plain, coded)]
    want, got = (
        logits_of(model, token_ids, dtype, (CrossAttendingRows(output, len(token_ids)),))
        for model, output, dtype in zip((plain, coded), outputs, (torch.float32, CODED), strict=True)
    )
    assert 0 < distance(got, want) < CLOSE
    assert 3 < outputs[0].num_bytes / outputs[1].num_bytes < 4
    source = open_model(folder, device="cpu", dtype="float32", kv_dtype="int8")
    assert source.encoder_bytes is not None
    full = Features(shape, bytes(4 * shape[0] * shape[1]))
    assert coded.encode([full])[0].num_bytes == source.encoder_bytes(0)
    command = Request(
        RequestId("a"), tuple(token_ids.tolist()), Align(2, 10, shape[1] // 2), encoder_hash=ContentHash("b")
    )
    boundaries = coded.align(command.task, command.prompt_token_ids, outputs[1])  # type: ignore[attr-defined]
    assert len(boundaries) == 9
    assert list(boundaries) == sorted(boundaries)


def test_the_same_memory_holds_more_tokens_and_the_log_says_of_what(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"device": "cpu", "dtype": "bfloat16", "kv_memory": "1MiB"}
    with caplog.at_level(logging.INFO):
        plain = open_engine("a", str(folder), EngineConfig(**config))  # type: ignore[arg-type]
        coded = open_engine("b", str(folder), EngineConfig(**config, kv_dtype="int8"))  # type: ignore[arg-type]
    assert coded.memory.num_blocks * 34 // 64 in range(
        plain.memory.num_blocks - 1, plain.memory.num_blocks + 1
    )
    assert coded.memory.block_bytes == 16 * 2 * 2 * 2 * 34
    assert "of bfloat16 = " in caplog.text
    assert "of int8 = " in caplog.text
    assert (plain.info.kv_dtype, coded.info.kv_dtype) == ("bfloat16", "int8")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"kv_dtype": "fp8"}, "kv_dtype fp8 .* take int8"),
        ({"kv_dtype": "int4"}, "kv_dtype 'int4' is not one of auto, int8"),
        ({"kv_dtype": "int8", "block_size": 24}, "--block-size that is a multiple of 16, not 24"),
    ],
)
def test_what_cannot_be_kept_so_is_refused_by_name(
    folder: Path, options: dict[str, object], fault: str
) -> None:
    with pytest.raises(ModelLoadError, match=fault):
        open_engine("a", str(folder), EngineConfig(device="cpu", **options))  # type: ignore[arg-type]


def test_heads_of_other_sizes_are_refused(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path)
    with pytest.raises(
        ModelLoadError, match=r"--kv-dtype int8 is for heads of a multiple of 16; .* are of 8"
    ):
        open_engine("a", str(folder), EngineConfig(device="cpu", kv_dtype="int8"))
