"""A runner of the toy model, and plans of one step for it made by hand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.engine.execution.runner import Runner
from sensorium.engine.planning.plan import Plan, SequenceId, SequenceStart, SequenceStep, StepResult
from sensorium.protocols.engine.messages import RequestId, Sample, SamplingParams, TokensSampled
from support.toy_model import ToyModel

GREEDY = SamplingParams(max_tokens=12)
GOOD = (4, 5, 6)
"""A prompt nothing is wrong with."""


def make(
    model: ToyModel | None = None,
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    num_threads: int | None = None,
    grammars: GrammarStore | None = None,
) -> Runner:
    """A runner on one thread."""
    torch.set_num_threads(1)
    return Runner(
        model or ToyModel(),
        num_blocks=num_blocks,
        block_size=block_size,
        num_threads=num_threads,
        grammars=grammars,
    )


def step(
    number: int, prompt: tuple[int, ...], sampling: SamplingParams = GREEDY, **changes: object
) -> SequenceStep:
    """The first step of a sequence; its blocks are its own."""
    begin = SequenceStart(RequestId(f"r{number}"), prompt, (), Sample(sampling))
    table = tuple(range(8 * number, 8 * number + 8))
    return msgspec.structs.replace(SequenceStep(SequenceId(number), prompt, 0, table, begin=begin), **changes)


def run(runner: Runner, *steps: SequenceStep, ends: tuple[SequenceId, ...] = ()) -> tuple[TokensSampled, ...]:
    """Execute one plan of these."""
    return sampled(runner.execute(Plan(0, ends=ends, sequences=steps)))


def sampled(result: StepResult) -> tuple[TokensSampled, ...]:
    """What was sampled in a step in which nothing else was done."""
    assert all(isinstance(each, TokensSampled) for each in result.outcomes)
    return tuple(each for each in result.outcomes if isinstance(each, TokensSampled))


def greedy(model: ToyModel, prompt: tuple[int, ...], num: int) -> tuple[int, ...]:
    """The answer, computed densely."""
    tokens = list(prompt)
    for _ in range(num):
        tokens.append(int(model.dense_logits(tokens)[-1].argmax()))
    return tuple(tokens[len(prompt) :])


def full_above(limit: int) -> Callable[[int], None]:
    """A device that has memory for `limit` rows or items at once."""

    def check(num: int) -> None:
        if num > limit:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {num}.00 GiB. GPU 0 has …")

    return check
