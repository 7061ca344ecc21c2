"""A step the device has no memory for is done in parts; what cannot be done at all fails alone."""

from __future__ import annotations

import pytest
import torch
from sensorium.engine.planning.plan import EncodeStep, Plan
from sensorium.protocols.engine.messages import SamplingParams
from support.plan_loop import Job, run_jobs, to_features
from support.toy_model import DIM, ToyModel
from support.toy_runner import GOOD, full_above, greedy, make, run, step


def test_a_step_without_memory_for_all_is_done_in_parts() -> None:
    """Sampled with penalties and seeds, whose state must not be advanced by the attempt that failed."""
    sampling = SamplingParams(
        max_tokens=6, temperature=1.0, seed=4, repetition_penalty=1.3, presence_penalty=0.5
    )
    jobs, alone = ([Job((i, i + 1), None, sampling) for i in range(7)] for _ in range(2))
    run_jobs(make(ToyModel(before_decode=full_above(3)), num_blocks=100), jobs)
    for job in alone:
        run_jobs(make(num_blocks=100), [job])
    assert [job.tokens for job in jobs] == [job.tokens for job in alone]
    assert all(job.error is None for job in jobs)


def test_what_was_too_much_is_not_tried_again_in_every_step() -> None:
    tried: list[int] = []

    def check(num: int) -> None:
        tried.append(num)
        full_above(3)(num)

    model = ToyModel(before_decode=check)
    jobs = [Job((i,), None, SamplingParams(max_tokens=100)) for i in range(8)]
    run_jobs(make(model, num_blocks=300), jobs)
    assert all(job.error is None for job in jobs)
    failures = [index for index, num in enumerate(tried) if num > 3]
    assert tried[:5] == [8, 4, 2, 2, 4], "the first step finds out, half by half"
    assert len(failures) <= 2 * 3, "100 steps: at the beginning, and once more in case there is memory again"
    assert tried.count(8) == 2
    alone = Job((7,), None, SamplingParams(max_tokens=100))
    run_jobs(make(), [alone])
    assert jobs[7].tokens == alone.tokens


def test_a_sequence_there_is_no_memory_for_fails_alone_and_says_how_much() -> None:
    model = ToyModel(before_decode=full_above(5))
    runner = make(model)
    result = run(runner, step(0, GOOD), step(1, (1,) * 12), step(2, (7, 8)))
    assert result[0].token_ids == greedy(model, GOOD, 1)
    assert result[2].token_ids == greedy(model, (7, 8), 1)
    error = result[1].error or ""
    assert "out of memory" in error
    assert result[1].fault == "out_of_memory"
    assert "12.00 GiB" in error
    assert "12 tokens" in error
    assert "GPU 0" not in error
    assert run(runner, step(3, GOOD))[0].error is None


def test_other_failures_of_a_step_are_not_hidden() -> None:
    def broken(num: int) -> None:
        raise RuntimeError("the device is on fire")

    with pytest.raises(RuntimeError, match="fire"):
        run(make(ToyModel(before_decode=broken)), step(0, GOOD))


def test_a_thread_that_compiles_no_more_kernels_is_given_up() -> None:
    """oneDNN's error stays with the thread, so that every new shape would fail for good; the items are not
    at fault, and a restart has another thread."""

    def spoiled(_: int) -> None:
        raise RuntimeError("could not create a primitive")

    runner = make(ToyModel(before_encode=spoiled))
    encodes = tuple(EncodeStep(slot, to_features(torch.ones(3, DIM))) for slot in range(2))
    with pytest.raises(RuntimeError, match="compile no kernels any more"):
        runner.execute(Plan(0, encodes=encodes))
