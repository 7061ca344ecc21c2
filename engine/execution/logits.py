"""What may be said next: the rules that change a row of logits before a token is chosen.

In this order: allowed and suppressed tokens and biases, penalties, minimum length, forbidden and repeated
sequences, the grammar, the end of thoughts; then phrases.
Rows of different sequences that share a rule are changed together. Formulas follow transformers'
`logits_process.py` (repetition, suppression) and OpenAI's reference (presence, frequency, bias).
The rules of a request are `engine/execution/token_rules.py`'s; `engine/execution/sampler.py` chooses from
what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...kernels.transfer import to_device
from ...protocols.engine.messages import SamplingParams
from .bias import Bias
from .forbidden_tokens import Ids
from .grammar import GrammarError
from .sequence import SequenceState
from .token_rules import NEVER


@dataclass(slots=True)
class RowSpan:
    """Rows `first`, … of a step's logits of one sequence: the first, then one behind each draft token."""

    state: SequenceState
    first: int
    draft: tuple[int, ...] = ()
    drawn_from: Tensor | None = None
    """Probabilities [draft, vocab] that the draft was drawn from; None: its tokens are certain."""

    @property
    def rows(self) -> range:
        """Row numbers in the step's logits."""
        return range(self.first, self.first + 1 + len(self.draft))


def apply_rules(logits: Tensor, spans: Sequence[RowSpan]) -> dict[int, str]:
    """Change float32 logits [rows, vocab] in place, each row as if its part of the draft were generated.

    Answers what went wrong, by index of the span; such a span's rows are not to be used.
    """
    _apply_biases(logits, spans)
    penalised = [span for span in spans if span.state.counts is not None]
    if penalised:
        _apply_penalties(logits, penalised)
    _forbid_unwanted(logits, spans)
    errors = _apply_grammars(logits, spans)
    _end_thoughts(logits, spans)
    return errors


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


def add_phrases(logits: Tensor, spans: Sequence[RowSpan]) -> None:
    """Make the next tokens of phrases likelier, in place. What rules forbid stays so."""
    rows_of: dict[Bias, list[int]] = defaultdict(list)
    for span in spans:
        rules, places = span.state.rules, span.state.places
        if rules is None or rules.phrases is None:
            continue
        early = span.state.sampling.phrases_from - len(span.state.generated)
        for row, token_ids in zip(span.rows, ((), *((each,) for each in span.draft)), strict=True):
            places = rules.phrases.tree.follow(places, token_ids)
            bias = rules.phrases.of(places)
            if bias is not None and row - span.first >= early:
                rows_of[bias].append(row)
    for bias, rows in rows_of.items():
        bias.add_to(logits, rows)


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
        for row, (in_prompt, counts) in zip(span.rows, span.state.counts.with_draft(span.draft), strict=True):
            entries.append(_Penalised(row, in_prompt, counts, span.state.sampling))
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


def _forbid_unwanted(logits: Tensor, spans: Sequence[RowSpan]) -> None:
    """Forbid what would end a forbidden sequence or repeat one, of all rows at once."""
    rows: list[int] = []
    found: list[Ids] = []
    for span in spans:
        if span.state.unwanted is not None:
            rows += span.rows
            found += span.state.unwanted.with_draft(span.draft)
    if not rows:
        return
    ids = np.concatenate(found)
    is_known = ids < logits.shape[1]
    places = np.repeat(np.asarray(rows), [len(each) for each in found])[is_known]
    if len(places):
        where = torch.from_numpy(places), torch.from_numpy(ids[is_known].astype(np.int64))
        logits[to_device(where[0], logits.device), to_device(where[1], logits.device)] = NEVER


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


def _end_thoughts(logits: Tensor, spans: Sequence[RowSpan]) -> None:
    """Leave nothing but the end of thoughts where a budget is used up, and that may come: in the midst of a
    character a grammar has it wait. An id outside the vocabulary is ignored, as everywhere."""
    ends: dict[int, int] = {}
    for span in spans:
        thoughts = span.state.reasoning
        if thoughts is None:
            continue
        for row, token_ids in zip(span.rows, ((), *((each,) for each in span.draft)), strict=True):
            thoughts = thoughts.follow(token_ids)
            if thoughts.must_end and thoughts.budget.ends[0] < logits.shape[1]:
                ends[row] = thoughts.budget.ends[0]
    if not ends:
        return
    rows = to_device(torch.tensor(list(ends)), logits.device)
    columns = to_device(torch.tensor(list(ends.values())), logits.device)
    free = logits[rows]
    values = free.gather(1, columns[:, None])
    forced = torch.full_like(free, NEVER).scatter_(1, columns[:, None], values)
    logits[rows] = torch.where(values > NEVER, forced, free)


def unpack_mask(packed: Tensor, vocab_size: int) -> Tensor:
    """uint8 [rows, bytes], lowest bit first → bool [rows, vocab_size]; ids past the bytes are false."""
    bits = torch.arange(8, dtype=torch.uint8, device=packed.device)
    mask = ((packed[:, :, None] >> bits) & 1).flatten(1).bool()
    missing = vocab_size - mask.shape[1]
    return torch.nn.functional.pad(mask, (0, missing)) if missing > 0 else mask[:, :vocab_size]
