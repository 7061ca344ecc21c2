"""Where heads share no keys, as in Whisper, a row of a draft comes out as it does alone, bit for bit."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.attention.cross_attention import CrossSpan, cross_attention
from sensorium.kernels.attention.paged_attention import (
    PagedSequence,
    paged_attention,
    paged_batch,
)
from sensorium.kernels.linear.linear import NUM_ALIKE_ROWS
from sensorium.kernels.native import native_for
from torch import Tensor

HEADS, DIM, BLOCK = 8, 64, 16
DTYPES = [torch.bfloat16, torch.float32]


@pytest.fixture(autouse=True)
def _native() -> None:
    if native_for(torch.zeros(1)) is None:
        pytest.skip("no compiler, or none of the instructions it takes")


def _random(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 5, 19, NUM_ALIKE_ROWS])
def test_rows_over_an_encoding(rows: int, dtype: torch.dtype) -> None:
    memory = _random(2, HEADS, 301, DIM, dtype=dtype, seed=1)
    other = _random(2, HEADS, 77, DIM, dtype=dtype, seed=2)
    query = _random(rows + 1, HEADS, DIM, dtype=dtype, seed=3)
    together = cross_attention(query, [CrossSpan(0, 1, other), CrossSpan(1, rows + 1, memory)])
    alone = [cross_attention(row[None], [CrossSpan(0, 1, memory)]) for row in query[1:]]
    assert torch.equal(together[1:], torch.cat(alone))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [2, 5, 19, NUM_ALIKE_ROWS])
def test_rows_over_a_cache(rows: int, dtype: torch.dtype) -> None:
    """Beside a long prompt, too."""
    start, blocks = 21, list(range(1, 6))
    cache = _random(16, 2, HEADS, BLOCK, DIM, dtype=dtype, seed=4)
    query = _random(rows + 70, HEADS, DIM, dtype=dtype, seed=5)

    def attend(query: Tensor, *sequences: PagedSequence) -> Tensor:
        return paged_attention(query, cache, paged_batch(sequences, BLOCK, torch.device("cpu")))

    draft, prompt = PagedSequence(blocks, start, rows), PagedSequence(list(range(6, 12)), 0, 70)
    together = attend(query, draft, prompt)[:rows]
    alone = [attend(query[i : i + 1], PagedSequence(blocks, start + i, 1)) for i in range(rows)]
    assert torch.equal(together, torch.cat(alone))
