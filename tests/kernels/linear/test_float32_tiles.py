"""Weights in tiles of our own: the numbers they were stored with, and sums in one order."""

from __future__ import annotations

import math

import pytest
import torch
from sensorium.kernels.activation import Activation, activated
from sensorium.kernels.linear import float32_tiles as module
from sensorium.kernels.linear.float32_tiles import TiledWeight, linear_tiled, tile_linear, untiled
from sensorium.kernels.linear.fused_input import MOST_ROWS
from sensorium.kernels.linear.linear import linear, linear_planes, linear_reference
from sensorium.kernels.native import library
from torch import Tensor

pytestmark = pytest.mark.skipif(library() is None, reason="there is no C compiler")
STORED = {torch.float32: "floats", torch.bfloat16: "pairs", torch.float16: "halves"}
ROWS = (1, 2, 3, 4, 6, 7, 13, 19, 64, 65, 403)


def made_of(weight: Tensor, bias: Tensor | None = None) -> TiledWeight:
    made = tile_linear(weight, bias)
    assert made is not None
    return made


def stored(dtype: torch.dtype, out: int, size: int) -> Tensor:
    weight = torch.randn(out, size) / math.sqrt(size)
    return weight.to(dtype).float()


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize(("out", "size"), [(1, 2), (64, 64), (65, 34), (130, 96), (200, 256), (7, 1040)])
def test_sixteen_bits_are_kept_where_they_are_all(dtype: torch.dtype, out: int, size: int) -> None:
    weight = stored(dtype, out, size)
    made = made_of(weight)
    assert made.kind == STORED[dtype]
    assert made.memory.nbytes == -(-out // 64) * 64 * size * dtype.itemsize
    assert torch.equal(linear(torch.eye(size), made).T, weight)
    assert torch.equal(untiled(made), weight)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("out", [64, 70])
def test_a_weight_that_is_not_contiguous(dtype: torch.dtype, out: int) -> None:
    weight, bias = stored(dtype, 96, out).T, torch.randn(out, 2)[:, 1]
    assert torch.equal(linear(torch.eye(96), made_of(weight)).T, weight)
    x = torch.randn(3, 96)
    assert torch.equal(linear(x, made_of(weight, bias)), linear(x, made_of(weight)) + bias)


def test_what_sixteen_bits_do_not_hold_stays_as_it_is() -> None:
    weight = stored(torch.float16, 64, 32)
    for number in (2.0**-25, 65536.0 + 32, 1 + 2.0**-11, 1e30, float("nan"), float("inf")):
        weight[5, 7] = number
        made = made_of(weight)
        assert made.kind == "floats", number
        assert torch.equal(linear(torch.eye(32)[7:8], made).nan_to_num()[0], weight[:, 7].nan_to_num())
    weight[5, 7] = 2.0**-24  # the smallest there is
    assert made_of(weight).kind == "halves"
    assert linear(torch.eye(32), made_of(weight))[7, 5] == 2.0**-24
    assert made_of(stored(torch.bfloat16, 64, 33)).kind == "floats", "no pairs"


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("out", "size"), [(64, 96), (150, 320)])
def test_against_float64(dtype: torch.dtype, rows: int, out: int, size: int) -> None:
    weight, bias, x, residual = stored(dtype, out, size), torch.randn(out), *_rows(rows, size, out)
    want = linear_reference(x.double(), weight.double(), bias.double(), residual=residual.double())
    got = linear(x, made_of(weight, bias), residual=residual)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


def _rows(rows: int, size: int, out: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, size), torch.randn(rows, out)


@pytest.mark.parametrize("dtype", STORED)
def test_how_a_weight_is_stored_changes_no_bit(dtype: torch.dtype) -> None:
    weight, bias = stored(dtype, 150, 320), torch.randn(150)
    as_floats = TiledWeight(module._tiled(weight, "floats"), bias, 150, 320, "floats", torch.float32)
    x = torch.randn(70, 320)
    for activation in ("none", "gelu"):
        want = linear_tiled(x, as_floats, activation=activation)
        assert torch.equal(linear_tiled(x, made_of(weight, bias), activation=activation), want)


@pytest.mark.parametrize("dtype", STORED)
def test_a_row_is_the_same_among_any_others(dtype: torch.dtype) -> None:
    made = made_of(stored(dtype, 200, 256), torch.randn(200))
    x = torch.randn(403, 3, 256)[:, 1]  # rows that are apart
    many = linear(x, made)
    for rows in ROWS[:-1]:
        for first in (0, 403 - rows):
            assert torch.equal(linear(x[first : first + rows], made), many[first : first + rows]), rows


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_bfloat16(rows: int) -> None:
    """Where oneDNN has no layout for them."""
    weight, bias, x = stored(torch.bfloat16, 150, 320).bfloat16(), torch.randn(150).bfloat16(), None
    made = made_of(weight, bias)
    assert (made.kind, made.dtype) == ("pairs", torch.bfloat16)
    x = torch.randn(rows, 320).bfloat16()
    got = linear(x, made)
    wide = linear(x.float(), made_of(weight.float(), bias.float()))
    assert torch.equal(got, wide.bfloat16())
    assert torch.equal(linear(x[-1:], made), got[-1:])
    residual = torch.randn(rows, 150).bfloat16()
    plain = made_of(weight)
    want = linear(x.float(), made_of(weight.float()), residual=residual.float()).bfloat16()
    assert torch.equal(linear(x, plain, residual=residual), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("rows", [1, MOST_ROWS, MOST_ROWS + 1])
def test_it_activates_as_it_is_done_afterwards(dtype: torch.dtype, activation: Activation, rows: int) -> None:
    made = made_of(stored(torch.bfloat16, 150, 96).to(dtype), torch.randn(150).to(dtype))
    x = 3 * torch.randn(rows, 96).to(dtype)
    got, plain = linear(x, made, activation=activation), linear(x, made)
    assert torch.equal(got, activated(plain, activation))


def test_activations_of_float32_against_float64() -> None:
    x = torch.cat(
        (torch.linspace(-14, 14, 50_001), torch.tensor([0.0, -0.0, 1e-30, 80.0, -80.0, 1e30, -1e30]))
    )
    for name, bound in (("gelu", 3e-7), ("gelu_tanh", 6e-7), ("relu", 0.0)):
        got = activated(x, name).double()  # type: ignore[arg-type]
        want = linear_reference(x.double()[:, None], torch.ones(1, 1).double(), None, activation=name)[:, 0]  # type: ignore[arg-type]
        assert ((got - want).abs() <= bound * x.abs().double().clamp(min=1e-30)).all(), name
    tail = torch.linspace(-9, -1, 1000)
    exact = tail.double() * torch.special.erfc(-tail.double() / 2**0.5) / 2
    assert ((activated(tail, "gelu").double() / exact - 1).abs() < 1e-5).all(), "no digits cancel"


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("rows", [1, 65])
def test_planes(dtype: torch.dtype, rows: int) -> None:
    made = made_of(stored(dtype, 192, 96), torch.randn(192))
    x = torch.randn(rows, 96)
    out = torch.full((4, rows, 64), 7.0)
    linear_planes(x, made, out[:3])
    assert torch.equal(out[:3], linear(x, made).view(rows, 3, 64).transpose(0, 1))
    assert (out[3] == 7.0).all()
    with pytest.raises(RuntimeError):
        linear_planes(x, made, out)


def test_what_does_not_fit_is_refused() -> None:
    made = made_of(stored(torch.bfloat16, 64, 32))
    for x in (
        torch.randn(2, 31),
        torch.randn(2, 32).bfloat16(),
        torch.randn(2, 32).double(),
        torch.randn(32),
    ):
        with pytest.raises(RuntimeError):
            linear(x, made)
    assert linear(torch.randn(0, 32), made).shape == (0, 64)
    assert tile_linear(torch.randn(4, 6).double(), None) is None
    assert tile_linear(torch.randn(4, 5).bfloat16(), None) is None
    assert tile_linear(torch.randn(0, 6), None) is None
