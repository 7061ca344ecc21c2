"""RWKV's average over ragged rows is that of plain sums, and begins without a state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sensorium.engine.models.mixers.weighted_average import weighted_average
from support.recurrences import check_recurrence
from torch import Tensor

CHANNELS = 5
DECAY = -torch.linspace(0.1, 2.0, CHANNELS, dtype=torch.float64)
BONUS = torch.linspace(-1.0, 1.0, CHANNELS, dtype=torch.float64)


def average(inputs: Sequence[Tensor], states: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    return weighted_average(inputs[0], inputs[1], states, decay=DECAY, bonus=BONUS, lengths=lengths)


def make_inputs(length: int, generator: torch.Generator) -> list[Tensor]:
    return [torch.randn((length, CHANNELS), generator=generator, dtype=torch.float64) for _ in range(2)]


def test_rows_in_any_company_are_the_recurrence() -> None:
    def mix(inputs: Sequence[Tensor], states: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        return average(inputs, _positive(states), lengths)

    def advance(inputs: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        key, value = inputs
        total, weights, most = _positive(state)
        past = most + DECAY
        largest = torch.maximum(past, key)
        before, now = (past - largest).exp(), (key - largest).exp()
        own, scale = (key + BONUS).exp(), most.exp()
        output = (total * scale + own * value) / (weights * scale + own)
        return output, torch.stack((before * total + now * value, before * weights + now, largest))

    check_recurrence(mix, advance, make_inputs, (3, CHANNELS), seed=0)


def _positive(states: Tensor) -> Tensor:
    """Weights are above 0."""
    total, weights, most = states.unbind(-2)
    return torch.stack((total, weights.abs(), most), -2)


def test_a_sequence_begins_with_zeros_and_is_a_plain_average() -> None:
    keys, values = make_inputs(9, torch.Generator().manual_seed(1))
    outputs, _ = average((keys, values), torch.zeros(1, 3, CHANNELS, dtype=torch.float64), (9,))
    for row, output in enumerate(outputs):
        ages = torch.arange(row - 1, -1, -1)[:, None]
        weights = torch.cat(((keys[:row] + ages * DECAY).exp(), (keys[row] + BONUS)[None].exp()))
        torch.testing.assert_close(output, (weights * values[: row + 1]).sum(0) / weights.sum(0))


def test_keys_far_below_zero_lose_nothing() -> None:
    keys, values = make_inputs(3, torch.Generator().manual_seed(2))
    outputs, _ = average((keys - 2000.0, values), torch.zeros(1, 3, CHANNELS, dtype=torch.float64), (3,))
    expected, _ = average((keys, values), torch.zeros(1, 3, CHANNELS, dtype=torch.float64), (3,))
    torch.testing.assert_close(outputs, expected)
