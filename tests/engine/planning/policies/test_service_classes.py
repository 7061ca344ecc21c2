"""Shares of a step: bounded for worse classes, and promised to them; live lingers; heavy work takes turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.activity import LINGER_STEPS
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.policies.policy import (
    Admission,
    Claim,
    Needs,
    PutBack,
    Served,
    Share,
    StepView,
)
from sensorium.engine.planning.policies.service_classes import HEAVY_PATIENCE, ServiceClasses, State
from sensorium.engine.planning.service_classes import SERVICES

CONFIG = SchedulerConfig(num_blocks=10, max_running=64, max_tokens_per_step=512, num_low_priority_tokens=8)
LIVE, INTERACTIVE, BATCH = (SERVICES.index(name) for name in ("live", "interactive", "batch"))


class Steps:
    """Steps of a policy without requests: groups use their tokens up, and encode if `heavy` has them."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.policy = ServiceClasses(config)
        self.state: State = self.policy.initial
        self.slots: list[int] = []

    def step(
        self, wanted: Sequence[int], *, heavy: Sequence[int] = (), num_left: int = 0, has_work: bool = True
    ) -> list[Share]:
        """The shares of one step. `has_work`: groups that are served feed something."""
        shares: list[Share] = []
        served: Served | None = None
        while True:
            view = StepView(wanted, served, has_work=bool(shares) and has_work)
            share, self.state = self.policy.share(self.state, view)
            if not shares:
                self.slots = [turn.num_slots for turn in self.state.turns]
            if share is None:
                return shares
            shares.append(share)
            num_encodes = min(share.num_encodes, int(share.group in heavy))
            is_refused = share.group in heavy and not num_encodes
            served = Served(share, num_left, num_encodes, 0, has_refused=is_refused, has_held=False)


@pytest.mark.parametrize(
    ("wanted", "tokens", "slots"),
    [
        ([0, 5, 0], [512], [64]),
        ([1, 0, 9], [504, 8], [56, 8]),
        ([0, 1, 1], [504, 8], [56, 8]),
        ([1, 1, 1], [504, 4, 4], [56, 4, 4]),
        ([0, 0, 0], [], []),
    ],
)
def test_what_worse_classes_want_is_bounded_and_promised(
    wanted: list[int], tokens: list[int], slots: list[int]
) -> None:
    steps = Steps(CONFIG)
    shares = steps.step(wanted)
    assert [share.num_tokens for share in shares] == tokens
    assert steps.slots == slots
    assert [share.group for share in shares] == [group for group, count in enumerate(wanted) if count]


def test_what_a_worse_class_leaves_is_for_the_next_one() -> None:
    assert [share.num_tokens for share in Steps(CONFIG).step([1, 1, 1], num_left=3)] == [504, 4, 4 + 3]


@pytest.mark.parametrize(
    ("wanted", "tokens"), [([0, 0, 3], [128]), ([0, 3, 0], [512]), ([0, 1, 1], [504, 8]), ([1, 0, 0], [512])]
)
def test_batch_takes_short_steps_even_alone(wanted: list[int], tokens: list[int]) -> None:
    steps = Steps(replace(CONFIG, max_batch_tokens_per_step=128))
    assert [share.num_tokens for share in steps.step(wanted)] == tokens


def test_live_is_there_for_a_while_after_its_last_request() -> None:
    steps = Steps(CONFIG)
    steps.step([1, 0, 1])
    found = [steps.step([0, 0, 1])[0].num_tokens for _ in range(LINGER_STEPS + 2)]
    assert found == [*[8] * LINGER_STEPS, 512, 512]


def test_a_worse_class_encodes_one_item_alone_or_after_some_patience() -> None:
    steps = Steps(CONFIG)
    best, low = steps.step([1, 0, 1], has_work=False)
    assert (best.num_encodes, best.num_wholes) == (CONFIG.max_encodes_per_step, None)
    assert (low.num_encodes, low.num_wholes) == (1, 1)
    alongside = [steps.step([1, 0, 1])[1].num_encodes for _ in range(HEAVY_PATIENCE + 2)]
    assert alongside == [*[0] * HEAVY_PATIENCE, 1, 1], "until it had its turn"
    assert steps.step([1, 0, 1], heavy=[BATCH])[1].num_encodes == 1
    assert steps.step([1, 0, 1])[1].num_encodes == 0


def test_beside_a_better_class_it_takes_part_in_one_of_so_many_steps() -> None:
    steps = Steps(replace(CONFIG, low_priority_interval=4))
    assert all(len(steps.step([1, 0, 1], has_work=False)) == 2 for _ in range(10))
    assert [len(steps.step([1, 0, 1])) for _ in range(8)] == [1, 1, 1, 2] * 2


@pytest.mark.parametrize(
    ("group", "needs", "running", "decision"),
    [
        (LIVE, "slot", [55, 4, 4], "enter"),
        (LIVE, "slot", [56, 4, 4], "wait"),
        (LIVE, "slot", [55, 4, 5], PutBack(BATCH)),
        (LIVE, "slot", [54, 5, 5], PutBack(BATCH)),
        (LIVE, "slot", [55, 5, 4], PutBack(INTERACTIVE)),
        (LIVE, "slot", [60, 4, 0], "wait"),
        (BATCH, "slot", [0, 0, 4], "wait"),
        (LIVE, "blocks", [3, 0, 1], PutBack(BATCH)),
        (LIVE, "blocks", [3, 0, 0], "wait"),
        (LIVE, "blocks", [0, 0, 0], "wait"),
        (LIVE, "next block", [3, 0, 1], PutBack(BATCH)),
        (LIVE, "next block", [3, 0, 0], PutBack(LIVE)),
    ],
)
def test_slots_are_taken_from_a_worse_class_beyond_its_share_and_blocks_from_the_worst(
    group: int, needs: Needs, running: list[int], decision: Admission
) -> None:
    steps = Steps(CONFIG)
    state = steps.state
    served: Served | None = None
    for _ in range(1 + group):
        share, state = steps.policy.share(state, StepView([1, 1, 1], served))
        assert share is not None
        served = Served(share, 0, 0, 0, has_refused=False, has_held=False)
    assert steps.policy.admit(state, Claim(group, needs, running)) == decision


@given(
    total=st.integers(1, 600),
    num_low_priority=st.integers(1, 600),
    wanted=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    lingers=st.booleans(),
)
def test_parts_fill_the_whole_and_the_best_that_wants_something_gets_on(
    total: int, num_low_priority: int, wanted: list[int], lingers: bool
) -> None:
    steps = Steps(
        replace(
            CONFIG, max_running=total, max_tokens_per_step=total, num_low_priority_tokens=num_low_priority
        )
    )
    if lingers:
        steps.step([1, 0, 0])
    is_low_priority = [lingers or any(wanted[:group]) for group, count in enumerate(wanted) if count]
    if wanted[LIVE]:
        is_low_priority[0] = lingers = False
    shares = steps.step(wanted)
    assert [share.group for share in shares] == [group for group, count in enumerate(wanted) if count]
    if not shares:
        return
    assert min(shares[0].num_tokens, steps.slots[0]) >= 1
    low_priority = [share.num_tokens for share, is_low in zip(shares, is_low_priority, strict=True) if is_low]
    assert sum(low_priority) <= max(len(low_priority), min(num_low_priority, total // 2))
    if not lingers:
        assert sum(share.num_tokens for share in shares) == total
        assert sum(steps.slots) == total
    if total >= 4 and num_low_priority >= 2:
        assert all(share.num_tokens >= 1 for share in shares)
        assert min(steps.slots) >= 1
