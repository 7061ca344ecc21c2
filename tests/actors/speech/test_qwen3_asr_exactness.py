"""Qwen3-ASR live: every hypothesis is what `transformers` makes of the same samples, from scratch in float32.

Independent of `tests/actors/speech/families/test_qwen3_asr.py`: the reference has its own features, weights
and decoding, and shares only the prompt (compared with the processor's in
`tests/engine/models/qwen3_asr/test_text.py`) and the guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sensorium.actors.speech.families import qwen3_asr
from sensorium.actors.speech.recording import SILENT_PEAK
from sensorium.engine.models.qwen3_asr.text import parse_answer
from sensorium.engine.models.registry import open_model
from sensorium.media.speech.cut_points import split
from sensorium.media.transcript.answer_guard import LoopGuard, cut_loops
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.transcription.transcript import Transcript, TranscriptionOptions
from support.asr_folder import load_reference, make_audio
from support.asr_prompts import asr_text, transcription
from support.exactness import TIE, reference_case
from support.running_speech import RunningSpeech, random_asr_folder, running_speech
from support.signals import chords, pink_noise, silence_then_shout, white_noise
from transformers import Qwen3ASRFeatureExtractor

pytestmark = pytest.mark.slow

NUM_TOKENS = 16
"""Of an answer; a random model would fill any budget."""
CONTEXT, SHORT_CONTEXT = 4096, 512
"""Room for ranges of 64 s, and of 16 s."""
DATA = Path(__file__).parents[3] / "examples" / "data"


def speech(seconds: float) -> Samples:
    samples, _ = soundfile.read(DATA / "kitchen_lights.wav", dtype="float32")
    return np.resize(np.asarray(samples, np.float32), round(seconds * 16_000))


SIGNALS: dict[str, Callable[[float], Samples]] = {
    "noise": lambda seconds: make_audio(0, seconds),
    "glide": lambda seconds: make_audio(1, seconds),
    "speech": speech,
    "shout": silence_then_shout,
    "shouts": lambda seconds: np.concatenate([silence_then_shout(seconds / 4, seed=i) for i in range(4)]),
    "chords": chords,
    "pink": lambda seconds: pink_noise(seconds, level_db=-30),
    "near zero": lambda seconds: white_noise(seconds, level_db=-76),
}
OPTIONS = (
    TranscriptionOptions(),
    TranscriptionOptions(language="en"),
    TranscriptionOptions(languages=("de", "en"), prompt="Names: Łukasz"),
)


@pytest.fixture(autouse=True, scope="module")
def _short_answers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qwen3_asr, "token_budget", lambda _: NUM_TOKENS)
        # Random weights write more letters than can be said in the time.
        patch.setattr(qwen3_asr, "speaking_time_s", lambda _: 0.0)
        patch.setattr(qwen3_asr, "spoken_part", lambda text, _: text)
        yield


class Reference:
    """`transformers` on the same folder."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self._source = open_model(folder, device="cpu", dtype="float32")
        self._text = asr_text(self._source)
        self._model = load_reference(folder)
        self._extract = Qwen3ASRFeatureExtractor.from_pretrained(folder)
        self.num_compared = 0
        self.num_ties = 0

    @torch.inference_mode()
    def check(self, transcript: Transcript, samples: Samples, context: str, forced: str | None) -> None:
        """The transcript of one range is the answer to a prompt about all of it."""
        if np.max(np.abs(samples), initial=0) <= SILENT_PEAK:
            assert transcript.text == ""
            return
        asked = transcription(self._source, samples, context=context, language=forced)
        case = reference_case(
            self._model,
            asked.prompt.token_ids,
            stop_token_ids=self._source.info.stop_token_ids,
            num_tokens=NUM_TOKENS,
            **self._features(samples),
        )
        if min(case.margins) < TIE:
            self.num_ties += 1
            return
        self.num_compared += 1
        ids = case.expected[: LoopGuard().feed(case.expected)]
        said = self._text.tokenizer.decode(ids)
        # A character that the bound on tokens cuts in two is left out.
        wholes = {
            cut_loops(parse_answer(each, has_header=forced is None).text)
            for each in (said, said.removesuffix("\ufffd"))
        }
        assert transcript.text in wholes, f"after {len(samples)} samples, forced {forced}"

    @torch.inference_mode()
    def choice(self, samples: Samples, context: str, languages: Sequence[str]) -> str:
        """The likelier of two languages, by the first token in which their names differ."""
        plain = transcription(self._source, samples, context=context)
        ids = plain.prompt.token_ids
        headers = {}
        for code in languages:
            asked = self._text.prompt(plain.items, context=context, language=code).token_ids
            assert asked[: len(ids)] == ids
            headers[code] = asked[len(ids) :]
        first, second = headers.values()
        shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        tokens = torch.tensor([[*ids, *first[:shared]]])
        logits = self._model(input_ids=tokens, **self._features(samples)).logits[0, -1]
        return max(languages, key=lambda code: float(logits[headers[code][shared]]))

    def _features(self, samples: Samples) -> dict[str, Any]:
        inputs: Any = self._extract(
            samples, sampling_rate=16_000, padding=True, return_attention_mask=True, return_tensors="pt"
        )
        return {
            "input_features": inputs["input_features"],
            "input_features_mask": inputs["attention_mask"],
        }


@cache
def reference(max_positions: int) -> Reference:
    return Reference(random_asr_folder(0, max_positions))


async def speak(
    asr: RunningSpeech,
    audio: Samples,
    updates: Sequence[tuple[int, bool]],
    options: TranscriptionOptions,
    *,
    start: int = 0,
) -> None:
    """Ask after every update, and compare each answer with one from scratch."""
    expected = reference(CONTEXT)
    live = asr.speech.live(lambda a, b: audio[a:b], options, start=start)
    end = start
    before: set[str] = set()
    for size, final in updates:
        end = min(end + size, len(audio))
        said = await live.hypothesis(end, final=final)
        heard = audio[start:end]
        forced = options.language
        if options.languages and said.language:
            forced = said.language
            if final or said.language not in before:  # only what was chosen before may be kept
                assert forced == expected.choice(heard, options.prompt, options.languages)
            before.add(said.language)
        expected.check(said, heard, options.prompt, forced)
        assert said.duration == (end - start) / 16_000
    live.close()


@pytest.mark.parametrize("name", SIGNALS)
async def test_every_hypothesis_is_a_full_recompute(name: str) -> None:
    audio = SIGNALS[name](12.0)
    updates = [(20_000, False), (44_444, False), (64_001, False), (1, True), (62_000, True)]
    async with running_speech(random_asr_folder(0, CONTEXT)) as asr:
        for options in OPTIONS[1:] if name in ("shout", "speech") else OPTIONS[:1]:
            await speak(asr, audio, updates, options)
    assert reference(CONTEXT).num_ties * 5 <= reference(CONTEXT).num_compared


@settings(max_examples=4, deadline=None)
@given(
    name=st.sampled_from(sorted(SIGNALS)),
    start=st.integers(0, 2_000),
    updates=st.lists(
        st.tuples(st.one_of(st.integers(1, 400), st.integers(1, 160_000)), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    options=st.sampled_from(OPTIONS),
)
@example("shout", 0, [(160_000, False), (160_000, True)], OPTIONS[0])
@example("glide", 1, [(1, True), (1, False), (1, True), (159, False), (160, False), (241, True)], OPTIONS[1])
def test_however_audio_is_cut(
    name: str, start: int, updates: list[tuple[int, bool]], options: TranscriptionOptions
) -> None:
    audio = SIGNALS[name](20.0)

    async def check() -> None:
        async with running_speech(random_asr_folder(0, CONTEXT)) as asr:
            await speak(asr, audio, updates, options, start=start)

    trio.run(check)


async def test_one_sample_at_a_time_changes_nothing() -> None:
    """A second of speech, then sample by sample over a frame's edge, with and without asking."""
    audio = speech(2.0)
    async with running_speech(random_asr_folder(0, CONTEXT)) as asr:
        updates = [(15_900, False)] + [(1, index % 2 == 0) for index in range(5)] + [(95, True), (1, True)]
        await speak(asr, audio, updates, OPTIONS[1])


async def test_ranges_of_a_long_turn_are_recomputed_alone() -> None:
    """Past the longest range each is an utterance of its own, live and from scratch."""
    audio = np.concatenate([speech(14.0), make_audio(1, 11.0), silence_then_shout(12.0)])
    expected = reference(SHORT_CONTEXT)
    async with running_speech(random_asr_folder(0, SHORT_CONTEXT)) as asr:
        rule = asr.speech.family.facts.cut_rule
        assert rule.size == 16 * 16_000
        live = asr.speech.live(lambda a, b: audio[a:b], TranscriptionOptions(language="en"), start=0)
        for end, final in ((250_000, False), (300_000, False), (520_000, False), (len(audio), True)):
            said = await live.hypothesis(end, final=final)
            ranges = split(audio[:end], window_samples=rule.size, search_samples=rule.search)
            texts = {round(part.start, 3): part.text.strip() for part in said.segments}
            for first, last in ranges:
                text = texts.pop(round(first / 16_000, 3), "")
                alone = Transcript(text=text, language="en", duration=0)
                expected.check(alone, audio[first:last], "", "en")
            assert not texts
        live.close()
