"""A short convolution over ragged rows is torch's convolution of each sequence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from sensorium.engine.models.mixers.short_convolution import short_convolution
from support.recurrences import check_recurrence
from torch import Tensor

CHANNELS = 6


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("has_bias", [False, True])
def test_rows_in_any_pieces_give_the_same(width: int, has_bias: bool) -> None:
    taps = torch.randn(width, CHANNELS, dtype=torch.float64)
    bias = torch.randn(CHANNELS, dtype=torch.float64) if has_bias else None

    def mix(inputs: Sequence[Tensor], tails: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        return short_convolution(inputs[0], tails, taps, bias, lengths)

    def advance(inputs: Sequence[Tensor], tail: Tensor) -> tuple[Tensor, Tensor]:
        window = torch.cat((tail, inputs[0][None]))
        return (window * taps).sum(0) + (0 if bias is None else bias), window[1:]

    def make_inputs(length: int, generator: torch.Generator) -> list[Tensor]:
        return [torch.randn(length, CHANNELS, generator=generator, dtype=torch.float64)]

    check_recurrence(mix, advance, make_inputs, (width - 1, CHANNELS), seed=width)


def test_a_sequence_from_its_front_is_torchs_convolution() -> None:
    convolution = torch.nn.Conv1d(CHANNELS, CHANNELS, 4, groups=CHANNELS, padding=3).double()
    rows = torch.randn(30, CHANNELS, dtype=torch.float64)
    expected = convolution(rows.t()[None])[0, :, :30].t()
    taps, tails = convolution.weight.squeeze(1).t(), torch.zeros(1, 3, CHANNELS, dtype=torch.float64)
    output, _ = short_convolution(rows, tails, taps, convolution.bias, (30,))
    torch.testing.assert_close(output, expected)
