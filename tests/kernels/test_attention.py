"""Dense and cross attention equal their row-by-row references."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels import attention
from sensorium.kernels import cross_attention as cross_attention_module
from sensorium.kernels.attention import MIN_ROWS_PER_HEAD, attend
from sensorium.kernels.cross_attention import (
    CrossSpan,
    cross_attention,
    cross_scores,
)
from support.attention import attend_reference, cross_attention_reference

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
HEADS, DIM = 2, 16


def assert_near(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, MIN_ROWS_PER_HEAD])
@pytest.mark.parametrize("has_matrices", [False, True])
def test_attend_equals_reference(
    dtype: torch.dtype, rows: int, has_matrices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, on processors with matrix instructions and without."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_matrices)
    query, key, value = (torch.randn(2, HEADS, n, DIM).to(dtype) for n in (rows, 40, 40))
    want = attend_reference(query.double(), key.double(), value.double())
    assert_near(attend(query, key, value), want)


def test_a_large_problem_takes_little_memory_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    rows = 2 * MIN_ROWS_PER_HEAD + 1
    query, key, value = (torch.randn(1, HEADS, rows, DIM).to(torch.bfloat16) for _ in range(3))
    whole = attend(query, key, value)
    scores: list[int] = []
    softmax = torch.Tensor.softmax

    def noted(self: torch.Tensor, dim: int) -> torch.Tensor:
        scores.append(self.numel())
        return softmax(self, dim)

    monkeypatch.setattr(torch.Tensor, "softmax", noted)
    monkeypatch.setattr(attention, "MAX_SCORES", 100 * rows)
    assert_near(attend(query, key, value), whole)
    assert sum(scores) == HEADS * rows * rows
    assert max(scores) <= 100 * rows


@pytest.mark.parametrize("dtype", DTYPES)
def test_attend_with_a_mask(dtype: torch.dtype) -> None:
    query, key, value = (torch.randn(1, HEADS, n, DIM).to(dtype) for n in (MIN_ROWS_PER_HEAD, 40, 40))
    mask = torch.rand(MIN_ROWS_PER_HEAD, 40) < 0.5
    mask[:, 0] = True
    want = attend_reference(query.double(), key.double(), value.double(), mask)
    assert_near(attend(query, key, value, mask), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [(1,), (5,), (1, 1, 1), (4, 1, 7), (130,)])
@pytest.mark.parametrize("positions", [1, 30, 201])
@pytest.mark.parametrize("dim", [16, 64])
@pytest.mark.parametrize("native", [True, False])
def test_cross_attention_equals_reference(
    dtype: torch.dtype,
    lengths: tuple[int, ...],
    positions: int,
    dim: int,
    native: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(_: torch.Tensor) -> None:
        return None

    if not native:
        monkeypatch.setattr(cross_attention_module, "native_for", nothing)
    spans: list[CrossSpan] = []
    start = 0
    for length in lengths:
        memory = torch.randn(2, HEADS, positions, dim).to(dtype)
        spans.append(CrossSpan(start, start + length, memory))
        start += length
    query = torch.randn(start, HEADS, dim).to(dtype)
    wide = [CrossSpan(s.start, s.end, s.memory.double()) for s in spans]
    assert_near(cross_attention(query, spans), cross_attention_reference(query.double(), wide))


def test_cross_scores_are_what_the_softmax_sees() -> None:
    query, key = torch.randn(3, HEADS, DIM), torch.randn(HEADS, 10, DIM)
    want = torch.einsum("rhd,hpd->hrp", query, key) / DIM**0.5
    torch.testing.assert_close(cross_scores(query, key), want)
