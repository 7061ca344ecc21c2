"""Beam search as `transformers` does it, as an exhaustive search does, and what holds of it step by step."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from sensorium.engine.text.beam_search import Beam, BeamSearch
from sensorium.protocols.engine.messages import TopLogprobs
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB_SIZE = 24
PROMPT = (3, 1, 4)

Model = Callable[[tuple[int, ...]], TopLogprobs]
"""All tokens behind a beginning of an answer, likeliest first."""


@cache
def llama(seed: int) -> LlamaForCausalLM:
    """Random, with weights so large that it prefers some tokens to others, and not always the same."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.35,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).eval()


@torch.inference_mode()
def likeliest(model: LlamaForCausalLM, beams: Sequence[Beam], count: int) -> list[TopLogprobs]:
    """The `count` likeliest tokens behind each beam."""
    ids = torch.tensor([(*PROMPT, *beam.token_ids) for beam in beams])
    values, tokens = model(ids).logits[:, -1].log_softmax(-1).topk(min(count, VOCAB_SIZE))
    return [
        tuple(zip(row, scores, strict=True))
        for row, scores in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


@cache
def frequent_tokens(model: LlamaForCausalLM) -> list[int]:
    """Tokens that come up in a likely answer, not at its very beginning."""
    written: list[int] = []
    while len(written) < 30:
        written.append(likeliest(model, [Beam(tuple(written))], 1)[0][0][0])
    later = [token for token in dict.fromkeys(written) if token not in written[:2]]
    return later + [token for token in range(VOCAB_SIZE) if token not in written]


def reference(
    model: Any,  # noqa: ANN401 (its `generate` is not annotated)
    num_beams: int,
    max_tokens: int,
    stops: Sequence[int],
    length_penalty: float,
) -> tuple[list[int], float]:
    """The answer of `transformers`, its stop token left out, and its score."""
    output = model.generate(
        torch.tensor([PROMPT]),
        attention_mask=torch.ones((1, len(PROMPT)), dtype=torch.int64),
        num_beams=num_beams,
        max_new_tokens=max_tokens,
        eos_token_id=list(stops) or None,
        pad_token_id=VOCAB_SIZE - 1,
        early_stopping=False,
        length_penalty=length_penalty,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    tokens: list[int] = output.sequences[0].tolist()[len(PROMPT) :]
    ends = [index for index, token in enumerate(tokens) if token in stops]
    return tokens[: ends[0]] if ends else tokens, float(output.sequences_scores[0])


@pytest.mark.parametrize(
    ("num_beams", "length_penalty"), [(2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0), (3, 0.0), (4, 0.4), (5, 1.6)]
)
def test_answers_equal_transformers(num_beams: int, length_penalty: float) -> None:
    """Several models, no to several stop tokens, answers that end by themselves and that are cut."""
    ends: Counter[str | None] = Counter()
    lengths: set[int] = set()
    bounds = [(0, 5), (1, 1), (1, 12), (2, 2), (2, 12), (3, 20), (6, 20)]
    for seed, (num_stops, max_tokens) in itertools.product(range(6), bounds):
        model = llama(seed)
        stops = frequent_tokens(model)[:num_stops]
        search = BeamSearch(
            num_beams, max_tokens=max_tokens, stop_token_ids=stops, length_penalty=length_penalty
        )
        while not search.is_over:
            search.advance(likeliest(model, search.running, search.num_candidates))
        best = search.best()
        expected, score = reference(model, num_beams, max_tokens, stops, length_penalty)
        assert list(best.token_ids) == expected, (seed, stops, max_tokens)
        assert search.score(best) == pytest.approx(score, abs=1e-5)
        ends[best.finish_reason] += 1
        lengths.add(len(best.token_ids))
    assert min(ends["stop"], ends["length"]) >= 4, ends
    assert len(lengths) > 5, lengths


@dataclass(frozen=True)
class Case:
    """A search over a model that is a table: each beginning has probabilities of its own."""

    seed: int
    vocab_size: int
    num_stops: int
    num_beams: int
    max_tokens: int

    @property
    def stops(self) -> range:
        return range(self.num_stops)

    def model(self, beginning: tuple[int, ...]) -> TopLogprobs:
        """All tokens, likeliest first. No two answers are equally likely."""
        rng = random.Random(f"{self.seed}/{beginning}")
        weights = [rng.expovariate(1.0) + 1e-9 for _ in range(self.vocab_size)]
        logprobs = [math.log(weight / sum(weights)) for weight in weights]
        return tuple(sorted(enumerate(logprobs), key=lambda pair: -pair[1]))

    def search(self, patience: float = 1.0) -> BeamSearch:
        return BeamSearch(
            self.num_beams, max_tokens=self.max_tokens, stop_token_ids=self.stops, patience=patience
        )

    def run(self, model: Model | None = None, *, patience: float = 1.0) -> Beam:
        """The answer."""
        model_of, search = model or self.model, self.search(patience)
        while not search.is_over:
            search.advance([model_of(beam.token_ids)[: search.num_candidates] for beam in search.running])
        return search.best()


cases = st.builds(
    Case,
    seed=st.integers(0, 10_000),
    vocab_size=st.integers(3, 9),
    num_stops=st.integers(0, 2),
    num_beams=st.integers(1, 8),
    max_tokens=st.integers(1, 8),
)


@given(cases)
@example(Case(0, 3, 2, 8, 8))
@example(Case(1, 9, 0, 8, 1))
def test_step_by_step(case: Case) -> None:
    """What goes on are different answers of one length, likeliest first, each grown from one before."""
    search = case.search()
    num_steps = 0
    while not search.is_over:
        before = search.running
        search.advance([case.model(beam.token_ids)[: search.num_candidates] for beam in before])
        num_steps += 1
        assert len(search.running) <= case.num_beams
        assert len({beam.token_ids for beam in search.running}) == len(search.running)
        totals = [beam.total for beam in search.running]
        assert totals == sorted(totals, reverse=True)
        for beam in search.running:
            assert beam.finish_reason is None
            assert len(beam.token_ids) == num_steps < case.max_tokens
            assert beam.token_ids[:-1] == before[beam.parent].token_ids
            assert not set(beam.token_ids) & set(case.stops)
            assert beam.total == pytest.approx(sum(beam.logprobs))
    assert num_steps <= case.max_tokens
    best = search.best()
    assert best.logprobs == tuple(
        dict(case.model(best.token_ids[:index]))[token] for index, token in enumerate(best.token_ids)
    )
    if best.finish_reason == "length":
        assert len(best.token_ids) == case.max_tokens
        assert search.score(best) == pytest.approx(sum(best.logprobs) / case.max_tokens)
    else:
        assert best.finish_reason == "stop"
        assert len(best.token_ids) < case.max_tokens
        last = dict(case.model(best.token_ids))
        totals = [sum(best.logprobs) + last[stop] for stop in case.stops]
        score = search.score(best)
        assert any(score == pytest.approx(total / (len(best.token_ids) + 1)) for total in totals)


@given(cases)
def test_one_beam_is_greedy(case: Case) -> None:
    alone = Case(case.seed, case.vocab_size, case.num_stops, 1, case.max_tokens)
    greedy: list[int] = []
    while len(greedy) < case.max_tokens and (token := case.model(tuple(greedy))[0][0]) not in case.stops:
        greedy.append(token)
    assert list(alone.run().token_ids) == greedy


@given(cases, st.integers(1, 3))
def test_fewer_tokens_may_be_possible_than_are_looked_at(case: Case, num_possible: int) -> None:
    """Rules may leave a few only: the answer is made of them, and where there is but one it is that."""

    def few(beginning: tuple[int, ...]) -> TopLogprobs:
        return case.model(beginning)[:num_possible]

    best = case.run(few)
    for index, token in enumerate(best.token_ids):
        assert token in dict(few(best.token_ids[:index]))
    if num_possible == 1:
        assert (
            best.token_ids
            == Case(case.seed, case.vocab_size, case.num_stops, 1, case.max_tokens).run().token_ids
        )


@given(cases, st.lists(st.floats(0.1, 4.0), min_size=2, max_size=2))
def test_more_patience_finds_no_worse_answer(case: Case, patiences: list[float]) -> None:
    less, more = sorted(patiences)
    score = case.search().score
    assert score(case.run(patience=more)) >= score(case.run(patience=less))


def everything(case: Case) -> list[tuple[float, tuple[int, ...]]]:
    """Every answer there is, with its mean log-probability, the stop token's counted."""
    answers = []
    open_ones: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    while open_ones:
        total, tokens = open_ones.pop()
        for token, logprob in case.model(tokens):
            if token in case.stops:
                answers.append(((total + logprob) / (len(tokens) + 1), tokens))
            elif len(tokens) + 1 == case.max_tokens:
                answers.append(((total + logprob) / case.max_tokens, (*tokens, token)))
            else:
                open_ones.append((total + logprob, (*tokens, token)))
    return answers


@given(
    seed=st.integers(0, 10_000),
    vocab_size=st.integers(2, 3),
    num_stops=st.integers(0, 1),
    max_tokens=st.integers(1, 4),
)
def test_as_wide_as_everything_it_finds_the_best_there_is(
    seed: int, vocab_size: int, num_stops: int, max_tokens: int
) -> None:
    case = Case(seed, vocab_size, num_stops, vocab_size**max_tokens + 1, max_tokens)
    best = case.run()
    score, tokens = max(everything(case))
    assert best.token_ids == tokens
    assert case.search().score(best) == pytest.approx(score)


def test_the_likeliest_next_token_is_not_always_that_of_the_likeliest_answer() -> None:
    table: dict[tuple[int, ...], TopLogprobs] = {
        (): ((1, math.log(0.6)), (2, math.log(0.4))),
        (1,): ((1, math.log(0.5)), (2, math.log(0.5))),
        (2,): ((0, math.log(0.9)), (1, math.log(0.1))),
    }

    def run(num_beams: int) -> Beam:
        search = BeamSearch(num_beams, max_tokens=2, stop_token_ids=[0])
        while not search.is_over:
            search.advance([table[beam.token_ids] for beam in search.running])
        return search.best()

    assert run(1).token_ids[0] == 1
    assert run(2) == Beam((2,), (math.log(0.4),), math.log(0.4) + math.log(0.9), 1, "stop")


def test_what_ends_beyond_the_best_candidates_does_not_count() -> None:
    """As in `transformers`: only what ends among the `num_beams` likeliest is an answer."""
    search = BeamSearch(2, max_tokens=3, stop_token_ids=[0])
    search.advance([((5, -0.5), (6, -0.6), (0, -0.7), (7, -0.8))])
    assert [beam.token_ids for beam in search.running] == [(5,), (6,)]
    search.advance([((5, -1.0), (6, -1.1)), ((5, -1.2), (6, -1.3))])
    search.advance([((0, -9.0), (6, -9.5)), ((0, -9.1), (6, -9.6))])
    assert search.is_over
    assert search.best().token_ids == (5, 5)


def test_patience_waits_for_an_answer_that_ends_later() -> None:
    """Two end, and what goes on looks worse than they for one token, and is better at its end."""
    table: dict[tuple[int, ...], TopLogprobs] = {
        (): ((0, -1.0), (1, -1.1), (2, -9.0)),
        (1,): ((0, -1.0), (3, -1.3)),
        (2,): ((0, -9.0), (3, -9.0)),
        (1, 3): ((0, -0.2), (3, -9.0)),
    }

    def run(patience: float) -> Beam:
        search = BeamSearch(2, max_tokens=4, stop_token_ids=[0], patience=patience)
        while not search.is_over:
            search.advance([table.get(beam.token_ids, ((0, -9.0), (3, -9.5))) for beam in search.running])
        return search.best()

    assert run(1.0).token_ids == ()
    assert run(2.0).token_ids == (1, 3)
