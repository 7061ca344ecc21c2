"""Guesses at the next tokens, verified in the forward pass that feeds them: they save steps, and change none.

A drafter sees the tokens of its request and nothing else. `engine/planning/request.py` asks for a guess per
step and cuts it to what fits; `engine/execution/sampler.py` accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from ...protocols.engine.messages import NgramDraft, Sample

MAX_LOOKBACK: Final = 4096
"""Tokens that prompt lookup takes note of at once, the newest, with the usual three lengths of match."""
MAX_NOTES: Final = 3 * MAX_LOOKBACK
"""Of all lengths together, about 5 ms and 3 MB; who asks for more lengths is looked back for less far."""
PREDICTED_AT_ONCE: Final = 32
"""Tokens of a predicted answer verified in a step: behind where it is wrong they are computed for nothing."""
REJOINED_BY: Final = 3
REJOINED_WITHIN: Final = 512
"""Tokens of it looked through, some 50 µs for each token of the answer that is not in it."""


class Drafter(Protocol):
    """One source of guesses for one request. `tokens` is its prompt and answer so far."""

    def propose(self, tokens: Sequence[int], limit: int) -> Sequence[int]:
        """What may follow `tokens`: at most `limit` ids, possibly none."""

    def is_over(self, tokens: Sequence[int]) -> bool:
        """Whether it will never propose anything again."""


class HypothesisDrafter:
    """The request's own draft (the previous hypothesis), as long as the answer agrees with it."""

    __slots__ = ("_draft", "_num_agreed", "_num_prompt")

    def __init__(self, draft: Sequence[int], num_prompt: int) -> None:
        self._draft = draft
        self._num_prompt = num_prompt
        self._num_agreed = 0

    def propose(self, tokens: Sequence[int], limit: int) -> Sequence[int]:
        """See `Drafter`."""
        self._compare(tokens)
        return self._draft[self._num_agreed : self._num_agreed + limit]

    def is_over(self, tokens: Sequence[int]) -> bool:
        """See `Drafter`."""
        self._compare(tokens)
        return self._num_agreed >= len(self._draft)

    def _compare(self, tokens: Sequence[int]) -> None:
        num_generated = len(tokens) - self._num_prompt
        while self._num_agreed < min(num_generated, len(self._draft)):
            if tokens[self._num_prompt + self._num_agreed] != self._draft[self._num_agreed]:
                self._draft = ()
            else:
                self._num_agreed += 1


class PredictionDrafter:
    """An older version of the answer: where they part, it is looked for where they meet again, further on.

    They meet where the newest `REJOINED_BY` tokens of the answer lie among the next `REJOINED_WITHIN` of the
    prediction; the nearest place counts.
    """

    __slots__ = ("_is_lost", "_next", "_num_followed", "_predicted")

    def __init__(self, predicted: Sequence[int], num_prompt: int) -> None:
        self._predicted = tuple(predicted)
        self._num_followed = num_prompt
        self._next = 0
        """Where in the prediction the answer goes on, or left it."""
        self._is_lost = False

    def propose(self, tokens: Sequence[int], limit: int) -> Sequence[int]:
        """See `Drafter`."""
        self._follow(tokens)
        if self._is_lost:
            return ()
        return self._predicted[self._next : self._next + min(limit, PREDICTED_AT_ONCE)]

    def is_over(self, tokens: Sequence[int]) -> bool:
        """See `Drafter`."""
        self._follow(tokens)
        return self._next >= len(self._predicted)

    def _follow(self, tokens: Sequence[int]) -> None:
        while self._num_followed < len(tokens):
            new = tokens[self._num_followed]
            self._num_followed += 1
            if self._is_lost:
                self._rejoin(tuple(tokens[self._num_followed - REJOINED_BY : self._num_followed]))
            elif self._next < len(self._predicted) and self._predicted[self._next] == new:
                self._next += 1
            else:
                self._is_lost = True

    def _rejoin(self, newest: tuple[int, ...]) -> None:
        for start in range(self._next, min(self._next + REJOINED_WITHIN, len(self._predicted))):
            if self._predicted[start : start + len(newest)] == newest:
                self._next = start + len(newest)
                self._is_lost = False
                return


class NgramDrafter:
    """Prompt lookup: what followed the last earlier occurrence of the newest tokens, longest match first."""

    __slots__ = ("_ends", "_num_indexed", "_options")

    def __init__(self, options: NgramDraft) -> None:
        self._options = options
        self._ends: dict[tuple[int, ...], int] = {}  # where each n-gram last ended
        self._num_indexed = 0

    def propose(self, tokens: Sequence[int], limit: int) -> Sequence[int]:
        """See `Drafter`. Costs what is new since the last call, `MAX_NOTES` at most."""
        lengths = range(self._options.min_match, self._options.max_match + 1)
        newest = len(tokens)
        first = max(self._num_indexed + 1, newest - min(MAX_LOOKBACK, MAX_NOTES // len(lengths)))
        for end in range(first, newest):  # not the newest: it would find itself
            for length in lengths:
                if length <= end:
                    self._ends[tuple(tokens[end - length : end])] = end
        self._num_indexed = max(self._num_indexed, newest - 1)
        for length in reversed(lengths):
            found = self._ends.get(tuple(tokens[-length:])) if length <= newest else None
            if found is not None:
                return tokens[found : found + min(limit, self._options.num_tokens)]
        return ()

    def is_over(self, _: Sequence[int]) -> bool:
        """Never: the answer may begin to repeat at any time."""
        return False


def make_drafters(sample: Sample, num_prompt: int) -> tuple[Drafter, ...]:
    """The drafters of a request with so many prompt tokens; the first that has a guess is used."""
    drafters: list[Drafter] = []
    if sample.draft_token_ids:
        kind = PredictionDrafter if sample.rejoins_draft else HypothesisDrafter
        drafters.append(kind(sample.draft_token_ids, num_prompt))
    if sample.ngram is not None:
        drafters.append(NgramDrafter(sample.ngram))
    return tuple(drafters)
