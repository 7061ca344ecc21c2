"""The tokens of a text are those that spell it, however they and it come."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.http.chat.text_tokens import TextTokens
from sensorium.engine.text.token_text import TokenText
from sensorium.engine.text.tokenizer import TextTokenizer
from support.tokenizers import byte_level_tokenizer

TEXT = TextTokenizer(byte_level_tokenizer())
NAMES = TokenText(TEXT)
END = 0
"""A special token."""


@given(st.text("ab ü🌤c語\n", min_size=1, max_size=20), st.data())
def test_tokens_belong_to_what_they_spell(text: str, data: st.DataObject) -> None:
    answer = TEXT.encode(text, allow_special=False)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    cut = data.draw(st.integers(start, end))
    tokens = TextTokens(NAMES, frozenset())
    tokens.push([*answer, END], [0.0] * (len(answer) + 1), [])
    found = [*tokens.take([(start, cut)]).token_ids, *tokens.take([(cut, end)]).token_ids]
    # In bytes: those tokens that have a byte of the text.
    first, last = len(text[:start].encode()), len(text[:end].encode())
    places = list(itertools.accumulate((len(NAMES.bytes_of(each)) for each in answer), initial=0))
    expected = [
        token_id
        for token_id, (begins, ends) in zip(answer, itertools.pairwise(places), strict=True)
        if begins < last and ends > first
    ]
    assert found == expected


def test_a_special_token_has_room_where_it_shows() -> None:
    a, b = TEXT.encode("a", allow_special=False)[0], TEXT.encode("b", allow_special=False)[0]
    for shown, place in ((frozenset({END}), len("<|end|>")), (frozenset[int](), 0)):
        tokens = TextTokens(NAMES, shown)
        tokens.push([END, a], [0.0, -1.0], [((a, -1.0),), ((b, -2.0),)])
        found = tokens.take([(place, place + 1)])
        assert found.token_ids[-1] == a
        assert (found.logprobs[-1], found.top_logprobs[-1]) == (-1.0, ((b, -2.0),))


def test_what_is_part_of_no_text_is_never_told() -> None:
    answer = [TEXT.encode(each, allow_special=False)[0] for each in "abcd"]
    tokens = TextTokens(NAMES, frozenset())
    tokens.push(answer[:2], [0.0] * 2, [])
    assert tokens.take([(0, 1)]).token_ids == answer[:1]
    tokens.push(answer[2:], [0.0] * 2, [])
    assert tokens.take([(3, 4)]).token_ids == answer[3:]
    assert tokens.take([]).token_ids == []
