"""What a request's parameters say of every token it may be answered with, made once and shared.

`engine/execution/logits.py` applies it, with what depends on the answer so far.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.transfer import to_device
from ...protocols.messages import SamplingParams

NEVER = float("-inf")

_MAX_CACHED_BIASES = 64
"""Most requests of a model share theirs. One of `allowed_token_ids` is as large as a row of logits."""


@dataclass(frozen=True, slots=True, eq=False)
class Bias:
    """Added to rows: `values` at `ids`, or without `ids` [vocab] or [rows, vocab] to all tokens."""

    values: Tensor
    ids: Tensor | None

    def add_to(self, logits: Tensor, rows: Sequence[int]) -> None:
        """In place."""
        if rows[-1] - rows[0] + 1 == len(rows):  # they are ascending, and none comes twice
            part = logits[rows[0] : rows[-1] + 1]
            if self.ids is None:
                part += self.values
            else:
                part[:, self.ids] += self.values
            return
        where = to_device(torch.tensor(rows), logits.device)
        if self.ids is None:
            logits[where] += self.values
        else:
            logits[where[:, None], self.ids] += self.values


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one request that do not depend on what was generated, only on how much."""

    always: Bias | None
    at_first: Bias | None
    before_minimum: Bias | None


class RuleBook:
    """Makes `Rules` from parameters. Equal ones share their tensors, and so one operation per step."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._biases: OrderedDict[object, Bias] = OrderedDict()

    def rules_of(self, sampling: SamplingParams) -> Rules | None:
        """None if nothing but the best logit counts; ids outside the vocabulary are ignored."""
        early = sampling.stop_token_ids if sampling.min_tokens > 0 else ()
        rules = Rules(
            self._bias(sampling.suppress_token_ids, sampling.logit_bias, sampling.allowed_token_ids),
            self._bias(sampling.begin_suppress_token_ids),
            self._bias(early),
        )
        if (rules.always or rules.at_first or rules.before_minimum) is not None:
            return rules
        history = (
            sampling.repetition_penalty != 1.0,
            sampling.presence_penalty,
            sampling.frequency_penalty,
            sampling.grammar,
        )
        return rules if any(history) else None

    def _bias(
        self,
        suppressed: tuple[int, ...],
        biases: tuple[tuple[int, float], ...] = (),
        allowed: tuple[int, ...] | None = None,
    ) -> Bias | None:
        if not suppressed and not biases and allowed is None:
            return None
        key = (suppressed, biases, allowed)
        bias = self._biases.get(key)
        if bias is None:
            bias = self._biases[key] = self._make(*key)
            if len(self._biases) > _MAX_CACHED_BIASES:
                self._biases.popitem(last=False)
        self._biases.move_to_end(key)
        return bias

    def _make(
        self,
        suppressed: tuple[int, ...],
        biases: tuple[tuple[int, float], ...],
        allowed: tuple[int, ...] | None,
    ) -> Bias:
        values: dict[int, float] = {}
        for token_id, value in biases:
            values[token_id] = values.get(token_id, 0.0) + value
        values |= dict.fromkeys(suppressed, NEVER)
        values = {token_id: value for token_id, value in values.items() if 0 <= token_id < self._vocab_size}
        ids = torch.tensor(list(values), dtype=torch.int64, device=self._device)
        added = torch.tensor(list(values.values()), dtype=torch.float32, device=self._device)
        if allowed is None:
            return Bias(added, ids)
        dense = torch.full((self._vocab_size,), NEVER, device=self._device)
        dense[[token_id for token_id in allowed if 0 <= token_id < self._vocab_size]] = 0.0
        dense[ids] += added
        return Bias(dense, None)
