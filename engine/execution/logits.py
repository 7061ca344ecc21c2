"""What may be said next: the rules that change a row of logits before a token is chosen.

In this order: allowed and suppressed tokens and biases, penalties, minimum length, the grammar. Rows of
different sequences that share a rule are changed together. Formulas follow transformers'
`logits_process.py` (repetition, suppression) and OpenAI's reference (presence, frequency, bias).
`engine/execution/sampler.py` chooses from what is left.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels.transfer import to_device
from ...protocols.messages import SamplingParams
from .grammar import GrammarError

if TYPE_CHECKING:
    from .sequence import SequenceState

NEVER = float("-inf")

_MAX_CACHED_BIASES = 64
"""Most requests of a model share theirs. One of `allowed_token_ids` is as large as a row of logits."""


@dataclass(slots=True)
class RowSpan:
    """Rows `first`, … of a step's logits of one sequence: the first, then one behind each draft token."""

    state: SequenceState
    first: int
    draft: tuple[int, ...] = ()

    @property
    def rows(self) -> range:
        """Row numbers in the step's logits."""
        return range(self.first, self.first + 1 + len(self.draft))


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


def apply_rules(logits: Tensor, spans: Sequence[RowSpan]) -> dict[int, str]:
    """Change float32 logits [rows, vocab] in place, each row as if its part of the draft were generated.

    Answers what went wrong, by index of the span; such a span's rows are not to be used.
    """
    _apply_biases(logits, spans)
    penalised = [span for span in spans if span.state.counts is not None]
    if penalised:
        _apply_penalties(logits, penalised)
    return _apply_grammars(logits, spans)


def _apply_biases(logits: Tensor, spans: Sequence[RowSpan]) -> None:
    rows_of: dict[Bias, list[int]] = defaultdict(list)
    for span in spans:
        rules, num_generated = span.state.rules, len(span.state.generated)
        if rules is None:
            continue
        if rules.always is not None:
            rows_of[rules.always] += span.rows
        if rules.at_first is not None and num_generated == 0:
            rows_of[rules.at_first].append(span.first)
        early = span.state.sampling.min_tokens - num_generated
        if rules.before_minimum is not None and early > 0:
            rows_of[rules.before_minimum] += span.rows[:early]
    for bias, rows in rows_of.items():
        # Two rules of one request may be equal, and so one bias: its rows come twice.
        bias.add_to(logits, sorted(set(rows)))


class _Penalised(NamedTuple):
    """One row's tokens with what they cost."""

    row: int
    ids: np.ndarray[tuple[int], np.dtype[np.int64]]
    generated: np.ndarray[tuple[int], np.dtype[np.float32]]
    sampling: SamplingParams


def _apply_penalties(logits: Tensor, spans: Sequence[RowSpan]) -> None:
    """Repetition, then presence and frequency, of all rows that have any."""
    entries: list[_Penalised] = []
    for span in spans:
        assert span.state.counts is not None
        for row, (seen, counts) in zip(span.rows, span.state.counts.with_draft(span.draft), strict=True):
            entries.append(_Penalised(row, seen, counts, span.state.sampling))
    lengths = [len(entry.ids) for entry in entries]

    def spread(values: Sequence[float]) -> Tensor:
        spread_out = np.repeat(np.asarray(values, dtype=np.float32), lengths)
        return to_device(torch.from_numpy(spread_out), logits.device)

    rows = torch.from_numpy(np.repeat(np.asarray([entry.row for entry in entries]), lengths))
    ids = torch.from_numpy(np.concatenate([entry.ids for entry in entries]))
    where = to_device(rows, logits.device), to_device(ids, logits.device)
    occurrences = torch.from_numpy(np.concatenate([entry.generated for entry in entries]))
    generated = to_device(occurrences, logits.device)
    repetition = spread([entry.sampling.repetition_penalty for entry in entries])
    presence = spread([entry.sampling.presence_penalty for entry in entries])
    frequency = spread([entry.sampling.frequency_penalty for entry in entries])
    values = logits[where]
    values = torch.where(values < 0, values * repetition, values / repetition)
    values -= frequency * generated + presence * (generated > 0)
    logits[where] = values


def _apply_grammars(logits: Tensor, spans: Sequence[RowSpan]) -> dict[int, str]:
    """Forbid what each grammar does not allow; a matcher that fails is answered, not raised."""
    errors: dict[int, str] = {}
    rows: list[int] = []
    masks: list[Tensor] = []
    for index, span in enumerate(spans):
        matcher = span.state.matcher
        if matcher is None:
            continue
        try:
            mask = matcher.masks(span.draft, span.state.sampling.stop_token_ids)
        except GrammarError as error:
            errors[index] = str(error)
            continue
        masks.append(mask)
        rows += span.rows[: mask.shape[0]]
    if rows:
        mask = unpack_mask(to_device(torch.cat(masks), logits.device), logits.shape[1])
        # log 1 = 0 and log 0 = -inf: on CPUs three times as fast as filling where a mask says.
        Bias(mask.float().log_(), None).add_to(logits, rows)
    return errors


def unpack_mask(packed: Tensor, vocab_size: int) -> Tensor:
    """uint8 [rows, bytes], lowest bit first → bool [rows, vocab_size]; ids past the bytes are false."""
    bits = torch.arange(8, dtype=torch.uint8, device=packed.device)
    mask = ((packed[:, :, None] >> bits) & 1).flatten(1).bool()
    missing = vocab_size - mask.shape[1]
    return torch.nn.functional.pad(mask, (0, missing)) if missing > 0 else mask[:, :vocab_size]
