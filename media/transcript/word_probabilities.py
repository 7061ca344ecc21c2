"""How sure a model is of what it said: of the tokens of a text, and of each word, which is the mean of the
probabilities of its tokens."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

from msgspec.structs import replace

from ...protocols.transcription.transcript import TokenLogProb, Word

_NO_CHARACTER: Final = "\ufffd".encode()


def written_bytes(tokens: Sequence[TokenLogProb]) -> list[bytes]:
    """The bytes of each token as they stand in the text, which has U+FFFD where they are no character: of
    its three bytes each token has some that has some of theirs."""
    data, at = b"".join(token.data for token in tokens), 0
    units = [data[index : index + 1] for index in range(len(data))]
    while True:
        try:
            data[at:].decode()
        except UnicodeDecodeError as error:
            most = error.end - error.start - 1  # of at most three
            shares = [*(_NO_CHARACTER[index : index + 1] for index in range(most)), _NO_CHARACTER[most:]]
            units[at + error.start : at + error.end] = shares
            at += error.end
        else:
            break
    ends = list(accumulate((len(token.data) for token in tokens), initial=0))
    return [b"".join(units[start:end]) for start, end in pairwise(ends)]


def with_probabilities(words: Sequence[Word], tokens: Sequence[TokenLogProb]) -> Iterator[Word]:
    """The words of an answer, which follow each other in its tokens, with their probabilities. One that is
    not in the tokens has none."""
    pieces = written_bytes(tokens)
    data = b"".join(pieces)
    ends = list(accumulate(map(len, pieces)))
    passed = 0
    for word in words:
        spelling = word.word.encode()
        start = data.find(spelling, passed)
        if start < 0 or not spelling:
            yield word
            continue
        passed = start + len(spelling)
        its = tokens[bisect_right(ends, start) : bisect_left(ends, passed) + 1]
        probability = sum(math.exp(token.logprob) for token in its) / len(its)
        yield replace(word, probability=round(min(1.0, probability), 4))


def tokens_of_text(tokens: Sequence[TokenLogProb], text: str) -> tuple[TokenLogProb, ...]:
    """Those that join to `text`, which was left of what was said: not a loop's further copies. All of them
    where the text was cut amid a token."""
    kept = list[TokenLogProb]()
    rest = text.encode()
    for token, written in zip(tokens, written_bytes(tokens), strict=True):
        data = written if kept else written.lstrip()
        if rest.startswith(data):
            kept.append(token)
            rest = rest[len(data) :]
    return tuple(tokens) if rest else tuple(kept)
