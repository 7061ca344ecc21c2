"""Shares of a step: bounded for worse classes, and promised to them; live lingers; heavy work takes turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.activity import LINGER_STEPS
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.service_classes import HEAVY_PATIENCE, SERVICES, Lanes

CONFIG = SchedulerConfig(num_blocks=10, max_running=64, max_tokens_per_step=512, num_low_priority_tokens=8)
LIVE, INTERACTIVE, BATCH = (SERVICES.index(name) for name in ("live", "interactive", "batch"))


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
    shares = Lanes(CONFIG).shares(wanted)
    assert [share.num_tokens for share in shares] == tokens
    assert [share.num_slots for share in shares] == slots
    assert [share.is_low_priority for share in shares] == [index > 0 for index in range(len(shares))]


@pytest.mark.parametrize(
    ("wanted", "tokens"), [([0, 0, 3], [128]), ([0, 3, 0], [512]), ([0, 1, 1], [504, 8]), ([1, 0, 0], [512])]
)
def test_batch_takes_short_steps_even_alone(wanted: list[int], tokens: list[int]) -> None:
    lanes = Lanes(replace(CONFIG, max_batch_tokens_per_step=128))
    assert [share.num_tokens for share in lanes.shares(wanted)] == tokens


def test_live_is_there_for_a_while_after_its_last_request() -> None:
    lanes = Lanes(CONFIG)
    lanes.shares([0, 0, 1])
    quiet = [lanes.is_quiet]
    lanes.shares([1, 0, 1])
    for _ in range(LINGER_STEPS):
        quiet.append(lanes.is_quiet)
        assert [(share.num_tokens, share.is_low_priority) for share in lanes.shares([0, 0, 1])] == [(8, True)]
    assert [(share.num_tokens, share.is_low_priority) for share in lanes.shares([0, 0, 1])] == [(512, False)]
    assert [*quiet, lanes.is_quiet] == [True, *[False] * LINGER_STEPS, True]


def test_a_worse_class_encodes_one_item_alone_or_after_some_patience() -> None:
    lanes = Lanes(CONFIG)
    best, low = lanes.shares([1, 0, 1])
    assert lanes.num_heavy(best, is_alongside=False) == CONFIG.max_encodes_per_step
    assert lanes.num_heavy(low, is_alongside=False) == 1
    alongside = [lanes.num_heavy(low, is_alongside=True) for _ in range(HEAVY_PATIENCE + 1)]
    assert alongside == [*[0] * HEAVY_PATIENCE, 1]
    assert lanes.num_heavy(low, is_alongside=True) == 1, "until it had its turn"
    lanes.note_heavy(low)
    assert lanes.num_heavy(low, is_alongside=True) == 0


def test_beside_a_better_class_it_takes_part_in_one_of_so_many_steps() -> None:
    lanes = Lanes(replace(CONFIG, low_priority_interval=4))
    _, low = lanes.shares([1, 0, 1])
    assert all(lanes.joins(low, is_alongside=False) for _ in range(10))
    assert [lanes.joins(low, is_alongside=True) for _ in range(8)] == [*[False] * 3, True] * 2


@given(
    total=st.integers(1, 600),
    num_low_priority=st.integers(1, 600),
    wanted=st.lists(st.integers(0, 2), min_size=3, max_size=3),
    lingers=st.booleans(),
)
def test_parts_fill_the_whole_and_the_best_that_wants_something_gets_on(
    total: int, num_low_priority: int, wanted: list[int], lingers: bool
) -> None:
    config = replace(
        CONFIG, max_running=total, max_tokens_per_step=total, num_low_priority_tokens=num_low_priority
    )
    lanes = Lanes(config)
    if lingers:
        lanes.shares([1, 0, 0])
    shares = lanes.shares(wanted)
    assert [share.service for share in shares] == [place for place, count in enumerate(wanted) if count]
    if not shares:
        return
    assert min(shares[0].num_tokens, shares[0].num_slots) >= 1
    low_priority = [share.num_tokens for share in shares if share.is_low_priority]
    assert sum(low_priority) <= max(len(low_priority), min(num_low_priority, total // 2))
    if not lingers:
        assert sum(share.num_tokens for share in shares) == total
        assert sum(share.num_slots for share in shares) == total
    if total >= 4 and num_low_priority >= 2:
        assert all(share.num_tokens >= 1 and share.num_slots >= 1 for share in shares)
