"""The selective scan in chunks is its recurrence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from sensorium.engine.models.mixers.selective_scan import selective_scan
from support.recurrences import check_recurrence
from torch import Tensor

CHANNELS, SIZE = 5, 4


@pytest.mark.parametrize("heads", [1, 3])
def test_rows_in_any_pieces_give_the_same(heads: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    decay = -torch.rand(heads, CHANNELS, SIZE, generator=generator, dtype=torch.float64) * 4
    skip = torch.randn(heads, CHANNELS, generator=generator, dtype=torch.float64)

    def mix(inputs: Sequence[Tensor], states: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        x, dt, b, c = inputs
        return selective_scan(x, dt, b, c, states, decay=decay, skip=skip, lengths=lengths)

    def advance(inputs: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        x, dt, b, c = inputs
        kept = torch.exp(torch.einsum("hc,hcs->hcs", dt, decay))
        state = kept * state + torch.einsum("hc,hc,hs->hcs", dt, x, b)
        return torch.einsum("hcs,hs->hc", state, c) + skip * x, state

    def make_inputs(length: int, generator: torch.Generator) -> list[Tensor]:
        shapes = ((heads, CHANNELS), (heads, CHANNELS), (heads, SIZE), (heads, SIZE))
        x, dt, b, c = (
            torch.randn((length, *shape), generator=generator, dtype=torch.float64) for shape in shapes
        )
        return [x, torch.nn.functional.softplus(dt), b, c]

    check_recurrence(mix, advance, make_inputs, (heads, CHANNELS, SIZE), seed=heads)
