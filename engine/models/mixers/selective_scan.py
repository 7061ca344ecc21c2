"""The selective scan of Mamba (arXiv:2312.00752): each channel has a state, each of its numbers a decay.

A prompt is cut into chunks that advance side by side, row by row, first from zero to see what each leaves
behind, then from the state in front of it. The recurrence is

    h = exp(dt · decay) ⊙ h + dt · x · b,    y = h · c + skip · x
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from .sequences import Inputs, each_sequence

_CHUNK: Final = 64
"""Rows of a prompt that follow each other; chunks of so many run side by side."""


def selective_scan(
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

    `x` and `dt` (positive) are [rows, heads, channels], `b` and `c` [rows, heads, size]; `states` [sequences,
    heads, channels, size]; `decay` (negative) [heads, channels, size]; `skip` [heads, channels]. Computed in
    the states' dtype. `lengths` are the rows of each sequence.
    """
    decay = decay.to(states.dtype)

    def advance(state: Tensor, x: Tensor, dt: Tensor, b: Tensor) -> Tensor:
        return state * torch.exp(dt[..., None] * decay) + (dt * x)[..., None] * b[..., None, :]

    def step(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        x, dt, b, c = inputs
        state = advance(state, x, dt, b)
        return (state @ c[..., None])[..., 0], state

    def side_by_side(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs [chunks, rows, …] from a state each."""
        outputs: list[Tensor] = []
        for row in range(inputs[0].shape[1]):
            output, state = step([each[:, row] for each in inputs], state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

    def prompt(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        num_chunks = len(inputs[0]) // _CHUNK
        whole = num_chunks * _CHUNK
        outputs: list[Tensor] = []
        if num_chunks:
            chunks = [each[:whole].view(num_chunks, _CHUNK, *each.shape[1:]) for each in inputs]
            x, dt, b, _ = chunks
            left = torch.zeros_like(state).expand(num_chunks, *state.shape)
            if num_chunks > 1:
                for row in range(_CHUNK):
                    left = advance(left, x[:, row], dt[:, row], b[:, row])
            kept = torch.exp(dt.sum(1)[..., None] * decay)
            fronts = [state]
            for chunk in range(num_chunks - 1):
                fronts.append(fronts[-1] * kept[chunk] + left[chunk])
            output, ends = side_by_side(chunks, torch.stack(fronts))
            outputs.append(output.flatten(0, 1))
            state = ends[-1]
        if whole < len(inputs[0]):
            output, rest = side_by_side([each[None, whole:] for each in inputs], state[None])
            outputs.append(output[0])
            state = rest[0]
        return torch.cat(outputs), state

    inputs = [each.to(states.dtype) for each in (x, dt, b, c)]
    output, states = each_sequence(lengths, inputs, states, step=step, prompt=prompt)
    return output + skip.to(states.dtype) * inputs[0], states
