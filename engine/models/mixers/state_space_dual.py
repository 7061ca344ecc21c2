"""The recurrence of Mamba 2 (arXiv:2405.21060): each head has a matrix as its state and one decay for it.

With one decay a chunk of rows is attention without softmax, masked by decays, beside what the state in front
of it gives. So a prompt is a few products for each chunk. The recurrence is

    S = exp(dt · decay) · S + (dt · x) ⊗ b,    y = S c + skip · x
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from .decays import decays_between
from .sequences import Inputs, each_chunk, each_sequence

_CHUNK: Final = 64
"""Rows whose pairs are looked at: as many as a state has columns cost as much as the state does."""


def state_space_dual(
    x: Tensor,
    dt: Tensor,
    b: Tensor,
    c: Tensor,
    states: Tensor,
    *,
    decay: Tensor,
    skip: Tensor,
    lengths: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Outputs [rows, heads, channels] and new states.

    `x` is [rows, heads, channels], `dt` (positive) [rows, heads]; `b` and `c` are [rows, groups, size], each
    group for as many heads; `states` [sequences, heads, channels, size]; `decay` (negative) and `skip`
    [heads]. Computed in the states' dtype. `lengths` are the rows of each sequence.
    """
    heads, groups = x.shape[1], b.shape[1]
    assert heads % groups == 0, "heads share groups evenly"
    decay, skip = decay.to(states.dtype), skip.to(states.dtype)

    def of_heads(each: Tensor) -> Tensor:
        """[…, groups, size] → […, heads, size]."""
        return each.repeat_interleave(heads // groups, -2, output_size=heads)

    def step(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        x, dt, b, c = inputs
        kept = torch.exp(dt * decay)[..., None, None]
        state = state * kept + (dt[..., None] * x)[..., None] * of_heads(b)[..., None, :]
        return (state @ of_heads(c)[..., None])[..., 0], state

    def prompt(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        return each_chunk(inputs, state, _CHUNK, chunk)

    def chunk(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        x, dt, b, c = inputs
        values = (dt[..., None] * x).transpose(0, 1)  # [heads, rows, channels]
        keys, queries = of_heads(b).transpose(0, 1), of_heads(c).transpose(0, 1)
        decays = (dt * decay).t().cumsum(1)[..., None]  # from the front, logarithmic: [heads, rows, 1]
        scores = (queries @ keys.mT) * decays_between(decays)
        output = scores @ values + decays.exp() * (queries @ state.mT)
        last = decays[:, -1:]
        state = state * last.exp() + ((last - decays).exp() * values).mT @ keys
        return output.transpose(0, 1), state

    inputs = [each.to(states.dtype) for each in (x, dt, b, c)]
    output, states = each_sequence(lengths, inputs, states, step=step, prompt=prompt)
    return output + skip[:, None] * inputs[0], states
