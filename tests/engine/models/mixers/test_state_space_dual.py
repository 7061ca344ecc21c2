"""Mamba 2's products of chunks are its recurrence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from sensorium.engine.models.mixers.state_space_dual import state_space_dual
from support.recurrences import check_recurrence
from torch import Tensor

HEADS, CHANNELS, SIZE = 4, 5, 3


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_rows_in_any_pieces_give_the_same(groups: int) -> None:
    generator = torch.Generator().manual_seed(groups)
    decay = -torch.rand(HEADS, generator=generator, dtype=torch.float64) * 16
    skip = torch.randn(HEADS, generator=generator, dtype=torch.float64)

    def mix(inputs: Sequence[Tensor], states: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        x, dt, b, c = inputs
        return state_space_dual(x, dt, b, c, states, decay=decay, skip=skip, lengths=lengths)

    def advance(inputs: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        x, dt, b, c = inputs
        outputs, ends = [], []
        for head in range(HEADS):
            group = head * groups // HEADS
            end = torch.exp(dt[head] * decay[head]) * state[head] + torch.outer(dt[head] * x[head], b[group])
            outputs.append(end @ c[group] + skip[head] * x[head])
            ends.append(end)
        return torch.stack(outputs), torch.stack(ends)

    def make_inputs(length: int, generator: torch.Generator) -> list[Tensor]:
        shapes = ((HEADS, CHANNELS), (HEADS,), (groups, SIZE), (groups, SIZE))
        x, dt, b, c = (
            torch.randn((length, *shape), generator=generator, dtype=torch.float64) for shape in shapes
        )
        return [x, torch.nn.functional.softplus(dt), b, c]

    check_recurrence(mix, advance, make_inputs, (HEADS, CHANNELS, SIZE), seed=groups)
