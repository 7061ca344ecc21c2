"""One suite for every speech model: Whisper, Qwen3-ASR, and the fake that sessions are tested with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support import speech_conformance as suite
from support.asr_folder import make_audio
from support.fake_sessions import FakeModel
from support.running_speech import TWO_THREADS, random_asr_folder, random_folder, running_speech, sound
from support.speech_conformance import Subject

MODELS = ("whisper", "qwen3_asr", "fake")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_answers")]

OPTIONS = st.builds(
    TranscriptionOptions,
    language=st.sampled_from([None, None, "en", "de"]),
    languages=st.sampled_from([(), (), ("de",), ("de", "en")]),
    prompt=st.sampled_from(["", "Turn on the lights"]),
    keywords=st.sampled_from([(), ("Sensorium",)]),
    numerals=st.sampled_from([None, "digits"]),
    logprobs=st.booleans(),
    word_timestamps=st.booleans(),
    segment_timestamps=st.booleans(),
)


@asynccontextmanager
async def subject(name: str, seed: int = 3) -> AsyncIterator[Subject]:
    """A model of that kind, running."""
    if name == "fake":
        fake = FakeModel(work_s=0.0)

        async def expect_nothing_held() -> None:
            assert fake.num_held == 0

        audio = np.ones(100_000, np.float32)
        yield Subject(
            fake, audio, lambda: (fake.num_requests,), expect_nothing_held, starts=(0,), hears=False
        )
        return
    is_whisper = name == "whisper"
    folder = random_folder() if is_whisper else random_asr_folder()
    async with running_speech(folder, config=TWO_THREADS) as running:

        def work() -> tuple[int, ...]:
            now = running.engine.statistics()
            return now.num_windows_encoded, now.num_prefill_tokens, now.num_decode_tokens

        audio = sound(16_000 * 5, seed=seed) if is_whisper else make_audio(seed, 11.0)
        yield Subject(running.speech, audio, work, running.idle)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    start=st.integers(0, 5_000),
    updates=st.lists(
        st.tuples(st.one_of(st.integers(1, 400), st.integers(1, 70_000)), st.booleans()),
        min_size=1,
        max_size=5,
    ),
    shrink=st.integers(0, 20_000),
    options=OPTIONS,
)
def test_every_final_is_the_file(
    name: str,
    seed: int,
    start: int,
    updates: list[tuple[int, bool]],
    shrink: int,
    options: TranscriptionOptions,
) -> None:
    async def check() -> None:
        async with subject(name, seed) as model:
            begin = min(start, model.starts[-1])
            await suite.check_every_final_is_the_file(model, updates, options, start=begin, shrink=shrink)

    trio.run(check)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        TranscriptionOptions(),
        TranscriptionOptions(language="en", segment_timestamps=True, word_timestamps=True, logprobs=True),
        TranscriptionOptions(languages=("de", "en"), temperature=0.7, seed=1),
        TranscriptionOptions(numerals="digits", segment_timestamps=True, logprobs=True),
        TranscriptionOptions(language="de", word_timestamps=True, logprobs=True, beam_size=2),
    ],
)
async def test_deltas_are_the_transcript(name: str, options: TranscriptionOptions) -> None:
    async with subject(name) as model:
        await suite.check_deltas_are_the_transcript(model, options)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "check",
    [
        suite.check_times_change_no_word,
        suite.check_asking_again_costs_nothing,
        suite.check_cancelling_loses_nothing,
        suite.check_closing_gives_back,
        suite.check_options_are_refused,
    ],
)
async def test_conformance(name: str, check: Callable[[Subject], Awaitable[None]]) -> None:
    async with subject(name) as model:
        await check(model)


@pytest.mark.parametrize("name", ["whisper", "qwen3_asr"])
async def test_silence_asks_nothing(name: str) -> None:
    async with subject(name) as model:
        await suite.check_silence_asks_nothing(model)
