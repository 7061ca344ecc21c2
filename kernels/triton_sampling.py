"""`argmax` and `draw` on GPUs.

Nothing is sorted. What top_k and top_p keep is everything above some value, and that value is found by
halving the range of float patterns: 31 sums over a row that lies in the cache. Probabilities are added in
float64, as in the reference.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl
from torch import Tensor

from .sampling import Filters
from .transfer import to_device
from .triton_jit import jit, jit_varying, power_of_two

_ARGMAX_BLOCK = 4096
_DRAW_BLOCK = 8192


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
def _draw(
    logits: tl.tensor,
    row_stride: int,
    numbers: tl.tensor,
    num_rows: int,
    out: tl.tensor,
    vocab: tl.constexpr,
    block: tl.constexpr,
) -> None:
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * row_stride
    temperature = tl.load(numbers + index).to(tl.float32)
    lowest = tl.load(numbers + num_rows + index).to(tl.float32)
    top_k = tl.load(numbers + 2 * num_rows + index)
    top_p = tl.load(numbers + 3 * num_rows + index)
    uniform = tl.load(numbers + 4 * num_rows + index)
    place = tl.arange(0, block)

    highest = tl.full((), float("-inf"), tl.float32)
    for first in range(0, vocab, block):
        part = tl.load(row + first + place, mask=first + place < vocab, other=float("-inf"))
        highest = tl.maximum(highest, tl.max(part, 0))

    # The smallest pattern such that enough tokens are at or above it; 0x7F800000 is infinity.
    limit = tl.full((), 0x7F800000, tl.int32)
    if (top_k > 0) & (top_k < vocab):
        low = tl.full((), 0, tl.int32)
        while low < limit:
            middle = low + (limit - low) // 2
            count = tl.full((), 0, tl.int32)
            for first in range(0, vocab, block):
                columns = first + place
                pattern = _pattern(_below(row, columns, highest, temperature, lowest, vocab))
                count += tl.sum(((pattern <= middle) & (columns < vocab)).to(tl.int32), 0)
            enough = count >= top_k
            limit = tl.where(enough, middle, limit)
            low = tl.where(enough, low, middle + 1)

    if top_p < 1:
        total = tl.full((), 0.0, tl.float64)
        for first in range(0, vocab, block):
            below = _below(row, first + place, highest, temperature, lowest, vocab)
            mass = tl.where(_pattern(below) <= limit, tl.exp(-below), 0.0)
            total += tl.sum(mass.to(tl.float64), 0)
        low = tl.full((), 0, tl.int32)
        while low < limit:
            middle = low + (limit - low) // 2
            kept = tl.full((), 0.0, tl.float64)
            for first in range(0, vocab, block):
                below = _below(row, first + place, highest, temperature, lowest, vocab)
                mass = tl.where(_pattern(below) <= middle, tl.exp(-below), 0.0)
                kept += tl.sum(mass.to(tl.float64), 0)
            enough = kept / total >= top_p
            limit = tl.where(enough, middle, limit)
            low = tl.where(enough, low, middle + 1)

    total = tl.full((), 0.0, tl.float64)
    for first in range(0, vocab, block):
        below = _below(row, first + place, highest, temperature, lowest, vocab)
        mass = tl.where(_pattern(below) <= limit, tl.exp(-below), 0.0)
        total += tl.sum(mass.to(tl.float64), 0)
    # The first token whose sum exceeds the target; where rounding leaves none, the last of any mass.
    target = uniform * total
    found = tl.full((), vocab, tl.int32)
    last = tl.full((), 0, tl.int32)
    before = tl.full((), 0.0, tl.float64)
    for first in range(0, vocab, block):
        columns = first + place
        below = _below(row, columns, highest, temperature, lowest, vocab)
        mass = tl.where(_pattern(below) <= limit, tl.exp(-below), 0.0).to(tl.float64)
        passed = (before + tl.cumsum(mass, 0) > target) & (mass > 0)
        found = tl.minimum(found, tl.min(tl.where(passed, columns, vocab), 0))
        last = tl.maximum(last, tl.max(tl.where(mass > 0, columns, 0), 0))
        before += tl.sum(mass, 0)
    tl.store(out + index, tl.where(found < vocab, found, last).to(tl.int64))


def draw(logits: Tensor, filters: Filters, uniforms: Sequence[float]) -> Tensor:
    """See `kernels/sampling.py`."""
    rows, vocab = logits.shape
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        columns = (filters.temperature, filters.lowest, filters.top_k, filters.top_p, uniforms)
        numbers = to_device(torch.tensor(columns, dtype=torch.float64), logits.device)
        block = min(_DRAW_BLOCK, power_of_two(vocab))
        _draw[(rows,)](
            logits,
            logits.stride(0),
            numbers,
            rows,
            out,
            vocab,
            block,
            num_warps=16 if block >= 4096 else 4,
            enable_fp_fusion=False,
        )
    return out
