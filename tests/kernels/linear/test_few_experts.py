"""Experts of few rows in one call give what one product after another gives."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.linear.few_experts import ClampedGate, FewExperts, Gate, few_experts, gated
from sensorium.kernels.linear.grouped_experts import grouped_experts
from sensorium.kernels.linear.linear import LinearWeight, arrange_linear, linear
from sensorium.kernels.linear.weight_codes import Grid
from sensorium.kernels.native import library
from torch import Tensor

pytestmark = pytest.mark.skipif(library() is None, reason="no C compiler")
EXPERTS, SIZE, MIDDLE, CHOICES = 6, 80, 48, 3
CLAMPED = ClampedGate(1.702, 2.0)
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 0.02}


def weights(out: int, size: int, grid: Grid | None, dtype: torch.dtype) -> list[LinearWeight]:
    return [
        arrange_linear((3 * torch.randn(out, size) / size**0.5).to(dtype), torch.randn(out).to(dtype), grid)
        for _ in range(EXPERTS)
    ]


def made(
    gate: Gate, grid: Grid | None, dtype: torch.dtype
) -> tuple[FewExperts, list[LinearWeight], list[LinearWeight]]:
    torch.manual_seed(0)
    up, down = weights(2 * MIDDLE, SIZE, grid, dtype), weights(SIZE, MIDDLE, grid, dtype)
    few = few_experts(up, down, gate, dtype)
    assert few is not None
    return few, up, down


def chosen_by(rows: int) -> tuple[Tensor, Tensor]:
    weights, chosen = torch.randn(rows, EXPERTS).softmax(-1).topk(CHOICES)
    return chosen, weights


@pytest.mark.parametrize("gate", [None, CLAMPED], ids=["silu", "clamped"])
@pytest.mark.parametrize("grid", [None, Grid(8, 0), Grid(4, 64)], ids=["numbers", "int8", "int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_they_are_grouped_experts(gate: Gate, grid: Grid | None, dtype: torch.dtype) -> None:
    few, up, down = made(gate, grid, dtype)
    for rows in (1, 17, 64):
        x = torch.randn(rows, SIZE).to(dtype)
        chosen, share = chosen_by(rows)
        expected = grouped_experts(
            x, chosen, share, lambda n, r: linear(gated(linear(r, up[n]), gate), down[n]), EXPERTS
        )
        got = few.run(x, chosen, share)
        assert few.take(rows) or dtype is torch.bfloat16, "float32 has no other way"
        assert (got - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()
    assert not few.take(65)
    assert not few.take(0)


def test_a_row_does_not_depend_on_the_others() -> None:
    few, _, _ = made(CLAMPED, None, torch.float32)
    x = torch.randn(20, SIZE)
    chosen, share = chosen_by(20)
    together = few.run(x, chosen, share)
    for row in range(20):
        one = slice(row, row + 1)
        assert torch.equal(few.run(x[one], chosen[one], share[one]), together[one])


def test_an_expert_that_there_is_not_adds_nothing() -> None:
    few, _, _ = made(None, None, torch.float32)
    x = torch.randn(4, SIZE)
    chosen, share = chosen_by(4)
    expected = few.run(x, chosen[:, :2], share[:, :2])
    chosen[:, 2] = torch.tensor([EXPERTS, -1, 2**40, EXPERTS])
    assert torch.equal(few.run(x, chosen, share), expected)
    chosen[:] = EXPERTS
    assert not few.run(x, chosen, share).any()


def test_what_c_does_not_know_is_left_to_others() -> None:
    up, down = weights(2 * MIDDLE, SIZE, None, torch.float32), weights(SIZE, MIDDLE, None, torch.float32)
    assert few_experts(up, down[:-1], None, torch.float32) is None, "of one the last product is missing"
    assert few_experts(up, up, None, torch.float32) is None, "sizes do not fit"
    narrow = weights(2 * 20, SIZE, None, torch.float32), weights(SIZE, 20, None, torch.float32)
    assert few_experts(*narrow, None, torch.float32) is None, "20 is no multiple of 16"
    assert few_experts(up, down, None, torch.bfloat16) is None, "rows of another type"
