"""`argmax` and `draw` on GPUs.

Nothing is sorted. What top_k and top_p keep is everything above some value, and that value is found by
halving the range of float patterns: a few sums over a row that lies in the cache, until few tokens are left
(`_gather`), and the others over those. Probabilities are added in float64, as in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl
from torch import Tensor

from ..sampling import Filters
from ..transfer import to_device
from .jit import jit, jit_varying, power_of_two

_ARGMAX_BLOCK = 4096
_DRAW_BLOCK = 8192
_FEW = 1024
"""Tokens that are gathered, at most."""


@jit_varying("num_parts")
def _argmax_parts(
    x: tl.tensor, row_stride: int, parts: tl.tensor, num_parts: int, size: tl.constexpr, block: tl.constexpr
) -> None:
    """The largest element of a part of a row and its place, packed so that the larger number wins."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * block + tl.arange(0, block)
    value = tl.load(x + row * row_stride + column, mask=column < size, other=0.0).to(tl.float32)
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.where(value != value, 0x7FFFFFFF, key)  # torch: no number is above not-a-number
    packed = (key.to(tl.int64) << 32) | (0x7FFFFFFF - column).to(tl.int64)
    packed = tl.where(column < size, packed, -0x7FFFFFFFFFFFFFFF)
    tl.store(parts + row * num_parts + part, tl.max(packed, 0))


@jit_varying("num_parts")
def _argmax_join(parts: tl.tensor, out: tl.tensor, num_parts: int, block: tl.constexpr) -> None:
    row = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, block)
    packed = tl.load(parts + row * num_parts + part, mask=part < num_parts, other=-0x7FFFFFFFFFFFFFFF)
    tl.store(out + row, 0x7FFFFFFF - (tl.max(packed, 0) & 0xFFFFFFFF))


def argmax(x: Tensor) -> Tensor:
    """See `kernels/argmax.py`; x is float32, bfloat16 or float16, and no row is empty."""
    if x.stride(1) != 1:
        x = x.contiguous()
    rows, size = x.shape
    out = torch.empty(rows, dtype=torch.int64, device=x.device)
    if rows:
        num_parts = -(-size // _ARGMAX_BLOCK)
        parts = torch.empty((rows, num_parts), dtype=torch.int64, device=x.device)
        _argmax_parts[(rows, num_parts)](
            x, x.stride(0), parts, num_parts, size, _ARGMAX_BLOCK, num_warps=4, enable_fp_fusion=False
        )
        _argmax_join[(rows,)](
            parts, out, num_parts, power_of_two(num_parts), num_warps=1, enable_fp_fusion=False
        )
    return out


@jit
def _below(
    row: tl.tensor,
    columns: tl.tensor,
    highest: tl.tensor,
    temperature: tl.tensor,
    lowest: tl.tensor,
    vocab: tl.constexpr,
) -> tl.tensor:
    """How far each scaled logit lies below the highest: at least 0, infinite for what is not kept."""
    logit = tl.load(row + columns, mask=columns < vocab, other=float("-inf"))
    scaled = tl.div_rn(logit - highest, temperature)
    return tl.where(scaled < lowest, float("inf"), tl.abs(scaled))


@jit
def _pattern(below: tl.tensor) -> tl.tensor:
    """Of floats that are not negative: integers in the same order."""
    return below.to(tl.int32, bitcast=True)


@jit_varying("num_rows")
def _gather(
    logits: tl.tensor,
    row_stride: int,
    numbers: tl.tensor,
    num_rows: int,
    found: tl.tensor,
    facts: tl.tensor,
    vocab: tl.constexpr,
    block: tl.constexpr,
    most: tl.constexpr,
) -> None:
    """Tokens of a row among which are all that top_k and top_p keep, if they are few: how far each lies below
    the highest and which one it is, in order. Of a row: the highest, how many there are (below 0: too many,
    or it is not limited), and the mass of all."""
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * row_stride
    temperature = tl.load(numbers + index).to(tl.float32)
    lowest = tl.load(numbers + num_rows + index).to(tl.float32)
    top_k = tl.load(numbers + 2 * num_rows + index)
    top_p = tl.load(numbers + 3 * num_rows + index)
    place = tl.arange(0, block)

    parts = tl.full((block,), float("-inf"), tl.float32)
    for first in range(0, vocab, block):
        parts = tl.maximum(
            parts, tl.load(row + first + place, mask=first + place < vocab, other=float("-inf"))
        )
    highest = tl.max(parts, 0)

    total = tl.full((), 0.0, tl.float64)
    count = tl.full((), vocab, tl.int32)
    has_top_k = (top_k > 0) & (top_k < vocab)
    is_limited = has_top_k | (top_p < 1)
    if is_limited:
        masses = tl.full((block,), 0.0, tl.float64)
        for first in range(0, vocab, block):
            masses += tl.exp(-_below(row, first + place, highest, temperature, lowest, vocab)).to(tl.float64)
        total = tl.sum(masses, 0)
        # The range of patterns is halved until few enough are at or above its end.
        low = tl.full((), 0, tl.int32)
        limit = tl.full((), 0x7F800000, tl.int32)
        while (count > most) & (low < limit):
            middle = low + (limit - low) // 2
            counts = tl.full((block,), 0, tl.int32)
            kept = tl.full((block,), 0.0, tl.float32)
            for first in range(0, vocab, block):
                below = _below(row, first + place, highest, temperature, lowest, vocab)
                inside = (_pattern(below) <= middle) & (first + place < vocab)
                counts += inside.to(tl.int32)
                kept += tl.where(inside, tl.exp(-below), 0.0)
            num = tl.sum(counts, 0)
            # Sums of float32 are off by less than this: too many are kept rather than too few.
            reaches = tl.sum(kept, 0).to(tl.float64) * (1 - 1e-5) >= top_p * total
            enough = tl.where(has_top_k, num >= top_k, reaches)
            limit = tl.where(enough, middle, limit)
            count = tl.where(enough, num, count)
            low = tl.where(enough, low, middle + 1)
        if count <= most:
            bound = tl.where(limit < 0x7F800000, limit, 0x7FFFFFFF)  # all, what is no number too
            before = tl.full((), 0, tl.int32)
            for first in range(0, vocab, block):
                columns = first + place
                below = _below(row, columns, highest, temperature, lowest, vocab)
                inside = (_pattern(below) <= bound) & (columns < vocab)
                to = found + index * 2 * most + before + tl.cumsum(inside.to(tl.int32), 0) - 1
                tl.store(to, _pattern(below), mask=inside)
                tl.store(to + most, columns, mask=inside)
                before += tl.sum(inside.to(tl.int32), 0)
    tl.store(facts + index, highest.to(tl.float64))
    tl.store(facts + num_rows + index, tl.where(is_limited & (count <= most), count, -1).to(tl.float64))
    tl.store(facts + 2 * num_rows + index, total)


@jit
def _distance(
    row: tl.tensor,
    found: tl.tensor,
    columns: tl.tensor,
    size: tl.tensor,
    highest: tl.tensor,
    temperature: tl.tensor,
    lowest: tl.tensor,
    vocab: tl.constexpr,
    gathered: tl.constexpr,
) -> tl.tensor:
    """As `_below`, of a row or of what was gathered from it."""
    if gathered:
        below = tl.load(found + columns, mask=columns < size, other=0x7F800000).to(tl.float32, bitcast=True)
    else:
        below = _below(row, columns, highest, temperature, lowest, vocab)
    return below


@jit
def _choose(
    row: tl.tensor,
    found: tl.tensor,
    size: tl.tensor,
    numbers: tl.tensor,
    facts: tl.tensor,
    num_rows: tl.tensor,
    vocab: tl.constexpr,
    block: tl.constexpr,
    gathered: tl.constexpr,
) -> tl.tensor:
    """The place of the token drawn among `size`, of a row or gathered from it; `numbers` and `facts` are its
    own."""
    temperature = tl.load(numbers).to(tl.float32)
    lowest = tl.load(numbers + num_rows).to(tl.float32)
    top_k = tl.load(numbers + 2 * num_rows)
    top_p = tl.load(numbers + 3 * num_rows)
    uniform = tl.load(numbers + 4 * num_rows)
    highest = tl.load(facts).to(tl.float32)
    total = tl.load(facts + 2 * num_rows)
    place = tl.arange(0, block)
    # The smallest pattern such that enough tokens are at or above it; 0x7F800000 is infinity.
    limit = tl.full((), 0x7F800000, tl.int32)
    has_top_k = (top_k > 0) & (top_k < vocab)
    if has_top_k:
        low = tl.full((), 0, tl.int32)
        while low < limit:
            middle = low + (limit - low) // 2
            count = tl.full((), 0, tl.int32)
            for first in range(0, size, block):
                columns = first + place
                pattern = _pattern(
                    _distance(row, found, columns, size, highest, temperature, lowest, vocab, gathered)
                )
                count += tl.sum(((pattern <= middle) & (columns < size)).to(tl.int32), 0)
            enough = count >= top_k
            limit = tl.where(enough, middle, limit)
            low = tl.where(enough, low, middle + 1)

    if top_p < 1:
        if has_top_k | (not gathered):
            total = tl.full((), 0.0, tl.float64)
            for first in range(0, size, block):
                below = _distance(
                    row, found, first + place, size, highest, temperature, lowest, vocab, gathered
                )
                mass = tl.where(_pattern(below) <= limit, tl.exp(-below), 0.0)
                total += tl.sum(mass.to(tl.float64), 0)
        low = tl.full((), 0, tl.int32)
        while low < limit:
            middle = low + (limit - low) // 2
            kept = tl.full((), 0.0, tl.float64)
            for first in range(0, size, block):
                below = _distance(
                    row, found, first + place, size, highest, temperature, lowest, vocab, gathered
                )
                mass = tl.where(_pattern(below) <= middle, tl.exp(-below), 0.0)
                kept += tl.sum(mass.to(tl.float64), 0)
            enough = kept / total >= top_p
            limit = tl.where(enough, middle, limit)
            low = tl.where(enough, low, middle + 1)

    left = tl.full((), 0.0, tl.float64)
    for first in range(0, size, block):
        below = _distance(row, found, first + place, size, highest, temperature, lowest, vocab, gathered)
        mass = tl.where(_pattern(below) <= limit, tl.exp(-below), 0.0)
        left += tl.sum(mass.to(tl.float64), 0)
    # The first token whose sum exceeds the target; where rounding leaves none, the last of any mass.
    target = uniform * left
    chosen = tl.full((), vocab, tl.int32)
    last = tl.full((), 0, tl.int32)
    before = tl.full((), 0.0, tl.float64)
    for first in range(0, size, block):
        columns = first + place
        below = _distance(row, found, columns, size, highest, temperature, lowest, vocab, gathered)
        mass = tl.where(_pattern(below) <= limit, tl.exp(-below), 0.0).to(tl.float64)
        passed = (before + tl.cumsum(mass, 0) > target) & (mass > 0)
        chosen = tl.minimum(chosen, tl.min(tl.where(passed, columns, vocab), 0))
        last = tl.maximum(last, tl.max(tl.where(mass > 0, columns, 0), 0))
        before += tl.sum(mass, 0)
    return tl.where(chosen < vocab, chosen, last)


@jit_varying("num_rows")
def _draw(
    logits: tl.tensor,
    row_stride: int,
    numbers: tl.tensor,
    num_rows: int,
    found: tl.tensor,
    facts: tl.tensor,
    out: tl.tensor,
    vocab: tl.constexpr,
    block: tl.constexpr,
    most: tl.constexpr,
) -> None:
    """Tokens of rows, from what was gathered of them where that is few."""
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * row_stride
    found += index * 2 * most
    numbers += index
    facts += index
    count = tl.load(facts + num_rows).to(tl.int32)
    if count >= 0:
        chosen = _choose(row, found, count, numbers, facts, num_rows, vocab, most, True)
        tl.store(out + index, tl.load(found + most + chosen).to(tl.int64))
    else:
        size = tl.full((), vocab, tl.int32)
        chosen = _choose(row, found, size, numbers, facts, num_rows, vocab, block, False)
        tl.store(out + index, chosen.to(tl.int64))


def draw(logits: Tensor, filters: Filters, uniforms: Sequence[float]) -> Tensor:
    """See `kernels/sampling.py`."""
    rows, vocab = logits.shape
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        columns = (filters.temperature, filters.lowest, filters.top_k, filters.top_p, uniforms)
        numbers = to_device(torch.tensor(columns, dtype=torch.float64), logits.device)
        found = torch.empty((rows, 2, _FEW), dtype=torch.int32, device=logits.device)
        facts = torch.empty((3, rows), dtype=torch.float64, device=logits.device)
        block = min(_DRAW_BLOCK, power_of_two(vocab))
        given = (logits, logits.stride(0), numbers, rows, found, facts)
        warps = 16 if block >= 4096 else 4
        _gather[(rows,)](*given, vocab, block, _FEW, num_warps=warps, enable_fp_fusion=False)
        _draw[(rows,)](*given, out, vocab, block, _FEW, num_warps=warps, enable_fp_fusion=False)
    return out
