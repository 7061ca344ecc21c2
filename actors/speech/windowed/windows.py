"""Overlapping windows of one recording, and the tokens of all of them as one sequence.

Each window is computed by itself, so frames near its edges lack context. What two neighbours have in common
both give tokens of, of which the outer quarters are not relied on. Within the middle half the one goes over
to the other at a token on which they agree, the nearest to the middle: it is the same token, at most
`SAME_ROWS` apart. So none is lost or given twice where their frames differ a little. Where they agree on none
it is the middle frame, or the end of a word that is spoken there. Knows no audio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

SAME_ROWS: Final = 2
"""Frames that one token differs by in two windows, at most: 160 ms."""


class PlacedToken(NamedTuple):
    """A token, and the frames of the recording that say it."""

    token_id: int
    start: int
    end: int
    """Behind the last one."""
    logprob: float


def windows_of(length: int, size: int, overlap: int) -> list[tuple[int, int]]:
    """Start and end of each window of a recording: the next begins `overlap` before the end of the one
    before, and only the last may be shorter than `size`. The last but one ends before the recording does."""
    stride = size - overlap
    num = 1 + max(0, -(-(length - size) // stride))
    return [(index * stride, min(index * stride + size, length)) for index in range(num)] if length else []


class WindowJoiner:
    """The tokens of windows that come in order. What was given is final, and its frames do not overlap."""

    def __init__(self, begins_word: Callable[[int], bool]) -> None:
        self._begins_word = begins_word
        self._held: list[PlacedToken] = []
        """Tokens of the last window that the next one may have, too."""
        self._end = 0
        """Where the last window ends."""
        self._given_end = 0
        """Behind the frames of the tokens given."""

    def push(
        self, tokens: Sequence[PlacedToken], window: tuple[int, int], next_start: int | None
    ) -> list[PlacedToken]:
        """The tokens of the window of these frames; those that became final. The next window begins at
        `next_start`; None: there is no next."""
        if self._end:
            before, after = self._join(tokens, window[0])
            tokens = [*self._held[:before], *tokens[after:]]
        num_final = len(tokens)
        if next_start is not None:
            num_final = _first_from(tokens, next_start)
        self._held, self._end = list(tokens[num_final:]), window[1]
        return [self._in_order(each) for each in tokens[:num_final]]

    def _join(self, tokens: Sequence[PlacedToken], start: int) -> tuple[int, int]:
        """How many held tokens stay, and from which of `tokens` on those of the new window count."""
        held, middle = self._held, (start + self._end) // 2
        # Where both windows have context: what either says at its edge is not relied on.
        margin = (self._end - start) // 4
        first, last = start + margin, self._end - margin
        held_at = _first_from(held, first)
        at = _first_from(tokens, first)
        pairs = agreed(held[held_at : _first_from(held, last)], tokens[at : _first_from(tokens, last)])
        if pairs:
            before, after = min(pairs, key=lambda pair: abs(held[held_at + pair[0]].start - middle))
            return held_at + before + 1, at + after + 1
        num = before = _first_from(held, middle)
        while 0 < num < len(held) and held[num].start < last and not self._begins_word(held[num].token_id):
            num += 1
        cut = middle if num == before else max(middle, held[num - 1].end)
        return num, _first_from(tokens, cut)

    def _in_order(self, token: PlacedToken) -> PlacedToken:
        """Behind the token before, where two windows place them differently."""
        start = max(token.start, self._given_end)
        self._given_end = max(token.end, start + 1)
        return token._replace(start=start, end=self._given_end)


def agreed(one: Sequence[PlacedToken], other: Sequence[PlacedToken]) -> list[tuple[int, int]]:
    """The tokens that both sequences have, by their places: as many as can be found in order, and those that
    differ least. Takes `len(one) * len(other)` steps, a token a frame at most."""
    most = SAME_ROWS * (min(len(one), len(other)) + 1)  # a pair counts for more than all differences
    scores = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]

    def pair(at: int, to: int) -> int | None:
        difference = abs(one[at].start - other[to].start)
        is_same = one[at].token_id == other[to].token_id and difference <= SAME_ROWS
        return scores[at + 1][to + 1] + most - difference if is_same else None

    for at in reversed(range(len(one))):
        for to in reversed(range(len(other))):
            scores[at][to] = max(scores[at + 1][to], scores[at][to + 1], pair(at, to) or 0)
    found: list[tuple[int, int]] = []
    at = to = 0
    while at < len(one) and to < len(other):
        if scores[at][to] == pair(at, to):
            found.append((at, to))
            at, to = at + 1, to + 1
        elif scores[at][to] == scores[at + 1][to]:
            at += 1
        else:
            to += 1
    return found


def _first_from(tokens: Sequence[PlacedToken], frame: int) -> int:
    """The place of the first token that begins at a frame or behind it."""
    return next((at for at, each in enumerate(tokens) if each.start >= frame), len(tokens))
