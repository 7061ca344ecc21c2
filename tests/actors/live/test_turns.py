"""What a session's turns keep in the engine is given back, at whatever moment they are forgotten."""

from __future__ import annotations

import numpy as np
import pytest
import trio
from sensorium.actors.live.store import AudioStore
from sensorium.actors.live.turns import LiveTurns, Outcome
from sensorium.protocols.messages import ItemId
from sensorium.realtime.effects import Transcribe
from support.fake_sessions import FakeModel
from trio.testing import MockClock, wait_all_tasks_blocked

ITEM = ItemId("item_1")
ASK = Transcribe(ITEM, 0, 16_000, final=False)


def make(model: FakeModel, outcomes: list[Outcome]) -> LiveTurns:
    async def report(outcome: Outcome) -> None:
        outcomes.append(outcome)

    store = AudioStore()
    store.append(np.zeros(16_000, np.float32))
    return LiveTurns({"fake": model}, "fake", store.copy, report, session_id="s")


@pytest.mark.parametrize("delay_s", [None, 0.0, 0.5])
async def test_a_turn_that_is_forgotten_is_given_back(
    autojump_clock: MockClock, delay_s: float | None
) -> None:
    """Also before its task had a chance to begin."""
    model, outcomes = FakeModel(work_s=1.0), list[Outcome]()
    turns = make(model, outcomes)
    async with trio.open_nursery() as nursery:
        turns.start(ASK, nursery)
        if delay_s is not None:
            await trio.sleep(delay_s)
        turns.forget(ITEM)
        await wait_all_tasks_blocked()
        assert model.num_held == turns.num_tracked == 0
    assert model.num_held == 0
    assert not outcomes


async def test_a_turn_that_is_parked_before_its_task_begins_is_answered_and_given_back(
    autojump_clock: MockClock,
) -> None:
    model, outcomes = FakeModel(work_s=1.0), list[Outcome]()
    turns = make(model, outcomes)
    async with trio.open_nursery() as nursery:
        turns.start(ASK, nursery)
        turns.park()
    assert len(outcomes) == 1
    assert model.num_held == 0
    assert turns.num_tracked == 1
