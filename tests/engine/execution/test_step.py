"""Which rows of a step are looked at, and which are fed for their keys and values alone."""

from __future__ import annotations

import torch
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.step import FedSequence, Limits, step_batch
from sensorium.engine.execution.tasks.sample import SampleTask
from sensorium.engine.models.base import StepBatch
from sensorium.engine.planning.plan import SequenceId, SequenceStart, SequenceStep
from sensorium.protocols.engine.messages import ProbabilityProbe, RequestId, Sample, SamplingParams
from support.toy_model import ToyModel

LIMITS = Limits(
    num_blocks=99, block_size=16, max_context=512, vocab_size=300, has_cross_attention=False, rotary_axes=1
)


def fed(
    num_rows: int,
    *,
    answers: bool = True,
    num_draft: int = 0,
    probed: int | None = None,
    prompt_logprobs: int | None = None,
) -> FedSequence:
    """A prompt's rows from position 20 on; `probed` is a position."""
    sampling = SamplingParams(max_tokens=9, prompt_logprobs=prompt_logprobs)
    state = SequenceState(SequenceStart(RequestId("r"), tuple(range(20 + num_rows)), (), Sample(sampling)))
    probe = None if probed is None else ProbabilityProbe(probed, 3)
    tokens = tuple(range(20, 20 + num_rows))
    step = SequenceStep(
        SequenceId(0), tokens, 20, tuple(range(9)), answers=answers, num_draft=num_draft, probe=probe
    )
    return FedSequence(step, state, tokens)


def batch_of(*members: FedSequence) -> StepBatch:
    task = SampleTask(ToyModel())
    return step_batch(members, LIMITS, {}, torch.device("cpu"), [task.num_wanted(each) for each in members])


def test_of_prompts_the_last_rows_are() -> None:
    batch = batch_of(
        fed(10),
        fed(30, answers=False),  # its last row tells whether numbers are numbers
        fed(8, num_draft=2),
        fed(20, probed=35),
        fed(1),
    )
    wanted = batch.wanted
    assert wanted is not None
    assert wanted.rows.tolist() == [9, 39, 45, 46, 47, 63, 64, 65, 66, 67, 68]
    (paged,) = wanted.paged
    assert paged.num_queries == (1, 1, 3, 5, 1)
    assert paged.query_starts.tolist() == [0, 1, 2, 5, 10, 11]
    assert paged.write_slots.tolist() == batch.paged.write_slots[wanted.rows].tolist()
    assert paged.context_lengths.tolist() == batch.paged.context_lengths.tolist()


def test_where_most_are_nobody_is_left_out() -> None:
    assert batch_of(fed(1), fed(1)).wanted is None
    assert batch_of(fed(6, num_draft=4), fed(1), fed(2)).wanted is None
    assert batch_of(fed(30, prompt_logprobs=1)).wanted is None
