"""RWKV 4's time mixing (arXiv:2305.13048): values averaged with weights that fade, each channel for itself.

A state is the weighted sum of values, the sum of weights, both divided by the exponential of the third: the
largest logarithm of a weight so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .sequences import Inputs, each_sequence


def weighted_average(
    keys: Tensor,
    values: Tensor,
    states: Tensor,
    *,
    decay: Tensor,
    bonus: Tensor,
    lengths: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Outputs [rows, channels] and new states [sequences, 3, channels].

    `keys` (logarithms of weights) and `values` are [rows, channels]; `decay` (negative, a logarithm) and
    `bonus` of a row's own key [channels]. Computed in the states' dtype. `lengths` are the rows of each
    sequence.
    """

    def step(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        key, value = inputs
        total, weights, most = state.unbind(-2)
        most = most.masked_fill(weights == 0, float("-inf"))  # in front of a sequence

        def added(past: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            most = torch.maximum(past, own)
            before, now = (past - most).exp(), (own - most).exp()
            return before * total + now * value, before * weights + now, most

        numerator, denominator, _ = added(most, key + bonus)
        return numerator / denominator, torch.stack(added(most + decay, key), -2)

    def prompt(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs: list[Tensor] = []
        for row in range(len(inputs[0])):
            output, state = step([each[row] for each in inputs], state)
            outputs.append(output)
        return torch.stack(outputs), state

    inputs = [each.to(states.dtype) for each in (keys, values)]
    return each_sequence(lengths, inputs, states, step=step, prompt=prompt)
