"""Streams and turns of a model whose words are known, on a real engine in virtual time."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest
import trio
from msgspec import structs
from sensorium.actors.speech.model import LIVE_PARTIAL, LiveStream, ReadAudio
from sensorium.actors.speech.streaming import feed
from sensorium.protocols.transcription.streaming import Segmentation, StreamSegment
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.fake_engine import fed
from support.fake_transducer import chunk_of
from support.numbered_words import DELAYS, ROW, TAG, NumberSpeech, sound_of
from trio.testing import MockClock

CUT = Segmentation(8 * ROW, 40 * ROW)
WORDS = TranscriptionOptions(word_timestamps=True)


@pytest.fixture(autouse=True)
def inline(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_INLINE_SAMPLES", 1 << 20)  # time would go on while a thread works


def reader(numbers: Sequence[int]) -> ReadAudio:
    """The sound of these rows."""
    samples = (sound_of(numbers) / 32_768).astype(np.float32)
    return lambda start, end: samples[start:end]


def rows(num: int, seed: int = 0) -> list[int]:
    """Words and pauses."""
    rng, said, number = random.Random(seed), list[int](), 0
    while len(said) < num:
        number += 1
        said += [number, *(0,) * rng.choice((1, 2, 4, 12))]
    return said[:num]


def texts(segments: Sequence[StreamSegment]) -> list[tuple[int, str]]:
    """Those that are over."""
    return [(each.start, each.transcript.text) for each in segments if each.is_over]


@asynccontextmanager
async def running(num_slots: int = 2) -> AsyncIterator[tuple[NumberSpeech, trio.Nursery]]:
    """The engine, and a nursery for streams."""
    speech = NumberSpeech(num_slots)
    async with trio.open_nursery() as nursery:
        await nursery.start(speech.engine.run)
        yield speech, nursery
        nursery.cancel_scope.cancel()


async def follow(stream: LiveStream, num_rows: int, step: int) -> list[tuple[int, str]]:
    """All segments that are over, taken as they come."""
    found, start = list[tuple[int, str]](), 0
    for end in range(step, num_rows * ROW + 1, step):
        answer = await stream.segments(start, end, CUT)
        assert answer.kept_from <= answer.next_start
        found += texts(answer.segments)
        start = answer.next_start
    return found


@pytest.mark.parametrize("delay_ms", [80, 560, 1120])
async def test_segments_are_the_same_at_every_pace_and_delay(delay_ms: int) -> None:
    numbers = rows(700)
    async with running() as (speech, nursery):
        found = []
        for step in (ROW, 10 * ROW, 70 * ROW):
            stream = speech.speech.stream(reader(numbers), WORDS, start=0, nursery=nursery, delay_ms=delay_ms)
            found.append(await follow(stream, 700, step))
            stream.release()
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 10


async def test_a_stream_that_is_evicted_each_time_loses_no_word() -> None:
    numbers = rows(600)
    async with running(num_slots=1) as (speech, nursery):
        whole = speech.speech.stream(reader(numbers), WORDS, start=0, nursery=nursery)
        expected = await follow(whole, 600, 60 * ROW)
        whole.release()
        stream = speech.speech.stream(reader(numbers), WORDS, start=0, nursery=nursery)
        found, start = list[tuple[int, str]](), 0
        for turn, end in enumerate(range(35 * ROW, 600 * ROW, 35 * ROW)):
            answer = await stream.segments(start, end, CUT)
            found, start = found + texts(answer.segments), answer.next_start
            other = structs.replace(fed(f"other-{turn}"), lane=LIVE_PARTIAL)
            async with speech.engine.placed() as place, place.run(other) as run:
                await run.feed(chunk_of((0.0, 0.0), is_last=True))
                await run.outcome()
        evictions = speech.engine.statistics().num_state_evictions
    assert evictions > 10
    assert len(found) > 10
    assert found == expected[: len(found)]


async def test_a_conclusion_has_the_chunk_that_is_not_full() -> None:
    """The stream goes on behind it: nothing is said twice."""
    numbers = rows(60)
    async with running() as (speech, nursery):
        stream = speech.speech.stream(reader(numbers), WORDS, start=0, nursery=nursery)
        end = 17 * ROW
        answer = await stream.conclusion(0, end, shown_start=0)
        (segment,) = answer.segments
        assert segment.transcript.text == " ".join(str(each) for each in numbers[:17] if each)
        starts = [round(word.start * 16_000) // ROW for word in segment.transcript.words]
        assert starts == [row for row, number in enumerate(numbers[:17]) if number]
        answer = await stream.conclusion(end, 60 * ROW, shown_start=end)
        assert answer.segments[0].transcript.text == " ".join(str(each) for each in numbers[17:] if each)


async def test_a_final_that_nothing_was_fed_for_makes_no_fork() -> None:
    """At the end of a chunk, and when it is asked for again."""
    async with running() as (speech, nursery):
        turn = speech.speech.live(reader(rows(100)), WORDS, start=0, nursery=nursery, delay_ms=560)
        full = await turn.hypothesis(DELAYS[0].size * 3, final=True)
        assert full.text == (await turn.hypothesis(DELAYS[0].size * 3, final=True)).text
        assert speech.engine.statistics().num_chunks_forked == 0
        for _ in range(3):
            await turn.hypothesis(DELAYS[0].size * 3 + ROW, final=True)
        assert speech.engine.statistics().num_chunks_forked == 1
        turn.close()


async def test_a_tag_becomes_the_language_of_turns_files_and_segments() -> None:
    numbers = [1, 2, TAG, *(0,) * 20, 3]
    samples = (sound_of(numbers) / 32_768).astype(np.float32)
    async with running() as (speech, nursery):
        turn = speech.speech.live(reader(numbers), WORDS, start=0, nursery=nursery)
        final = await turn.hypothesis(len(samples), final=True)
        turn.close()
        file = await speech.speech.transcribe(samples, WORDS)
        stream = speech.speech.stream(reader(numbers), WORDS, start=0, nursery=nursery)
        answer = await stream.segments(0, len(samples), CUT)
        stream.release()
    for transcript in (final, file):
        assert (transcript.text, transcript.language) == ("1 2 3", "de")
    assert (answer.segments[0].transcript.text, answer.segments[0].transcript.language) == ("1 2", "de")


async def test_a_turn_has_segments_where_they_are_asked_for() -> None:
    options = TranscriptionOptions(segment_timestamps=True)
    async with running() as (speech, nursery):
        turn = speech.speech.live(reader(rows(50)), options, start=0, nursery=nursery)
        final = await turn.hypothesis(50 * ROW, final=True)
        turn.close()
    assert "".join(segment.text for segment in final.segments).strip() == final.text
    assert final.segments[0].start >= 0


async def test_a_question_that_is_given_up_loses_nothing() -> None:
    numbers = rows(200)
    async with running() as (speech, nursery):
        stream = speech.speech.stream(reader(numbers), WORDS, start=0, nursery=nursery)
        with trio.CancelScope() as scope:
            scope.cancel()
            await stream.segments(0, 100 * ROW, CUT)
        given_up = texts((await stream.segments(0, 200 * ROW, CUT)).segments)
        other = speech.speech.stream(reader(numbers), WORDS, start=0, nursery=nursery)
        assert given_up == texts((await other.segments(0, 200 * ROW, CUT)).segments)
