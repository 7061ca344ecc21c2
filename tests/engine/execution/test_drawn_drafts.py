"""Drafts that were drawn from known probabilities: answers follow the model's distribution, and more of them
is accepted than of certain ones. Drafts and choices are drawn with fixed seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec
import pytest
import torch
from sensorium.engine.execution.logits import RowSpan
from sensorium.engine.execution.runner import Runner
from sensorium.engine.execution.sampler import accept, choose
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.token_rules import RuleBook
from sensorium.engine.planning.plan import DraftHandle, SequenceStart
from sensorium.protocols.engine.messages import RequestId, Sample, SamplingParams, TokensSampled
from support.toy_model import ToyModel
from support.toy_runner import GOOD, GREEDY, greedy, run, step
from torch import Tensor

VOCAB = 8
NUM_DRAWS = 4_000
SAMPLING = SamplingParams(max_tokens=20, temperature=0.8, ignore_eos=True)
GENERATOR = torch.Generator().manual_seed(3)
TARGET = torch.randn(VOCAB + 1, VOCAB, generator=GENERATOR)
"""Logits behind each token, and at last behind the prompt."""
DRAFTED = torch.randn(VOCAB + 1, VOCAB, generator=GENERATOR).softmax(-1)
"""What the draft model draws by, likewise."""


@dataclass(frozen=True)
class Drawn:
    """Answers to two drafted tokens each, and what tokens should follow which."""

    answers: list[TokensSampled]
    expected: Tensor


def draw_answers(sampling: SamplingParams, kept: Tensor, *, is_certain: bool = False) -> Drawn:
    """`kept`: the logits that the sampling options leave of `TARGET`, so that their softmax is expected."""
    generator = torch.Generator().manual_seed(4)
    first = torch.multinomial(DRAFTED[VOCAB], NUM_DRAWS, replacement=True, generator=generator)
    second = torch.multinomial(DRAFTED[first], 1, generator=generator)[:, 0]
    logits = torch.stack([TARGET[VOCAB].expand(NUM_DRAWS, -1), TARGET[first], TARGET[second]], 1)
    rules = RuleBook(VOCAB, torch.device("cpu")).rules_of(sampling)
    spans = [
        RowSpan(
            SequenceState(SequenceStart(RequestId(f"r{number}"), (1,), (), Sample(sampling)), rules),
            3 * number,
            draft,
            None if is_certain else DRAFTED[[VOCAB, draft[0]]],
        )
        for number, draft in enumerate(zip(first.tolist(), second.tolist(), strict=True))
    ]
    choices = choose(logits.reshape(-1, VOCAB).clone(), spans)
    answers = [accept(*both) for both in zip(spans, choices, strict=True)]
    return Drawn(answers, (kept / sampling.temperature).softmax(-1))


def top(logits: Tensor, count: int) -> Tensor:
    """The likeliest of each row."""
    least = logits.topk(count, -1).values[:, -1:]
    return logits.masked_fill(logits < least, -math.inf)


CASES = {
    "all tokens": (SAMPLING, TARGET),
    "the likeliest": (msgspec.structs.replace(SAMPLING, top_k=3), top(TARGET, 3)),
}


def fits(counts: Tensor, expected: Tensor) -> bool:
    """Whether counts of tokens are within 4.5 standard deviations of what these probabilities say."""
    assert not counts[expected == 0].any(), "a token that the options leave out"
    total = float(counts.sum())
    spread = (total * expected * (1 - expected)).sqrt().clamp_min(1)
    return bool(((counts - total * expected).abs() <= 4.5 * spread).all())


@pytest.mark.parametrize("case", CASES)
def test_answers_follow_the_distribution_of_the_model(case: str) -> None:
    """The first token, and each later one given the one before, whether it was accepted or drawn anew."""
    drawn = draw_answers(*CASES[case])
    counts = torch.zeros(3, VOCAB + 1, VOCAB)
    for answer in drawn.answers:
        before = VOCAB
        for place, token in enumerate(answer.token_ids):
            counts[place, before, token] += 1
            before = token
    assert fits(counts[0, VOCAB], drawn.expected[VOCAB])
    for place in (1, 2):
        for before in range(VOCAB):
            assert fits(counts[place, before], drawn.expected[before])
    assert counts[2].sum() > NUM_DRAWS / 10, "two accepted tokens, and one behind them"


@pytest.mark.parametrize("case", CASES)
def test_as_much_is_accepted_as_both_distributions_have_in_common(case: str) -> None:
    drawn = draw_answers(*CASES[case])
    common = float(torch.minimum(drawn.expected[VOCAB], DRAFTED[VOCAB]).sum())
    accepted = sum(answer.num_draft_accepted > 0 for answer in drawn.answers) / NUM_DRAWS
    assert abs(accepted - common) < 0.03
    certain = draw_answers(*CASES[case], is_certain=True)
    fewer = sum(answer.num_draft_accepted > 0 for answer in certain.answers) / NUM_DRAWS
    assert fewer < accepted - 0.1, "a certain draft is accepted where the model chooses it anyway"


def test_a_draft_from_the_models_own_distribution_is_always_accepted() -> None:
    own = (TARGET[VOCAB] / SAMPLING.temperature).softmax(-1)
    for number in range(200):
        token = int(torch.multinomial(own, 1, generator=GENERATOR))
        start = SequenceStart(RequestId(f"own {number}"), (1,), (), Sample(SAMPLING))
        span = RowSpan(SequenceState(start), 0, (token,), own[None])
        logits = torch.stack([TARGET[VOCAB], TARGET[token]])
        assert accept(span, choose(logits, [span])[0]).num_draft_accepted == 1


def test_greedy_answers_are_those_without_a_draft() -> None:
    model = ToyModel()
    answer = greedy(model, GOOD, 6)
    uniform = torch.full((3, model.info.vocab_size), 1 / model.info.vocab_size)
    runner = Runner(model, num_blocks=64, block_size=4, draft_probabilities={DraftHandle(7): uniform})
    for number, num_right in enumerate((3, 1)):
        draft = (*answer[:num_right], *(0,) * (3 - num_right))
        drafted = step(number, (*GOOD, *draft), num_draft=3, draft_handle=DraftHandle(7))
        start = SequenceStart(RequestId(f"r{number}"), GOOD, (), Sample(GREEDY))
        (got,) = run(runner, msgspec.structs.replace(drafted, begin=start))
        assert (got.token_ids, got.num_draft_accepted) == (answer[: num_right + 1], num_right)


def test_a_draft_without_its_probabilities_fails_alone() -> None:
    model = ToyModel()
    short = {DraftHandle(1): torch.ones(1, model.info.vocab_size)}
    runner = Runner(model, num_blocks=64, block_size=4, draft_probabilities=short)
    start = SequenceStart(RequestId("r0"), GOOD, (), Sample(GREEDY))
    for handle, problem in ((2, "are gone"), (1, "needed: (2, ")):
        drafted = step(0, (*GOOD, 1, 2), num_draft=2, draft_handle=DraftHandle(handle), begin=start)
        failed, good = run(runner, drafted, step(1, GOOD))
        assert problem in (failed.error or "")
        assert good.token_ids == greedy(model, GOOD, 1)
