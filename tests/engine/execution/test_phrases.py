"""Bonuses of phrases and what they lift, row by row, against sums over everything that was said."""

from __future__ import annotations

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.execution.logits import RowSpan, add_phrases
from sensorium.engine.execution.sampler import Choice, accept, choose
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.token_rules import RuleBook
from sensorium.engine.planning.plan import SequenceStart
from sensorium.protocols.engine.messages import Phrases, RequestId, Sample, SamplingParams, TokensSampled
from support.slow_phrases import bonuses

VOCAB = 6
MARK = 5
CPU = torch.device("cpu")
Ids = tuple[int, ...]

TOKEN = st.sampled_from((0, 1, 2, 0, 1, 2, 3, -1, VOCAB, VOCAB + 2))
PHRASES = st.lists(st.lists(TOKEN, min_size=1, max_size=4).map(tuple), max_size=4).map(tuple)
TREES = st.builds(Phrases, st.just(MARK), PHRASES, PHRASES, st.just(1.5), st.just(4.0))
ANSWERS = st.lists(st.sampled_from((0, 0, 1, 1, 2, 2, 3, 4, MARK)), max_size=5).map(tuple)


def added_to(phrases: Phrases, tokens: Ids) -> torch.Tensor:
    """The bonuses behind the tokens, for all of the vocabulary."""
    added = torch.zeros(VOCAB)
    for token, bonus in bonuses(phrases, tokens).items():
        if 0 <= token < VOCAB:
            added[token] = bonus
    return added


def state(sampling: SamplingParams, prompt: Ids, generated: Ids, book: RuleBook) -> SequenceState:
    start = SequenceStart(RequestId("r"), prompt, generated, Sample(sampling))
    return SequenceState(start, book.rules_of(sampling))


def sampling_of(phrases: Phrases | None, **changes: object) -> SamplingParams:
    return msgspec.structs.replace(SamplingParams(max_tokens=99, phrases=phrases), **changes)


def random_logits(num_rows: int, seed: int) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def biased(logits: torch.Tensor, sampling: SamplingParams, answer: Ids, num: int, draft: Ids) -> torch.Tensor:
    """The rows of a sequence, `num` tokens of which were generated, with their bonuses."""
    assert sampling.phrases is not None
    rows = logits.clone()
    for index in range(len(draft) + 1):
        if num + index >= sampling.phrases_from:
            rows[index] += added_to(sampling.phrases, answer + draft[:index])
    return rows


@given(TREES, TREES, ANSWERS, ANSWERS, ANSWERS, st.integers(0, 6), st.integers(0, 99))
@settings(max_examples=300)
def test_each_row_gets_the_bonuses_of_what_is_said_before_it(
    phrases: Phrases, other: Phrases, prompt: Ids, generated: Ids, draft: Ids, early: int, seed: int
) -> None:
    """Among rows of others with the same phrases, with others, and with none."""
    book = RuleBook(VOCAB, CPU)
    samplings = [
        sampling_of(phrases, phrases_from=early),
        sampling_of(other),
        sampling_of(None),
        sampling_of(phrases),
    ]
    size = len(draft) + 1
    logits = random_logits(4 * size, seed)
    got = logits.clone()
    states = [state(each, prompt, generated, book) for each in samplings]
    spans = [RowSpan(each, size * number, draft) for number, each in enumerate(states)]
    add_phrases(got, spans)
    for number, sampling in enumerate(samplings):
        rows = slice(size * number, size * (number + 1))
        before = logits[rows]
        want = before
        if sampling.phrases is not None:
            want = biased(before, sampling, prompt + generated, len(generated), draft)
        torch.testing.assert_close(got[rows], want)


@given(TREES, ANSWERS, ANSWERS, ANSWERS, st.integers(0, 4), st.integers(0, 99))
@settings(max_examples=300)
def test_lifted_is_what_would_not_have_come_by_itself(
    phrases: Phrases, prompt: Ids, generated: Ids, draft: Ids, early: int, seed: int
) -> None:
    sampling = sampling_of(phrases, phrases_from=early)
    logits = random_logits(len(draft) + 3, seed)
    book = RuleBook(VOCAB, CPU)
    others = [state(sampling_of(None), prompt, generated, book) for _ in range(2)]
    ours = state(sampling, prompt, generated, book)
    spans = [RowSpan(others[0], 0), RowSpan(ours, 1, draft), RowSpan(others[1], len(draft) + 2)]
    alone = logits.argmax(-1).tolist()
    want = biased(logits[1:-1], sampling, prompt + generated, len(generated), draft).argmax(-1).tolist()
    first, choice, last = choose(logits.clone(), spans)
    assert list(choice.token_ids) == want
    assert list(choice.lifted) == [token != natural for token, natural in zip(want, alone[1:-1], strict=True)]
    assert [*first.token_ids, *last.token_ids] == [alone[0], alone[-1]]
    assert (first.lifted, last.lifted) == ((), ())


def toy_logits(context: Ids) -> torch.Tensor:
    """A model whose logits depend on all tokens so far. It never says the mark."""
    seed = sum((token + 1) * 7**index for index, token in enumerate(context))
    logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(seed)) * 2
    logits[MARK] = -50.0
    return logits


def one(contexts: list[Ids], a_state: SequenceState, draft: Ids) -> TokensSampled:
    span = RowSpan(a_state, 0, draft)
    logits = torch.stack([toy_logits(context) for context in contexts])
    return accept(span, choose(logits, [span])[0])


def answer(sampling: SamplingParams, length: int, draft: Ids) -> tuple[Ids, tuple[bool, ...]]:
    """Of the toy model, each step with what is left of the draft while it agrees."""
    prompt = (1, MARK)
    a_state = state(sampling, prompt, (), RuleBook(VOCAB, CPU))
    tokens: Ids = ()
    lifted: tuple[bool, ...] = ()
    while len(tokens) < length:
        rest = draft[len(tokens) : length - 1] if draft[: len(tokens)] == tokens else ()
        got = one([prompt + tokens + rest[:index] for index in range(len(rest) + 1)], a_state, rest)
        tokens += got.token_ids
        lifted += got.lifted
        assert len(tokens) == len(lifted)
    return tokens, lifted


@given(TREES, st.integers(0, 3), st.data())
def test_a_draft_changes_neither_what_is_said_nor_what_is_lifted(
    phrases: Phrases, early: int, data: st.DataObject
) -> None:
    sampling = sampling_of(phrases, phrases_from=early)
    free, lifted = answer(sampling, 8, ())
    kept = data.draw(st.integers(0, 8))
    tail = data.draw(st.lists(st.integers(0, 4), max_size=8).map(tuple))
    for draft in (free, free[:kept] + tail, tail):
        assert answer(sampling, 8, draft) == (free, lifted)
    # Step by step without a draft: the sums over all that was said so far.
    for index, token in enumerate(free):
        logits = toy_logits((1, MARK, *free[:index]))
        added = added_to(phrases, (1, MARK, *free[:index])) if index >= early else torch.zeros(VOCAB)
        assert token == int((logits + added).argmax())
        assert lifted[index] == (token != int(logits.argmax()))


STRONG = Phrases(MARK, ((0, 1, 2),), ((3, 4),), begin=100.0, go_on=200.0)


def test_a_strong_bonus_says_the_phrase_and_all_of_it_is_lifted() -> None:
    first = torch.tensor([[0.0, 0, 0, 0, 9, 0]]).expand(4, -1)
    span = RowSpan(state(sampling_of(STRONG), (MARK,), (), RuleBook(VOCAB, CPU)), 0, (0, 1, 2))
    choice = choose(first.clone(), [span])[0]
    assert choice.token_ids == [0, 1, 2, 4], "right behind it no other begins"
    assert choice.lifted == [True, True, True, False]


@pytest.mark.parametrize("temperature", [0.01, 1.0])
def test_nothing_that_was_drawn_is_lifted(temperature: float) -> None:
    """It has the bonuses all the same."""
    sampling = sampling_of(STRONG, temperature=temperature, seed=1)
    span = RowSpan(state(sampling, (MARK,), (), RuleBook(VOCAB, CPU)), 0, (0, 1))
    choice = choose(random_logits(3, 5), [span])[0]
    assert list(choice.token_ids) == [0, 1, 2]
    assert choice.lifted == [False] * 3


def test_what_is_forbidden_stays_so() -> None:
    sampling = sampling_of(STRONG, suppress_token_ids=(0,))
    a_state = state(sampling, (MARK,), (), RuleBook(VOCAB, CPU))
    choice = choose(torch.tensor([[1.0, 0, 0, 0, 2, 0]]), [RowSpan(a_state, 0)])[0]
    assert (list(choice.token_ids), choice.lifted) == ([4], [False])


def test_accepted_tokens_say_whether_they_were_lifted() -> None:
    """Of the rows behind a wrong guess nothing is kept."""
    natural = [0, 4, 2, 4]
    logits = torch.zeros(4, VOCAB)
    for row, token in enumerate(natural):
        logits[row, token] = 9.0
    a_state = state(sampling_of(STRONG), (MARK,), (), RuleBook(VOCAB, CPU))
    span = RowSpan(a_state, 0, (0, 1, 4))
    got = accept(span, choose(logits, [span])[0])
    assert (got.token_ids, got.lifted, got.num_draft_accepted) == ((0, 1, 2), (False, True, False), 2)
    span = RowSpan(a_state, 0)
    got = accept(span, choose(torch.tensor([[0.0, 0, 0, 0, 9, 0]]), [span])[0])
    assert (got.token_ids, got.lifted) == ((4,), (False,)), "right behind one none begins"
    got = accept(span, choose(torch.tensor([[9.0, 0, 0, 0, 0, 0]]), [span])[0])
    assert (got.token_ids, got.lifted) == ((3,), (True,)), "it went on from where it was"


def test_equal_phrases_share_their_tensors() -> None:
    book = RuleBook(VOCAB, CPU)
    first, second = (book.rules_of(sampling_of(STRONG, max_tokens=num)) for num in (5, 6))
    assert first is not None
    assert second is not None
    assert first.phrases is second.phrases
    assert book.rules_of(sampling_of(None)) is None


def chosen(sampling: SamplingParams, logits: list[float]) -> Choice:
    """What comes first behind the mark."""
    only = state(sampling, (MARK,), (), RuleBook(VOCAB, CPU))
    return choose(torch.tensor([logits]), [RowSpan(only, 0)])[0]


def test_what_comes_because_another_is_forbidden_is_not_lifted() -> None:
    phrases = Phrases(MARK, ((1, 2),), ((1, 2),), 0.5, 1.0)
    choice = chosen(sampling_of(phrases, suppress_token_ids=(0,)), [9.0, 5, 0, 0, 0, 0])
    assert (list(choice.token_ids), list(choice.lifted)) == ([1], [False])


def test_what_a_bias_took_away_and_a_phrase_brought_back_is_lifted() -> None:
    phrases = Phrases(MARK, ((1, 2),), ((1, 2),), 3.0, 6.0)
    choice = chosen(sampling_of(phrases, logit_bias=((1, -2.0),)), [4.0, 5, 0, 0, 0, 0])
    assert (list(choice.token_ids), list(choice.lifted)) == ([1], [True])
    choice = chosen(sampling_of(phrases, suppress_token_ids=(1,)), [4.0, 5, 0, 0, 0, 0])
    assert (list(choice.token_ids), list(choice.lifted)) == ([0], [False]), "what is forbidden stays so"
