"""Qwen3-ASR folders open with every tensor accounted for, and a step's logits equal transformers'."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.base import MediaEmbedding, Model, StepBatch
from sensorium.engine.models.qwen3_asr.info import Qwen3AsrInfo
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.source import ModelSource
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch
from sensorium.media.audio.features import FeatureConfig
from sensorium.protocols.engine.messages import EncoderItem, Features
from sensorium.protocols.errors import ModelLoadError
from support.asr_folder import (
    AsrShape,
    asr_tokenizer,
    load_reference,
    make_asr_folder,
    make_audio,
    make_thinker_folder,
)
from support.asr_prompts import Transcription, transcription
from support.text_folder import QwenShape
from torch import Tensor

BLOCK = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_asr_folder(tmp_path_factory.mktemp("asr") / "model", seed=3)


@pytest.fixture(scope="module")
def source(folder: Path) -> ModelSource:
    return open_model(folder, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def model(source: ModelSource) -> Model:
    return source.load()


def copy_of(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_what_a_source_says(folder: Path, source: ModelSource, model: Model) -> None:
    info = source.info
    assert isinstance(info, Qwen3AsrInfo)
    assert (info.family, info.num_mel_bins, info.n_window, info.window_frames) == ("qwen3_asr", 128, 50, 800)
    tokens = asr_tokenizer()
    assert info.stop_token_ids == (tokens.token_to_id("<|endoftext|>"), tokens.token_to_id("<|im_end|>"))
    assert info.max_context == 1024
    tensors = load_file(folder / "model.safetensors")
    stored = sum(tensor.nbytes for tensor in tensors.values())
    embedding = next(tensor for name, tensor in tensors.items() if name.endswith("embed_tokens.weight"))
    assert source.weight_bytes == stored + embedding.nbytes  # a tied head is a packed copy on CPUs
    items = transcription(source, make_audio(1, 9.3)).items
    outputs = model.encode([item.features for item in items])
    encoder_bytes = source.encoder_bytes
    assert encoder_bytes is not None
    assert [output.num_bytes for output in outputs] == [encoder_bytes(item.num_tokens) for item in items]
    assert [output.num_rows for output in outputs] == [item.num_tokens for item in items] == [104, 17]


def run(model: Model, prepared: Transcription, *, chunk: int) -> Tensor:
    """Logits of every prompt position, `chunk` tokens a step."""
    prompt = prepared.prompt
    outputs = model.encode([item.features for item in prepared.items])
    k = model.kv_shape
    num_blocks = -(-len(prompt.token_ids) // BLOCK)
    cache = torch.zeros(k.num_layers, num_blocks, 2, k.num_kv_heads, BLOCK, k.head_dim)
    logits: list[Tensor] = []
    for start in range(0, len(prompt.token_ids), chunk):
        ids = prompt.token_ids[start : start + chunk]
        media: list[MediaEmbedding] = []
        for span, output in zip(prompt.spans, outputs, strict=True):
            first, last = max(span.start, start), min(span.start + span.num_tokens, start + len(ids))
            if first < last:
                media.append(MediaEmbedding(output, first - start, last - first, first - span.start))
        batch = StepBatch(
            torch.tensor(ids),
            torch.arange(start, start + len(ids)),
            paged_batch([PagedSequence(range(num_blocks), start, len(ids))], BLOCK, torch.device("cpu")),
            tuple(media),
        )
        with torch.inference_mode():
            logits.append(model.logits(model.forward(batch, cache)))
    return torch.cat(logits)


@pytest.mark.parametrize("chunk", [1000, 16, 7])
@pytest.mark.parametrize(("seed", "seconds"), [(0, 0.02), (1, 7.99), (2, 11.3)])
def test_logits_equal_the_reference(
    folder: Path, source: ModelSource, model: Model, seed: int, seconds: float, chunk: int
) -> None:
    prepared = transcription(source, make_audio(seed, seconds), language="de" if seed else None)
    with torch.inference_mode():
        expected: Tensor = load_reference(folder)(**prepared.reference_inputs()).logits[0]
    torch.testing.assert_close(run(model, prepared, chunk=chunk), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_sharded_and_untied_checkpoints_load(tmp_path: Path, tied: bool) -> None:
    shape = AsrShape(text=QwenShape(tied=tied, max_positions=256, attention_bias=True))
    folder = make_asr_folder(tmp_path / "model", seed=8, shape=shape, max_shard_size="40KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    source = open_model(folder, device="cpu", dtype="float32")
    prepared = transcription(source, make_audio(4, 2.5))
    with torch.inference_mode():
        expected: Tensor = load_reference(folder)(**prepared.reference_inputs()).logits[0]
    torch.testing.assert_close(run(source.load(), prepared, chunk=64), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_the_layout_first_published_gives_the_same_logits(tmp_path: Path, tied: bool) -> None:
    shape = AsrShape(text=QwenShape(tied=tied, max_positions=256))
    hf = make_asr_folder(tmp_path / "hf", seed=9, shape=shape)
    first = make_thinker_folder(hf, tmp_path / "first")
    sources = [open_model(folder, device="cpu", dtype="float32") for folder in (hf, first)]
    assert replace(sources[1].info, folder=hf, name=str(hf)) == sources[0].info
    # Long, and shorter than what the extractor takes; words, which the tokenizer must split alike.
    for seconds, context in ((3.5, "Łukasz said <|im_end|> at 10:35."), (0.02, "")):
        prepared = [transcription(each, make_audio(4, seconds), context=context) for each in sources]
        assert prepared[0] == prepared[1]
        logits = [run(each.load(), prepared[0], chunk=64) for each in sources]
        assert torch.equal(*logits)


def item_features(values: np.ndarray[Any, Any]) -> Features:
    return Features(values.shape, values.astype("<f4").tobytes())


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (item_features(np.zeros((128, 0))), "1 to 800 frames, not 0"),
        (item_features(np.zeros((128, 801))), "1 to 800 frames, not 801"),
        (item_features(np.zeros((80, 100))), r"\[128 mel bins, frames\], not \[80, 100\]"),
        (item_features(np.zeros((1, 128, 100))), r"not \[1, 128, 100\]"),
        (item_features(np.full((128, 3), np.nan)), "finite"),
        (item_features(np.where(np.eye(128) > 0, -np.inf, 0)), "finite"),
        (Features((128, 100), b"1234"), r"\[128, 100\] do not fit into 4 bytes"),
    ],
)
def test_features_a_window_cannot_have_are_refused(model: Model, features: Features, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        model.check_features(features)


def test_windows_of_an_utterance_are_accepted(model: Model, source: ModelSource) -> None:
    items: list[EncoderItem] = transcription(source, make_audio(2, 17.0)).items
    for item in items:
        model.check_features(item.features)


def test_a_folder_brings_its_feature_config(folder: Path) -> None:
    found = FeatureConfig.from_folder(folder, Qwen3AsrInfo.extractors)
    assert found == FeatureConfig(num_mel_bins=128, min_samples=8_000)


def _audio(config: dict[str, Any], **changes: object) -> dict[str, Any]:
    return config | {"audio_config": config["audio_config"] | changes}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda c: _audio(c, activation_function="tanh"),
            "activation_function 'tanh' is not one of gelu, relu",
        ),
        (lambda c: c | {"thinker_config": {}}, "thinker_config has no audio_config"),
        (lambda c: c | {"thinker_config": 7}, "thinker_config has no audio_config"),
        (lambda c: c | {"thinker_config": c | {"text_config": 1}}, "text_config are not objects"),
        (lambda c: _audio(c, encoder_attention_heads=5), "d_model 24 is not a multiple"),
        (lambda c: _audio(c, n_window_infer=750), "n_window_infer 750 is not a multiple of 2"),
        (lambda c: _audio(c, n_window=80), "max_position_embeddings 13 is less than the 20"),
        (lambda c: _audio(c, output_dim=48), "output_dim 48 is not the decoder's hidden_size 32"),
        (lambda c: _audio(c, encoder_layers=0), "encoder_layers is 0"),
        (lambda c: _audio(c, d_model="wide"), "d_model"),
        (lambda c: c | {"audio_token_id": 7}, "audio_token_id 7 is not the tokenizer's"),
        (
            lambda c: c | {"text_config": c["text_config"] | {"hidden_act": "gelu"}},
            "hidden_act .gelu. is not silu",
        ),
        (lambda c: _audio(c, encoder_layers=3), "missing: audio_tower.layers.2"),
        (lambda c: _audio(c, downsample_hidden_size=5), "misshapen: .*conv2d1.weight is"),
    ],
)
def test_a_bad_config_is_named(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], reason: str
) -> None:
    bad = copy_of(folder, tmp_path / "bad")
    config = json.loads((bad / "config.json").read_text())
    (bad / "config.json").write_text(json.dumps(change(config)))
    with pytest.raises(ModelLoadError, match=reason):
        open_model(bad, device="cpu", dtype="float32")


def test_every_tensor_is_checked(folder: Path, tmp_path: Path) -> None:
    bad = copy_of(folder, tmp_path / "bad")
    tensors = load_file(bad / "model.safetensors")
    del tensors["model.audio_tower.ln_post.bias"]
    tensors["model.audio_tower.extra"] = torch.zeros(1)
    tensors["model.multi_modal_projector.linear_2.weight"] = torch.zeros(2, 2)
    save_file(tensors, bad / "model.safetensors")
    with pytest.raises(ModelLoadError) as fault:
        open_model(bad, device="cpu", dtype="float32")
    for named in (
        "1 missing: audio_tower.ln_post.bias",
        "1 unexpected: audio_tower.extra",
        "multi_modal_projector.linear_2.weight is [2, 2], expected [32, 24]",
    ):
        assert named in str(fault.value)
