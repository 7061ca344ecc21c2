"""What proposers propose, against plain definitions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.proposers import (
    MAX_LOOKBACK,
    MAX_NOTES,
    PREDICTED_AT_ONCE,
    HypothesisProposer,
    NgramProposer,
    PredictionProposer,
    Proposer,
    make_proposers,
)
from sensorium.protocols.engine.messages import NgramDraft, Sample, SamplingParams

tokens_lists = st.lists(st.integers(0, 2), max_size=30)


def proposed(proposer: Proposer, tokens: Sequence[int], limit: int, num_ahead: int = 0) -> list[int]:
    """The ids of a proposal, which are certain; none if there is no proposal."""
    proposal = proposer.propose(tokens, limit, num_ahead)
    if proposal is None:
        return []
    assert proposal.ids, "no proposal is None"
    assert proposal.handle is None
    return list(proposal.ids)


@given(st.lists(st.integers(0, 1), max_size=8), st.lists(st.integers(0, 1), max_size=8), st.integers(0, 9))
def test_a_hypothesis_keeps_its_rest_while_it_is_right(
    draft: list[int], answer: list[int], limit: int
) -> None:
    proposer = HypothesisProposer(tuple(draft), num_prompt=2)
    for length in range(len(answer) + 1):
        tokens = [7, 7, *answer[:length]]
        is_right = draft[:length] == answer[:length]
        expected = draft[length : length + limit] if is_right else []
        assert proposed(proposer, tokens, limit) == expected
        assert proposer.is_over(tokens) == (not is_right or length >= len(draft))


def looked_up(tokens: list[int], options: NgramDraft) -> list[int]:
    """The definition, by searching."""
    for length in range(options.max_match, options.min_match - 1, -1):
        newest = tokens[-length:]
        if len(newest) < length:
            continue
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == newest:
                return tokens[end : end + options.num_tokens]
    return []


@given(tokens_lists, st.lists(st.integers(1, 30), max_size=6), st.integers(1, 3), st.integers(0, 2))
def test_prompt_lookup_is_the_last_longest_match(
    tokens: list[int], lengths: list[int], min_match: int, more: int
) -> None:
    options = NgramDraft(num_tokens=3, max_match=min_match + more, min_match=min_match)
    proposer = NgramProposer(options)
    for length in sorted({*lengths, len(tokens)}):
        known = tokens[:length]
        assert proposed(proposer, known, 100) == looked_up(known, options)
        assert proposed(proposer, known, 1) == looked_up(known, options)[:1]
    assert not proposer.is_over(tokens)


def test_prompt_lookup_does_not_go_through_a_book_at_once() -> None:
    """The first look at a long prompt costs a bounded time, in the loop that everybody waits for."""
    options = NgramDraft(num_tokens=2, max_match=2, min_match=2)
    near = [*range(3000), *range(10_000, 10_000 + MAX_LOOKBACK - 10), 7, 8, 9, *range(20_000, 20_005), 7, 8]
    assert proposed(NgramProposer(options), near, 9) == [9, 20_000]
    far = [7, 8, 9, *range(10_000, 10_000 + MAX_LOOKBACK), 7, 8]
    proposer = NgramProposer(options)
    assert proposer.propose(far, 9) is None
    assert proposed(proposer, [*far, 1, 7, 8], 9) == [1, 7], "what comes later is seen"


def test_the_hypothesis_comes_first() -> None:
    sample = Sample(SamplingParams(max_tokens=9), draft_token_ids=(5,), ngram=NgramDraft())
    assert [type(each) for each in make_proposers(sample, 3)] == [HypothesisProposer, NgramProposer]
    assert make_proposers(Sample(SamplingParams(max_tokens=9)), 1) == ()
    predicted = msgspec.structs.replace(sample, rejoins_draft=True, ngram=None)
    assert [type(each) for each in make_proposers(predicted, 3)] == [PredictionProposer]


def guesses(predicted: Sequence[int], answer: Sequence[int], limit: int = 100) -> tuple[int, list[int]]:
    """Steps to make an answer where all that is proposed is verified, and how much each step got right."""
    proposer, tokens, right = PredictionProposer(predicted, num_prompt=2), [7, 7], list[int]()
    while len(tokens) < len(answer) + 2:
        rest = answer[len(tokens) - 2 :]
        guess = proposed(proposer, tokens, limit)
        assert len(guess) <= min(limit, PREDICTED_AT_ONCE)
        pairs = enumerate(zip(guess, rest, strict=False))
        right.append(next((place for place, (a, b) in pairs if a != b), min(len(guess), len(rest))))
        tokens += answer[len(tokens) - 2 :][: right[-1] + 1]
    return len(right), right


def test_many_lengths_of_match_are_not_noted_for_all_that_was_read() -> None:
    proposer = NgramProposer(NgramDraft(8, 16, 1))
    proposer.propose(range(100_000), 8)
    assert len(proposer._ends) <= MAX_NOTES
    near = [*range(1000), 7, 8, 9, *range(2000, 2500), 7, 8]
    assert proposed(NgramProposer(NgramDraft(2, 16, 1)), near, 2) == [9, 2000]


def test_a_prediction_is_met_again_behind_a_change() -> None:
    old = list(range(100, 200))
    assert guesses(old, old)[0] == 4, "32 right, and one more, a step"
    for new in (
        [*old[:40], 1, 2, 3, *old[43:]],  # replaced
        [*old[:40], 1, 2, 3, *old[40:]],  # put in
        [*old[:40], *old[60:]],  # left out
        [1, 2, *old],  # in front
    ):
        steps, right = guesses(old, new)
        assert sum(right) > len(new) - 20
        assert steps < 16
    assert guesses(old, [1, 2, 3, 4])[1] == [0, 0, 0, 0]
    assert PredictionProposer((5,), 2).is_over([7, 7, 5])


@given(tokens_lists, tokens_lists, st.integers(0, 40))
def test_a_prediction_is_a_piece_of_itself(predicted: list[int], answer: list[int], limit: int) -> None:
    proposer = PredictionProposer(predicted, num_prompt=0)
    for length in range(len(answer) + 1):
        guess = proposed(proposer, answer[:length], limit)
        assert len(guess) <= limit
        pieces = (predicted[at : at + len(guess)] for at in range(len(predicted) + 1))
        assert guess in pieces


@given(tokens_lists, st.integers(0, 6), st.integers(1, 6))
def test_what_is_proposed_ahead_follows_what_is_proposed_now(
    tokens: list[int], num_ahead: int, limit: int
) -> None:
    answer = [0, 1, 2, 0, 1, 1, 2, 0, 1, 2]
    for proposer in (
        HypothesisProposer((*tokens, *answer), 0),
        PredictionProposer((*tokens, *answer), 0),
        NgramProposer(NgramDraft(num_tokens=limit, max_match=3, min_match=1)),
    ):
        whole = len(tokens) + len(answer)
        if isinstance(proposer, NgramProposer):
            follows = looked_up(tokens, NgramDraft(whole, 3, 1))
        else:
            follows = proposed(proposer, tokens, PREDICTED_AT_ONCE)
        ahead = proposed(proposer, tokens, limit, num_ahead)
        assert ahead == follows[num_ahead : num_ahead + limit]
