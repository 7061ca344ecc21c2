"""`linear` equals its plain meaning, packed or not, in every dtype and for every number of rows."""

from __future__ import annotations

import weakref

import pytest
import torch
from sensorium.kernels.activation import Activation
from sensorium.kernels.linear import float32_tiles as linear_tiles
from sensorium.kernels.linear import onednn
from sensorium.kernels.linear.linear import (
    MAX_NATIVE_ROWS,
    NUM_ALIKE_ROWS,
    DenseWeight,
    LinearWeight,
    linear,
    linear_planes,
    linear_reference,
    pack_linear,
)
from sensorium.kernels.linear.onednn import can_pack, find_tiles, tile_memory
from sensorium.kernels.native import Native

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 7, 13, 33, MAX_NATIVE_ROWS + 1])
@pytest.mark.parametrize("activation", ["none", "gelu", "gelu_tanh", "relu"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_equals_reference(dtype: torch.dtype, rows: int, activation: Activation, has_bias: bool) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 64, generator=generator, dtype=dtype)
    weight = torch.randn(80, 64, generator=generator, dtype=dtype) / 8
    bias = torch.randn(80, generator=generator, dtype=dtype) if has_bias else None
    got = linear(x, pack_linear(weight, bias), activation=activation)
    wide_bias = None if bias is None else bias.double()
    want = linear_reference(x.double(), weight.double(), wide_bias, activation=activation)
    torch.testing.assert_close(got.double(), want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_residual_is_added_and_left_alone(dtype: torch.dtype) -> None:
    x, weight, residual = (
        torch.randn(3, 16).to(dtype),
        torch.randn(8, 16).to(dtype),
        torch.randn(3, 8).to(dtype),
    )
    before = residual.clone()
    got = linear(x, pack_linear(weight), residual=residual)
    want = linear_reference(x.double(), weight.double(), None, residual=residual.double())
    torch.testing.assert_close(got.double(), want, rtol=TOLERANCE[dtype], atol=0.1)
    assert torch.equal(residual, before)


def test_rows_that_are_not_contiguous() -> None:
    x, weight = torch.randn(5, 3, 16), torch.randn(8, 16)
    got = linear(x[:, 1], pack_linear(weight))
    torch.testing.assert_close(got, linear_reference(x[:, 1], weight, None))


def test_types_that_cannot_be_packed_take_the_plain_way() -> None:
    weight = torch.randn(4, 6, dtype=torch.float64)
    assert not can_pack(weight)
    x, residual = torch.randn(2, 6, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    got = linear(x, pack_linear(weight), residual=residual)
    torch.testing.assert_close(got, x @ weight.T + residual)


def test_a_row_that_is_not_finite_stays_alone() -> None:
    x = torch.randn(4, 16)
    x[2] = float("nan")
    got = linear(x, pack_linear(torch.randn(8, 16)))
    assert torch.isfinite(got[[0, 1, 3]]).all()
    assert not torch.isfinite(got[2]).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("out", "size"), [(1, 32), (64, 32), (130, 96), (65, 24), (80, 50), (7, 3)])
@pytest.mark.parametrize("native", [True, False])
def test_any_shape(
    dtype: torch.dtype, out: int, size: int, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes oneDNN pads, with our loop and without it."""

    def nothing(_: torch.Tensor) -> Native | None:
        return None

    if not native:
        monkeypatch.setattr(onednn, "native_for", nothing)
        monkeypatch.setattr(linear_tiles, "native_for", nothing)
    x, weight, residual = (torch.randn(shape).to(dtype) for shape in ((5, size), (out, size), (5, out)))
    bias = torch.randn(out).to(dtype)
    got = linear(x, pack_linear(weight, bias), residual=residual)
    want = linear_reference(x.double(), weight.double(), bias.double(), residual=residual.double())
    torch.testing.assert_close(got.double(), want, rtol=TOLERANCE[dtype], atol=0.1)


def test_packed_memory_is_read_only_where_its_layout_is_known() -> None:
    """Whether it is known differs between processors and versions of oneDNN; what is read is right on all."""
    weight = torch.randn(192, 64).bfloat16()
    made = pack_linear(weight)
    if not isinstance(made, DenseWeight) or not made.packed:
        pytest.skip("oneDNN packs no bfloat16 here")
    print("our loop reads it" if made.tiles else "another layout, left to oneDNN")
    for place in (0, 100, -1):  # memory that holds something else than it should, wherever that shows
        other = weight.clone()
        other[place] = other[place].flip(0) * 100
        assert find_tiles(made.weight, other) is None
    assert find_tiles(made.weight, weight) == made.tiles
    if made.tiles is not None:
        numbers = range(192 // made.tiles.width)
        found = torch.stack([tile_memory(made.tiles, number) for number in numbers])
        assert torch.equal(found.permute(0, 2, 1, 3).reshape(192, -1)[:, :64], weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layout_that_cannot_be_told_by_its_ends_is_not_guessed(dtype: torch.dtype) -> None:
    """First and last tile are zeros, which look the same in every layout."""
    weight = torch.zeros(256, 64, dtype=dtype)
    weight[64:192] = torch.randn(128, 64).to(dtype)
    x = torch.randn(3, 64).to(dtype)
    got = linear(x, pack_linear(weight))
    want = linear_reference(x.double(), weight.double(), None)
    torch.testing.assert_close(got.double(), want, rtol=TOLERANCE[dtype], atol=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ["none", "gelu", "residual"])
@pytest.mark.parametrize(("out", "size"), [(192, 256), (520, 512)])
def test_a_row_does_not_depend_on_how_many_there_are(
    dtype: torch.dtype, activation: str, out: int, size: int
) -> None:
    """To the last bit, however few rows take our own loop here."""
    weight = pack_linear(torch.randn(out, size).to(dtype), torch.randn(out).to(dtype))
    x, residual = (torch.randn(NUM_ALIKE_ROWS, columns).to(dtype) for columns in (size, out))
    x[:, size // 2 :] = -x[:, : size // 2]  # sums cancel but for what rounding leaves
    weight_of_halves = weight if dtype is torch.float32 else _halved(out, size)

    def result(rows: int) -> torch.Tensor:
        if activation == "residual":
            return linear(x[:rows], weight_of_halves, residual=residual[:rows])
        return linear(x[:rows], weight_of_halves, activation="gelu" if activation == "gelu" else "none")

    together = result(NUM_ALIKE_ROWS)
    for rows in (1, 2, 3, 5, 8, 9, 16, 17):
        assert torch.equal(result(rows), together[:rows]), rows


def _halved(out: int, size: int) -> LinearWeight:
    """A weight whose second half of inputs is its first."""
    half = torch.randn(out, size // 2, dtype=torch.bfloat16)
    return pack_linear(torch.cat([half, half], 1))


def test_a_packed_weight_does_not_hold_the_original() -> None:
    weight = torch.randn(64, 64)
    original = weakref.ref(weight)
    packed = pack_linear(weight)
    del weight
    assert original() is None
    assert linear(torch.zeros(1, 64), packed).abs().sum() == 0


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 32), (torch.bfloat16, 64)])
def test_rows_that_do_not_fit_are_refused(dtype: torch.dtype, size: int) -> None:
    weight = pack_linear(torch.randn(64, 64).to(torch.bfloat16))
    with pytest.raises(RuntimeError):
        linear(torch.zeros(2, size if dtype is torch.float32 else size // 2, dtype=dtype), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("planes", "size"), [(3, 64), (2, 32), (1, 64)])
@pytest.mark.parametrize("rows", [1, 6, 65, 200])
def test_planes_are_the_same_outputs(dtype: torch.dtype, planes: int, size: int, rows: int) -> None:
    """As heads of keys and values are kept, bit for bit what a product gives."""
    weight = pack_linear(torch.randn(planes * size, 96).to(dtype), torch.randn(planes * size).to(dtype))
    x = torch.randn(rows, 2, 96).to(dtype)[:, 1]
    out = torch.full((planes + 1, rows, size), 7.0, dtype=dtype)
    linear_planes(x, weight, out[:planes])
    assert torch.equal(out[:planes], linear(x, weight).view(rows, planes, size).transpose(0, 1))
    assert (out[planes] == 7.0).all()


def test_planes_that_do_not_fit_are_refused() -> None:
    weight = pack_linear(torch.randn(128, 96).bfloat16())
    for rows, planes in ((8, 3), (9, 2)):
        with pytest.raises(RuntimeError):
            linear_planes(torch.randn(8, 96).bfloat16(), weight, torch.empty(planes, rows, 64).bfloat16())
