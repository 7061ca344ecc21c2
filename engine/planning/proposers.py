"""What proposes the next tokens of a request: they are verified in the forward pass that feeds them.

A proposal saves steps. One without a distribution changes no answer; one with a distribution changes no
distribution of answers. `engine/planning/request.py` asks for one per step and cuts it to what fits;
`engine/execution/sampler.py` accepts. `make_proposers` is the one place that knows which proposers there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from ...protocols.engine.messages import NgramDraft, Sample
from .kv.specs import LayerSpec
from .plan import Proposal

MAX_LOOKBACK: Final = 4096
"""Tokens that prompt lookup takes note of at once, the newest, with the usual three lengths of match."""
MAX_NOTES: Final = 3 * MAX_LOOKBACK
"""Of all lengths together, about 5 ms and 3 MB; who asks for more lengths is looked back for less far."""
PREDICTED_AT_ONCE: Final = 32
"""Tokens of a predicted answer verified in a step: behind where it is wrong they are computed for nothing."""
REJOINED_BY: Final = 3
REJOINED_WITHIN: Final = 512
"""Tokens of it looked through, some 50 µs for each token of the answer that is not in it."""


class Proposer(Protocol):
    """One source of proposals for one request. `tokens` is its prompt and answer so far.

    To be inherited from: what is told need not interest it.
    """

    proposes_ahead: ClassVar[bool] = True
    """Whether it can propose while results are outstanding (`num_ahead`)."""

    def propose(self, tokens: Sequence[int], limit: int, num_ahead: int = 0) -> Proposal | None:
        """What may follow `tokens`: 1 to `limit` ids, or None.

        Steps in flight bring `num_ahead` more tokens, if all their drafts are accepted: the proposal is what
        follows those, supposing that they are the ones this proposer would propose now.
        """

    def accepted(self, proposal: Proposal, num_accepted: int) -> None:  # noqa: ARG002 (not all care)
        """So many tokens of a proposal of this proposer were accepted. Proposals come in their order, without
        those whose request was preempted meanwhile."""
        return

    def drafted(self, proposal: Proposal | None) -> None:  # noqa: ARG002 (not all care)
        """What the runner itself drafted behind the newest token of the request, told with every result.
        None: nothing, or the request left the device, and handles of before are void."""
        return

    def is_over(self, tokens: Sequence[int]) -> bool:
        """Whether it will never propose anything again."""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A proposer that runs on the device with the model, as the engine knows it before there are requests.

    Its drafts come from the runner (`StepResult.proposals`); each request gets a proposer from `make` that
    hands them on.
    """

    make: Callable[[], Proposer]
    layers: tuple[LayerSpec, ...] = ()
    """What its own layers keep of a sequence. `layout_of` (`engine/planning/kv/groups.py`) takes them with
    those of the model."""
    needs_hidden_states: bool = False
    """Whether it computes with the model's hidden states. What its layers keep of a token then depends on the
    next one, and the last block of a prefix hit is computed again."""


class HypothesisProposer(Proposer):
    """The request's own draft (the previous hypothesis), as long as the answer agrees with it."""

    __slots__ = ("_draft", "_num_agreed", "_num_prompt")

    def __init__(self, draft: Sequence[int], num_prompt: int) -> None:
        self._draft = draft
        self._num_prompt = num_prompt
        self._num_agreed = 0

    def propose(self, tokens: Sequence[int], limit: int, num_ahead: int = 0) -> Proposal | None:
        """See `Proposer`."""
        self._compare(tokens)
        start = self._num_agreed + num_ahead
        return _proposal(self._draft[start : start + limit])

    def is_over(self, tokens: Sequence[int]) -> bool:
        """See `Proposer`."""
        self._compare(tokens)
        return self._num_agreed >= len(self._draft)

    def _compare(self, tokens: Sequence[int]) -> None:
        num_generated = len(tokens) - self._num_prompt
        while self._num_agreed < min(num_generated, len(self._draft)):
            if tokens[self._num_prompt + self._num_agreed] != self._draft[self._num_agreed]:
                self._draft = ()
            else:
                self._num_agreed += 1


class PredictionProposer(Proposer):
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

    def propose(self, tokens: Sequence[int], limit: int, num_ahead: int = 0) -> Proposal | None:
        """See `Proposer`."""
        self._follow(tokens)
        if self._is_lost:
            return None
        start = self._next + num_ahead
        return _proposal(self._predicted[start : start + min(limit, PREDICTED_AT_ONCE)])

    def is_over(self, tokens: Sequence[int]) -> bool:
        """See `Proposer`."""
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


class NgramProposer(Proposer):
    """Prompt lookup: what followed the last earlier occurrence of the newest tokens, longest match first."""

    __slots__ = ("_ends", "_num_indexed", "_options")

    def __init__(self, options: NgramDraft) -> None:
        self._options = options
        self._ends: dict[tuple[int, ...], int] = {}  # where each n-gram last ended
        self._num_indexed = 0

    def propose(self, tokens: Sequence[int], limit: int, num_ahead: int = 0) -> Proposal | None:
        """See `Proposer`. Costs what is new since the last call, `MAX_NOTES` at most."""
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
                start = found + num_ahead
                return _proposal(tokens[start : start + min(limit, self._options.num_tokens)])
        return None

    def is_over(self, tokens: Sequence[int]) -> bool:  # noqa: ARG002 (as of the others)
        """Never: the answer may begin to repeat at any time."""
        return False


def make_proposers(
    sample: Sample, num_prompt: int, draft_model: DraftModel | None = None
) -> tuple[Proposer, ...]:
    """The proposers of a request with so many prompt tokens; the first that has a proposal is used."""
    proposers: list[Proposer] = []
    if sample.draft_token_ids:
        kind = PredictionProposer if sample.rejoins_draft else HypothesisProposer
        proposers.append(kind(sample.draft_token_ids, num_prompt))
    if sample.ngram is not None:
        proposers.append(NgramProposer(sample.ngram))
    if draft_model is not None:
        proposers.append(draft_model.make())
    return tuple(proposers)


def _proposal(ids: Sequence[int]) -> Proposal | None:
    """Of tokens without a distribution."""
    return Proposal(tuple(ids)) if ids else None
