"""The recurrence of channels over ragged rows is that of single ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from sensorium.engine.models.mixers.linear_recurrence import linear_recurrence
from support.recurrences import check_recurrence
from torch import Tensor

CHANNELS = 5


def test_rows_in_any_company_are_the_recurrence() -> None:
    def mix(inputs: Sequence[Tensor], states: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        return linear_recurrence(inputs[0], inputs[1], states, lengths)

    def advance(inputs: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        state = inputs[1] * state + inputs[0]
        return state, state

    def make_inputs(length: int, generator: torch.Generator) -> list[Tensor]:
        x = torch.randn((length, CHANNELS), generator=generator, dtype=torch.float64)
        return [x, torch.rand((length, CHANNELS), generator=generator, dtype=torch.float64)]

    check_recurrence(mix, advance, make_inputs, (CHANNELS,), seed=0)
