"""Partials of Whisper hear little, finals all; an answer that talks on is asked for again with more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sensorium.actors.speech.families.short_context import (
    MOST_EFFORT,
    SILENCE_S,
    context_s,
    next_effort,
    repeats_itself,
    token_limit,
)
from sensorium.media.hashing import beginning_of, encoder_item, to_features
from sensorium.protocols.engine.messages import EncoderItem
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.running_speech import random_folder, running_speech, sound

WINDOW_S, RATE, ROWS_PER_S = 12, 16_000, 50
OPTIONS = TranscriptionOptions(language="en")


@pytest.mark.parametrize("effort", range(MOST_EFFORT + 2))
def test_a_longer_turn_is_never_heard_with_less(effort: int) -> None:
    contexts = [context_s(tenths / 10, effort, 30.0) for tenths in range(1, 301)]
    assert contexts == sorted(contexts)
    assert all(context >= min(30, tenths / 10 + 3) for tenths, context in enumerate(contexts, 1))
    assert set(contexts) <= set(range(31)), "few lengths"
    assert contexts[-1] == 30


def test_more_effort_hears_more_and_the_most_hears_all() -> None:
    heard = [context_s(2.0, effort, 30.0) for effort in range(MOST_EFFORT + 1)]
    assert heard == sorted(set(heard))
    assert heard[-1] == 30.0


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((), False),
        ((1, 2), False),
        ((7, 7), False),
        ((7, 7, 7), True),
        ((1, 2, 3, 2, 3, 2, 3), True),
        ((2, 3, 2, 3, 2, 3, 1), False),
        ((1, 2, 3, 4, 2, 3, 5, 2, 3), False),
        ((1, *range(10, 17), *range(10, 17)), False),
        ((1, *range(10, 18), *range(10, 18)), True),
        ((*range(100, 132), *range(100, 132)), True),
    ],
)
def test_an_answer_that_ends_in_copies_repeats_itself(tokens: tuple[int, ...], expected: bool) -> None:
    assert repeats_itself(tokens) is expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((5, 5, 5), False),
        ((5,) * 7, False),
        ((5,) * 8, True),
        ((1, 2) * 3, False),
        ((1, 2) * 4, True),
        ((9, *range(10, 18), *range(10, 18)), True),
    ],
)
def test_an_answer_is_left_only_for_a_longer_loop(tokens: tuple[int, ...], expected: bool) -> None:
    assert repeats_itself(tokens, least=8) is expected


def test_a_question_begins_with_less_than_the_last_one_took() -> None:
    assert [next_effort(effort) for effort in range(MOST_EFFORT + 1)] == [0, 0, 1]


@pytest.mark.slow
async def test_partials_encode_what_matters_and_finals_are_the_offline_answer() -> None:
    audio = sound(RATE * 6, seed=2)
    async with running_speech(random_folder(seed=4, window_s=WINDOW_S)) as whisper:

        def rows() -> int:
            return whisper.engine.statistics().num_encoder_tokens

        live = whisper.speech.live(lambda a, b: audio[a:b], OPTIONS, start=0)
        for seconds in (1, 2, 3, 4):
            before, end = rows(), seconds * RATE
            partial = await live.hypothesis(end, final=False)
            tries = [ROWS_PER_S * context_s(seconds, effort, WINDOW_S) for effort in range(MOST_EFFORT + 1)]
            spent = rows() - before
            assert spent in [sum(tries[first:last]) for first in range(3) for last in range(first + 1, 4)]
            assert (await live.hypothesis(end, final=False)) == partial
            assert rows() == before + spent, "known already"
            final = await live.hypothesis(end, final=True)
            assert rows() - before - spent in (0, ROWS_PER_S * WINDOW_S)
            assert final.text == (await whisper.speech.transcribe(audio[:end], OPTIONS)).text


@pytest.mark.slow
async def test_an_answer_that_talks_on_costs_more_effort_and_the_next_question_begins_with_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A random model talks on as long as it may."""
    audio = sound(RATE * 3, seed=5)
    async with running_speech(random_folder(seed=4, window_s=20)) as whisper:
        heard: list[int] = []
        placed = whisper.engine.placed

        def spy(items: tuple[EncoderItem, ...], *hints: Any, **lane: Any) -> object:  # noqa: ANN401
            heard.append(items[0].features.shape[1] // 100)
            return placed(items, *hints, **lane)

        monkeypatch.setattr(whisper.engine, "placed", spy)
        monkeypatch.setattr("sensorium.actors.speech.families.whisper.token_limit", lambda _: 2)
        live = whisper.speech.live(lambda a, b: audio[a:b], OPTIONS, start=0)
        await live.hypothesis(RATE, final=False)
        assert heard == [1 + SILENCE_S[0], 1 + SILENCE_S[1], 20]
        heard.clear()
        await live.hypothesis(2 * RATE, final=False)
        assert heard == [2 + SILENCE_S[1], 20]


def test_the_beginning_of_an_item_is_named_by_what_it_is() -> None:
    whole = encoder_item(np.arange(20, dtype=np.float32).reshape(2, 10))
    first = beginning_of(whole, 4)
    assert first.features == to_features(np.array([[0, 1, 2, 3], [10, 11, 12, 13]], np.float32))
    assert first == beginning_of(whole, 4)
    assert beginning_of(whole, 10) is whole
    assert len({each.content_hash for each in (whole, first, beginning_of(whole, 6))}) == 3


def test_limits_grow_with_the_speech() -> None:
    assert token_limit(0.3) < token_limit(3.0) < token_limit(30.0) < 448
