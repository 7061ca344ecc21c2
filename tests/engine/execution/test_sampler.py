"""Choices: randomness, filters, log-probabilities, drafts, limits, bad logits.

What the rules before the choice do is in `test_logits.py`; that Whisper's are those of `transformers` is
shown token for token in `test_exactness.py`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.execution.logits import RowSpan
from sensorium.engine.execution.sampler import accept, choose, draw, logprobs, prompt_logprobs, uniform
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.token_rules import RuleBook
from sensorium.engine.planning.plan import SequenceStart
from sensorium.protocols.engine.messages import RequestId, Sample, SamplingParams, TokensSampled
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 12
STOP = 11
PLAIN = SamplingParams(max_tokens=20, stop_token_ids=(STOP,))


def state(
    sampling: SamplingParams, generated: tuple[int, ...] = (), prompt: tuple[int, ...] = (1,), name: str = "r"
) -> SequenceState:
    start = SequenceStart(RequestId(name), prompt, generated, Sample(sampling))
    return SequenceState(start, RuleBook(VOCAB, torch.device("cpu")).rules_of(sampling))


def one(logits: torch.Tensor, a_state: SequenceState, draft: tuple[int, ...] = ()) -> TokensSampled:
    """One sequence alone."""
    span = RowSpan(a_state, 0, draft)
    return accept(span, choose(logits.clone(), [span])[0])


def rows(*best: int) -> torch.Tensor:
    """Logits whose best token is as given, row by row."""
    logits = torch.randn(len(best), VOCAB, generator=torch.Generator().manual_seed(0))
    for row, token in enumerate(best):
        logits[row, token] = 9.0
    return logits


def test_a_right_draft_is_accepted_with_one_more_token() -> None:
    got = one(rows(3, 4, 5, 6), state(PLAIN), (3, 4, 5))
    assert (got.token_ids, got.num_draft_accepted, got.finish_reason) == ((3, 4, 5, 6), 3, None)


def test_a_draft_ends_where_it_differs() -> None:
    got = one(rows(3, 4, 5, 6), state(PLAIN), (3, 7, 5))
    assert (got.token_ids, got.num_draft_accepted) == ((3, 4), 1)


def test_the_stop_token_inside_the_draft_ends_the_answer() -> None:
    got = one(rows(3, STOP, 5, 6), state(PLAIN), (3, STOP, 5))
    assert (got.token_ids, got.num_draft_accepted, got.finish_reason) == ((3,), 1, "stop")
    got = one(rows(3, STOP, 5), state(PLAIN), (3, 4))
    assert (got.token_ids, got.finish_reason) == ((3,), "stop")


def test_max_tokens_ends_the_answer_inside_a_draft() -> None:
    sampling = msgspec.structs.replace(PLAIN, max_tokens=3)
    got = one(rows(3, 4, 5, 6), state(sampling, (8,)), (3, 4, 5))
    assert (got.token_ids, got.num_draft_accepted, got.finish_reason) == ((3, 4), 2, "length")
    got = one(rows(3), state(sampling, (8, 8)))
    assert (got.token_ids, got.finish_reason) == ((3,), "length")


def test_ignored_stop_tokens_are_tokens_like_others() -> None:
    got = one(rows(3, STOP, 5), state(msgspec.structs.replace(PLAIN, ignore_eos=True)), (3, STOP))
    assert (got.token_ids, got.finish_reason) == ((3, STOP, 5), None)


def test_accepting_advances_the_sequence() -> None:
    a_state = state(msgspec.structs.replace(PLAIN, frequency_penalty=0.001), (8,))
    one(rows(3, 4, 5, 6), a_state, (3, 7, 5))
    assert a_state.generated == [8, 3, 4]
    assert a_state.counts is not None
    assert sorted(a_state.counts.ids.tolist()) == [3, 4, 8]
    assert not a_state.finished
    one(rows(STOP), a_state)
    assert a_state.finished


def test_choosing_changes_no_sequence() -> None:
    sampling = msgspec.structs.replace(PLAIN, frequency_penalty=0.5, repetition_penalty=1.2, temperature=1.0)
    a_state = state(sampling, (8,))
    span = RowSpan(a_state, 0, (3, 4))
    logits = torch.randn(3, VOCAB)
    first, second = (choose(logits.clone(), [span])[0] for _ in range(2))
    assert first == second
    assert a_state.generated == [8]


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
@pytest.mark.parametrize("sampling", [PLAIN, msgspec.structs.replace(PLAIN, logit_bias=((1, 0.5),))])
def test_a_draft_that_leads_nowhere_fails_nobody_who_does_not_follow_it(
    bad: float, sampling: SamplingParams
) -> None:
    """Without the draft the sequence would fail where it gets to the bad row, and not before."""
    logits = rows(3, 4, 5, 6)
    logits[2] = bad
    wrong = one(logits, state(sampling), (3, 9, 5))
    assert (wrong.error, wrong.token_ids, wrong.num_draft_accepted) == (None, (3, 4), 1)
    there = state(sampling)
    right = one(logits, there, (3, 4, 5))
    assert (right.error, right.token_ids) == (None, (3, 4))
    assert right.num_draft_accepted == 1, "the newest token is still to be fed"
    assert one(logits[2:3], there).error is not None


def test_rules_that_leave_nothing_fail_that_sequence_alone() -> None:
    impossible = msgspec.structs.replace(PLAIN, suppress_token_ids=tuple(range(VOCAB)))
    spans = [RowSpan(state(impossible), 0), RowSpan(state(PLAIN), 1)]
    choices = choose(rows(3, 4), spans)
    results = [accept(span, choice) for span, choice in zip(spans, choices, strict=True)]
    assert "no token" in (results[0].error or "")
    assert results[0].fault == "no_token"
    assert results[0].token_ids == ()
    assert (results[1].error, results[1].token_ids) == (None, (4,))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    "sampling",
    [
        PLAIN,
        msgspec.structs.replace(PLAIN, temperature=1.0, top_p=0.9, top_k=3, logprobs=2),
        msgspec.structs.replace(PLAIN, allowed_token_ids=(3, 4)),
    ],
    ids=["greedy", "random", "ruled"],
)
def test_logits_that_are_not_finite_fail_that_sequence_alone(bad: float, sampling: SamplingParams) -> None:
    logits = rows(3, 4, 5)
    logits[1, 7] = bad
    spans = [RowSpan(state(sampling), i) for i in range(3)]
    choices = choose(logits, spans)
    assert [choice.error is None for choice in choices] == [True, False, True]
    assert "not finite" in (choices[1].error or "")
    assert choices[1].fault == "not_finite"


def kept_by_transformers(
    logits: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> torch.Tensor:
    """Probabilities of one row, by transformers' warpers in our order."""
    scores = TemperatureLogitsWarper(temperature)(None, logits)
    if min_p:
        scores = MinPLogitsWarper(min_p)(None, scores)
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    result: torch.Tensor = scores[0].double().softmax(-1)
    return result


@given(
    seed=st.integers(0, 10_000),
    temperature=st.floats(0.1, 3.0),
    top_k=st.integers(0, 15),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
    min_p=st.one_of(st.just(0.0), st.floats(0.001, 0.9)),
    u=st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=300, deadline=None)
def test_draws_are_the_inverse_distribution_function(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float, u: float
) -> None:
    """At u, the token whose share of the transformers' distribution, in vocabulary order, holds u."""
    logits = torch.randn(2, 40, generator=torch.Generator().manual_seed(seed)) * 3
    sampling = SamplingParams(
        max_tokens=1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=1
    )
    # Beside a row of another sequence that wants something else.
    other = SamplingParams(max_tokens=1, temperature=2.0, top_k=40 - top_k, top_p=0.5)
    token = int(draw(logits.clone(), [sampling, other], [u, 0.3])[0])
    want = kept_by_transformers(logits[:1], temperature, top_k, top_p, min_p)
    upper = float(want[: token + 1].sum())
    lower = upper - float(want[token])
    assert lower - 1e-5 <= u <= upper + 1e-5
    assert float(want[token]) > 0 or abs(u - lower) < 1e-5


def test_a_large_nucleus_needs_the_whole_vocabulary() -> None:
    """Nearly equal tokens: top_p reaches past the likeliest few hundred."""
    vocab = 4000
    logits = torch.randn(1, vocab, generator=torch.Generator().manual_seed(1)) * 0.1
    sampling = SamplingParams(max_tokens=1, temperature=1.0, top_p=0.8)
    want = kept_by_transformers(logits, 1.0, 0, 0.8, 0.0)
    n = 400
    drawn = draw(logits.expand(n, -1).clone(), [sampling] * n, [(i + 0.5) / n for i in range(n)])
    cumulative = want.cumsum(0)
    expected = torch.searchsorted(cumulative, torch.arange(n).double().add(0.5) / n, right=True)
    assert (drawn != expected).sum() <= 2  # a boundary may round to the other side
    assert (want[drawn] > 0).all()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.5, 4, 1.0), (1.0, 0, 0.6), (0.9, 5, 0.8)],
)
def test_draws_follow_the_distribution(temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(4)) * 2
    want = kept_by_transformers(logits, temperature, top_k, top_p, 0.0)
    sampling = SamplingParams(max_tokens=10**6, temperature=temperature, top_k=top_k, top_p=top_p)
    n = 4000
    uniforms = [uniform(5, RequestId("r"), index) for index in range(n)]
    counts = Counter(draw(logits.expand(n, -1).clone(), [sampling] * n, uniforms).tolist())
    for token in range(VOCAB):
        p = float(want[token])
        # Five standard deviations: with a fixed seed this never flickers.
        assert abs(counts[token] - n * p) <= 5 * math.sqrt(n * p * (1 - p)) + 1e-9


def test_a_draw_depends_on_seed_and_place_only() -> None:
    def stream(seed: int | None, name: str) -> list[float]:
        return [uniform(seed, RequestId(name), index) for index in range(40)]

    assert stream(3, "a") == stream(3, "b")
    assert stream(3, "a") != stream(4, "a")
    assert stream(None, "a") != stream(None, "b")
    assert len(set(stream(3, "a"))) == 40
    assert all(0 <= number < 1 for number in stream(3, "a"))


@pytest.mark.parametrize("temperature", [1e-40, 1e-6, 0.0])
def test_the_coldest_choice_is_the_best(temperature: float) -> None:
    logits = torch.randn(5, VOCAB, generator=torch.Generator().manual_seed(2)) * 100
    sampling = msgspec.structs.replace(PLAIN, stop_token_ids=(), temperature=temperature)
    spans = [RowSpan(state(sampling), i) for i in range(5)]
    want = logits.argmax(-1).tolist()
    assert [choice.token_ids[0] for choice in choose(logits, spans)] == want


def test_company_changes_no_choice() -> None:
    """Greedy and random, ruled and not, in one batch and alone."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(24, VOCAB, generator=generator)
    kinds = [
        PLAIN,
        msgspec.structs.replace(PLAIN, temperature=1.0, seed=1),
        msgspec.structs.replace(PLAIN, temperature=0.8, seed=2, top_p=0.7, repetition_penalty=1.3),
        msgspec.structs.replace(PLAIN, temperature=1.2, seed=3, top_k=4, frequency_penalty=0.4),
        msgspec.structs.replace(PLAIN, temperature=1.2, seed=4, min_p=0.1, suppress_token_ids=(2,)),
        msgspec.structs.replace(PLAIN, logit_bias=((4, 3.0), (5, -2.0)), presence_penalty=0.3),
    ]
    draft = (4, 5, 6)
    spans = [RowSpan(state(kind, (5, 5, 7)), 4 * i, draft) for i, kind in enumerate(kinds)]
    together = choose(logits.clone(), spans)
    for i, (kind, choice) in enumerate(zip(kinds, together, strict=True)):
        alone = choose(logits[4 * i : 4 * i + 4].clone(), [RowSpan(state(kind, (5, 5, 7)), 0, draft)])[0]
        assert choice.token_ids == alone.token_ids


def toy_logits(context: tuple[int, ...]) -> torch.Tensor:
    """A model of 5 tokens: logits that depend on all tokens so far."""
    seed = sum(token * 7**i for i, token in enumerate(context)) + 1
    return torch.randn(5, generator=torch.Generator().manual_seed(seed)) * 1.5


def answer(sampling: SamplingParams, length: int, draft: tuple[int, ...]) -> tuple[int, ...]:
    """An answer of the toy model, each step with what is left of the draft while it agrees."""
    tokens: tuple[int, ...] = ()
    a_state = SequenceState(
        SequenceStart(RequestId("r"), (), (), Sample(sampling)),
        RuleBook(5, torch.device("cpu")).rules_of(sampling),
    )
    while len(tokens) < length:
        rest = draft[len(tokens) : length - 1] if draft[: len(tokens)] == tokens else ()
        contexts = [tokens + rest[:i] for i in range(len(rest) + 1)]
        got = one(torch.stack([toy_logits(context) for context in contexts]), a_state, rest)
        tokens += got.token_ids
    return tokens


SAMPLINGS = [
    SamplingParams(max_tokens=99, temperature=1.0),
    SamplingParams(max_tokens=99, temperature=0.7, top_p=0.8),
    SamplingParams(
        max_tokens=99, temperature=1.3, repetition_penalty=1.5, frequency_penalty=0.5, presence_penalty=0.2
    ),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_draft_never_changes_a_random_answer(sampling: SamplingParams) -> None:
    for seed in range(30):
        seeded = msgspec.structs.replace(sampling, seed=seed)
        free = answer(seeded, 6, ())
        for draft in (free, free[:3], (*free[:2], (free[2] + 1) % 5, *free[3:]), (0, 1, 2, 3, 4, 0)):
            assert answer(seeded, 6, draft) == free


def test_drafted_answers_have_the_distribution_of_the_model() -> None:
    """Exact probabilities of all 125 answers of 3 tokens, against 5000 seeds with a fixed draft."""
    sampling, n, draft = SAMPLINGS[0], 5000, (1, 3, 2)
    counts = Counter(answer(msgspec.structs.replace(sampling, seed=seed), 3, draft) for seed in range(n))
    chi_square = 0.0
    for tokens in itertools.product(range(5), repeat=3):
        p = math.prod(float(toy_logits(tokens[:i]).softmax(-1)[tokens[i]]) for i in range(3))
        chi_square += (counts[tokens] - n * p) ** 2 / (n * p)
    # 124 degrees of freedom: the mean is 124, the standard deviation 15.7.
    assert chi_square < 124 + 5 * 15.7


def test_logprobs_are_those_after_the_rules_and_before_the_temperature() -> None:
    sampling = msgspec.structs.replace(
        PLAIN, logprobs=3, suppress_token_ids=(3,), temperature=5.0, seed=1, top_k=2, stop_token_ids=()
    )
    logits = rows(3, 4)
    got = one(logits, state(sampling))
    logits[:, 3] = -math.inf
    reference = logits[0].log_softmax(-1)
    assert got.logprobs == pytest.approx([float(reference[got.token_ids[0]])], abs=1e-5)
    best = reference.topk(3)
    assert [token for token, _ in got.top_logprobs[0]] == best.indices.tolist()
    assert [value for _, value in got.top_logprobs[0]] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_logprobs_come_with_the_tokens_that_are_kept() -> None:
    sampling = msgspec.structs.replace(PLAIN, logprobs=0)
    got = one(rows(3, 4, 5), state(sampling), (3, 9))
    assert got.token_ids == (3, 4)
    assert len(got.logprobs) == 2
    assert got.top_logprobs == ((), ())
    assert one(rows(STOP), state(sampling)).logprobs == ()


def test_how_sure_the_model_was_of_its_end_is_told() -> None:
    sampling = msgspec.structs.replace(PLAIN, logprobs=0)
    logits = rows(3, STOP)
    expected = float(logits[1].log_softmax(-1)[STOP])
    assert one(logits, state(sampling), (3,)).stop_logprob == pytest.approx(expected, abs=1e-5)
    assert one(logits[1:], state(sampling)).stop_logprob == pytest.approx(expected, abs=1e-5)
    assert one(logits[:1], state(sampling)).stop_logprob is None, "no end"
    likeliest = one(logits, state(msgspec.structs.replace(sampling, logprobs=2)), (3,)).stop_top_logprobs
    assert [token_id for token_id, _ in likeliest][:1] == [STOP]
    assert len(likeliest) == 2
    assert one(logits[1:], state(PLAIN)).stop_logprob is None, "nobody wants it"


def test_forbidden_tokens_are_no_alternatives() -> None:
    sampling = msgspec.structs.replace(PLAIN, logprobs=5, allowed_token_ids=(2, 6))
    got = one(rows(3), state(sampling))
    assert {token for token, _ in got.top_logprobs[0]} == {2, 6}


def test_prompt_logprobs_join_their_parts() -> None:
    logits = torch.randn(5, VOCAB)
    ids = (3, 1, 4, 1, 5)
    got = prompt_logprobs(((logits[i : i + 2], ids[i : i + 2]) for i in (0, 2, 4)), 2)
    want = logits.log_softmax(-1)
    assert got.logprobs == pytest.approx([float(want[i, token]) for i, token in enumerate(ids)], abs=1e-5)
    assert [[t for t, _ in top] for top in got.top] == want.topk(2).indices.tolist()
    likeliest_first = want.argsort(-1, descending=True).tolist()
    assert list(got.ranks) == [row.index(each) + 1 for row, each in zip(likeliest_first, ids, strict=True)]
    own, top = logprobs(logits, torch.tensor(ids), 0)
    assert own == pytest.approx(list(got.logprobs), abs=1e-6)
    assert top == [()] * 5
