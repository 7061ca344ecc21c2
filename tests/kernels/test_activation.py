"""Our GELU and ReLU of bfloat16 against float64: every number there is."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.activation import FUNCTIONS, Activation, activated
from sensorium.kernels.native import library
from torch import Tensor


def every_bfloat16() -> Tensor:
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16)
    return bits.view(torch.bfloat16)


@pytest.mark.parametrize("activation", ["none", "gelu", "gelu_tanh", "relu"])
def test_every_number(activation: Activation) -> None:
    """Within one rounding of the truth, down to what even float32 loses of 1 + erf(x); torch's are not."""
    if library() is None and "gelu" in activation:
        pytest.skip("there is no C compiler")
    x = every_bfloat16()
    finite = torch.isfinite(x)
    got, want = activated(x, activation), FUNCTIONS[activation](x.double())
    torch.testing.assert_close(got[finite].double(), want[finite], rtol=2**-7.9, atol=1e-8)
    assert torch.isnan(got[torch.isnan(x)]).all()
    largest = x == torch.inf
    assert torch.equal(got[largest], x[largest])


@pytest.mark.parametrize("count", [0, 1, 15, 17, 511, 513, 70_001])
def test_any_count(count: int) -> None:
    x = torch.randn(70_001).bfloat16()
    assert torch.equal(activated(x[:count].clone(), "gelu"), activated(x, "gelu")[:count])


def test_what_is_not_contiguous_and_other_types() -> None:
    x = torch.randn(6, 8).bfloat16()
    torch.testing.assert_close(activated(x[:, ::2], "gelu"), activated(x, "gelu")[:, ::2])
    wide = torch.randn(100).double()
    assert torch.equal(activated(wide, "gelu"), FUNCTIONS["gelu"](wide))
