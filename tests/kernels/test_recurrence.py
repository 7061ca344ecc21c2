"""Convolutions and delta rules in slots are their recurrences in float64, and leave other slots alone."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from sensorium.kernels.native import library
from sensorium.kernels.recurrence import DeltaRule, SlotStates, convolve_in_slots, delta_rule_in_slots
from torch import Tensor
from torch.nn.functional import silu, softplus

pytestmark = pytest.mark.skipif(library() is None, reason="needs a C compiler")
SLOTS, LENGTHS, FIRST = (4, 1, 2), (1, 5, 2), 3
"""Slot 0 and 3, and the numbers in front of the part, are others'."""


def states_of(
    numbers: Tensor, slots: tuple[int, ...] = SLOTS, lengths: tuple[int, ...] = LENGTHS
) -> SlotStates:
    starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
    return SlotStates(numbers, FIRST, torch.tensor(slots), starts)


def random_numbers(size: int) -> Tensor:
    return torch.randn(5, FIRST + size, generator=torch.Generator().manual_seed(1))


def check(numbers: Tensor, before: Tensor, expected: dict[int, Tensor]) -> None:
    """The slots' parts are as expected, all else is as it was."""
    for slot, state in expected.items():
        torch.testing.assert_close(numbers[slot, FIRST:].double(), state.flatten(), rtol=1e-4, atol=1e-4)
    assert torch.equal(numbers[[0, 3]], before[[0, 3]])
    assert torch.equal(numbers[:, :FIRST], before[:, :FIRST])


@pytest.mark.parametrize(("channels", "width"), [(6, 4), (600, 2), (33, 1)])
@pytest.mark.parametrize("activated", [False, True])
def test_convolution(channels: int, width: int, activated: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(LENGTHS), channels + 5, generator=generator)[:, 2 : channels + 2]
    taps, bias = torch.randn(width, channels, generator=generator), torch.randn(channels, generator=generator)
    numbers = random_numbers((width - 1) * channels)
    before, got, ends = numbers.clone(), [], {}
    for slot, part in zip(SLOTS, torch.split(rows.double(), list(LENGTHS)), strict=True):
        known = torch.cat((before[slot, FIRST:].double().view(width - 1, channels), part))
        sums = torch.stack([(known[i : i + width] * taps).sum(0) + bias for i in range(len(part))])
        got.append(silu(sums) if activated else sums)
        ends[slot] = known[len(part) :]
    y = convolve_in_slots(rows, states_of(numbers), taps, bias, activated=activated)
    torch.testing.assert_close(y.double(), torch.cat(got), rtol=1e-5, atol=1e-5)
    check(numbers, before, ends)


def make_rule(sizes: tuple[int, int]) -> DeltaRule:
    generator = torch.Generator().manual_seed(2)
    rates, steps, norm = (torch.rand(size, generator=generator) for size in (4, 4, sizes[1]))
    return DeltaRule(2, *sizes, -4 * rates, steps, 2.0, norm, 1e-6)


def make_inputs(rule: DeltaRule) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Views of one projection."""
    values = rule.heads * rule.value_size
    widths = (2 * rule.key_heads * rule.key_size + values, rule.heads, rule.heads, values)
    projected = torch.randn(sum(LENGTHS), sum(widths), generator=torch.Generator().manual_seed(3))
    mixed, b, a, gate = torch.split(projected, list(widths), 1)
    return mixed, b, a, gate


def by_rows(rule: DeltaRule, inputs: tuple[Tensor, ...], state: Tensor) -> tuple[Tensor, Tensor]:
    """Each row as the formula has it."""
    outputs = []
    keys = rule.key_heads * rule.key_size
    for mixed, b, a, gate in zip(*(each.double() for each in inputs), strict=True):
        query, key = (
            (each / (each.square().sum(-1, keepdim=True) + 1e-6).sqrt()).repeat_interleave(2, 0)
            for each in mixed[: 2 * keys].view(2, rule.key_heads, rule.key_size)
        )
        value = mixed[2 * keys :].view(rule.heads, -1)
        state = state * (rule.rates * softplus(a + rule.dt_bias)).exp()[:, None, None]
        wrong = value - torch.einsum("hkv,hk->hv", state, key)
        state = state + torch.einsum("hk,hv->hkv", key, wrong * (rule.most_beta * b.sigmoid())[:, None])
        y = torch.einsum("hkv,hk->hv", state, query) * rule.key_size**-0.5
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + rule.eps) * rule.norm
        outputs.append(y.flatten() * silu(gate))
    return torch.stack(outputs), state


@pytest.mark.parametrize("sizes", [(128, 128), (5, 19), (8, 6)])
def test_delta_rule(sizes: tuple[int, int]) -> None:
    rule = make_rule(sizes)
    inputs = make_inputs(rule)
    shape = (rule.heads, *sizes)
    numbers = random_numbers(rule.heads * sizes[0] * sizes[1])
    before, expected, ends = numbers.clone(), [], {}
    for slot, start, length in zip(SLOTS, accumulate((0, *LENGTHS)), LENGTHS, strict=False):
        part = tuple(each[start : start + length] for each in inputs)
        output, ends[slot] = by_rows(rule, part, before[slot, FIRST:].double().view(shape))
        expected.append(output)
    y = delta_rule_in_slots(*inputs, states_of(numbers), rule)
    torch.testing.assert_close(y.double(), torch.cat(expected), rtol=1e-3, atol=1e-4)
    check(numbers, before, ends)


def test_a_row_is_the_same_in_any_division_into_steps() -> None:
    rule = make_rule((128, 24))
    inputs = make_inputs(rule)
    together = random_numbers(4 * 128 * 24)
    alone = together.clone()
    y = delta_rule_in_slots(*inputs, states_of(together), rule)
    for row, slot in enumerate(slot for slot, num in zip(SLOTS, LENGTHS, strict=True) for _ in range(num)):
        mixed, b, a, gate = (each[row : row + 1] for each in inputs)
        one = delta_rule_in_slots(mixed, b, a, gate, states_of(alone, (slot,), (1,)), rule)
        assert torch.equal(one[0], y[row])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("slot", [-1, 5])
def test_a_slot_that_there_is_not_is_refused(slot: int) -> None:
    rule = make_rule((8, 6))
    numbers = random_numbers(4 * 8 * 6)
    before, states = numbers.clone(), states_of(numbers, (4, slot, 2))
    with pytest.raises(IndexError, match=f"slot {slot} lies outside 5 slots"):
        delta_rule_in_slots(*make_inputs(rule), states, rule)
    with pytest.raises(IndexError, match=f"slot {slot} lies outside 5 slots"):
        convolve_in_slots(torch.randn(8, 6), states, torch.randn(4, 6), None, activated=True)
    assert torch.equal(numbers, before)
