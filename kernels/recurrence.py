"""Recurrent layers over states in slots, which the C kernels change where they lie.

Float32 on a CPU with a compiler. Elsewhere states are copied from their slots and back, and torch computes:
`engine/models/mixers/` has the same operations for any device and type.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .native import library


class SlotStates(NamedTuple):
    """The states of a step's sequences: part of each of their slots."""

    numbers: Tensor
    """float32 [slots, numbers], contiguous."""
    first: int
    """Where the part begins in a slot."""
    slots: Tensor
    """int64 [sequences]"""
    starts: Tensor
    """int32 [sequences + 1]: each sequence's first row, and the number of all rows."""

    def check(self, bad: int) -> None:
        """Raise IndexError if sequence `bad` has no slot; it is −1 if all have."""
        if bad >= 0:
            raise IndexError(f"slot {int(self.slots[bad])} lies outside {self.numbers.shape[0]} slots")

    @property
    def address(self) -> int:
        """Of the first slot's part."""
        return self.numbers.data_ptr() + self.first * self.numbers.itemsize


class DeltaRule(NamedTuple):
    """The constants of a gated delta rule; vectors are float32 [heads], contiguous."""

    key_heads: int
    key_size: int
    value_size: int
    rates: Tensor
    """Of decays, below 0."""
    dt_bias: Tensor
    most_beta: float
    norm: Tensor
    """Weight [value_size] of each output's RMS norm, float32, contiguous."""
    eps: float

    @property
    def heads(self) -> int:
        """Of values."""
        return self.rates.shape[0]


def can_run_in_slots(numbers: Tensor) -> bool:
    """Whether the functions of this file take such states."""
    known = numbers.is_cpu and numbers.dtype is torch.float32 and numbers.is_contiguous()
    return known and library() is not None


def convolve_in_slots(
    rows: Tensor, states: SlotStates, taps: Tensor, bias: Tensor | None, *, activated: bool
) -> Tensor:
    """rows [rows, channels] (a view of a projection will do) → float32 of that shape, through SiLU if
    `activated`.

    taps float32 [width, channels], the oldest row's first, and bias float32 [channels], contiguous. Each
    slot's part [width − 1, channels] has the rows before, the oldest first. Raises IndexError for a slot
    out of range.
    """
    rows, native = _as_floats(rows), library()
    assert native is not None
    assert can_run_in_slots(states.numbers)
    width, channels = taps.shape
    y = torch.empty((rows.shape[0], channels), dtype=torch.float32)
    bad = native.short_convolution(
        *(rows.data_ptr(), rows.stride(0), states.address, *states.numbers.shape),
        *(states.slots.data_ptr(), states.starts.data_ptr(), states.slots.shape[0]),
        *(taps.data_ptr(), None if bias is None else bias.data_ptr(), channels, width, activated),
        *(y.data_ptr(), torch.get_num_threads()),
    )
    states.check(bad)
    return y


def delta_rule_in_slots(
    mixed: Tensor, b: Tensor, a: Tensor, gate: Tensor, states: SlotStates, rule: DeltaRule
) -> Tensor:
    """The gated delta rule of a layer, with what stands around it → float32 [rows, heads · value_size].

    `mixed` [rows, 2 · key_heads · key_size + heads · value_size] holds queries, keys and values; `b` and `a`
    are [rows, heads], `gate` [rows, heads · value_size]; views of a projection will do. beta is most_beta ·
    sigmoid(b), a row's decay exp(rates · softplus(a + dt_bias)). Queries and keys are made of length 1,
    queries are divided by √key_size. Each head's output goes through its norm and is multiplied by
    silu(gate). Each slot's part is [heads, key_size, value_size]. Raises IndexError for a slot out of
    range.
    """
    mixed, b, a, gate = map(_as_floats, (mixed, b, a, gate))
    if a.stride(0) != b.stride(0):
        a, b = a.contiguous(), b.contiguous()
    native, rows, heads = library(), mixed.shape[0], rule.heads
    assert native is not None
    assert can_run_in_slots(states.numbers)
    assert mixed.shape[1] == 2 * rule.key_heads * rule.key_size + heads * rule.value_size
    y = torch.empty((rows, heads * rule.value_size), dtype=torch.float32)
    bad = native.gated_delta_rule(
        *(mixed.data_ptr(), mixed.stride(0), b.data_ptr(), a.data_ptr(), a.stride(0)),
        *(rule.rates.data_ptr(), rule.dt_bias.data_ptr(), rule.most_beta),
        *(
            gate.data_ptr(),
            gate.stride(0),
            rule.norm.data_ptr(),
            rule.eps,
            states.address,
            *states.numbers.shape,
        ),
        *(states.slots.data_ptr(), states.starts.data_ptr(), states.slots.shape[0]),
        *(heads, rule.key_heads, rule.key_size, rule.value_size, y.data_ptr(), torch.get_num_threads()),
    )
    states.check(bad)
    return y


def _as_floats(rows: Tensor) -> Tensor:
    """Float32, with the numbers of a row side by side."""
    rows = rows.float()
    return rows if rows.stride(-1) == 1 else rows.contiguous()
