"""A product with adapters is the plain one, with each adapter's change in its own rows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from sensorium.kernels.activation import FUNCTIONS, Activation
from sensorium.kernels.linear.fused_input import RmsNorm, prepared
from sensorium.kernels.linear.linear import (
    AdaptedWeight,
    PartedWeight,
    PlainWeight,
    arrange_linear,
    linear,
    linear_planes,
    pack_linear,
)
from sensorium.kernels.linear.row_adapters import ALL_ROWS, AdaptedRows, RowChange, adapting, is_adapting
from sensorium.kernels.linear.weight_codes import GRIDS
from torch import Tensor

SIZE, OUT, ROWS = 64, 32, 7


@dataclass(frozen=True)
class Scaled:
    """Adds so much of the sum of each row to all outputs of one product."""

    factor: float
    name: str = "a"

    def change_of(self, names: Sequence[str]) -> RowChange | None:
        def change(x: Tensor) -> Tensor:
            return self.factor * x.sum(1, keepdim=True).expand(-1, OUT)

        return change if self.name in names else None


STEP = (AdaptedRows(Scaled(0.5), slice(1, 3)), AdaptedRows(Scaled(-2.0), slice(3, 6)))
FACTORS = torch.tensor([0.0, 0.5, 0.5, -2.0, -2.0, -2.0, 0.0])[:, None]


def weights(kind: str) -> PlainWeight:
    generator = torch.Generator().manual_seed(3)
    whole = torch.randn(OUT, SIZE, generator=generator) / 8
    if kind == "bfloat16":
        return pack_linear(whole.bfloat16())
    if kind == "parted":
        first, second = pack_linear(whole[:16].contiguous()), pack_linear(whole[16:].contiguous())
        return PartedWeight((first, second))
    return arrange_linear(whole, None, GRIDS["int8" if kind == "int8" else "none"])


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8", "parted"])
@pytest.mark.parametrize("activation", ["none", "gelu"])
@pytest.mark.parametrize("has_norm", [False, True])
def test_rows_have_their_changes(kind: str, activation: Activation, has_norm: bool) -> None:
    """In front of activation and residual, of inputs behind the norm."""
    plain = weights(kind)
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    x = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = RmsNorm(torch.rand(SIZE).to(dtype), 1e-5) if has_norm else None
    residual = torch.randn(ROWS, OUT).to(dtype) if activation == "none" else None
    inputs = prepared(x, before)
    want = linear(inputs, plain) + FACTORS.to(dtype) * inputs.sum(1, keepdim=True)
    want = FUNCTIONS[activation](want) + (0 if residual is None else residual)
    weight = AdaptedWeight(plain, ("a", "b"))
    with adapting(STEP, ROWS):
        got = linear(x, weight, activation=activation, residual=residual, before=before)
    tolerance = 1e-4 if dtype is torch.float32 else 0.1
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_without_adapters_it_is_the_plain_product() -> None:
    plain, x = weights("float32"), torch.randn(ROWS, SIZE)
    norm, residual = RmsNorm(torch.rand(SIZE), 1e-5), torch.randn(ROWS, OUT)
    want = linear(x, plain, before=norm, residual=residual)
    assert torch.equal(linear(x, AdaptedWeight(plain, ("a",)), before=norm, residual=residual), want)
    with adapting(STEP, ROWS):
        other = linear(x, AdaptedWeight(plain, ("c",)), before=norm, residual=residual)
    torch.testing.assert_close(other, want)


def test_planes_have_the_changes() -> None:
    x, weight = torch.randn(ROWS, SIZE), AdaptedWeight(weights("float32"), ("a",))
    planes = torch.empty(2, ROWS, 16)
    with adapting((AdaptedRows(Scaled(1.5), ALL_ROWS),)):
        linear_planes(x, weight, planes)
    want = linear(x, weight.weight) + 1.5 * x.sum(1, keepdim=True)
    torch.testing.assert_close(planes, want.view(ROWS, 2, 16).transpose(0, 1), rtol=1e-4, atol=1e-4)


def test_a_product_of_some_rows_cannot_be_changed() -> None:
    weight = AdaptedWeight(weights("float32"), ("a",))
    with adapting(STEP, ROWS), pytest.raises(RuntimeError, match="sees 3 rows of a step of 7"):
        linear(torch.randn(3, SIZE), weight)
    assert not is_adapting(), "left by an error, too"


def test_other_threads_have_adapters_of_their_own() -> None:
    seen = []
    with adapting(STEP, ROWS):
        thread = threading.Thread(target=lambda: seen.append(is_adapting()))
        thread.start()
        thread.join()
        assert is_adapting()
    assert seen == [False]
