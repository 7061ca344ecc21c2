"""Qwen3-ASR's greedy answers equal `transformers` in float32, from the samples on, however run.

The reference gets its own features, ours come from `media/audio/encoder_windows.py`; so a whole transcription
is compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from sensorium.engine.models.base import Model
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.source import ModelSource
from sensorium.protocols.engine.messages import EncoderItem
from support.asr_folder import AsrShape, FloatArray, make_asr_folder, make_asr_model, make_audio
from support.asr_prompts import Transcription, asr_text, new_windows, transcription
from support.covering import covering_seeds
from support.exactness import NUM_TOKENS, Case, Engine, check_every_way, reference_case, run_model
from support.text_folder import QwenShape
from transformers import Qwen3ASRFeatureExtractor, Qwen3ASRForConditionalGeneration

NUM_CHECKPOINTS = 52
SPEECH = Path(__file__).parents[4] / "examples" / "data" / "kitchen_lights.wav"
_CONTEXTS = ("", "", "Names: Łukasz and François.", "今日は")
_LANGUAGES = (None, None, "en", "yue")


def random_shape(rng: random.Random) -> AsrShape:
    """Small, in all the ways a config can vary."""
    num_heads = rng.choice((1, 2, 3))
    text = QwenShape(
        hidden_size=rng.choice((24, 32, 40)),
        intermediate_size=rng.choice((32, 48)),
        num_layers=rng.choice((1, 1, 2)),
        num_heads=2 * num_heads,
        num_kv_heads=num_heads,
        head_dim=rng.choice((8, 16)),
        tied=rng.random() < 0.7,
        attention_bias=rng.random() < 0.2,
        max_positions=1024,
    )
    return AsrShape(
        text=text,
        d_model=rng.choice((16, 24)),
        num_layers=rng.randint(1, 3),
        num_heads=rng.choice((1, 2, 4)),
        ffn_size=rng.choice((24, 40)),
        conv_channels=rng.choice((2, 4, 6)),
        num_mel_bins=rng.choice((80, 128, 128)),
        activation=rng.choice(("gelu", "gelu", "relu")),
    )


def random_seconds(rng: random.Random) -> float:
    """Very short utterances, of a window, and of up to three."""
    return rng.choice((0.02, 0.3, rng.uniform(0.5, 4), rng.uniform(0.5, 8), 8.0, rng.uniform(8, 20)))


class Checkpoint:
    """Ours, opened and loaded, and the reference."""

    def __init__(
        self, source: ModelSource, reference: Qwen3ASRForConditionalGeneration, seed: int = 0
    ) -> None:
        torch.set_num_threads(1)
        self.rng = random.Random(seed)
        self._reference = reference
        self.source = source
        self.model: Model = source.load()
        self._extractor = Qwen3ASRFeatureExtractor.from_pretrained(source.folder)

    def random_case(self, samples: FloatArray) -> Case:
        """An utterance, prompted in a random way."""
        context, language = self.rng.choice(_CONTEXTS), self.rng.choice(_LANGUAGES)
        return self.case_of(samples, transcription(self.source, samples, context=context, language=language))

    def case_of(self, samples: FloatArray, prepared: Transcription, num_tokens: int = NUM_TOKENS) -> Case:
        """What `transformers` answers to a prompt about `samples`."""
        inputs: Any = self._extractor(
            samples, sampling_rate=16_000, padding=True, return_attention_mask=True, return_tensors="pt"
        )
        return reference_case(
            self._reference,
            prepared.prompt.token_ids,
            items=prepared.items,
            spans=prepared.prompt.spans,
            num_tokens=num_tokens,
            input_features=inputs["input_features"],
            input_features_mask=inputs["attention_mask"],
        )


@pytest.mark.parametrize("seed", covering_seeds(random_shape, NUM_CHECKPOINTS))
@torch.inference_mode()
def test_transcriptions_equal_transformers_every_way(tmp_path: Path, seed: int) -> None:
    checkpoint = random_checkpoint(tmp_path / "model", seed)
    rng = checkpoint.rng
    cases = [checkpoint.random_case(make_audio(seed + i, random_seconds(rng))) for i in range(2)]
    for case, tokens in zip(cases, run_model(checkpoint.model, cases, seed=seed), strict=True):
        case.check(tokens, "in one batch")
    check_every_way(checkpoint.model, cases, seed=seed)


def random_checkpoint(folder: Path, seed: int) -> Checkpoint:
    """A small one with random weights."""
    shape = random_shape(random.Random(seed))
    reference = make_asr_model(shape, seed)
    make_asr_folder(folder, shape=shape, model=reference)
    return Checkpoint(open_model(folder, device="cpu", dtype="float32"), reference, seed)


@torch.inference_mode()
def test_the_embedded_model_equals_transformers_every_way() -> None:
    """The weights we ship, on speech and on noise."""
    source = open_model("tiny-qwen3-asr", device="cpu", dtype="float32")
    reference = Qwen3ASRForConditionalGeneration.from_pretrained(source.folder, dtype=torch.float32)
    checkpoint = Checkpoint(source, reference.eval())
    speech, rate = soundfile.read(SPEECH, dtype="float32")
    assert rate == 16_000
    cases = [checkpoint.random_case(samples) for samples in (speech, make_audio(0, 3.0))]
    check_every_way(checkpoint.model, cases, seed=0)


def grow(checkpoint: Checkpoint, samples: FloatArray) -> Iterator[tuple[FloatArray, list[EncoderItem]]]:
    """An utterance arrives: the samples so far, and the windows of it."""
    windows = new_windows(checkpoint.source)
    while windows.num_samples < len(samples):
        start = windows.num_samples
        for size in (1, checkpoint.rng.randint(1, 4_000), checkpoint.rng.randint(4_000, 60_000)):
            windows.append(samples[windows.num_samples : windows.num_samples + size])
        assert windows.num_samples > start
        yield samples[: windows.num_samples], list(windows.items())


@pytest.mark.parametrize("seed", range(100, 104))
@torch.inference_mode()
def test_every_hypothesis_of_a_growing_utterance_equals_one_from_scratch(tmp_path: Path, seed: int) -> None:
    """Each revision takes over a session's KV and verifies its last hypothesis; nothing of it shows."""
    checkpoint = random_checkpoint(tmp_path / "model", seed)
    utterance = make_audio(seed, checkpoint.rng.uniform(12, 20))
    text = asr_text(checkpoint.source)
    live = Engine(checkpoint.model, num_blocks=64, in_flight=2, parked=None if seed % 3 else 0)
    hypothesis: tuple[int, ...] = ()
    num_fed = num_windows = 0
    for samples, items in grow(checkpoint, utterance):
        assert items == transcription(checkpoint.source, samples).items
        prepared = Transcription(text.prompt(items, context="words"), items)
        case = checkpoint.case_of(samples, prepared, num_tokens=24)
        request = live.submit(case, draft=hypothesis, session="utterance", num_tokens=24)
        live.run()
        case.check(live.tokens(request), f"after {len(samples)} samples")
        alone = Engine(checkpoint.model, num_blocks=64)
        again = alone.submit(case, num_tokens=24)
        alone.run()
        case.check(alone.tokens(again), "from scratch")
        hypothesis = tuple(live.tokens(request))
        num_fed += alone.scheduler.statistics().num_prefill_tokens
        num_windows += len(items)
    statistics = live.scheduler.statistics()
    assert statistics.num_prefill_tokens < num_fed
    assert statistics.num_windows_encoded < num_windows


@torch.inference_mode()
def test_an_item_may_lie_in_a_prompt_twice(tmp_path: Path) -> None:
    checkpoint = random_checkpoint(tmp_path / "model", 200)
    silence = np.zeros(17 * 16_000, np.float32)
    cases = [checkpoint.random_case(silence), checkpoint.random_case(make_audio(1, 6.5))]
    first, second = cases[0].spans[:2]
    assert first.content_hash == second.content_hash
    check_every_way(checkpoint.model, cases, seed=200)
