"""Beam search as a pure machine: several beginnings of one answer side by side, the likeliest going on.

Told the likeliest next tokens of each beam it says which beams there are next, until none could be better
than what has ended. Scores are sums of log-probabilities divided by the number of tokens, the stop token
included, to the power of `length_penalty`. The rules are those of `transformers`
(`GenerationMixin._beam_search` with `early_stopping=False`), so that answers are the same. What it has not is
`patience`: how many answers must have ended, for each beam, before the search may (Kasai et al. 2022,
arXiv:2204.05424). `actors/inference/beam_search.py` asks the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...protocols.engine.messages import FinishReason, TopLogprobs


@dataclass(frozen=True, slots=True)
class Beam:
    """An answer, or its beginning, and the log-probability of each of its tokens."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    total: float = 0.0
    """Sum of the log-probabilities, that of a stop token that ended it included."""
    parent: int = 0
    """Which of the beams before it goes on from."""
    finish_reason: FinishReason | None = None


class BeamSearch:
    """`num_beams` at a time, each of at most `max_tokens` tokens; those of `stop_token_ids` end one."""

    def __init__(
        self,
        num_beams: int,
        *,
        max_tokens: int,
        stop_token_ids: Sequence[int],
        length_penalty: float = 1.0,
        patience: float = 1.0,
    ) -> None:
        self._num_beams = num_beams
        self._num_ended = max(1, round(num_beams * patience))
        self._length_penalty = length_penalty
        self._max_tokens = max_tokens
        self._stops = frozenset(stop_token_ids)
        self._ended: list[Beam] = []
        self.running: Sequence[Beam] = (Beam(),)
        """What goes on, likeliest first; one at the beginning, none at the end."""

    @property
    def num_candidates(self) -> int:
        """How many tokens are looked at behind each beam: should the best all end there, others go on."""
        return max(2, 1 + len(self._stops)) * self._num_beams

    @property
    def is_over(self) -> bool:
        """Whether nothing that goes on could count."""
        return not self.running

    def advance(self, likeliest: Sequence[TopLogprobs]) -> None:
        """Go on by a token: for each beam of `running` its `num_candidates` likeliest, fewer if there are."""
        grown = sorted(
            (
                self._grown(place, beam, token_id, logprob)
                for place, (beam, tops) in enumerate(zip(self.running, likeliest, strict=True))
                for token_id, logprob in tops[: self.num_candidates]
            ),
            key=lambda beam: -beam.total,
        )[: self.num_candidates]
        self._ended += [beam for beam in grown[: self._num_beams] if beam.finish_reason is not None]
        self._ended = sorted(self._ended, key=self.score, reverse=True)[: self._num_ended]
        self.running = [beam for beam in grown if beam.finish_reason is None][: self._num_beams]
        is_enough = len(self._ended) == self._num_ended
        if self.running and is_enough and self.score(self.running[0]) <= self.score(self._ended[-1]):
            self.running = ()

    def score(self, beam: Beam) -> float:
        """By which answers of different lengths are compared."""
        num_tokens = len(beam.token_ids) + (beam.finish_reason == "stop")
        return beam.total / math.pow(num_tokens, self._length_penalty)

    def best(self) -> Beam:
        """The answer, once it is over."""
        return self._ended[0]

    def _grown(self, place: int, beam: Beam, token_id: int, logprob: float) -> Beam:
        total = beam.total + logprob
        if token_id in self._stops:
            return Beam(beam.token_ids, beam.logprobs, total, place, "stop")
        token_ids, logprobs = (*beam.token_ids, token_id), (*beam.logprobs, logprob)
        reason: FinishReason | None = "length" if len(token_ids) >= self._max_tokens else None
        return Beam(token_ids, logprobs, total, place, reason)
