"""Attention over latents at chosen positions: each row sees those that an index chose for it (DSA).

A row behind few enough tokens sees all of them, as in `latent_attention.py`. For others the latents are
gathered row by row. DeepSeek-V3.2-Exp, https://arxiv.org/abs/2512.02556, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .latent_attention import LatentSizes, absorb, latent_attention, values_of
from .paged_attention import PagedBatch


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """What some consecutive rows of one sequence of a step see."""

    sequence: int
    first_row: int
    """In the step."""
    start: int
    """The position of the first one."""
    num_rows: int
    positions: Tensor | None
    """[rows, choices], those behind a row's own are not seen; None: all up to its own."""


def selected_attention(
    query: Tensor,
    cache: Tensor,
    batch: PagedBatch,
    up: Tensor,
    sizes: LatentSizes,
    *,
    selected: Sequence[SelectedRows],
    scale: float,
    sinks: Tensor | None = None,
) -> Tensor:
    """As `latent_attention`; `selected` are all rows, in order."""
    everything = [each for each in selected if each.positions is None]
    if len(everything) == len(selected):
        whole = _part(batch, everything)
        return latent_attention(query, cache, whole, up, sizes, scale=scale, sinks=sinks)
    out = query.new_empty(*query.shape[:2], sizes.value)
    if everything:
        rows = torch.cat([query[_rows(each)] for each in everything])
        part = _part(batch, everything)
        mixed = latent_attention(rows, cache, part, up, sizes, scale=scale, sinks=sinks)
        for each, own in zip(everything, torch.split(mixed, [*part.num_queries]), strict=True):
            out[_rows(each)] = own
    for each in selected:
        if each.positions is not None:
            mixed = _attend(query[_rows(each)], cache, batch, up, sizes, each, each.positions, scale, sinks)
            out[_rows(each)] = mixed
    return out


def _rows(part: SelectedRows) -> slice:
    return slice(part.first_row, part.first_row + part.num_rows)


def _attend(
    query: Tensor,
    cache: Tensor,
    batch: PagedBatch,
    up: Tensor,
    sizes: LatentSizes,
    part: SelectedRows,
    positions: Tensor,
    scale: float,
    sinks: Tensor | None,
) -> Tensor:
    """Rows that chose: their latents are copied, in float32."""
    size = cache.shape[3]
    own = torch.arange(part.start, part.start + part.num_rows, device=query.device)
    is_seen = positions <= own[:, None]
    known = torch.where(is_seen, positions, 0).long()
    table = batch.block_tables[part.sequence].long()
    slots = table[known // size] * size + known % size
    latents = cache.view(-1, cache.shape[4])[slots, : sizes.rank + sizes.shared].float()
    scores = torch.bmm(absorb(query, up, sizes).float(), latents.transpose(1, 2)) * scale
    scores = scores.masked_fill(~is_seen[:, None], float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.to(scores)[None, :, None].expand(len(scores), -1, 1)), -1)
    weights = scores.softmax(-1)[..., : positions.shape[1]]
    return values_of(torch.bmm(weights, latents).to(query.dtype), up, sizes)


def _part(batch: PagedBatch, parts: Sequence[SelectedRows]) -> PagedBatch:
    """The step of these rows alone, to be read only."""
    device = batch.block_tables.device
    num_queries = tuple(each.num_rows for each in parts)
    ends = torch.tensor([each.start + each.num_rows for each in parts], dtype=torch.int32)
    starts = torch.tensor((0, *num_queries), dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return replace(
        batch,
        block_tables=batch.block_tables[torch.tensor([each.sequence for each in parts], device=device)],
        query_starts=starts.to(device),
        context_lengths=ends.to(device),
        write_slots=batch.write_slots[: sum(num_queries)],
        num_queries=num_queries,
    )


def portions(batch: PagedBatch, most_rows: int) -> Iterator[SelectedRows]:
    """The rows of a step, so many of a sequence at once, which see all."""
    first = 0
    lengths = batch.context_lengths.tolist()
    for sequence, (rows, length) in enumerate(zip(batch.num_queries, lengths, strict=True)):
        for done in range(0, rows, most_rows):
            count = min(most_rows, rows - done)
            yield SelectedRows(sequence, first + done, length - rows + done, count, None)
        first += rows
