"""Lays out one step for a model: checks each sequence's share of a plan, and joins them into a `StepBatch`.

Whatever is wrong with a sequence is found here, before it can touch another's rows. The runner owns the
state this reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch

from ...kernels.attention.paged_attention import PagedBatch, PagedSequence, paged_batch, with_tables
from ...kernels.linear.row_adapters import AdaptedRows
from ...kernels.transfer import to_device
from ...protocols.engine.messages import Sample
from ..models.base import (
    NO_CONTEXT,
    CrossAttendingRows,
    EncoderOutput,
    MediaEmbedding,
    RowContext,
    StepBatch,
    WantedRows,
)
from ..planning.kv.groups import ONE_GROUP, PagedGroup
from ..planning.kv.specs import PagedSpec
from ..planning.plan import SequenceStep, Slot
from .sequence import SequenceState


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step must fit."""

    num_blocks: int
    block_size: int
    max_context: int
    vocab_size: int
    has_cross_attention: bool
    """Every sequence cross-attends to an encoding."""
    rotary_axes: int
    num_state_slots: int = 0
    sees_whole_prompts: bool = False
    """0 for a model without states."""
    groups: tuple[PagedGroup, ...] = ONE_GROUP
    """Layers that share a block table."""
    windows: tuple[tuple[int, PagedSpec | None], ...] = field(init=False)
    """Of each group its number, and its spec unless its rows see all before them."""
    num_more_tables: int = field(init=False)

    def __post_init__(self) -> None:
        specs = [None if group.spec.reach is None else group.spec for group in self.groups]
        object.__setattr__(self, "windows", tuple(enumerate(specs)))
        object.__setattr__(self, "num_more_tables", len(self.groups) - 1)


@dataclass(frozen=True, slots=True)
class FedSequence:
    """One sequence of a step; `token_ids` are all it feeds."""

    step: SequenceStep
    state: SequenceState
    token_ids: tuple[int, ...]
    drawn_from: torch.Tensor | None = None
    """See `RowSpan`."""

    @property
    def end(self) -> int:
        """Tokens of context once these are fed."""
        return self.step.start + len(self.token_ids)

    @property
    def num_rows(self) -> int:
        """Tokens it feeds."""
        return len(self.token_ids)

    @property
    def samples(self) -> bool:
        """Whether its task is to generate tokens."""
        return isinstance(self.state.task, Sample)

    @property
    def probe_row(self) -> int | None:
        """Which of the fed rows is probed, if one is."""
        if self.step.probe is None:
            return None
        row = self.step.probe.position - self.step.start
        return row if 0 <= row < len(self.token_ids) else None

    @property
    def draft(self) -> tuple[int, ...]:
        """The tokens to verify."""
        num_draft = self.step.num_draft
        return self.token_ids[-num_draft:] if num_draft else ()


def fault_of(
    step: SequenceStep, state: SequenceState, limits: Limits, encodings: Mapping[Slot, EncoderOutput]
) -> str | None:
    """Why a sequence cannot be run, if it cannot. Constant work for a decode step, however long it is."""
    end = step.start + step.num_rows
    if not 0 <= step.num_draft < step.num_rows or step.num_draft > len(step.token_ids):
        return "a step needs at least one token that is not a draft"
    if step.feeds_sampled and not state.generated:
        return "a step feeds the newest sampled token, but none was sampled"
    if step.feeds_sampled and step.start != state.num_tokens - 1:
        return f"the newest token is at position {state.num_tokens - 1}, the step starts at {step.start}"
    if step.answers and end - step.num_draft != state.num_tokens:
        return f"a step answers behind {end - step.num_draft} tokens of a sequence of {state.num_tokens}"
    if step.token_ids and not (min(step.token_ids) >= 0 and max(step.token_ids) < limits.vocab_size):
        return f"a token id is outside the vocabulary of {limits.vocab_size}"
    if step.start < 0 or end > limits.max_context:
        return f"{end} tokens do not fit the model's {limits.max_context} positions"
    return _table_fault(step, state, end, limits) or _media_fault(step, limits, encodings)


def _table_fault(step: SequenceStep, state: SequenceState, end: int, limits: Limits) -> str | None:
    size, checked, shortest = limits.block_size, state.num_table_blocks, 0
    if (step.more_tables or limits.num_more_tables) and len(step.more_tables) != limits.num_more_tables:
        num_tables = 1 + len(step.more_tables)
        return f"the step has {num_tables} block tables, and the layers are in {len(limits.groups)} groups"
    if step.state_slot not in (range(limits.num_state_slots) if limits.num_state_slots else (None,)):
        return f"the state slot {step.state_slot} is not one of {limits.num_state_slots}"
    for number, spec in limits.windows:
        table = step.more_tables[number - 1] if number else step.block_table
        width = len(table)
        if end > width * size:
            return f"{end} tokens do not fit {width} blocks of {size}"
        # A table grows at its end, and lets go at its front; looking at all of it in every step would cost
        # more the longer it gets.
        first = min(step.start // size, checked)
        if spec is not None:
            needed = spec.first_needed(step.start) // size
            if table[needed] < 0:
                return f"block {needed} of a table is gone, and rows from {step.start} on see it"
            first = max(first, needed)
        fresh = table[first:]
        if not (min(fresh) >= 0 and max(fresh) < limits.num_blocks):
            return f"a block of the table is not one of {limits.num_blocks}"
        if not number or width < shortest:
            shortest = width
    state.num_table_blocks = shortest
    return None


def _media_fault(step: SequenceStep, limits: Limits, encodings: Mapping[Slot, EncoderOutput]) -> str | None:
    if limits.has_cross_attention and step.encoder_slot not in encodings:
        return "the encoded window of this request is gone"
    for rows in step.media:
        output = encodings.get(rows.slot)
        if output is None:
            return "an encoded item of this request is gone"
        if rows.num_rows < 1 or rows.first_row < 0 or rows.first_row + rows.num_rows > step.num_rows:
            last = rows.first_row + rows.num_rows - 1
            return f"a step of {step.num_rows} tokens has no rows {rows.first_row} to {last}"
        if rows.offset < 0 or rows.offset + rows.num_rows > output.num_rows:
            last = rows.offset + rows.num_rows - 1
            return f"an encoded item of {output.num_rows} rows has no rows {rows.offset} to {last}"
    if step.positions is not None:
        if limits.rotary_axes == 1 or len(step.positions) != limits.rotary_axes:
            return f"this model's positions have {limits.rotary_axes} axes, not {len(step.positions)}"
        if any(len(axis) != step.num_rows for axis in step.positions):
            return f"{step.num_rows} tokens need as many positions"
    return None


def step_batch(
    fed: Sequence[FedSequence],
    limits: Limits,
    encodings: Mapping[Slot, EncoderOutput],
    device: torch.device,
    wanted: Sequence[int] | None = None,
) -> StepBatch:
    """All sequences' rows, one after the other; of each the last `wanted` are needed (None: all)."""
    token_ids: list[int] = []
    sequences: list[PagedSequence] = []
    media: list[MediaEmbedding] = []
    adapted: list[AdaptedRows] = []
    for each in fed:
        step, first = each.step, len(token_ids)
        token_ids += each.token_ids
        sequences.append(PagedSequence(step.block_table, step.start, len(each.token_ids)))
        if each.state.adapter is not None:
            adapted.append(AdaptedRows(each.state.adapter, slice(first, len(token_ids))))
        for rows in step.media:
            output = encodings[rows.slot]
            media.append(MediaEmbedding(output, first + rows.first_row, rows.num_rows, rows.offset))
    paged = paged_batch(sequences, limits.block_size, device)
    more_paged = tuple(_more_paged(fed, paged, len(limits.groups) - 1))
    return StepBatch(
        token_ids=to_device(torch.tensor(token_ids, dtype=torch.int64), device),
        positions=to_device(torch.tensor(_positions(fed, limits.rotary_axes), dtype=torch.int64), device),
        paged=paged,
        more_paged=more_paged,
        media=tuple(media),
        cross_attending=tuple(_cross_attending(fed, encodings)) if limits.has_cross_attention else (),
        rows=RowContext(
            _state_slots(fed, limits, device),
            tuple(adapted),
            tuple(each.state.num_prompt for each in fed) if limits.sees_whole_prompts else (),
        )
        if adapted or limits.num_state_slots or limits.sees_whole_prompts
        else NO_CONTEXT,
        # Adapters change products of all rows.
        wanted=None if wanted is None or adapted else _wanted_rows(wanted, (paged, *more_paged), device),
    )


def _more_paged(fed: Sequence[FedSequence], paged: PagedBatch, num_more: int) -> Iterator[PagedBatch]:
    """The step in the groups of layers behind the first."""
    for number in range(num_more):
        yield with_tables(
            paged,
            [
                PagedSequence(each.step.more_tables[number], each.step.start, len(each.token_ids))
                for each in fed
            ],
        )


def _wanted_rows(
    wanted: Sequence[int], groups: tuple[PagedBatch, ...], device: torch.device
) -> WantedRows | None:
    """None where leaving rows out gains little."""
    counts, num_queries = tuple(wanted), groups[0].num_queries
    ends = tuple(accumulate(num_queries))
    if 2 * sum(counts) >= sum(num_queries):
        return None
    indices = [row for end, count in zip(ends, counts, strict=True) for row in range(end - count, end)]
    rows = to_device(torch.tensor(indices, dtype=torch.int64), device)
    starts = to_device(torch.tensor([0, *accumulate(counts)], dtype=torch.int32), device)
    return WantedRows(
        rows,
        tuple(
            replace(each, query_starts=starts, write_slots=each.write_slots[rows], num_queries=counts)
            for each in groups
        ),
    )


def _state_slots(fed: Sequence[FedSequence], limits: Limits, device: torch.device) -> torch.Tensor | None:
    if not limits.num_state_slots:
        return None
    return to_device(torch.tensor([each.step.state_slot for each in fed], dtype=torch.int64), device)


def _positions(fed: Sequence[FedSequence], axes: int) -> list[int] | list[list[int]]:
    if axes == 1:
        return [position for each in fed for position in range(each.step.start, each.end)]
    result: list[list[int]] = [[] for _ in range(axes)]
    for each in fed:
        plain = range(each.step.start, each.end)
        for axis, values in zip(result, each.step.positions or (plain,) * axes, strict=True):
            axis += values
    return result


def _cross_attending(
    fed: Sequence[FedSequence], encodings: Mapping[Slot, EncoderOutput]
) -> list[CrossAttendingRows]:
    """Neighbours that listen to the same of one encoding are one listener."""
    cross_attending: list[CrossAttendingRows] = []
    last: Slot | None = None
    for each in fed:
        slot, span, rows = each.step.encoder_slot, each.step.encoder_span, len(each.token_ids)
        assert slot is not None, "checked by fault_of"
        if cross_attending and (slot, span) == (last, cross_attending[-1].span):
            rows += cross_attending.pop().num_rows
        cross_attending.append(CrossAttendingRows(encodings[slot], rows, span))
        last = slot
    return cross_attending
