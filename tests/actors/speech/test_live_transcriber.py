"""A live turn's final transcript is the offline one, however it arrived; known windows cost nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.speech.live_transcriber import LiveTranscriber
from sensorium.actors.speech.transcriber import Transcriber
from sensorium.actors.speech.windows import WindowDecoder
from sensorium.protocols.messages import EngineStatistics
from sensorium.protocols.transcript import Transcript, TranscriptionOptions, Word
from support.running_speech import running_decoder, sound

pytestmark = pytest.mark.slow

OPTIONS = st.builds(
    TranscriptionOptions,
    language=st.sampled_from([None, None, "en", "zh"]),
    prompt=st.sampled_from(["", "Turn on the lights"]),
    segment_timestamps=st.booleans(),
    word_timestamps=st.booleans(),
    logprobs=st.booleans(),
)


def assert_same(live: Transcript, offline: Transcript) -> None:
    """Equal in everything; log-probabilities to the last digits, which depend on what else was batched."""
    plain = [
        msgspec.structs.replace(
            transcript,
            avg_logprob=None,
            language_probability=0.0,
            no_speech_prob=0.0,
            tokens=tuple(msgspec.structs.replace(token, logprob=0.0) for token in transcript.tokens),
            segments=tuple(
                msgspec.structs.replace(segment, avg_logprob=0.0, no_speech_prob=0.0)
                for segment in transcript.segments
            ),
        )
        for transcript in (live, offline)
    ]
    assert plain[0] == plain[1]
    assert live.avg_logprob == pytest.approx(offline.avg_logprob, abs=1e-3)
    assert live.language_probability == pytest.approx(offline.language_probability, abs=1e-3)
    assert live.no_speech_prob == pytest.approx(offline.no_speech_prob, abs=1e-3)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    start=st.integers(0, 5_000),
    updates=st.lists(st.tuples(st.integers(1, 40_000), st.booleans()), min_size=1, max_size=5),
    shrink=st.integers(0, 20_000),
    options=OPTIONS,
)
def test_final_is_the_offline_transcript(
    seed: int, start: int, updates: list[tuple[int, bool]], shrink: int, options: TranscriptionOptions
) -> None:
    audio = sound(start + sum(size for size, _ in updates), seed=seed)

    async def check() -> None:
        async with running_decoder() as decoder:
            offline = Transcriber(decoder)
            live = LiveTranscriber(decoder, lambda a, b: audio[a:b], options, start=start)
            end = start
            for size, final in updates:
                end += size
                transcript = await live.hypothesis(end, final=final)
                if final:
                    assert_same(transcript, await offline.transcribe(audio[start:end], options))
            # The turn may end before the newest audio: what was heard too much is taken back.
            end = max(start, end - shrink)
            transcript = await live.hypothesis(end, final=True)
            assert_same(transcript, await offline.transcribe(audio[start:end], options))

    trio.run(check)


def is_idle(now: EngineStatistics) -> bool:
    """Nothing waits, runs, or holds blocks or references."""
    held = now.num_waiting + now.num_running + now.num_cache_references
    return held == 0 and now.num_free_blocks == now.num_total_blocks


async def work(decoder: WindowDecoder) -> tuple[int, int]:
    statistics = decoder.engine.statistics()
    return statistics.num_windows_encoded, statistics.num_decode_tokens


async def test_asking_again_costs_nothing() -> None:
    audio = sound(24_000, seed=1)
    async with running_decoder() as decoder:
        live = LiveTranscriber(decoder, lambda a, b: audio[a:b], TranscriptionOptions(), start=0)
        await live.hypothesis(20_000, final=False)
        first = await live.hypothesis(24_000, final=True)
        before = await work(decoder)
        assert await live.hypothesis(24_000, final=True) == first
        assert await work(decoder) == before


async def test_finished_windows_are_timed_before_the_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    audio = sound(32_000 * 6, seed=2)
    options = TranscriptionOptions(language="en", word_timestamps=True)
    async with running_decoder() as decoder:
        timed: list[int] = []
        words = decoder.words

        async def spy(*args: Any, num_samples: int, **how: Any) -> tuple[Word, ...]:  # noqa: ANN401
            timed.append(num_samples)
            return await words(*args, num_samples=num_samples, **how)

        monkeypatch.setattr(decoder, "words", spy)
        live = LiveTranscriber(decoder, lambda a, b: audio[a:b], options, start=0)
        for end in range(8_000, len(audio), 8_000):
            await live.hypothesis(end, final=False)
        num_before = len(timed)
        final = await live.hypothesis(len(audio), final=True)
        assert len(timed) - num_before <= 1
        assert sum(timed) <= len(audio)
        assert final.words == (await Transcriber(decoder).transcribe(audio, options)).words


async def test_an_update_costs_one_window_whatever_the_age_of_the_turn() -> None:
    audio = sound(32_000 * 6, seed=2)
    options = TranscriptionOptions(language="en")
    async with running_decoder() as decoder:
        live = LiveTranscriber(decoder, lambda a, b: audio[a:b], options, start=0)
        costs = []
        for end in range(4_000, len(audio), 4_000):
            before = decoder.engine.statistics().num_windows_encoded
            await live.hypothesis(end, final=False)
            costs.append(decoder.engine.statistics().num_windows_encoded - before)
        assert max(costs) <= 2  # two when a window has just been finished, else the open one
        assert sum(costs) <= len(costs) + 8


async def test_the_draft_saves_steps_and_changes_nothing() -> None:
    audio = sound(30_000, seed=3)
    options = TranscriptionOptions(language="en")
    async with running_decoder() as decoder:
        live = LiveTranscriber(decoder, lambda a, b: audio[a:b], options, start=0)
        await live.hypothesis(30_000 - 160, final=False)
        await live.hypothesis(30_000, final=True)
        assert decoder.engine.statistics().num_draft_tokens > 0


async def test_cancelling_an_update_loses_nothing() -> None:
    audio = sound(60_000, seed=4)
    async with running_decoder() as decoder:
        live = LiveTranscriber(decoder, lambda a, b: audio[a:b], TranscriptionOptions(), start=0)
        for end in range(5_000, 60_000, 5_000):
            with trio.move_on_after(0.004):
                await live.hypothesis(end, final=False)
        offline = await Transcriber(decoder).transcribe(audio, TranscriptionOptions())
        assert_same(await live.hypothesis(60_000, final=True), offline)
        with trio.fail_after(5):
            while not is_idle(decoder.engine.statistics()):  # noqa: ASYNC110 (counters give no event)
                await trio.sleep(0.01)


async def test_silence_asks_the_engine_nothing() -> None:
    silence = np.zeros(50_000, np.float32)
    async with running_decoder() as decoder:
        live = LiveTranscriber(decoder, lambda a, b: silence[a:b], TranscriptionOptions(), start=0)
        transcript = await live.hypothesis(50_000, final=True)
        assert transcript.text == ""
        assert await work(decoder) == (0, 0)
