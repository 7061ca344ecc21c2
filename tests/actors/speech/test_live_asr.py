"""Qwen3-ASR: a live turn ends in the offline transcript, however it arrived; what is known costs nothing."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.speech import segment_work
from sensorium.actors.speech.answer_guard import LoopGuard, cut_loops, token_budget
from sensorium.actors.speech.asr import AsrTranscriber
from sensorium.actors.speech.live_asr import LiveAsr
from sensorium.actors.speech.model import Samples
from sensorium.actors.speech.recording import SILENT_PEAK
from sensorium.actors.speech.segments import Choice, SegmentAnswer, SegmentWish
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.qwen3_asr.text import parse_answer
from sensorium.engine.planning.plan import Plan, StepResult
from sensorium.media.word_times import time_words
from sensorium.protocols.errors import UnavailableError
from sensorium.protocols.messages import EngineStatistics, Generate, RequestId, SamplingParams
from sensorium.protocols.transcript import Transcript, TranscriptionOptions, Word
from support.asr_folder import make_audio
from support.running_speech import random_asr_folder, running_asr

pytestmark = pytest.mark.slow

OPTIONS = st.builds(
    TranscriptionOptions,
    language=st.sampled_from([None, "en", "zh"]),
    languages=st.sampled_from([(), ("de", "en", "zh")]),
    prompt=st.sampled_from(["", "Turn on the lights"]),
    keywords=st.sampled_from([(), ("Sensorium",)]),
    logprobs=st.booleans(),
    word_timestamps=st.booleans(),
    segment_timestamps=st.booleans(),
)


def live_turn(
    asr: AsrTranscriber, audio: Samples, options: TranscriptionOptions | None = None, *, start: int = 0
) -> LiveAsr:
    return asr.live(lambda a, b: audio[a:b], options or TranscriptionOptions(), start=start)


def assert_same(live: Transcript, offline: Transcript) -> None:
    """Equal in everything; log-probabilities to the last digits, which depend on what else was batched."""
    plain = [
        msgspec.structs.replace(
            transcript,
            avg_logprob=None,
            language_probability=0.0,
            tokens=tuple(msgspec.structs.replace(token, logprob=0.0) for token in transcript.tokens),
            segments=tuple(
                msgspec.structs.replace(segment, avg_logprob=0.0) for segment in transcript.segments
            ),
        )
        for transcript in (live, offline)
    ]
    assert plain[0] == plain[1]
    assert live.avg_logprob == pytest.approx(offline.avg_logprob, abs=1e-3)
    assert live.language_probability == pytest.approx(offline.language_probability, abs=1e-3)


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    start=st.integers(0, 5_000),
    updates=st.lists(st.tuples(st.integers(1, 100_000), st.booleans()), min_size=1, max_size=4),
    shrink=st.integers(0, 20_000),
    options=OPTIONS,
)
def test_final_is_the_offline_transcript(
    seed: int, start: int, updates: list[tuple[int, bool]], shrink: int, options: TranscriptionOptions
) -> None:
    audio = make_audio(seed, (start + sum(size for size, _ in updates)) / 16_000)

    async def check() -> None:
        async with running_asr() as asr:
            live = live_turn(asr, audio, options, start=start)
            end = start
            for size, final in updates:
                end += size
                transcript = await live.hypothesis(end, final=final)
                if final:
                    assert_same(transcript, await asr.transcribe(audio[start:end], options))
            # The turn may end before the newest audio: what was heard too much is taken back.
            end = max(start, end - shrink)
            transcript = await live.hypothesis(end, final=True)
            assert_same(transcript, await asr.transcribe(audio[start:end], options))

    trio.run(check)


async def full_recompute(asr: AsrTranscriber, samples: Samples, language: str | None, number: int) -> str:
    """What one fresh request gives, which shares no prefix and no session with anything."""
    decoder = asr.decoder
    items = decoder.items(samples)
    prompt = decoder.text.prompt(items, language=language)
    request = Generate(
        RequestId(f"full-{number}"),
        prompt.token_ids,
        SamplingParams(
            max_tokens=token_budget(len(samples) / 16_000), stop_token_ids=decoder.text.info.stop_token_ids
        ),
        media=prompt.spans,
        cache_salt=f"{number}",
    )
    async with decoder.engine.encoded(*{item.content_hash: item for item in items}.values()):
        answer = await decoder.engine.complete(request)
    ids = answer.token_ids[: LoopGuard().feed(answer.token_ids)]
    return cut_loops(parse_answer(decoder.text.tokenizer.decode(ids), has_header=language is None).text)


# Noise; gliding tones; near silence and then a shout.
@pytest.mark.parametrize(("seed", "language"), [(0, None), (1, "de"), (2, None)])
async def test_partials_equal_a_full_recompute(seed: int, language: str | None) -> None:
    audio = make_audio(seed, 12.0)
    async with running_asr(random_asr_folder(0, 2048)) as asr:
        live = live_turn(asr, audio, TranscriptionOptions(language=language))
        for number, end in enumerate(range(1, len(audio), 33_333)):
            partial = await live.hypothesis(end, final=False)
            if np.abs(audio[:end]).max() > SILENT_PEAK:
                assert partial.text == await full_recompute(asr, audio[:end], language, number)


class Work:
    """What the engine did since the last look."""

    def __init__(self, asr: AsrTranscriber) -> None:
        self._asr = asr
        self._last = EngineStatistics()

    def done(self) -> tuple[int, int, int]:
        """Windows encoded, rows of their encodings, prompt tokens computed."""
        now, last = self._asr.decoder.engine.statistics(), self._last
        self._last = now
        return (
            now.num_windows_encoded - last.num_windows_encoded,
            now.num_encoder_tokens - last.num_encoder_tokens,
            now.num_prefill_tokens - last.num_prefill_tokens,
        )


async def test_an_update_costs_the_open_window_whatever_the_age_of_the_turn() -> None:
    audio = np.random.default_rng(0).standard_normal(16_000 * 25).astype(np.float32) * np.float32(0.1)
    async with running_asr(random_asr_folder(0, 4096)) as asr:
        live = live_turn(asr, audio, TranscriptionOptions(language="en"))
        work = Work(asr)
        windows = rows = 0
        for second in range(1, 26):
            await live.hypothesis(16_000 * second - 9_600, final=False)
            num_windows, num_rows, num_prefill = work.done()
            # One more when a window has just been finished: its last frames became final with the next.
            assert num_windows <= 1 + (second % 8 == 1)
            assert num_prefill <= num_rows + 50  # and the text around the audio
            windows, rows = windows + num_windows, rows + num_rows
        assert windows <= 25 + 3
        assert rows <= 5 * 25 * 13
        # The first window in updates 10 to 25, the second in 18 to 25.
        assert asr.decoder.engine.statistics().num_windows_reused == 16 + 8
        await live.hypothesis(16_000 * 25 - 9_600, final=True)
        assert work.done() == (0, 0, 0)


async def test_a_turn_that_ends_earlier_than_was_heard_encodes_one_window() -> None:
    audio = np.random.default_rng(1).standard_normal(16_000 * 20).astype(np.float32) * np.float32(0.1)
    async with running_asr(random_asr_folder(0, 4096)) as asr:
        live = live_turn(asr, audio)
        work = Work(asr)
        await live.hypothesis(len(audio), final=False)
        assert work.done()[0] == 3
        await live.hypothesis(len(audio) - 9_000, final=True)
        assert work.done()[0] == 1


async def test_a_clear_language_is_pinned_for_partials_and_finals_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audio = make_audio(0, 6.0)
    async with running_asr() as asr:
        text = asr.decoder.text
        asked: list[tuple[str | None, tuple[int, ...]]] = []

        async def decode(
            items: object, wish: SegmentWish, *, duration_s: float, on_text: object = None
        ) -> SegmentAnswer:
            asked.append((wish.language, wish.draft))
            header = text.header("de")
            sure = 0.9 if duration_s > 1 else 0.5
            choice = Choice("de", sure) if wish.language is None else None
            return SegmentAnswer("Ja.", choice, (*header, 7), len(header))

        monkeypatch.setattr(asr.decoder, "decode", decode)
        live = live_turn(asr, audio)
        for seconds in (1, 1.4, 2, 3):
            await live.hypothesis(round(16_000 * seconds), final=False)
        final = await live.hypothesis(48_000, final=True)
    assert [language for language, _ in asked] == [None, None, None, "de", None]
    assert asked[-1][1] == (*text.header("de"), 7), "the draft says the language itself"
    assert (final.text, final.language) == ("Ja.", "de")


async def test_finished_segments_are_never_asked_again() -> None:
    audio = make_audio(3, 20.0)
    async with running_asr() as asr:
        live = live_turn(asr, audio)
        for end in (*range(30_000, len(audio), 30_000), len(audio) - 4_000):
            await live.hypothesis(end, final=False)
        work = Work(asr)
        work.done()
        final = await live.hypothesis(len(audio), final=True)
        num_windows, _, num_prefill = work.done()
        assert (num_windows, len(final.segments)) == (1, len(asr.decoder.cut_rule.split(audio)))
        assert num_prefill < 150


async def test_finished_segments_are_timed_before_the_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    audio = make_audio(3, 20.0)
    timed: list[int] = []

    def spy(text: str, samples: Samples) -> tuple[Word, ...]:
        timed.append(len(samples))
        return time_words(text, samples)

    monkeypatch.setattr(segment_work, "time_words", spy)
    async with running_asr() as asr:
        live = live_turn(asr, audio, TranscriptionOptions(word_timestamps=True))
        for end in (*range(30_000, len(audio), 30_000), len(audio) - 4_000):
            await live.hypothesis(end, final=False)
        num_before = len(timed)
        final = await live.hypothesis(len(audio), final=True)
        assert len(timed) - num_before == 1
        assert sum(timed) == len(audio)
        assert final.words == (await asr.transcribe(audio, TranscriptionOptions(word_timestamps=True))).words


async def test_cancelling_an_update_loses_nothing_and_nothing_is_kept() -> None:
    audio = make_audio(4, 12.0)
    async with running_asr() as asr:
        live = live_turn(asr, audio)
        for end in range(20_000, len(audio), 20_000):
            with trio.move_on_after(0.02):
                await live.hypothesis(end, final=False)
        final = await live.hypothesis(len(audio), final=True)
        assert_same(final, await asr.transcribe(audio, TranscriptionOptions()))
        assert asr.decoder.engine.statistics().num_sessions_parked == 1
        live.close()
        live.close()
        with trio.fail_after(5):
            while not is_idle(asr.decoder.engine.statistics()):  # noqa: ASYNC110 (counters give no event)
                await trio.sleep(0.01)


async def test_a_restart_of_the_engine_costs_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    audio = make_audio(5, 10.0)
    async with running_asr() as asr:
        engine = asr.decoder.engine
        live = live_turn(asr, audio)
        await live.hypothesis(80_000, final=False)
        execute = Runner.execute

        def fail(self: Runner, plan: Plan) -> StepResult:
            monkeypatch.setattr(Runner, "execute", execute)
            raise RuntimeError("the device is gone")

        monkeypatch.setattr(Runner, "execute", fail)
        with pytest.raises(UnavailableError):
            await live.hypothesis(120_000, final=False)
        while not engine.ready:  # noqa: ASYNC110 (health gives no event)
            await trio.sleep(0.01)
        assert engine.num_restarts == 1
        final = await live.hypothesis(len(audio), final=True)
        assert_same(final, await asr.transcribe(audio, TranscriptionOptions()))


def is_idle(now: EngineStatistics) -> bool:
    """Nothing waits, runs, is parked, or holds blocks or references."""
    held = now.num_waiting + now.num_running + now.num_cache_references + now.num_sessions_parked
    return held == 0 and now.num_free_blocks == now.num_total_blocks


async def test_silence_asks_the_engine_nothing() -> None:
    silence = np.zeros(200_000, np.float32)
    async with running_asr() as asr:
        live = live_turn(asr, silence)
        for end in (0, 1, 50_000, 200_000):
            transcript = await live.hypothesis(end, final=True)
            assert (transcript.text, transcript.language) == ("", "")
        assert asr.decoder.engine.statistics().num_steps == 0
