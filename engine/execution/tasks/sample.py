"""Sample: logits of the last rows, a choice for each, and log-probabilities of the prompt where wanted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import torch
from torch import Tensor

from ....kernels.transfer import to_device
from ....protocols.engine.messages import PromptLogprobs, TokensSampled
from ...models.base import Model
from ..logits import RowSpan
from ..sampler import NOT_FINITE, Choice, accept, choose, prompt_logprobs
from ..step import FedSequence
from .base import Rows, SequenceTask

MAX_LOGITS: Final = 1 << 26
"""Elements of float32 logits in memory at once, if a single sequence does not need more."""


@dataclass(slots=True)
class Sampling:
    """What a step computed for one sequence."""

    span: RowSpan | None = None
    choice: Choice | None = None
    probability: float | None = None
    prompt: PromptLogprobs | None = None


class SampleTask(SequenceTask[Sampling]):
    """See `Sample`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._vocab_size = model.info.vocab_size

    def num_wanted(self, fed: FedSequence, /) -> int:
        """See `SequenceTask`."""
        rows = len(fed.token_ids)
        if fed.state.sampling.prompt_logprobs is not None:
            return rows
        num_sampling = 1 + fed.step.num_draft if fed.step.answers else 1
        return max(num_sampling, 0 if fed.probe_row is None else rows - fed.probe_row)

    def compute(self, members: Sequence[Rows], hidden: Tensor, /) -> list[Sampling]:
        """See `SequenceTask`."""
        results = [Sampling() for _ in members]
        for part in self._parts(members):
            self._choose([(members[i], results[i]) for i in part], hidden)
        for rows, result in zip(members, results, strict=True):
            if rows.fed.state.sampling.prompt_logprobs is not None:
                result.prompt = self._prompt_logprobs(rows.fed, hidden[rows.first : rows.end])
        return results

    def replayed(self, fed: Sequence[FedSequence], logits: Tensor) -> list[Sampling]:
        """Of sequences that each fed one row, whose `logits` are there already."""
        spans = [RowSpan(each.state, row) for row, each in enumerate(fed)]
        return [Sampling(*both) for both in zip(spans, choose(logits, spans), strict=True)]

    def answer(self, fed: FedSequence, result: Sampling, /) -> TokensSampled:
        """See `SequenceTask`."""
        reported = [] if result.prompt is None else list(result.prompt.logprobs)
        if result.probability is not None:
            reported.append(result.probability)
        request_id = fed.state.request_id
        if not all(map(math.isfinite, reported)):
            fed.state.finished = True
            return TokensSampled(request_id, error=NOT_FINITE, fault="not_finite")
        sampled = TokensSampled(request_id)
        if result.span is not None and result.choice is not None:
            sampled = accept(result.span, result.choice)
        if not reported or sampled.error is not None:
            return sampled
        return msgspec.structs.replace(
            sampled, prompt_logprobs=result.prompt, probe_probability=result.probability
        )

    def _parts(self, members: Sequence[Rows]) -> Iterator[list[int]]:
        """Indices of sequences that need logits, as many at a time as `MAX_LOGITS` allows."""
        size, rows = MAX_LOGITS // self._vocab_size, 0
        part: list[int] = []
        for index, fed in enumerate(each.fed for each in members):
            needed = (1 + fed.step.num_draft if fed.step.answers else 0) + (fed.probe_row is not None)
            if part and needed and rows + needed > size:
                yield part
                part, rows = [], 0
            if needed:
                part.append(index)
                rows += needed
        if part:
            yield part

    def _choose(self, members: Sequence[tuple[Rows, Sampling]], hidden: Tensor) -> None:
        """Fill the results of sequences with what the logits of their sampling and probed rows say."""
        rows: list[int] = []
        spans: list[RowSpan] = []
        probes: list[tuple[int, int, Sampling]] = []
        for each, result in members:
            fed = each.fed
            if fed.step.answers:
                result.span = RowSpan(fed.state, len(rows), fed.draft, fed.drawn_from)
                spans.append(result.span)
                rows.extend(range(each.end - 1 - fed.step.num_draft, each.end))
            probed = fed.probe_row
            if probed is not None and fed.step.probe is not None:
                probes.append((len(rows), fed.step.probe.token_id, result))
                rows.append(each.first + probed)
        logits = self._model.logits(hidden[to_device(torch.tensor(rows), hidden.device)])
        for row, token_id, result in probes:
            result.probability = float((logits[row, token_id] - logits[row].logsumexp(-1)).exp())
        choices = iter(choose(logits, spans))
        for _, result in members:
            if result.span is not None:
                result.choice = next(choices)

    def _prompt_logprobs(self, fed: FedSequence, hidden: Tensor) -> PromptLogprobs | None:
        """Of the prompt tokens behind the fed ones, from their rows of hidden states, some at a time."""
        state, start = fed.state, fed.step.start
        count = min(len(fed.token_ids), state.num_prompt - 1 - start)
        if count < 1:
            return None
        size = max(MAX_LOGITS // 4 // self._vocab_size, 1)
        parts = (
            (
                self._model.logits(hidden[first : min(first + size, count)]),
                state.prompt_token_ids[start + 1 + first : start + 1 + min(first + size, count)],
            )
            for first in range(0, count, size)
        )
        return prompt_logprobs(parts, state.sampling.prompt_logprobs or 0)
