"""Beam search as a pure machine: several beginnings of one answer side by side, the likeliest going on.

Told the likeliest next tokens of each beam it says which beams there are next, until none could be better
than what has ended. Scores are sums of log-probabilities divided by the number of tokens, the stop token
included. The rules are those of `transformers` (`GenerationMixin._beam_search` with `early_stopping=False`
and a length penalty of 1), so that answers are the same. `actors/engine/beams.py` asks the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...protocols.messages import FinishReason, TopLogprobs


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

    @property
    def score(self) -> float:
        """By which answers of different lengths are compared."""
        return self.total / max(1, len(self.token_ids) + (self.finish_reason == "stop"))


class BeamSearch:
    """`num_beams` at a time, each of at most `max_tokens` tokens; those of `stop_token_ids` end one."""

    def __init__(self, num_beams: int, *, max_tokens: int, stop_token_ids: Sequence[int]) -> None:
        self._num_beams = num_beams
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
        self._ended = sorted(self._ended, key=lambda beam: -beam.score)[: self._num_beams]
        self.running = [beam for beam in grown if beam.finish_reason is None][: self._num_beams]
        if self.running and len(self._ended) == self._num_beams:
            best_of_running = self.running[0].total / len(self.running[0].token_ids)
            if best_of_running <= self._ended[-1].score:
                self.running = ()

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
