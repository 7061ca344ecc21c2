"""How sure a model is of what it said: of the tokens of a text, and of each word, which is the mean of the
probabilities of its tokens."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from msgspec.structs import replace

from ...protocols.transcript import TokenLogProb, Word


def with_probabilities(words: Sequence[Word], tokens: Sequence[TokenLogProb]) -> Iterator[Word]:
    """The words of an answer, which follow each other in its tokens, with their probabilities. One that is
    not in the tokens has none."""
    data = b"".join(token.data for token in tokens)
    ends = list(accumulate(len(token.data) for token in tokens))
    passed = 0
    for word in words:
        said = word.word.encode()
        start = data.find(said, passed)
        if start < 0 or not said:
            yield word
            continue
        passed = start + len(said)
        its = tokens[bisect_right(ends, start) : bisect_left(ends, passed) + 1]
        probability = sum(math.exp(token.logprob) for token in its) / len(its)
        yield replace(word, probability=round(min(1.0, probability), 4))


def tokens_of_text(tokens: Sequence[TokenLogProb], text: str) -> tuple[TokenLogProb, ...]:
    """Those that join to `text`, which was left of what was said: not a loop's further copies. All of them
    where the text was cut amid a token."""
    kept = list[TokenLogProb]()
    rest = text.encode()
    for token in tokens:
        data = token.data if kept else token.data.lstrip()
        if rest.startswith(data):
            kept.append(token)
            rest = rest[len(data) :]
    return tuple(tokens) if rest else tuple(kept)
