"""A product that takes a norm or a gate along gives the numbers of both, one after the other."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels import native
from sensorium.kernels.linear import fused_input as module
from sensorium.kernels.linear.fused_input import MOST_ROWS, Before, LayerNorm, RmsNorm, native_input, prepared
from sensorium.kernels.linear.linear import LinearWeight, arrange_linear, linear
from sensorium.kernels.linear.weight_codes import Grid
from sensorium.kernels.silu_mul import silu_mul_reference
from torch import Tensor

SIZES = (64, 320, 1040)
GRIDS: tuple[Grid | None, ...] = (None, Grid(8, 128), Grid(4, 128), Grid(8, 0), Grid(4, 24))
ROWS = (1, 2, 7, 33, MOST_ROWS, MOST_ROWS + 1)
DTYPES = (torch.float32, torch.bfloat16)


def example(
    size: int, grid: Grid | None, dtype: torch.dtype, rows: int
) -> tuple[LinearWeight, Tensor, Tensor]:
    """A weight [96, size] with a bias, rows [rows, 2 · size], and a residual."""
    generator = torch.Generator().manual_seed(size)
    weight, bias, x, residual = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((96, size), (96,), (rows, 2 * size), (rows, 96))
    )
    return arrange_linear(weight, bias, grid), 3 * x, residual


def befores(size: int, dtype: torch.dtype) -> tuple[Before, ...]:
    weight, bias = torch.rand(2, size, generator=torch.Generator().manual_seed(1)).to(dtype)
    return RmsNorm(weight, 1e-6), "silu_mul", LayerNorm.of(weight, bias)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_it_equals_one_after_the_other(size: int, grid: Grid | None, dtype: torch.dtype) -> None:
    for rows in ROWS:
        weight, wide, residual = example(size, grid, dtype, rows)
        for before in befores(size, dtype):
            x = wide if before == "silu_mul" else wide[:, :size]
            want = linear(prepared(x, before), weight, residual=residual)
            got = linear(x, weight, before=before, residual=residual)
            assert torch.equal(got, want), (rows, before)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("grid", GRIDS[:3], ids=str)
def test_threads_do_not_matter(grid: Grid | None, threads: int) -> None:
    weight, x, _ = example(1040, grid, torch.bfloat16, 5)
    want, num_threads = linear(x, weight, before="silu_mul"), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(linear(x, weight, before="silu_mul"), want)
    finally:
        torch.set_num_threads(num_threads)


@pytest.mark.parametrize("grid", GRIDS[:3], ids=str)
def test_what_is_not_finite_stays_in_its_row(grid: Grid | None) -> None:
    weight, wide, _ = example(320, grid, torch.bfloat16, 4)
    wide[2, 5] = torch.nan
    wide[3, 5] = torch.inf
    for before in befores(320, torch.bfloat16):
        got = linear(wide if before == "silu_mul" else wide[:, :320], weight, before=before)
        assert torch.isfinite(got[:2]).all()
        assert not torch.isfinite(got[2]).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_gates_are_torchs_up_to_rounding(dtype: torch.dtype) -> None:
    gate = torch.linspace(-80, 80, 4096).to(dtype)
    x = torch.cat((gate, torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(dtype)))[None]
    got, want = prepared(x, "silu_mul"), silu_mul_reference(x)
    torch.testing.assert_close(got, want, rtol=2**-7 if dtype is torch.bfloat16 else 1e-6, atol=1e-35)
    if dtype is torch.bfloat16:
        assert (got == want).float().mean() > 0.99


def test_what_the_loop_cannot_do_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    norm, gate, layer_norm = befores(64, torch.bfloat16)
    x = torch.randn(2, 64).bfloat16()
    if native.library() is not None:
        assert native_input(x, norm, 64) is not None
        assert native_input(x, layer_norm, 64) is not None
        assert native_input(torch.randn(2, 128).bfloat16(), gate, 64) is not None
    assert native_input(x.float(), norm, 64) is None, "a norm of another type"
    assert native_input(x, norm, 32) is None
    assert native_input(x, layer_norm, 32) is None
    assert native_input(x.float(), layer_norm, 64) is None
    assert native_input(x[:, :40], gate, 20) is None
    assert native_input(x.repeat(MOST_ROWS, 1), norm, 64) is None
    assert native_input(x[:0], norm, 64) is None
    monkeypatch.setattr(module, "native_for", lambda _: None)
    assert native_input(x, norm, 64) is None


@pytest.mark.parametrize("grid", GRIDS[:2], ids=str)
def test_rows_that_do_not_fit_are_refused(grid: Grid | None) -> None:
    weight, x, _ = example(64, grid, torch.bfloat16, 2)
    for before in befores(64, torch.bfloat16):
        with pytest.raises(RuntimeError):
            linear(x[:, :96], weight, before=before)
