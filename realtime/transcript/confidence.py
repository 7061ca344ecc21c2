"""How sure a model is of each piece of a transcript: the probability of the least likely of its tokens.

A word that was likely is hardly ever changed by the words behind it; one that was torn between two spellings,
or a capital and a small letter, often is. Of a turn's first word both can be known: how likely the word is,
whichever its case, and whether it has a capital. Used by `realtime/transcript/policy.py`; pieces are those of
`realtime/transcript/pieces.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from ...protocols.transcription.transcript import TokenLogProb

_UNLIKELY: Final = 0.05
"""Probability of all beginnings with a letter that has a case, below which they say nothing about it."""


def certainties(
    text: str, tokens: Sequence[TokenLogProb], pieces: Sequence[str], start: int, *, any_case: bool = False
) -> list[float]:
    """The certainty of each of `pieces`, which follow each other from character `start` of `text` on; with
    `any_case` that of the token as well with as without its capital, where others are told of.

    `tokens` are those of the text's end, or of all of it. A piece that they do not reach (other text was made
    of them, say: a loop was cut) is taken for certain.
    """
    begin = len(text[:start].encode())
    spans = _spans(tokens, text.encode(), begin, _probability_in_any_case if any_case else _probability)
    found: list[float] = []
    passed = 0
    for piece in pieces:
        end = begin + len(piece.encode())
        while passed < len(spans) and spans[passed][1] <= begin:
            passed += 1
        last = passed
        while last < len(spans) and spans[last][0] < end:
            last += 1
        found.append(min((probability for *_, probability in spans[passed:last]), default=1.0))
        begin = end
    return found


def share_of_capitals(tokens: Sequence[TokenLogProb]) -> float | None:
    """How likely it is that the text begins with a capital rather than a small letter, by what its first
    token could be; None: nothing is known about that, or such letters are unlikely."""
    large = small = 0.0
    for data, logprob in tokens[0].likeliest if tokens else ():
        letter = next(filter(str.isalpha, data.decode(errors="ignore")), "")
        large += math.exp(logprob) * letter.isupper()
        small += math.exp(logprob) * letter.islower()
    return large / (large + small) if large + small > _UNLIKELY else None


def _probability(token: TokenLogProb) -> float:
    return math.exp(token.logprob)


def _probability_in_any_case(token: TokenLogProb) -> float:
    text = token.text.casefold()
    alike = (logprob for data, logprob in token.likeliest if data.decode(errors="replace").casefold() == text)
    return max(_probability(token), sum(map(math.exp, alike)))


def _spans(
    tokens: Sequence[TokenLogProb], data: bytes, begin: int, probability: Callable[[TokenLogProb], float]
) -> list[tuple[int, int, float]]:
    """Where in `data` the tokens that end behind `begin` lie, in order, and their probabilities."""
    spans: list[tuple[int, int, float]] = []
    end = len(data)
    for token in reversed(tokens):
        first = _start_of(token.data, data, end)
        if first is None or end <= begin:
            break
        spans.append((first, end, probability(token)))
        end = first
    spans.reverse()
    return spans


def _start_of(token: bytes, data: bytes, end: int) -> int | None:
    """Where in `data` a token begins that ends at `end`, give or take white space; None if it does not."""
    for text, last in ((token, end), (token.strip(), len(data[:end].rstrip()))):
        if text and data.endswith(text, 0, last):
            return last - len(text)
    return None
