"""A recurrence of each channel for itself, with a decay of each row (Griffin, arXiv:2402.19427).

h = decay ⊙ h + x,    y = h
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .sequences import Inputs, each_sequence


def linear_recurrence(
    x: Tensor, decay: Tensor, states: Tensor, lengths: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Outputs [rows, channels] and new states [sequences, channels].

    `x` and `decay` (0 to 1) are [rows, channels]. Computed in the states' dtype. `lengths` are the rows of
    each sequence.
    """

    def step(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.addcmul(inputs[0], inputs[1], state)
        return state, state

    def prompt(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs: list[Tensor] = []
        for row in range(len(inputs[0])):
            state, _ = step([each[row] for each in inputs], state)
            outputs.append(state)
        return torch.stack(outputs), state

    inputs = [each.to(states.dtype) for each in (x, decay)]
    return each_sequence(lengths, inputs, states, step=step, prompt=prompt)
