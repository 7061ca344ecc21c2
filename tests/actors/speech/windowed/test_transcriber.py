"""Recordings by a model of whole windows, on a real engine: what `transformers` says, of any length."""

from __future__ import annotations

import math
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.inference.engine import Engine
from sensorium.actors.model_loading import load_model
from sensorium.actors.served_model import LoadedModel
from sensorium.actors.speech.windowed.family import Frames
from sensorium.actors.speech.windowed.transcriber import WINDOWS_AT_ONCE, WindowedTranscriber
from sensorium.engine.models.nemotron_asr.text import TransducerText
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.audio.nemo_features import NemoFeatureConfig, log_mel, normalised
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support import speech_conformance as suite
from support.ctc_reference import SaidToken, said_in
from support.nemotron_folder import make_parakeet_folder
from support.speech_conformance import Subject
from support.transducing import noise
from transformers import ParakeetForCTC

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(device="cpu", dtype="float32", num_threads=1, max_running=8)
FEATURES = NemoFeatureConfig(80)
TIMED = TranscriptionOptions(word_timestamps=True, segment_timestamps=True, logprobs=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model, and one whose rows hang on few others."""
    root = tmp_path_factory.mktemp("parakeet")
    return {
        "plain": make_parakeet_folder(root / "plain"),
        "local": make_parakeet_folder(root / "local", is_local=True),
    }


class Running:
    """A model and its engine."""

    def __init__(self, folder: Path) -> None:
        self.loaded: LoadedModel[Engine] = load_model("parakeet", str(folder), CONFIG, None)
        assert isinstance(self.loaded.speech, WindowedTranscriber)
        self.speech = self.loaded.speech

    async def idle(self) -> None:
        """Returns once nothing waits or holds anything."""
        with trio.fail_after(5):
            while True:
                now = self.loaded.engine.statistics()
                if not (now.num_waiting or now.num_running or now.num_state_slots):
                    return
                await trio.sleep(0.01)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Running]:
    made = Running(folder)
    async with trio.open_nursery() as nursery:
        await nursery.start(made.loaded.engine.run)
        yield made
        nursery.cancel_scope.cancel()


def reference(folder: Path, frames: Frames) -> list[SaidToken]:
    model = ParakeetForCTC.from_pretrained(folder, dtype=torch.float32).eval()
    return said_in(model, [frames])[0]


def text_of(folder: Path, said: list[SaidToken]) -> str:
    text = TransducerText(TextTokenizer.from_folder(folder))
    return text.decode([token.token_id for token in said]).strip()


async def test_a_short_file_is_what_transformers_says(folders: dict[str, Path]) -> None:
    """Words last from the first row of their first token to the last of their last."""
    folder, samples = folders["plain"], noise(7.3, 3)
    said = reference(folder, normalised(log_mel(samples, FEATURES)))
    async with running(folder) as model:
        transcript = await model.speech.transcribe(samples, TIMED)
    assert transcript.text == text_of(folder, said)
    assert len(said) > 20
    text = TransducerText(TextTokenizer.from_folder(folder))
    words: list[list[SaidToken]] = []
    for token in (each for each in said if each.token_id not in text.tags):
        if not words or text.begins_word(token.token_id):
            words.append([])
        words[-1].append(token)
    assert [(word.start, word.end) for word in transcript.words] == [
        (round(tokens[0].start * 0.08, 3), round(min(tokens[-1].end * 0.08, 7.3), 3)) for tokens in words
    ]
    assert [word.probability for word in transcript.words] == pytest.approx(
        [sum(math.exp(token.logprob) for token in tokens) / len(tokens) for tokens in words], abs=1e-3
    )
    assert transcript.avg_logprob == pytest.approx(sum(each.logprob for each in said) / len(said), abs=1e-3)
    assert "".join(segment.text for segment in transcript.segments).strip() == transcript.text
    assert transcript.num_audio_tokens == math.ceil(7.3 / 0.08)


async def test_a_long_file_is_one_pass_over_the_whole(folders: dict[str, Path]) -> None:
    """Where rows hang on few others, and features on no others, windows change nothing at all."""
    folder, samples = folders["local"], noise(95.0, 4)
    whole = log_mel(samples, FEATURES)
    mean, deviation = whole.mean(axis=1, keepdims=True), whole.std(axis=1, keepdims=True)
    said = reference(folder, (whole - mean) / deviation)
    async with running(folder) as model:
        family = replace(
            model.speech.family, features=lambda part: (log_mel(part, FEATURES) - mean) / deviation
        )
        speech = WindowedTranscriber(family)
        pieces: list[str] = []
        transcript = await speech.transcribe(samples, TIMED, on_delta=pieces.append)
        assert model.loaded.engine.statistics().num_chunks == 4
        clips = await speech.transcribe(samples, TranscriptionOptions(clips=(10.0, 50.0, 60.0)))
        tail = await speech.transcribe(samples[60 * 16_000 :], TranscriptionOptions())
    assert transcript.text == text_of(folder, said)
    assert len(transcript.tokens) > 200
    assert "".join(pieces) == transcript.text
    assert len(pieces) > 3, "text comes with each window"
    starts = {round(token.start * 0.08, 3) for token in said}
    assert {word.start for word in transcript.words} <= starts
    assert clips.text.endswith(tail.text)
    assert len(clips.text) > len(tail.text)


async def test_several_files_at_once_are_each_alone(folders: dict[str, Path]) -> None:
    sounds = [noise(seconds, seed) for seed, seconds in enumerate((41.0, 3.0, 66.0, 0.005, 12.0))]
    async with running(folders["plain"]) as model:
        alone = [await model.speech.transcribe(samples, TIMED) for samples in sounds]
        found: dict[int, object] = {}

        async def one(index: int) -> None:
            found[index] = await model.speech.transcribe(sounds[index], TIMED)

        async with trio.open_nursery() as nursery:
            for index in range(len(sounds)):
                nursery.start_soon(one, index)
        for index, expected in enumerate(alone):
            told = found[index]
            assert (told.text, told.words) == (expected.text, expected.words)  # type: ignore[attr-defined]
        both = np.zeros((2, len(sounds[2])), np.float32)
        both[0, : len(sounds[0])], both[1] = sounds[0], sounds[2]
        channels = (await model.speech.transcribe(both, TranscriptionOptions(multichannel=True))).channels
        assert channels[1].text == alone[2].text
        assert channels[0].text
        assert alone[3].text == ""
        await model.idle()


async def test_two_hours_take_the_memory_of_a_few_windows(folders: dict[str, Path]) -> None:
    """Features of windows in hand exist, and no others; given up, the engine has nothing of it."""
    folder = folders["plain"]
    samples = np.broadcast_to(np.float32(0.1), (7200 * 16_000,))
    small = normalised(log_mel(noise(10.0), FEATURES))
    num_alive = most = 0

    def is_gone() -> None:
        nonlocal num_alive
        num_alive -= 1

    def features(part: Samples) -> Frames:
        nonlocal num_alive, most
        made: Frames = np.array(small)
        weakref.finalize(made, is_gone)
        num_alive += 1
        most = max(most, num_alive)
        return made

    async with running(folder) as model:
        speech = WindowedTranscriber(replace(model.speech.family, features=features))
        transcript = await speech.transcribe(samples, TranscriptionOptions())
        assert len(transcript.text) > 1000
        assert model.loaded.engine.statistics().num_chunks == math.ceil((7200 - 4) / 26)
        assert 1 < most <= WINDOWS_AT_ONCE
        with trio.move_on_after(0.05):
            await speech.transcribe(samples, TranscriptionOptions())
            raise AssertionError("it took no time")
        await model.idle()


@asynccontextmanager
async def subject(folder: Path) -> AsyncIterator[Subject]:
    async with running(folder) as model:

        def work() -> tuple[int, ...]:
            return (model.loaded.engine.statistics().num_chunks,)

        yield Subject(model.speech, noise(40.0, 5), work, model.idle)


@settings(max_examples=4, deadline=None)
@given(
    start=st.integers(0, 5_000),
    updates=st.lists(st.tuples(st.integers(1, 250_000), st.booleans()), min_size=1, max_size=4),
    shrink=st.integers(0, 20_000),
    word_timestamps=st.booleans(),
    segment_timestamps=st.booleans(),
)
def test_every_final_is_the_file(
    folders: dict[str, Path],
    start: int,
    updates: list[tuple[int, bool]],
    shrink: int,
    word_timestamps: bool,
    segment_timestamps: bool,
) -> None:
    options = TranscriptionOptions(word_timestamps=word_timestamps, segment_timestamps=segment_timestamps)

    async def check() -> None:
        async with subject(folders["plain"]) as model:
            await suite.check_every_final_is_the_file(model, updates, options, start=start, shrink=shrink)

    trio.run(check)


@pytest.mark.parametrize(
    "check",
    [
        suite.check_times_change_no_word,
        suite.check_asking_again_costs_nothing,
        suite.check_cancelling_loses_nothing,
        suite.check_closing_gives_back,
        suite.check_options_are_refused,
        suite.check_silence_asks_nothing,
    ],
)
async def test_conformance(folders: dict[str, Path], check: Callable[[Subject], Awaitable[None]]) -> None:
    async with subject(folders["plain"]) as model:
        await check(model)


async def test_a_turn_that_outgrows_a_window_keeps_what_is_known(folders: dict[str, Path]) -> None:
    async with running(folders["plain"]) as model:
        samples = noise(70.0, 6)
        turn = model.speech.live(lambda first, last: samples[first:last], TranscriptionOptions(), start=0)
        before = 0
        for seconds, num_windows in ((20, 1), (31, 2), (40, 1), (57, 2), (60, 1)):
            await turn.hypothesis(seconds * 16_000, final=False)
            now = model.loaded.engine.statistics().num_chunks
            assert now - before == num_windows
            before = now


def test_what_it_cannot_do_is_refused(folders: dict[str, Path]) -> None:
    speech = Running(folders["plain"]).speech
    for options, param in (
        (TranscriptionOptions(prompt="names"), "prompt"),
        (TranscriptionOptions(keywords=("Anna",)), "keywords"),
        (TranscriptionOptions(numerals="digits"), "numerals"),
        (TranscriptionOptions(beam_size=3), "beam_size"),
        (TranscriptionOptions(temperature=0.5), "temperature"),
        (TranscriptionOptions(language="de"), "language"),
        (TranscriptionOptions(task="translate"), "task"),
    ):
        with pytest.raises(BadRequestError) as caught:
            speech.check(options)
        assert caught.value.param == param
