"""Who speaks to one engine keeps the others of its process from taking all threads, and nothing else."""

from __future__ import annotations

import gc

from sensorium.engine.planning.activity import LINGER_STEPS, Presence
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.service_classes import SERVICES, Lanes

CONFIG = SchedulerConfig(num_blocks=10, max_running=64, max_tokens_per_step=512, num_low_priority_tokens=8)
SPEAKS, WRITES, NOTHING = [1, 0, 0], [0, 0, 1], [0, 0, 0]


def test_engines_are_told_of_each_others_live_requests() -> None:
    presence = Presence()
    listeners, files = Lanes(CONFIG, presence), Lanes(CONFIG, presence)
    files.shares(WRITES)
    assert files.is_quiet
    listeners.shares(SPEAKS)
    for _ in range(2 * LINGER_STEPS):  # of this one, while the other one's step takes its time
        (share,) = files.shares(WRITES)
        assert not files.is_quiet
    assert (SERVICES[share.service], share.num_tokens, share.is_low_priority) == ("batch", 512, False)
    listeners.shares(NOTHING)
    for _ in range(LINGER_STEPS - 1):
        files.shares(WRITES)
        assert not files.is_quiet
    files.shares(WRITES)
    assert files.is_quiet
    assert listeners.is_quiet


def test_an_engine_that_was_given_up_speaks_no_more() -> None:
    presence = Presence()
    listeners, files = Lanes(CONFIG, presence), Lanes(CONFIG, presence)
    listeners.shares(SPEAKS)
    del listeners
    gc.collect()
    for _ in range(LINGER_STEPS + 1):
        assert not files.is_quiet
        files.shares(WRITES)
    assert files.is_quiet


def test_an_engine_stands_back_while_another_one_serves_live_requests() -> None:
    presence = Presence()
    ears, files = Lanes(CONFIG, presence), Lanes(CONFIG, presence)
    assert not files.stands_back(WRITES)
    ears.shares(SPEAKS)
    assert files.stands_back(WRITES)
    assert not ears.stands_back(SPEAKS)
    assert not files.stands_back(SPEAKS), "each has live requests"
    assert not ears.stands_back(SPEAKS)
    ears.shares(NOTHING)
    assert not files.stands_back(WRITES)
