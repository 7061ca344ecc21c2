"""How sure a model is of each piece of a transcript: the probability of the least likely of its tokens.

A word that was likely is hardly ever changed by the words behind it; one that was torn between two spellings,
or a capital and a small letter, often is. Used by `realtime/transcript.py`; pieces are those of
`realtime/pieces.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..protocols.transcript import TokenLogProb


def certainties(text: str, tokens: Sequence[TokenLogProb], pieces: Sequence[str], start: int) -> list[float]:
    """The certainty of each of `pieces`, which follow each other from character `start` of `text` on.

    `tokens` are those of the text's end, or of all of it. A piece that they do not reach (other text was made
    of them, say: a loop was cut) is taken for certain.
    """
    begin = len(text[:start].encode())
    spans = _spans(tokens, text.encode(), begin)
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


def _spans(tokens: Sequence[TokenLogProb], data: bytes, begin: int) -> list[tuple[int, int, float]]:
    """Where in `data` the tokens that end behind `begin` lie, in order, and their probabilities."""
    spans: list[tuple[int, int, float]] = []
    end = len(data)
    for token in reversed(tokens):
        first = _start_of(token.data, data, end)
        if first is None or end <= begin:
            break
        spans.append((first, end, math.exp(token.logprob)))
        end = first
    spans.reverse()
    return spans


def _start_of(token: bytes, data: bytes, end: int) -> int | None:
    """Where in `data` a token begins that ends at `end`, give or take white space; None if it does not."""
    for said, last in ((token, end), (token.strip(), len(data[:end].rstrip()))):
        if said and data.endswith(said, 0, last):
            return last - len(said)
    return None
