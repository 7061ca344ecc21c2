"""Each request's clock, read into distributions by class of service."""

from __future__ import annotations

import pytest
from sensorium.engine.planning.plan import Plan, SequenceId, SequenceStart, SequenceStep
from sensorium.engine.planning.request_times import RequestClocks
from sensorium.protocols.engine.histograms import SECONDS, Distribution, Tally
from sensorium.protocols.engine.messages import (
    FinishReason,
    Lane,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    TokensSampled,
)
from sensorium.protocols.engine.statistics import RequestTimes

A = RequestId("a")


def submit(clocks: RequestClocks, *, now: float) -> None:
    clocks.submitted(Request(A, (1, 2, 3), Sample(SamplingParams(9)), lane=Lane("batch")), now=now)


def plan(clocks: RequestClocks, *, now: float) -> None:
    begin = SequenceStart(A, (1, 2, 3), (), Sample(SamplingParams(9)))
    clocks.planned(Plan(0, sequences=(SequenceStep(SequenceId(1), (1,), 0, (0,), begin=begin),)), now=now)


def sample(clocks: RequestClocks, num: int, *, now: float, reason: FinishReason | None = None) -> None:
    clocks.sampled(TokensSampled(A, (7,) * num, finish_reason=reason), now=now)


def batch(clocks: RequestClocks) -> RequestTimes:
    return clocks.times()["times_batch"]


def spread(times: RequestTimes) -> dict[str, object]:
    found = {name: getattr(times, name) for name in times.__struct_fields__}
    return {name: (each.count, pytest.approx(each.total)) for name, each in found.items() if each.count}


def test_a_request_from_the_queue_to_its_last_token() -> None:
    clocks = RequestClocks()
    submit(clocks, now=10.0)
    plan(clocks, now=10.5)
    sample(clocks, 1, now=11.0)
    plan(clocks, now=11.2)  # put back to the queue: it has left it once already
    sample(clocks, 3, now=11.6)  # a draft was accepted
    sample(clocks, 0, now=12.0, reason="stop")
    assert spread(batch(clocks)) == {
        "queue_s": (1, 0.5),
        "first_token_s": (1, 1.0),
        "between_tokens_s": (3, 0.6),
        "whole_s": (1, 2.0),
        "prompt_tokens": (1, 3.0),
        "output_tokens": (1, 4.0),
    }
    assert not spread(clocks.times()["times_live"])


def test_a_stop_string_is_an_answer_too() -> None:
    clocks = RequestClocks()
    submit(clocks, now=1.0)
    sample(clocks, 2, now=2.0)
    clocks.answered(A, now=4.0)
    clocks.answered(A, now=9.0)
    assert spread(batch(clocks))["whole_s"] == (1, 3.0)


@pytest.mark.parametrize("is_reported", [True, False])
def test_what_is_aborted_counts_as_far_as_it_came_and_is_forgotten(is_reported: bool) -> None:
    clocks = RequestClocks()
    submit(clocks, now=1.0)
    plan(clocks, now=2.0)
    if is_reported:
        sample(clocks, 0, now=3.0, reason="abort")
    else:
        clocks.aborted(A)
    sample(clocks, 1, now=4.0)  # of a step that was in flight
    assert spread(batch(clocks)) == {"queue_s": (1, 1.0)}


def test_distributions_of_incarnations_add_up() -> None:
    tally = Tally(SECONDS)
    tally.add(0.001)
    tally.add(1e9, 2)
    one = tally.distribution()
    assert (one.counts[0], one.counts[-1], one.count) == (1, 2, 3)
    assert (one + one).count == 6
    assert Distribution() + one == one + Distribution() == one
    assert (RequestTimes(queue_s=one) + RequestTimes()).queue_s == one
