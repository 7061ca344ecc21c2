"""How long an answer may still think."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.execution.reasoning_budget import beginning
from sensorium.protocols.engine.messages import ReasoningBudget

START, END, CALL = 1, 2, 3
BUDGET = ReasoningBudget(3, (START,), (END, CALL))
CHANNELS = ReasoningBudget(2, (7, 8), (9, 7))
"""As Harmony's: two tokens begin the thoughts, the first of which ends others."""


@pytest.mark.parametrize(
    ("budget", "token_ids", "must_end"),
    [
        (BUDGET, (), False),
        (BUDGET, (5, 5, 5, 5), False),
        (BUDGET, (START, 5, 5), False),
        (BUDGET, (START, 5, 5, 5), True),
        (BUDGET, (START, 5, 5, 5, 5), True),
        (BUDGET, (START, 5, 5, 5, END), False),
        (BUDGET, (START, 5, 5, CALL, 5, 5, 5), False),
        (BUDGET, (START, 5, END, START, 5, 5), True),
        (ReasoningBudget(0, (START,), (END,), is_open=True), (), True),
        (ReasoningBudget(1, (START,), (END,), is_open=True), (START,), True),
        (CHANNELS, (7, 5, 8, 5, 5), False),
        (CHANNELS, (7, 7, 8, 5, 5), True),
        (CHANNELS, (7, 8, 5, 7, 6, 5, 5, 5), False),
        (CHANNELS, (7, 8, 5, 7, 8, 5), True),
    ],
)
def test_thoughts_end_when_all_of_them_have_taken_the_budget(
    budget: ReasoningBudget, token_ids: tuple[int, ...], must_end: bool
) -> None:
    assert beginning(budget).follow(token_ids).must_end == must_end


@given(st.lists(st.sampled_from((5, 7, 8, 9))), st.integers(0, 9))
def test_tokens_may_come_in_any_pieces(token_ids: list[int], cut: int) -> None:
    whole = beginning(CHANNELS).follow(token_ids)
    assert beginning(CHANNELS).follow(token_ids[:cut]).follow(token_ids[cut:]) == whole
