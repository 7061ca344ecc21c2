"""With `beam_size`, Whisper and Qwen3-ASR answer what `transformers` does with as many beams, in float32.

Where a checkpoint forbids tokens, `transformers` takes them out behind the sum over the vocabulary: its
log-probabilities of what is left add up to less than 1, and by how much less differs from beam to beam. We
sum over what may be said, as openai/whisper does; so the reference is asked to (`renormalize_logits`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from sensorium.actors.speech.families import qwen3_asr
from sensorium.engine.models.qwen3_asr.text import parse_answer
from sensorium.engine.models.registry import open_model
from sensorium.media.transcript.answer_guard import LoopGuard, cut_loops
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.engine.messages import EncoderItem
from sensorium.protocols.transcription.transcript import Transcript, TranscriptionOptions
from support.asr_folder import load_reference, make_audio
from support.asr_prompts import asr_text, transcription
from support.running_speech import RunningSpeech, random_asr_folder, random_folder, running_speech, sound
from support.signals import chords
from support.whisper_folder import make_whisper_folder
from transformers import Qwen3ASRFeatureExtractor, WhisperForConditionalGeneration

pytestmark = pytest.mark.slow

NUM_TOKENS = 16
"""Of an answer of Qwen3-ASR; a random model would fill any budget."""
SPEECH = Path(__file__).parents[3] / "examples" / "data" / "kitchen_lights.wav"


def speech() -> Samples:
    samples, rate = soundfile.read(SPEECH, dtype="float32")
    assert rate == 16_000
    return np.asarray(samples, np.float32)


def said(token_ids: Sequence[int]) -> tuple[int, ...]:
    """The tokens up to where they become a loop: what is behind is left out, with beams or without."""
    return tuple(token_ids[: LoopGuard().feed(token_ids)])


class WhisperReference:
    """`transformers` on the same folder."""

    def __init__(self, folder: Path) -> None:
        self._model: Any = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self._model.eval()

    @torch.inference_mode()
    def answer(self, item: EncoderItem, **options: Any) -> tuple[int, ...]:  # noqa: ANN401 (of `generate`)
        """The tokens it answers with, without prompt and end."""
        window = torch.from_numpy(
            np.frombuffer(item.features.data, "<f4").reshape(item.features.shape).copy()
        )
        output = self._model.generate(
            window[None],
            language="en",
            task="transcribe",
            force_unique_generate_call=True,
            return_dict_in_generate=True,
            **options,
        )
        start = self._model.generation_config.no_timestamps_token_id
        tokens: list[int] = output.sequences[0].tolist()
        end = self._model.generation_config.eos_token_id
        return tuple(token for token in tokens[tokens.index(start) + 1 :] if token != end)


async def check_whisper(
    whisper: RunningSpeech,
    reference: WhisperReference,
    samples: Samples,
    num_beams: int,
    **rules: bool,
) -> bool:
    """The same text; whether one beam has another."""
    family = whisper.whisper()
    features = family.features()
    features.append(samples)
    item = features.items()[0]

    texts = []
    for num in (1, num_beams):
        options = TranscriptionOptions(language="en", beam_size=num)
        texts.append((await whisper.speech.transcribe(samples, options)).text)
        tokens = reference.answer(item, num_beams=num, **(rules if num > 1 else {}))
        assert texts[-1] == cut_loops(family.text.decode(said(tokens))).strip()
    return texts[0] != texts[1]


def without_suppressed(folder: Path, path: Path) -> Path:
    """A copy of a checkpoint that may say anything."""
    shutil.copytree(folder, path)
    config = path / "generation_config.json"
    rules = {"suppress_tokens": None, "begin_suppress_tokens": None}
    config.write_text(json.dumps(json.loads(config.read_text()) | rules))
    return path


@pytest.mark.parametrize("seed", range(2))
async def test_whisper_that_may_say_anything(tmp_path: Path, seed: int) -> None:
    folder = without_suppressed(random_folder(seed), tmp_path / "free")
    reference = WhisperReference(folder)
    async with running_speech(folder) as whisper:
        differs = [
            await check_whisper(whisper, reference, sound(30_000, seed=seed + index), num_beams)
            for index, num_beams in enumerate((2, 3, 5))
        ]
        await whisper.idle()
    assert any(differs)


async def test_whisper_with_forbidden_tokens(tmp_path: Path) -> None:
    """So many that it matters over what the log-probabilities are summed."""
    folder = make_whisper_folder(tmp_path / "few", seed=1, suppress=range(0, 320, 2))
    reference = WhisperReference(folder)
    async with running_speech(folder) as whisper:
        for index, num_beams in enumerate((2, 3, 5)):
            samples = sound(30_000, seed=10 + index)
            await check_whisper(whisper, reference, samples, num_beams, renormalize_logits=True)
        await whisper.idle()


async def test_the_embedded_whisper() -> None:
    source = open_model("tiny-whisper", device="cpu", dtype="float32")
    reference = WhisperReference(source.folder)
    async with running_speech("tiny-whisper") as whisper:
        for samples in (speech(), chords(2.0)):
            await check_whisper(whisper, reference, samples, 3, renormalize_logits=True)
        await whisper.idle()


class AsrReference:
    """`transformers` on the same folder, with its own features."""

    def __init__(self, folder: Path) -> None:
        self._source = open_model(folder, device="cpu", dtype="float32")
        self._model: Any = load_reference(folder)
        self._extract = Qwen3ASRFeatureExtractor.from_pretrained(folder)

    @torch.inference_mode()
    def text(self, samples: Samples, num_beams: int, language: str | None) -> tuple[str, int]:
        """What is said, and in how many tokens."""
        inputs: Any = self._extract(
            samples, sampling_rate=16_000, padding=True, return_attention_mask=True, return_tensors="pt"
        )
        stops = self._source.info.stop_token_ids
        ids = torch.tensor([transcription(self._source, samples, language=language).prompt.token_ids])
        output = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            input_features=inputs["input_features"],
            input_features_mask=inputs["attention_mask"],
            eos_token_id=list(stops),
            max_new_tokens=NUM_TOKENS,
            num_beams=num_beams,
            do_sample=False,
        )
        tokens: list[int] = output[0].tolist()[ids.shape[1] :]
        end = next((index for index, token in enumerate(tokens) if token in stops), len(tokens))
        raw = asr_text(self._source).tokenizer.decode(said(tokens[:end]))
        return cut_loops(parse_answer(raw, has_header=language is None).text), end


@pytest.mark.parametrize("model", ["random", "tiny-qwen3-asr"])
async def test_qwen3_asr(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the language in the prompt, and in front of the answer."""
    monkeypatch.setattr(qwen3_asr, "token_budget", lambda _: NUM_TOKENS)
    source = open_model(random_asr_folder() if model == "random" else model, device="cpu", dtype="float32")
    reference = AsrReference(source.folder)
    lengths = set()
    differs = []
    async with running_speech(source.folder) as asr:
        for samples, language in ((speech(), "en"), (make_audio(1, 1.5), None), (make_audio(0, 2.5), "de")):
            answers: dict[int, Transcript] = {}
            for num_beams in (1, 3):
                options = TranscriptionOptions(language=language, beam_size=num_beams)
                answers[num_beams] = await asr.speech.transcribe(samples, options)
                expected, length = reference.text(samples, num_beams, language)
                assert answers[num_beams].text == expected, (num_beams, language)
                lengths.add(length)
            differs.append(answers[1].text != answers[3].text)
        await asr.idle()
    if model == "random":
        assert any(differs)
    else:
        assert min(lengths) < NUM_TOKENS
