"""Who speaks to one engine keeps the others of its process from taking all threads, and nothing else."""

from __future__ import annotations

import gc
from dataclasses import replace

from sensorium.engine.planning.activity import LINGER_STEPS, Presence
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import RequestId
from support.scheduler_dialogs import generate

CONFIG = SchedulerConfig(num_blocks=10, max_running=64, max_tokens_per_step=512, num_low_priority_tokens=8)


def speaker(presence: Presence) -> Scheduler:
    """An engine for which a live request waits."""
    scheduler = Scheduler(CONFIG, presence)
    scheduler.submit(generate("live", service="live"))
    return scheduler


def test_engines_are_told_of_each_others_live_requests() -> None:
    presence = Presence()
    listeners, files = Scheduler(CONFIG, presence), Scheduler(CONFIG, presence)
    files.schedule()
    assert presence.is_quiet
    listeners.submit(generate("live", service="live"))
    listeners.schedule()
    files.submit(generate("file", tuple(range(40)), service="batch"))
    (step,) = files.schedule().sequences
    assert step.num_rows == 40, "its share of a step is whole: nothing better wants this engine"
    for _ in range(2 * LINGER_STEPS):  # of this one, while the other one's step takes its time
        files.schedule()
        assert not presence.is_quiet
    listeners.abort(RequestId("live"))
    listeners.schedule()
    for _ in range(LINGER_STEPS - 1):
        files.schedule()
        assert not presence.is_quiet
    files.schedule()
    assert presence.is_quiet


def test_an_engine_that_was_given_up_speaks_no_more() -> None:
    presence = Presence()
    listeners, files = speaker(presence), Scheduler(CONFIG, presence)
    listeners.schedule()
    del listeners
    gc.collect()
    for _ in range(LINGER_STEPS + 1):
        assert not presence.is_quiet
        files.schedule()
    assert presence.is_quiet


def test_an_engine_stands_back_while_another_one_serves_live_requests() -> None:
    presence = Presence()
    ears, files = speaker(presence), Scheduler(CONFIG, presence)
    files.submit(generate("file", service="batch"))
    assert not files.stands_back
    ears.schedule()
    assert [files.stands_back, ears.stands_back] == [True, False]
    files.submit(generate("spoken", service="live"))
    assert [files.stands_back, ears.stands_back] == [False, False], "each has live requests"
    files.abort(RequestId("spoken"))
    ears.abort(RequestId("live"))
    ears.schedule()
    assert [files.stands_back, ears.stands_back] == [False, False]


def test_without_classes_of_service_an_engine_has_no_live_requests() -> None:
    presence = Presence()
    plain = Scheduler(replace(CONFIG, scheduling_policy="first-come"), presence)
    plain.submit(generate("live", service="live"))
    assert plain.schedule()
    assert presence.is_quiet
    assert not Scheduler(CONFIG, presence).stands_back
