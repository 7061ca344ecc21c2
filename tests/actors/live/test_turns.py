"""What a session's turns keep in the engine is given back, at whatever moment they are forgotten."""

from __future__ import annotations

from typing import ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import trio
from msgspec.structs import replace
from sensorium.actors.live.audio_store import AudioStore
from sensorium.actors.live.turns import PATIENCE_S, LiveTurns, Outcome
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.errors import EngineFailedError, UnavailableError
from sensorium.protocols.transcription.transcript import Transcript
from sensorium.realtime.effects import Transcribe
from sensorium.realtime.events import HypothesisFailed
from support.fake_sessions import FakeModel, FakeTurn
from trio.testing import MockClock, wait_all_tasks_blocked

ITEM = ItemId("item_1")
REQUEST = Transcribe(ITEM, 0, 16_000, final=False)
SECOND = AudioStore()
SECOND.append(np.zeros(16_000, np.float32))


def make(model: FakeModel, outcomes: list[Outcome]) -> LiveTurns:
    async def report(outcome: Outcome) -> None:
        outcomes.append(outcome)

    return LiveTurns({"fake": model}, "fake", report, session_id="s")


@pytest.mark.parametrize("delay_s", [None, 0.0, 0.5])
async def test_a_turn_that_is_forgotten_is_given_back(
    autojump_clock: MockClock, delay_s: float | None
) -> None:
    """Also before its task had a chance to begin."""
    model, outcomes = FakeModel(work_s=1.0), list[Outcome]()
    turns = make(model, outcomes)
    async with trio.open_nursery() as nursery:
        turns.start(REQUEST, nursery, SECOND.copy)
        if delay_s is not None:
            await trio.sleep(delay_s)
        turns.forget(ITEM)
        await wait_all_tasks_blocked()
        assert model.num_held == turns.num_tracked == 0
    assert model.num_held == 0
    assert not outcomes


async def test_of_a_channels_ends_one_has_precedence(autojump_clock: MockClock) -> None:
    """The next one only when that is answered; another channel's, and what is no end, never lose it."""
    model, outcomes = FakeModel(work_s=1.0), list[Outcome]()
    turns = make(model, outcomes)

    async def transcribe(name: str, *, final: bool = True, channel: int = 0) -> int:
        num_before = model.num_queued
        turns.start(Transcribe(ItemId(name), 0, 16_000, final, channel), nursery, SECOND.copy)
        await trio.sleep(0.1)
        return model.num_queued - num_before

    async with trio.open_nursery() as nursery:
        assert await transcribe("partial", final=False) == 0
        assert await transcribe("first") == 0
        assert await transcribe("second") == 1
        assert await transcribe("other", channel=1) == 0
        assert await transcribe("open", final=False) == 0
        assert await transcribe("first") == 1, "behind the second"
        await trio.sleep(2)
        assert await transcribe("third") == 0
        turns.forget(ItemId("third"))
        assert await transcribe("fourth") == 0
    turns.close()


async def test_a_turn_is_heard_behind_the_same_however_often_it_is_made(autojump_clock: MockClock) -> None:
    model, outcomes = FakeModel(work_s=0.05), list[Outcome]()
    turns = make(model, outcomes)
    async with trio.open_nursery() as nursery:
        turns.start(Transcribe(ITEM, 8_000, 12_000, False, before=(0, 4_000)), nursery, SECOND.copy)
        await trio.sleep(0.1)
        turns.park()
        turns.start(Transcribe(ITEM, 8_000, 16_000, True, before=(0, 4_000)), nursery, SECOND.copy)
    assert len(outcomes) == 2
    assert model.before == [(0, 4_000)] * 2
    turns.close()


async def test_the_language_of_an_end_counts_for_what_is_said_next(autojump_clock: MockClock) -> None:
    """Of the same channel, if it is clear."""
    model, outcomes = FakeModel(work_s=0.05), list[Outcome]()
    turns = make(model, outcomes)

    async def finish(
        language: str, probability: float = 1.0, *, final: bool = True, channel: int = 0
    ) -> str | None:
        model.language, model.language_probability = language, probability
        name = ItemId(f"item {len(model.spoken)}")
        async with trio.open_nursery() as nursery:
            turns.start(Transcribe(name, 0, 16_000, final, channel), nursery, SECOND.copy)
        turns.forget(name)
        return model.spoken[-1]

    assert await finish("de", final=False) is None
    assert await finish("de") is None
    assert await finish("zh", 0.7) == "de"
    assert await finish("es", channel=1) is None
    assert await finish("fr", 0.8) == "de"
    assert await finish("fr") == "fr"
    assert await finish("es", channel=1) == "es"
    turns.close()


async def test_said_last_is_what_began_last_not_what_was_answered_last(autojump_clock: MockClock) -> None:
    model, outcomes = FakeModel(work_s=0.05), list[Outcome]()
    turns = make(model, outcomes)
    for number, (start, language) in enumerate([(8_000, "en"), (0, "de"), (12_000, "de")]):
        model.language = language
        async with trio.open_nursery() as nursery:
            question = Transcribe(ItemId(str(number)), start, 16_000, True)
            turns.start(question, nursery, SECOND.copy)
    assert model.spoken == [None, "en", "en"]
    turns.close()


async def test_a_turn_that_is_parked_before_its_task_begins_is_answered_and_given_back(
    autojump_clock: MockClock,
) -> None:
    model, outcomes = FakeModel(work_s=1.0), list[Outcome]()
    turns = make(model, outcomes)
    async with trio.open_nursery() as nursery:
        turns.start(REQUEST, nursery, SECOND.copy)
        turns.park()
    assert len(outcomes) == 1
    assert model.num_held == 0
    assert turns.num_tracked == 1


async def test_what_is_kept_for_a_turn_serves_every_question_and_a_newer_one_takes_its_place(
    autojump_clock: MockClock,
) -> None:
    model, outcomes = FakeModel(work_s=1.0), list[Outcome]()
    turns = make(model, outcomes)
    async with trio.open_nursery() as nursery:
        turns.start(REQUEST, nursery, SECOND.copy)
        await trio.sleep(1.5)
        turns.start(REQUEST, nursery, SECOND.copy)
        await trio.sleep(0.5)
        turns.start(Transcribe(ITEM, 0, 16_000, final=True), nursery, SECOND.copy)
    assert [outcome.final for outcome in outcomes] == [False, True]
    assert (len(model.before), model.num_held) == (1, 1), "it was made once"
    turns.close()
    assert model.num_held == 0


class ThreadedTurn(FakeTurn):
    """Reads its audio where no cancellation reaches, as a worker thread does."""

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        with trio.CancelScope(shield=True):
            await trio.sleep(1.0)
        raise IndexError("the audio was forgotten")


@pytest.mark.parametrize("is_forgotten", [True, False])
async def test_audio_that_is_forgotten_while_it_is_examined_is_no_defect(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, is_forgotten: bool
) -> None:
    model, outcomes = FakeModel(turn=ThreadedTurn), list[Outcome]()
    turns = make(model, outcomes)
    async with trio.open_nursery() as nursery:
        turns.start(REQUEST, nursery, SECOND.copy)
        await trio.sleep(0.5)
        if is_forgotten:
            turns.forget(ITEM)
    assert (len(outcomes), len(caplog.records)) == ((0, 0) if is_forgotten else (1, 1))
    turns.close()
    assert model.num_held == 0


class DownTurn(FakeTurn):
    """The model is down as often as its `faults` say."""

    faults: ClassVar[list[UnavailableError]] = []

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        if self.faults:
            raise self.faults.pop(0)
        return await super().hypothesis(end, final=final, is_pushed=is_pushed, is_queued=is_queued)


LOST = UnavailableError("it was in it", code="engine_lost")
AWAY = UnavailableError("it is restarting", code="engine_unavailable")
GONE = EngineFailedError("it has failed")


@pytest.mark.parametrize(
    ("faults", "final", "reported"),
    [
        ([LOST, *[AWAY] * 9], True, None),
        ([*[AWAY] * 9, LOST, AWAY], True, None),
        ([LOST], False, LOST),
        ([AWAY], False, AWAY),
        ([LOST, AWAY, GONE], True, GONE),
        ([LOST, AWAY, LOST], True, LOST),
        ([AWAY] * 1000, True, AWAY),
    ],
)
async def test_the_end_of_a_turn_waits_for_a_model_that_comes_back(
    autojump_clock: MockClock, faults: list[UnavailableError], final: bool, reported: UnavailableError | None
) -> None:
    """And for no other; nor does it go on bringing one down, or wait for ever."""
    model, outcomes = FakeModel(turn=DownTurn), list[Outcome]()
    turns, began = make(model, outcomes), trio.current_time()
    with patch.object(DownTurn, "faults", list(faults)):
        async with trio.open_nursery() as nursery:
            turns.start(replace(REQUEST, final=final), nursery, SECOND.copy)
    (outcome,) = outcomes
    assert (outcome.error if isinstance(outcome, HypothesisFailed) else None) is reported
    assert trio.current_time() - began < PATIENCE_S + 10
    turns.close()
    assert model.num_held == 0


async def test_who_waits_for_a_model_may_leave(autojump_clock: MockClock) -> None:
    model, outcomes = FakeModel(turn=DownTurn), list[Outcome]()
    turns = make(model, outcomes)
    with patch.object(DownTurn, "faults", [AWAY] * 1000):
        async with trio.open_nursery() as nursery:
            turns.start(replace(REQUEST, final=True), nursery, SECOND.copy)
            await trio.sleep(3)
            assert model.num_held == 0
            turns.forget(ITEM)
        assert len(DownTurn.faults) > 990, "it is not asked all the time"
    assert not outcomes
