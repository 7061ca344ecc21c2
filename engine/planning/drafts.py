"""Guesses at the next tokens, verified in the forward pass that feeds them: they save steps, and change none.

A drafter sees the tokens of its request and nothing else. `engine/planning/request.py` asks for a guess per
step and cuts it to what fits; `engine/execution/sampler.py` accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from ...protocols.messages import Generate, NgramDraft

MAX_LOOKBACK: Final = 4096
"""Tokens that prompt lookup takes note of at once, the newest: about 5 ms, and 1 MB per length of match."""


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


class NgramDrafter:
    """Prompt lookup: what followed the last earlier occurrence of the newest tokens, longest match first."""

    __slots__ = ("_ends", "_num_indexed", "_options")

    def __init__(self, options: NgramDraft) -> None:
        self._options = options
        self._ends: dict[tuple[int, ...], int] = {}  # where each n-gram last ended
        self._num_indexed = 0

    def propose(self, tokens: Sequence[int], limit: int) -> Sequence[int]:
        """See `Drafter`. Costs what is new since the last call, `MAX_LOOKBACK` tokens at most."""
        lengths = range(self._options.min_match, self._options.max_match + 1)
        newest = len(tokens)
        first = max(self._num_indexed + 1, newest - MAX_LOOKBACK)
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


def make_drafters(generate: Generate) -> tuple[Drafter, ...]:
    """The request's drafters; the first that has a guess is asked."""
    drafters: list[Drafter] = []
    if generate.draft_token_ids:
        drafters.append(HypothesisDrafter(generate.draft_token_ids, len(generate.prompt_token_ids)))
    if generate.ngram is not None:
        drafters.append(NgramDrafter(generate.ngram))
    return tuple(drafters)
