"""Self-attention of rows that see ahead: those of an item or a prompt of which each row attends to all of it.

All rows of such a span that are not in the cache yet are fed in one step, so their keys are there. The
causal result of the step is replaced in their rows. Read `kernels/attention/paged_attention.py` first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import torch
from torch import Tensor

from .kv_cache import gather_kv
from .paged_attention import PagedBatch

_ROWS: Final = 512
"""Rows whose scores are there at once: a prompt has thousands."""


class WholeSpan(NamedTuple):
    """Rows `first_row` to `first_row + num_rows` of a step lie at positions from `start` on of a sequence,
    and see those in front of `end`."""

    sequence: int
    first_row: int
    num_rows: int
    start: int
    end: int


def attend_to_spans(
    mixed: Tensor,
    query: Tensor,
    cache: Tensor,
    batch: PagedBatch,
    spans: Sequence[WholeSpan],
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> None:
    """Write the rows of `spans` into `mixed`, which is what `paged_attention` gave of the other arguments."""
    heads, dim = query.shape[1:]
    factor = dim**-0.5 if scale is None else scale
    for span in chain.from_iterable(map(_parts, spans)):
        own = torch.arange(span.start, span.start + span.num_rows, device=query.device)[:, None]
        seen_from = torch.zeros_like(own) if window is None else (own - window + 1).clamp_min(0)
        first = 0 if window is None else max(span.start - window + 1, 0)
        # Blocks in front of what all rows see are another's by now.
        least = first // batch.block_size
        skipped = least * batch.block_size
        key, value = gather_kv(cache, batch.block_tables[span.sequence, least:], span.end - skipped)
        key, value = (each.float().repeat_interleave(heads // each.shape[0], 0) for each in (key, value))
        place = slice(span.first_row, span.first_row + span.num_rows)
        scores = (query[place].float().transpose(0, 1) * factor) @ key.transpose(1, 2)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        positions = torch.arange(skipped, span.end, device=query.device)[None]
        weights = scores.masked_fill(positions < seen_from, float("-inf")).softmax(-1)
        mixed[place] = (weights @ value).transpose(0, 1).to(mixed.dtype)


def _parts(span: WholeSpan) -> Iterator[WholeSpan]:
    for first in range(0, span.num_rows, _ROWS):
        num_rows = min(_ROWS, span.num_rows - first)
        yield span._replace(first_row=span.first_row + first, num_rows=num_rows, start=span.start + first)
