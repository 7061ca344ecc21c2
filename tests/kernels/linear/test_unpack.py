"""Published weights in products: inputs in another order, and weights that cannot be one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sensorium.kernels.linear.linear import PartedWeight, arrange_parts, linear, linear_reference
from sensorium.kernels.linear.quantized_linear import BitsWeight
from sensorium.kernels.linear.unpack import Unpacked, unpack_gptq, unpack_integers, unpack_words
from support.published_folders import gptq, words
from torch import Tensor

CLOSE = 0.02


def gptq_weight(seed: int, out: int = 64, *, shuffled: str = "", symmetric: bool = True) -> Unpacked:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, 96, generator=generator)
    parts, _ = gptq(shuffled=shuffled, symmetric=symmetric)(weight, generator)
    return unpack_gptq(parts["qweight"], parts["qzeros"], parts["scales"], parts["g_idx"], offset=1)


@pytest.mark.parametrize("bits", [4, 8])
def test_words_hold_the_first_number_lowest(bits: int) -> None:
    values = torch.randint(0, 2**bits, (3, 24))
    assert torch.equal(unpack_words(words(values, bits), 4 if bits == 4 else 8).long(), values)
    assert unpack_words(torch.tensor([[0x76543210]], dtype=torch.int32), 4).tolist() == [list(range(8))]


@pytest.mark.parametrize("shuffled", ["", "alike", "each"])
def test_products_take_inputs_in_the_order_of_the_codes(shuffled: str) -> None:
    """Weights whose inputs lie in one order are one weight; others are computed one after the other."""
    unpacked = [gptq_weight(seed, shuffled=shuffled) for seed in range(3)]
    x, bias = torch.randn(5, 96), torch.randn(192)
    weight = arrange_parts(unpacked, bias)
    assert isinstance(weight, PartedWeight if shuffled == "each" else BitsWeight)
    want = linear_reference(x, torch.cat([each.weight() for each in unpacked]), bias)
    assert float((linear(x, weight) - want).norm() / want.norm()) < CLOSE


def test_codes_and_numbers_side_by_side() -> None:
    codes, plain = gptq_weight(1), torch.randn(32, 96)
    x, bias, residual = torch.randn(5, 96), torch.randn(96), torch.randn(5, 96)
    weight = arrange_parts([codes, plain], bias)
    whole = torch.cat([codes.weight(), plain])
    each: tuple[dict[str, Any], ...] = ({"residual": residual}, {"activation": "gelu"}, {})
    for options in each:
        want = linear_reference(x, whole, bias, **options)
        got = linear(x, weight, **options)
        assert float((got - want).norm() / want.norm()) < CLOSE


def test_scales_of_all_inputs_become_scales_of_groups() -> None:
    """The same numbers; inputs are rounded by the group then."""
    values = torch.randint(-128, 128, (4, 300), dtype=torch.int8)
    unpacked = unpack_integers(values, torch.full((4, 1), 0.5), None, None, size=300, bits=8)
    assert (unpacked.codes.group, tuple(unpacked.codes.scales.shape)) == (128, (4, 3))
    assert torch.equal(unpacked.weight(), values.float() * 0.5)


def test_groups_of_several_sizes_are_refused() -> None:
    zeros: list[Tensor] = [torch.zeros(12, 64, dtype=torch.int32), torch.zeros(3, 8, dtype=torch.int32)]
    g_idx = torch.tensor([0] * 40 + [1] * 24 + [2] * 32, dtype=torch.int32)
    with pytest.raises(ValueError, match="g_idx does not put 32 inputs into each of 3 groups"):
        unpack_gptq(zeros[0], zeros[1], torch.ones(3, 64), g_idx, offset=1)
