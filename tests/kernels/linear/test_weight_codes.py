"""Rounding of weights to codes: how far off, and what is exact."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.linear.weight_codes import MIDDLE, Grid, quantize


@pytest.mark.parametrize("grid", [Grid(8, 0), Grid(8, 32), Grid(4, 32), Grid(4, 128)], ids=str)
@pytest.mark.parametrize("size", [32, 33, 200])
def test_no_number_is_more_than_a_step_off(grid: Grid, size: int) -> None:
    weight = (
        torch.randn(9, size, generator=torch.Generator().manual_seed(size))
        * 10 ** torch.arange(-4.0, 5)[:, None]
    )
    codes = quantize(weight, grid)
    steps = codes.scales.repeat_interleave(codes.group, 1)[:, :size]
    # 4 bits round the zero point, too, so that the ends of a group may be cut off by half a step
    assert ((codes.weight() - weight).abs() <= steps * (0.501 if grid.bits == 8 else 1.001)).all()
    assert int(codes.values.max()) < 2**grid.bits


def test_zero_is_exact() -> None:
    weight = torch.rand(4, 64) + 1.0
    weight[:, ::7] = 0.0
    weight[3] = 0.0
    for grid in (Grid(8, 0), Grid(4, 32)):
        assert (quantize(weight, grid).weight()[weight == 0] == 0).all()


def test_eight_bits_lie_around_zero() -> None:
    codes = quantize(torch.tensor([[-2.0, 1.0, 0.5, 0.0]]), Grid(8, 0))
    assert codes.values.tolist() == [[1, 192, 160, 128]]
    assert codes.zeros.tolist() == [[MIDDLE]]
    torch.testing.assert_close(codes.scales, torch.tensor([[2 / 127]]))


def test_codes_are_rounded_to_themselves() -> None:
    weight = torch.randn(8, 96, generator=torch.Generator().manual_seed(3))
    for grid in (Grid(8, 0), Grid(4, 32)):
        once = quantize(weight, grid).weight()
        torch.testing.assert_close(quantize(once, grid).weight(), once)
