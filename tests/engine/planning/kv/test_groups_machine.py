"""The scheduler's random histories with models whose layers keep different things.

Windows and chunks slide, alone or beside full attention; a state goes with them or with full attention.
The fake model's answers depend on exactly what its layers see, so that a hit, a revised session, a preemption
or a rejected draft that gives a sequence another past changes an answer.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import settings
from sensorium.engine.planning.kv.groups import PagedGroup
from sensorium.engine.planning.kv.specs import ChunkedLocal, FullAttention, SlidingWindow
from sensorium.engine.planning.limits import SchedulerConfig
from support.fake_layers import FakeLayers
from support.scheduler_machine import SESSIONS, SchedulerMachine

FULL = PagedGroup(FullAttention())
WINDOWS = [PagedGroup(SlidingWindow(size)) for size in (1, 2, 5, 9)]
CHUNKS = [PagedGroup(ChunkedLocal(size)) for size in (3, 8)]


def draw_parked(rng: random.Random) -> int | None:
    """Sessions keep something more often than elsewhere."""
    return rng.choice([None, None, None, 3])


class WindowMachine(SchedulerMachine):
    """Groups of windows and chunks, with and without full attention."""

    sessions = (None, *SESSIONS)

    def draw_cache(self, config: SchedulerConfig, rng: random.Random) -> tuple[SchedulerConfig, FakeLayers]:
        local = rng.sample(WINDOWS + CHUNKS, rng.choice([1, 1, 2]))
        groups = (*rng.choice([(FULL,), ()]), *local)
        num_blocks = config.num_blocks * rng.randint(1, len(groups))
        config = replace(config, groups=groups, num_blocks=num_blocks, max_parked_blocks=draw_parked(rng))
        return config, FakeLayers(groups)


class StateMachine(SchedulerMachine):
    """A state beside full attention, a window, or both."""

    sessions = (None, *SESSIONS)

    def draw_cache(self, config: SchedulerConfig, rng: random.Random) -> tuple[SchedulerConfig, FakeLayers]:
        groups = rng.choice([(FULL,), (FULL,), (rng.choice(WINDOWS),), (FULL, rng.choice(WINDOWS))])
        config = replace(
            config,
            groups=groups,
            num_blocks=config.num_blocks * len(groups),
            num_state_slots=rng.choice([1, 2, 4, 12]),
            snapshot_interval=rng.choice([1, 2]),
            max_parked_blocks=draw_parked(rng),
        )
        return config, FakeLayers(groups, has_state=True)


TestWindows = WindowMachine.TestCase
TestWindows.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestStates = StateMachine.TestCase
TestStates.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
