"""Each rule against transformers' processors or a plain formula, on random logits and with drafts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from unittest.mock import Mock

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.execution.logits import RowSpan, apply_rules, unpack_mask
from sensorium.engine.execution.sampler import choose
from sensorium.engine.execution.sequence import SequenceState
from sensorium.engine.execution.token_rules import RuleBook
from sensorium.engine.planning.plan import SequenceStart
from sensorium.protocols.engine.messages import ReasoningBudget, RequestId, Sample, SamplingParams
from sensorium.protocols.shared.sampling import MAX_NGRAM_SIZE
from transformers.generation.logits_process import (
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

VOCAB = 16
STOP = 15
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=8)
PLAIN = SamplingParams(max_tokens=50, stop_token_ids=(STOP,))


def ruled(
    logits: torch.Tensor,
    sampling: SamplingParams,
    prompt: list[int],
    generated: list[int],
    draft: list[int],
    *,
    company: bool = False,
) -> torch.Tensor:
    """Logits [1 + draft, VOCAB] after the rules, alone or between rows of others with the same rules."""
    book = RuleBook(VOCAB, torch.device("cpu"))

    def span(first: int) -> RowSpan:
        start = SequenceStart(RequestId("r"), tuple(prompt), tuple(generated), Sample(sampling))
        return RowSpan(SequenceState(start, book.rules_of(sampling)), first, tuple(draft))

    num = 1 + len(draft)
    if not company:
        part = logits.clone()
        assert apply_rules(part, [span(0)]) == {}
        return part
    whole = torch.cat([torch.randn(num, VOCAB), torch.randn(2, VOCAB), logits])
    untouched = whole[num : num + 2].clone()
    assert apply_rules(whole, [span(0), span(num + 2)]) == {}
    assert torch.equal(whole[num : num + 2], untouched)
    return whole[num + 2 :]


def random_logits(num_rows: int, seed: int) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


@given(TOKENS, TOKENS, TOKENS, st.floats(0.3, 3.0), st.integers(0, 99), st.booleans())
@settings(max_examples=100, deadline=None)
def test_repetition_is_that_of_transformers(
    prompt: list[int], generated: list[int], draft: list[int], penalty: float, seed: int, company: bool
) -> None:
    logits = random_logits(1 + len(draft), seed)
    sampling = msgspec.structs.replace(PLAIN, repetition_penalty=penalty)
    got = ruled(logits, sampling, prompt, generated, draft, company=company)
    for i in range(len(draft) + 1):
        ids = torch.tensor([prompt + generated + draft[:i]], dtype=torch.int64)
        want = logits[i : i + 1]
        if ids.numel():
            want = RepetitionPenaltyLogitsProcessor(penalty)(ids, want)
        torch.testing.assert_close(got[i : i + 1], want)


@given(TOKENS, TOKENS, st.floats(-2, 2), st.floats(-2, 2), st.integers(0, 99), st.booleans())
@settings(max_examples=100, deadline=None)
def test_presence_and_frequency_count_generated_tokens(
    generated: list[int], draft: list[int], presence: float, frequency: float, seed: int, company: bool
) -> None:
    logits = random_logits(1 + len(draft), seed)
    sampling = msgspec.structs.replace(PLAIN, presence_penalty=presence, frequency_penalty=frequency)
    got = ruled(logits, sampling, [1, 2, 3], generated, draft, company=company)
    for i in range(len(draft) + 1):
        want = logits[i].clone()
        for token in range(VOCAB):
            count = (generated + draft[:i]).count(token)
            want[token] -= count * frequency + (count > 0) * presence
        torch.testing.assert_close(got[i], want, rtol=1e-5, atol=1e-5)


FEW = st.lists(st.integers(0, 2), max_size=12)
"""Of so few tokens that the same come one behind the other again and again."""


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=6),
    *(FEW, FEW, FEW, st.integers(0, 99), st.booleans()),
)
@settings(max_examples=150, deadline=None)
def test_bad_words_are_those_of_transformers(
    words: list[list[int]],
    prompt: list[int],
    generated: list[int],
    draft: list[int],
    seed: int,
    company: bool,
) -> None:
    logits = random_logits(1 + len(draft), seed)
    sampling = msgspec.structs.replace(PLAIN, bad_words=tuple(map(tuple, words)))
    got = ruled(logits, sampling, prompt, generated, draft, company=company)
    for i in range(len(draft) + 1):
        ids = torch.tensor([prompt + generated + draft[:i]], dtype=torch.int64)
        assert torch.equal(got[i : i + 1], NoBadWordsLogitsProcessor(words)(ids, logits[i : i + 1]))


@given(st.integers(1, 5), FEW, FEW, FEW, st.integers(0, 99), st.booleans())
@settings(max_examples=150, deadline=None)
def test_ngrams_that_do_not_repeat_are_those_of_transformers(
    size: int, prompt: list[int], generated: list[int], draft: list[int], seed: int, company: bool
) -> None:
    logits = random_logits(1 + len(draft), seed)
    sampling = msgspec.structs.replace(PLAIN, no_repeat_ngram_size=size)
    got = ruled(logits, sampling, prompt, generated, draft, company=company)
    for i in range(len(draft) + 1):
        ids = torch.tensor([prompt + generated + draft[:i]], dtype=torch.int64)
        assert torch.equal(got[i : i + 1], NoRepeatNGramLogitsProcessor(size)(ids, logits[i : i + 1]))


def test_an_answer_may_end_and_say_what_a_prompt_says_where_that_does_not_count() -> None:
    """Else a chat whose last answer ended in `.` could not end in `.` again."""
    sampling = msgspec.structs.replace(PLAIN, no_repeat_ngram_size=2)
    prompt = [1, 5, STOP, 5, 6]
    got = ruled(torch.zeros(1, VOCAB), sampling, prompt, [5], [])
    assert (got[0] == -math.inf).nonzero().flatten().tolist() == [6]
    beyond = msgspec.structs.replace(sampling, ngrams_from=5)
    assert torch.equal(ruled(torch.zeros(1, VOCAB), beyond, prompt, [5], []), torch.zeros(1, VOCAB))
    again = ruled(torch.zeros(1, VOCAB), beyond, prompt, [5, 6, 5], [])
    assert (again[0] == -math.inf).nonzero().flatten().tolist() == [6]


@pytest.mark.parametrize("num_same", [126, 127, 128, 129, 300])
def test_the_longest_ngram_is_that_of_transformers(num_same: int) -> None:
    sampling = msgspec.structs.replace(PLAIN, no_repeat_ngram_size=MAX_NGRAM_SIZE)
    logits = random_logits(3, 1)
    got = ruled(logits, sampling, [1], [2, *[1] * num_same], [1, 1])
    for i in range(3):
        ids = torch.tensor([[1, 2, *[1] * (num_same + i)]])
        assert torch.equal(
            got[i : i + 1], NoRepeatNGramLogitsProcessor(MAX_NGRAM_SIZE)(ids, logits[i : i + 1])
        )


@given(st.integers(1, 5), FEW, st.lists(FEW, max_size=4), FEW)
@settings(max_examples=100, deadline=None)
def test_what_may_not_come_is_the_same_however_an_answer_was_made(
    size: int, prompt: list[int], steps: list[list[int]], draft: list[int]
) -> None:
    """Step by step with drafts that come to nothing, or resumed behind all of it."""
    words = ((0, 1), (2, 2, 0), (1, 0, 0, 1))
    sampling = msgspec.structs.replace(PLAIN, no_repeat_ngram_size=size, bad_words=words)
    rules = RuleBook(VOCAB, torch.device("cpu")).rules_of(sampling)
    state = SequenceState(SequenceStart(RequestId("r"), tuple(prompt), (), Sample(sampling)), rules)
    for step in steps:
        apply_rules(torch.zeros(1 + len(draft), VOCAB), [RowSpan(state, 0, tuple(draft))])
        state.advance(step)
    got = torch.zeros(1, VOCAB)
    apply_rules(got, [RowSpan(state, 0)])
    generated = [token_id for step in steps for token_id in step]
    assert torch.equal(got, ruled(torch.zeros(1, VOCAB), sampling, prompt, generated, []))


def test_an_answer_of_which_nothing_is_left_is_refused_and_costs_no_other() -> None:
    """What bad words leave may be nothing where a grammar or `allowed_token_ids` asks for just those."""
    sampling = msgspec.structs.replace(PLAIN, allowed_token_ids=(3, 4), bad_words=((3,), (2, 4)))
    book = RuleBook(VOCAB, torch.device("cpu"))

    def span(first: int, prompt: int, sampling: SamplingParams) -> RowSpan:
        start = SequenceStart(RequestId("r"), (prompt,), (), Sample(sampling))
        return RowSpan(SequenceState(start, book.rules_of(sampling)), first)

    spans = [span(0, 2, sampling), span(1, 1, sampling), span(2, 2, PLAIN)]
    stuck, other, plain = choose(torch.zeros(3, VOCAB).index_fill(1, torch.tensor([7]), 1.0), spans)
    assert (stuck.error, stuck.fault) == ("the sampling rules leave no token to choose", "no_token")
    assert (list(other.token_ids), list(plain.token_ids)) == ([4], [7])


def test_all_penalties_together_repetition_first() -> None:
    logits = random_logits(1, 1)
    sampling = msgspec.structs.replace(
        PLAIN, repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25, logit_bias=((4, 1.5),)
    )
    got = ruled(logits, sampling, [3], [4, 4], [])[0]
    want = logits[0].clone()
    want[4] += 1.5
    for token in (3, 4):
        want[token] = want[token] * 2 if want[token] < 0 else want[token] / 2
    want[4] -= 0.5 + 2 * 0.25
    torch.testing.assert_close(got, want)


def test_counts_grow_past_their_first_size() -> None:
    vocab = 500
    sampling = SamplingParams(max_tokens=999, frequency_penalty=1.0)
    state = SequenceState(SequenceStart(RequestId("r"), (), (), Sample(sampling)), None)
    for token in [*range(300), *range(150)]:
        state.advance((token,))
    state.rules = RuleBook(vocab, torch.device("cpu")).rules_of(sampling)
    logits = torch.zeros(1, vocab)
    apply_rules(logits, [RowSpan(state, 0)])
    assert logits[0].tolist() == [-2.0] * 150 + [-1.0] * 150 + [0.0] * 200


def test_prompts_are_counted_however_many_tokens_they_have() -> None:
    sampling = SamplingParams(max_tokens=9, repetition_penalty=2.0, presence_penalty=1.0)
    state = SequenceState(SequenceStart(RequestId("r"), tuple(range(300)), (7, 350), Sample(sampling)), None)
    logits = torch.ones(1, 400)
    apply_rules(logits, [RowSpan(state, 0)])
    want = [0.5] * 300 + [1.0] * 100
    want[7] = want[350] = -0.5
    assert logits[0].tolist() == want


@given(
    st.lists(st.tuples(st.integers(-2, VOCAB + 3), st.floats(-100, 100)), max_size=5),
    st.lists(st.integers(-2, VOCAB + 3), max_size=5),
    st.one_of(st.none(), st.lists(st.integers(-2, VOCAB + 3), min_size=1, max_size=5)),
    st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_bias_suppressed_and_allowed(
    bias: list[tuple[int, float]], suppressed: list[int], allowed: list[int] | None, company: bool
) -> None:
    """Ids outside the vocabulary mean nothing; forbidden wins over biased."""
    logits = random_logits(3, 2)
    sampling = msgspec.structs.replace(
        PLAIN,
        logit_bias=tuple(bias),
        suppress_token_ids=tuple(suppressed),
        allowed_token_ids=None if allowed is None else tuple(allowed),
    )
    got = ruled(logits, sampling, [1], [], [2, 3], company=company)
    for token in range(VOCAB):
        if token in suppressed or (allowed is not None and token not in allowed):
            assert (got[:, token] == -math.inf).all()
        else:
            added = sum(value for token_id, value in bias if token_id == token)
            torch.testing.assert_close(got[:, token], logits[:, token] + added, rtol=1e-5, atol=1e-4)


def test_begin_suppressed_and_min_tokens_count_the_draft() -> None:
    sampling = msgspec.structs.replace(PLAIN, begin_suppress_token_ids=(4,), min_tokens=3)
    got = ruled(random_logits(5, 3), sampling, [1], [], [2, 2, 2, 2])
    assert torch.isinf(got[:, 4]).tolist() == [True, False, False, False, False]
    assert torch.isinf(got[:, STOP]).tolist() == [True, True, True, False, False]
    assert not torch.isinf(ruled(random_logits(1, 3), sampling, [1], [7], [])[:, 4]).any()
    got = ruled(random_logits(3, 3), sampling, [1], [7, 7], [2, 2])
    assert torch.isinf(got[:, 4]).tolist() == [False] * 3
    assert torch.isinf(got[:, STOP]).tolist() == [True, False, False]


def test_words_that_no_token_ends_are_never_said() -> None:
    """Their last id is just outside the vocabulary."""
    sampling = msgspec.structs.replace(PLAIN, bad_words=((VOCAB,), (1, VOCAB)))
    assert torch.equal(ruled(random_logits(2, 5), sampling, [1], [], [1]), random_logits(2, 5))


def test_rows_behind_a_draft_that_a_grammar_refuses_stay_as_they_are() -> None:
    def masks(draft: Sequence[int], stop_token_ids: Sequence[int]) -> torch.Tensor:
        assert (draft, stop_token_ids) == ((3, 4), (STOP,))
        return torch.tensor([[0b100, 0]], dtype=torch.uint8)

    span = RowSpan(SequenceState(SequenceStart(RequestId("r"), (1,), (), Sample(PLAIN)), None), 1, (3, 4))
    span.state.matcher = Mock(masks=masks)
    logits, before = random_logits(5, 6), random_logits(5, 6)
    assert apply_rules(logits, [span]) == {}
    assert torch.equal(logits[[0, 2, 3, 4]], before[[0, 2, 3, 4]])
    assert torch.isneginf(logits[1]).tolist() == [token != 2 for token in range(VOCAB)]


def test_nothing_to_do_is_no_rule() -> None:
    book = RuleBook(VOCAB, torch.device("cpu"))
    assert (
        book.rules_of(SamplingParams(max_tokens=5, temperature=1.0, top_p=0.5, stop_token_ids=(3,))) is None
    )
    assert book.rules_of(SamplingParams(max_tokens=5, frequency_penalty=0.1)) is not None


def test_equal_rules_share_their_tensors_and_the_number_kept_is_bounded() -> None:
    book = RuleBook(VOCAB, torch.device("cpu"))
    first, second = (book.rules_of(msgspec.structs.replace(PLAIN, suppress_token_ids=(3,))) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.always is second.always
    for i in range(1000):
        book.rules_of(msgspec.structs.replace(PLAIN, logit_bias=((3, float(i)),)))
    assert book._bias.cache_info().currsize <= 64


@pytest.mark.parametrize("vocab", [5, 16, 37, 64])
def test_masks_are_unpacked_lowest_bit_first(vocab: int) -> None:
    packed = torch.randint(0, 256, (3, 5), dtype=torch.uint8)
    got = unpack_mask(packed, vocab)
    for row in range(3):
        for token in range(vocab):
            bit = token < 40 and bool(int(packed[row, token // 8]) >> (token % 8) & 1)
            assert bool(got[row, token]) == bit


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(max_tokens=5, suppress_token_ids=(5,), begin_suppress_token_ids=(5,)),
        SamplingParams(max_tokens=5, suppress_token_ids=(STOP,), stop_token_ids=(STOP,), min_tokens=3),
    ],
)
def test_a_rule_that_is_named_twice_reaches_no_stranger(sampling: SamplingParams) -> None:
    """Equal rules share a bias; the row between two of its requests is another's."""
    book = RuleBook(VOCAB, torch.device("cpu"))
    strange = SamplingParams(max_tokens=5, logit_bias=((0, 1.0),))
    spans = []
    for row, (each, generated) in enumerate([(sampling, ()), (strange, ()), (sampling, (1, 2, 3))]):
        start = SequenceStart(RequestId(str(row)), (1,), generated, Sample(each))
        spans.append(RowSpan(SequenceState(start, book.rules_of(each)), row))
    logits = random_logits(3, 0)
    expected = logits.clone()
    expected[1, 0] += 1
    for row in (0, 2):
        expected[row, list(sampling.suppress_token_ids)] = -math.inf
    assert apply_rules(logits, spans) == {}
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("company", [False, True])
def test_where_a_budget_of_thoughts_is_used_up_only_their_end_may_come(company: bool) -> None:
    logits = random_logits(4, 3)
    sampling = msgspec.structs.replace(PLAIN, reasoning_budget=ReasoningBudget(2, (1,), (2, 3)))
    found = ruled(logits, sampling, [1, 1], [1, 7], [8, 9, 2], company=company)
    assert torch.equal(found[[0, 3]], logits[[0, 3]]), "one more may be thought, and it is over"
    for row in (1, 2):
        assert torch.isneginf(found[row]).sum() == VOCAB - 1
        assert found[row, 2] == logits[row, 2]


def test_thoughts_go_on_where_they_cannot_end() -> None:
    sampling = msgspec.structs.replace(
        PLAIN, reasoning_budget=ReasoningBudget(0, (1,), (2,), is_open=True), suppress_token_ids=(2,)
    )
    found = ruled(random_logits(1, 4), sampling, [], [], [])
    assert torch.isneginf(found).sum() == 1
    outside = msgspec.structs.replace(
        PLAIN, reasoning_budget=ReasoningBudget(0, (1,), (VOCAB,), is_open=True)
    )
    assert torch.equal(ruled(random_logits(1, 4), outside, [], [], []), random_logits(1, 4))
