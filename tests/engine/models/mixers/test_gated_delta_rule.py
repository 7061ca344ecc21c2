"""The gated delta rule by triangular systems is its recurrence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from sensorium.engine.models.mixers.gated_delta_rule import gated_delta_rule
from support.recurrences import check_recurrence
from torch import Tensor
from torch.nn.functional import normalize, softplus

HEADS, KEY_SIZE, VALUE_SIZE = 4, 5, 3


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_rows_in_any_pieces_give_the_same(key_heads: int) -> None:
    def mix(inputs: Sequence[Tensor], states: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        queries, keys, values, g, beta = inputs
        return gated_delta_rule(queries, keys, values, g, beta, states, lengths=lengths)

    def advance(inputs: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys, values, g, beta = inputs
        outputs, ends = [], []
        for head in range(HEADS):
            query, key = queries[head * key_heads // HEADS], keys[head * key_heads // HEADS]
            kept = g[head].exp() * state[head]
            end = kept + torch.outer(key, beta[head] * (values[head] - kept.t() @ key))
            outputs.append(end.t() @ query)
            ends.append(end)
        return torch.stack(outputs), torch.stack(ends)

    def make_inputs(length: int, generator: torch.Generator) -> list[Tensor]:
        shapes = ((key_heads, KEY_SIZE), (key_heads, KEY_SIZE), (HEADS, VALUE_SIZE), (HEADS,), (HEADS,))
        queries, keys, values, g, beta = (
            torch.randn((length, *shape), generator=generator, dtype=torch.float64) for shape in shapes
        )
        return [queries, normalize(keys, dim=-1), values, -softplus(g), 2 * beta.sigmoid()]

    check_recurrence(mix, advance, make_inputs, (HEADS, KEY_SIZE, VALUE_SIZE), seed=key_heads)
