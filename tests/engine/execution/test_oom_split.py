"""How steps are cut after one that was too much; what the runner makes of it is in test_runner_memory.py."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.execution.oom_split import BatchSplitter
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.step import FedSequence
from sensorium.engine.planning.plan import SequenceId, SequenceStart, SequenceStep
from sensorium.protocols.engine.messages import RequestId, Sample, SamplingParams


def fed(num_rows: int) -> FedSequence:
    tokens = (1,) * num_rows
    start = SequenceStart(RequestId("r"), tokens, (), Sample(SamplingParams(max_tokens=1)))
    return FedSequence(SequenceStep(SequenceId(0), tokens, 0, (0,)), SequenceState(start), tokens)


def sizes(splitter: BatchSplitter, step: list[FedSequence]) -> list[list[int]]:
    return [[len(each.token_ids) for each in part] for part in splitter.split(step)]


def test_what_is_known_lasts_a_while() -> None:
    splitter, step = BatchSplitter(), [fed(rows) for rows in (3, 1, 2, 9, 1, 1)]
    assert sizes(splitter, step) == [[3, 1, 2, 9, 1, 1]]
    splitter.fail(step[:3])
    assert sizes(splitter, step) == [[3], [1, 2], [9], [1, 1]], "three rows at once, or one sequence"
    splitter.fail(step)
    assert sizes(splitter, step) == [[3], [1, 2], [9], [1, 1]], "a larger failure teaches nothing"
    splitter.fail(step[:2])
    assert sizes(splitter, step) == [[3], [1], [2], [9], [1, 1]], "a smaller one does"
    num_steps = 0
    while len(sizes(splitter, step)) > 1:
        num_steps += 1
    assert 10 < num_steps < 1000


@given(st.lists(st.integers(1, 9), min_size=1), st.lists(st.integers(1, 9), min_size=2))
def test_nothing_is_lost_and_no_portion_could_be_smaller(rows: list[int], failed: list[int]) -> None:
    splitter = BatchSplitter()
    splitter.fail([fed(each) for each in failed])
    parts = sizes(splitter, [fed(each) for each in rows])
    assert all(parts), "nothing is run for nobody"
    assert [each for part in parts for each in part] == rows
    assert all(sum(part) <= sum(failed) // 2 or len(part) == 1 for part in parts)
    assert all(sum(one) + other[0] > sum(failed) // 2 for one, other in pairwise(parts))
