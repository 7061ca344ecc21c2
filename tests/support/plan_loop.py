"""Runs requests through a runner without the scheduler: plans made by hand, any mix, any order of arrival.

Each request gets scattered blocks, so that paging is really exercised, and joins at its own step. Newest
tokens are fed by the runner itself (`feeds_sampled`), as the scheduler does it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from sensorium.actors.inference.executor import Runner
from sensorium.engine.planning.plan import (
    EncodeStep,
    MediaRows,
    Plan,
    SequenceId,
    SequenceStart,
    SequenceStep,
    Slot,
)
from sensorium.protocols.engine.messages import (
    Features,
    ProbabilityProbe,
    PromptLogprobs,
    RequestId,
    Sample,
    SamplingParams,
    TokensSampled,
    TopLogprobs,
)
from support.toy_runner import sampled as sampled_in

_sequence_ids = count(1_000_000)
"""Shared by all runs: a runner never sees one twice, nor one that a test made by hand."""


def to_features(features: torch.Tensor) -> Features:
    """A float32 tensor as plain data."""
    array = features.contiguous().numpy()
    return Features(tuple(array.shape), array.tobytes())


@dataclass(frozen=True)
class Placed:
    """Prompt tokens `start` to `start + num_rows` are the encoding in `slot`."""

    slot: Slot
    start: int
    num_rows: int


@dataclass
class Job:
    """One request and, after `run_jobs`, its answer. `slot` is what it cross-attends to."""

    prompt: tuple[int, ...]
    slot: Slot | None
    sampling: SamplingParams
    draft: tuple[int, ...] = ()
    probe: ProbabilityProbe | None = None
    joins_at: int = 0
    media: tuple[Placed, ...] = ()
    adapter: str | None = None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[TopLogprobs] = field(default_factory=list)
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)
    num_accepted: int = 0
    num_steps: int = 0
    probability: float | None = None
    finish: str | None = None
    error: str | None = None
    sequence_id: SequenceId = field(default_factory=lambda: SequenceId(next(_sequence_ids)))
    computed: int = 0
    num_resumed: int = 0
    """Tokens it had when the present sequence began."""


def encode(runner: Runner, windows: Sequence[torch.Tensor], *, first_slot: Slot = 0) -> None:
    """Encode windows into slots `first_slot`, `first_slot + 1`, …"""
    steps = tuple(EncodeStep(slot, to_features(window)) for slot, window in enumerate(windows, first_slot))
    result = runner.execute(Plan(0, encodes=steps))
    assert not result.encode_errors


def run_jobs(
    runner: Runner,
    jobs: Sequence[Job],
    *,
    seed: int = 0,
    prompt_chunk: int = 1000,
    preempt_every: int | None = None,
) -> None:
    """Decode all jobs to their end, together; prompts are fed in pieces of `prompt_chunk` tokens.

    With `preempt_every` every job is thrown out at each such step, and computed again as a new sequence.
    """
    rng = random.Random(seed)
    blocks = list(range(runner.num_blocks))
    rng.shuffle(blocks)
    longest = max(len(job.prompt) + job.sampling.max_tokens for job in jobs)
    per_job = -(-min(runner.info.max_context, longest) // runner.block_size)
    assert per_job * len(jobs) <= len(blocks), "the runner needs more blocks for this test"
    tables = [tuple(blocks[i * per_job : (i + 1) * per_job]) for i in range(len(jobs))]
    for number in range(10_000):
        live = [i for i, job in enumerate(jobs) if job.finish is None and job.error is None]
        if not live:
            runner.execute(Plan(number, ends=tuple(job.sequence_id for job in jobs)))
            return
        is_preempted = preempt_every is not None and number % preempt_every == preempt_every - 1
        ends = tuple(_preempt(jobs[i]) for i in live) if is_preempted else ()
        ready = [i for i in live if jobs[i].joins_at <= number]
        steps = [_step(jobs[i], i, tables[i], prompt_chunk) for i in ready]
        result = runner.execute(Plan(number, ends=ends, sequences=tuple(steps)))
        assert len(result.outcomes) == len(steps)
        for i, step, sampled in zip(ready, steps, sampled_in(result), strict=True):
            _take(jobs[i], step, sampled)
    raise AssertionError("the jobs never end")


def _preempt(job: Job) -> SequenceId:
    """Forget what was computed; the sequence that ends."""
    ended, job.sequence_id = job.sequence_id, SequenceId(next(_sequence_ids))
    job.computed, job.num_resumed = 0, len(job.tokens)
    return ended


def _step(job: Job, index: int, table: tuple[int, ...], prompt_chunk: int) -> SequenceStep:
    start = job.computed
    resumed = (*job.prompt, *job.tokens[: job.num_resumed])
    known = resumed[start : start + prompt_chunk]
    is_last = start + prompt_chunk >= len(resumed)
    room = job.sampling.max_tokens - len(job.tokens) - 1
    draft = job.draft[: max(room, 0)] if is_last and not job.tokens else ()
    begin = None
    if start == 0:
        task = Sample(job.sampling)
        begin = SequenceStart(RequestId(str(index)), job.prompt, tuple(job.tokens), task, job.adapter)
    return SequenceStep(
        sequence_id=job.sequence_id,
        token_ids=(*known, *draft),
        start=start,
        block_table=table,
        encoder_slot=job.slot,
        feeds_sampled=not known,
        answers=is_last,
        num_draft=len(draft),
        begin=begin,
        media=tuple(_rows(job.media, start, start + len(known))),
        probe=job.probe,
    )


def _rows(media: Sequence[Placed], start: int, end: int) -> list[MediaRows]:
    """The parts of placed items that lie between two positions."""
    rows: list[MediaRows] = []
    for item in media:
        first, last = max(item.start, start), min(item.start + item.num_rows, end)
        if first < last:
            rows.append(MediaRows(item.slot, first - start, last - first, first - item.start))
    return rows


def _take(job: Job, step: SequenceStep, sampled: TokensSampled) -> None:
    job.computed += step.num_rows - step.num_draft + sampled.num_draft_accepted
    job.tokens.extend(sampled.token_ids)
    job.logprobs.extend(sampled.logprobs)
    job.top_logprobs.extend(sampled.top_logprobs)
    if sampled.prompt_logprobs is not None:
        job.prompt_logprobs.append(sampled.prompt_logprobs)
    job.num_accepted += sampled.num_draft_accepted
    job.num_steps += 1
    if sampled.probe_probability is not None:
        job.probability = sampled.probe_probability
    job.finish = sampled.finish_reason
    job.error = sampled.error
