"""How sure a model is of each word it said: the mean of the probabilities of the word's tokens."""

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
