"""Replayed decode steps give what plain ones give, and padding rows touch nothing that is in use."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.execution.graphs import DecodeGraphs, batch_sizes
from sensorium.engine.execution.runner import Runner
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.step import FedSequence, Limits, step_batch
from sensorium.engine.execution.token_rules import RuleBook
from sensorium.engine.models.base import Model, StepBatch
from sensorium.engine.models.registry import open_model
from sensorium.engine.planning.plan import MediaRows, Plan, SequenceId, SequenceStart, SequenceStep, Slot
from sensorium.protocols.engine.messages import ProbabilityProbe, RequestId, Sample, SamplingParams
from support.plan_loop import Job, run_jobs
from support.rerun_graphs import RerunGraphs
from support.text_folder import make_qwen3_folder
from support.toy_model import ToyModel
from support.toy_runner import sampled
from torch import Tensor

CPU = torch.device("cpu")
GREEDY = SamplingParams(max_tokens=12)
BLOCK, NUM_BLOCKS = 4, 30


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def limits_of(model: Model) -> Limits:
    return Limits(
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK,
        max_context=model.info.max_context,
        vocab_size=model.info.vocab_size,
        has_cross_attention=False,
        rotary_axes=model.rotary_axes,
    )


def fed_row(number: int, token_id: int, start: int, table: tuple[int, ...], axes: int) -> FedSequence:
    """A decode step of one sequence, with three odd positions where the model has three."""
    begin = SequenceStart(RequestId(f"r{number}"), (1,) * start, (token_id,), Sample(GREEDY))
    positions = ((start,), (start + 3,), (max(start - 2, 0),)) if axes == 3 else None
    step = SequenceStep(SequenceId(number), (), start, table, feeds_sampled=True, positions=positions)
    return FedSequence(step, SequenceState(begin, RuleBook(32, CPU).rules_of(GREEDY)), (token_id,))


def random_rows(rng: random.Random, num: int, axes: int) -> list[FedSequence]:
    """Sequences with scattered blocks of their own."""
    blocks = rng.sample(range(NUM_BLOCKS), NUM_BLOCKS)
    rows = []
    for number in range(num):
        count = rng.randint(1, NUM_BLOCKS // num)
        table, blocks = tuple(blocks[:count]), blocks[count:]
        rows.append(fed_row(number, rng.randrange(32), rng.randrange(count * BLOCK), table, axes))
    return rows


def test_sizes_reach_the_most_and_grow_in_moderation() -> None:
    assert batch_sizes(1) == (1,)
    assert batch_sizes(5) == (1, 2, 4, 5)
    assert batch_sizes(16) == (1, 2, 4, 8, 16)
    assert batch_sizes(50) == (1, 2, 4, 8, 16, 32, 48, 50)
    assert len(batch_sizes(256)) == 20


@given(seed=st.integers(0, 10_000), axes=st.sampled_from([1, 3]), record_first=st.booleans())
@settings(max_examples=40, deadline=None)
@torch.inference_mode()
def test_replays_equal_plain_steps_and_write_what_they_write(
    seed: int, axes: int, record_first: bool
) -> None:
    """Batches of many sizes one after the other: what an earlier one left behind in the static rows, the
    padding included, changes no block but the spare one."""
    rng = random.Random(seed)
    model, backend = ToyModel(rotary_axes=axes), RerunGraphs()
    limits = limits_of(model)
    cache = torch.randn(1, NUM_BLOCKS + 1, 2, 1, BLOCK, 16, generator=torch.Generator().manual_seed(seed))
    graphs = DecodeGraphs(model, cache, limits, 6, backend)
    if record_first:
        before = cache.clone()
        graphs.record_all()
        assert backend.num_recorded == len(batch_sizes(6))
        assert torch.equal(cache[:, :NUM_BLOCKS], before[:, :NUM_BLOCKS])
    for _ in range(6):
        fed = random_rows(rng, rng.randint(1, 6), axes)
        assert graphs.can_replay(fed)
        cache[:, NUM_BLOCKS:] = torch.nan  # nobody reads it
        plain, before = cache.clone(), cache.clone()
        step = step_batch(fed, limits, {}, CPU)
        want = model.logits(model.forward(step, plain))
        got = graphs.logits(fed)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        used, earlier = (each[0, :NUM_BLOCKS].transpose(1, 3).flatten(0, 1) for each in (cache, before))
        torch.testing.assert_close(cache[:, :NUM_BLOCKS], plain[:, :NUM_BLOCKS], rtol=1e-5, atol=1e-5)
        written = (used != earlier).flatten(1).any(1).nonzero()[:, 0].tolist()
        assert set(written) <= set(step.paged.write_slots.tolist())
        assert bool(torch.isfinite(cache[:, NUM_BLOCKS:]).any()) == (len(fed) not in batch_sizes(6))
    assert backend.num_replayed == 6
    assert backend.num_recorded <= len(batch_sizes(6))


def test_what_is_not_one_plain_row_each_is_not_replayed() -> None:
    model = ToyModel()
    cache = torch.zeros(1, NUM_BLOCKS + 1, 2, 1, BLOCK, 16)
    graphs = DecodeGraphs(model, cache, limits_of(model), 2, RerunGraphs())
    row = fed_row(0, 3, 5, (1, 2), 1)

    def changed(**changes: object) -> FedSequence:
        return FedSequence(msgspec.structs.replace(row.step, **changes), row.state, row.token_ids)

    assert graphs.can_replay([row, changed(feeds_sampled=False, token_ids=(4,))])
    assert not graphs.can_replay([row, row, row]), "more than is recorded"
    assert not graphs.can_replay([row, FedSequence(row.step, row.state, (3, 4))]), "a draft or a chunk"
    assert not graphs.can_replay([changed(answers=False)])
    assert not graphs.can_replay([changed(media=(MediaRows(Slot(1), 0, 1, 0),))])
    assert not graphs.can_replay([changed(probe=ProbabilityProbe(5, 1))])


def answers(runner: Runner, seed: int, num: int = 9) -> list[tuple[list[int], str | None, list[float]]]:
    """Of jobs that come and go, chunked, drafted, sampled and preempted."""
    rng = random.Random(seed)
    jobs = []
    for index in range(num):
        sampling = SamplingParams(
            max_tokens=rng.randint(1, 14), temperature=rng.choice([0.0, 1.0]), seed=index, logprobs=0
        )
        prompt = tuple(rng.randrange(30) for _ in range(rng.randint(1, 20)))
        draft = tuple(rng.randrange(30) for _ in range(rng.choice([0, 0, 3])))
        jobs.append(Job(prompt, None, sampling, draft, joins_at=rng.randrange(6)))
    run_jobs(runner, jobs, prompt_chunk=7, preempt_every=5)
    return [(job.tokens, job.finish, list(job.logprobs)) for job in jobs]


@pytest.mark.parametrize("seed", range(4))
def test_a_runner_answers_the_same(seed: int) -> None:
    backend = RerunGraphs()
    model = ToyModel(rotary_axes=1 + 2 * (seed % 2))
    plain = Runner(model, num_blocks=200, block_size=BLOCK)
    replayed = Runner(model, num_blocks=200, block_size=BLOCK, cuda_graphs=backend, max_running=9)
    if seed > 1:
        replayed.warm_up()
    for got, want in zip(answers(replayed, seed), answers(plain, seed), strict=True):
        assert got[:2] == want[:2]
        assert got[2] == pytest.approx(want[2], abs=1e-4)
    assert backend.num_replayed > 5


def test_a_qwen3_answers_the_same(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path / "model", seed=3)
    model = open_model(folder, device="cpu", dtype="float32").load()
    backend = RerunGraphs()
    plain = Runner(model, num_blocks=200, block_size=BLOCK)
    replayed = Runner(model, num_blocks=200, block_size=BLOCK, cuda_graphs=backend, max_running=16)
    replayed.warm_up()
    assert backend.num_recorded == 5
    assert [each[:2] for each in answers(replayed, 1)] == [each[:2] for each in answers(plain, 1)]
    assert backend.num_replayed > 5


def test_a_model_of_another_kind_runs_as_always() -> None:
    model, backend = ToyModel(), RerunGraphs()
    model.info = replace(model.info, replayable=False)
    runner = Runner(model, num_blocks=200, block_size=BLOCK, cuda_graphs=backend)
    runner.warm_up()
    assert answers(runner, 0) == answers(Runner(ToyModel(), num_blocks=200, block_size=BLOCK), 0)
    assert backend.num_recorded == 0


def test_the_spare_block_cannot_be_asked_for() -> None:
    runner = Runner(ToyModel(), num_blocks=3, block_size=BLOCK, cuda_graphs=RerunGraphs())
    begin = SequenceStart(RequestId("r"), (1, 2), (), Sample(GREEDY))
    step = SequenceStep(SequenceId(1), (1, 2), 0, (3,), begin=begin)
    (only,) = sampled(runner.execute(Plan(0, sequences=(step,))))
    assert only.error == "a block of the table is not one of 3"


def test_without_a_card_there_are_no_cuda_graphs() -> None:
    with pytest.raises(ValueError, match="CUDA graphs need a CUDA device and triton"):
        Runner(ToyModel(), num_blocks=3, cuda_graphs=True)


def test_running_out_of_memory_is_met_in_halves() -> None:
    """As in a plain step."""

    class Small(ToyModel):
        def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
            if batch.token_ids.shape[0] == 4 and bool(batch.token_ids.any()):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return super().forward(batch, cache)

    def steps(runner: Runner) -> list[tuple[int, ...]]:
        first, then = [], []
        for number in range(4):
            begin = SequenceStart(RequestId(f"r{number}"), (1 + number, 2), (), Sample(GREEDY))
            first.append(SequenceStep(SequenceId(number), (1 + number, 2), 0, (number,), begin=begin))
            then.append(SequenceStep(SequenceId(number), (), 2, (number,), feeds_sampled=True))
        for each in first:
            runner.execute(Plan(0, sequences=(each,)))
        return [each.token_ids for each in sampled(runner.execute(Plan(0, sequences=tuple(then))))]

    want = steps(Runner(ToyModel(), num_blocks=8, block_size=BLOCK))
    assert steps(Runner(Small(), num_blocks=8, block_size=BLOCK, cuda_graphs=RerunGraphs())) == want
