"""What drafters propose, against plain definitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.drafts import MAX_LOOKBACK, HypothesisDrafter, NgramDrafter, make_drafters
from sensorium.protocols.messages import Generate, NgramDraft, RequestId, SamplingParams

tokens_lists = st.lists(st.integers(0, 2), max_size=30)


@given(st.lists(st.integers(0, 1), max_size=8), st.lists(st.integers(0, 1), max_size=8), st.integers(0, 9))
def test_a_hypothesis_keeps_its_rest_while_it_is_right(
    draft: list[int], answer: list[int], limit: int
) -> None:
    drafter = HypothesisDrafter(tuple(draft), num_prompt=2)
    for length in range(len(answer) + 1):
        tokens = [7, 7, *answer[:length]]
        is_right = draft[:length] == answer[:length]
        expected = draft[length : length + limit] if is_right else []
        assert list(drafter.propose(tokens, limit)) == expected
        assert drafter.is_over(tokens) == (not is_right or length >= len(draft))


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
    tokens: list[int], asked_at: list[int], min_match: int, more: int
) -> None:
    options = NgramDraft(num_tokens=3, max_match=min_match + more, min_match=min_match)
    drafter = NgramDrafter(options)
    for length in sorted({*asked_at, len(tokens)}):
        known = tokens[:length]
        assert list(drafter.propose(known, 100)) == looked_up(known, options)
        assert list(drafter.propose(known, 1)) == looked_up(known, options)[:1]
    assert not drafter.is_over(tokens)


def test_prompt_lookup_does_not_go_through_a_book_at_once() -> None:
    """The first look at a long prompt costs a bounded time, in the loop that everybody waits for."""
    options = NgramDraft(num_tokens=2, max_match=2, min_match=2)
    near = [*range(3000), *range(10_000, 10_000 + MAX_LOOKBACK - 10), 7, 8, 9, *range(20_000, 20_005), 7, 8]
    assert list(NgramDrafter(options).propose(near, 9)) == [9, 20_000]
    far = [7, 8, 9, *range(10_000, 10_000 + MAX_LOOKBACK), 7, 8]
    drafter = NgramDrafter(options)
    assert drafter.propose(far, 9) == ()
    assert list(drafter.propose([*far, 1, 7, 8], 9)) == [1, 7], "what comes later is seen"


def test_the_hypothesis_comes_first() -> None:
    request = Generate(
        RequestId("r"), (1, 2, 1), SamplingParams(max_tokens=9), draft_token_ids=(5,), ngram=NgramDraft()
    )
    assert [type(each) for each in make_drafters(request)] == [HypothesisDrafter, NgramDrafter]
    assert make_drafters(Generate(RequestId("r"), (1,), SamplingParams(max_tokens=9))) == ()
