"""A real runner moves steps back that suppose too much of drafts before them; answers stay the same."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import NgramDraft, Request, RequestId, Sample, SamplingParams
from support.step_loop import StepLoop
from support.toy_model import ToyModel
from support.toy_runner import make

CONFIG = SchedulerConfig(num_blocks=64, block_size=4, max_context=100, max_tokens_per_step=16)
PROMPTS = ((4, 5, 6), (4, 5, 4, 5, 4), (9, 8, 7, 6))


def run(
    config: SchedulerConfig, sampling: SamplingParams, drafts: list[tuple[int, ...]], rotary_axes: int
) -> tuple[list[tuple[int, ...]], int]:
    """Answers with three plans in flight, and how many steps supposed drafts to be accepted."""
    loop = StepLoop(Scheduler(config), make(ToyModel(rotary_axes=rotary_axes)))
    for number, (prompt, draft) in enumerate(zip(PROMPTS, drafts, strict=True)):
        ngram = NgramDraft(4, 2, 1) if number == 1 else None
        task = Sample(sampling, draft_token_ids=draft, ngram=ngram)
        loop.submit(Request(RequestId(f"r{number}"), prompt, task))
    loop.run(max_in_flight=3)
    assert all(end.error is None for end in loop.ends.values())
    answers = [tuple(loop.tokens[RequestId(f"r{number}")]) for number in range(len(PROMPTS))]
    return answers, sum(step.num_supposed > 0 for plan in loop.steps for step in plan.sequences)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("rotary_axes", [1, 3])
def test_answers_are_those_without_drafts(temperature: float, rotary_axes: int) -> None:
    sampling = SamplingParams(max_tokens=30, temperature=temperature, seed=3)
    none: list[tuple[int, ...]] = [(), (), ()]
    plain, _ = run(CONFIG, sampling, none, rotary_axes)
    ahead = replace(CONFIG, corrects_starts=True)
    cut = [(*answer[:9], (answer[9] + 1) % 32, *answer[10:]) for answer in plain]
    for drafts in (plain, cut, none):
        answers, num_supposed = run(ahead, sampling, drafts, rotary_axes)
        assert answers == plain
        assert num_supposed > 0, "prompt lookup finds something, too"
        answers, num_supposed = run(CONFIG, sampling, drafts, rotary_axes)
        assert (answers, num_supposed) == (plain, 0)


def test_a_step_that_supposes_more_than_was_in_flight_fails_alone() -> None:
    loop = StepLoop(Scheduler(CONFIG), runner := make())
    loop.submit(Request(RequestId("r"), PROMPTS[0], Sample(SamplingParams(max_tokens=9))))
    loop.step()
    plan = loop.plan()
    (step,) = plan.sequences
    bad = msgspec.structs.replace(step, start=step.start + 3, num_supposed=2)
    (outcome,) = runner.execute(replace(plan, sequences=(bad,))).outcomes
    assert "the step starts at" in (getattr(outcome, "error", None) or "")
