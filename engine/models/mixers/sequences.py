"""The rows of a step as those of its sequences: decode steps in one batch, prompts one after the other.

All mixers share this division. One row of each of many sequences is a batch of equal shapes. Many rows of
one sequence are chunks of it. Read `engine/models/mixers/short_convolution.py` for the smallest use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

Inputs = Sequence[Tensor]
"""Each [rows, …]."""
Advance = Callable[[Inputs, Tensor], tuple[Tensor, Tensor]]
"""From inputs and a state to outputs [rows, …] and the state behind the last row."""


def each_sequence(
    lengths: Sequence[int], inputs: Inputs, states: Tensor, *, step: Advance, prompt: Advance
) -> tuple[Tensor, Tensor]:
    """Outputs [rows, …] and the states behind the rows.

    `lengths` are the rows of each sequence, at least one; the rows of all lie one after the other in each of
    the `inputs`; `states` is [sequences, …]. `step` gets the sequences of one row together: inputs and states
    have the sequences as their first dimension. `prompt` gets one longer sequence and its state alone.
    """
    assert sum(lengths) == len(inputs[0]), "lengths cover all rows"
    assert len(lengths) == len(states), "each sequence has a state"
    if all(length == 1 for length in lengths):
        return step(inputs, states)
    if len(lengths) == 1:
        output, state = prompt(inputs, states[0])
        return output, state[None]
    ends = list(accumulate(lengths))
    outputs: dict[int, Tensor] = {}
    after = torch.empty_like(states)
    singles = [index for index, length in enumerate(lengths) if length == 1]
    if singles:
        rows = [ends[index] - 1 for index in singles]
        output, after[singles] = step([each[rows] for each in inputs], states[singles])
        outputs |= dict(zip(singles, torch.split(output, 1), strict=True))
    for index, (length, end) in enumerate(zip(lengths, ends, strict=True)):
        if length > 1:
            sequence = [each[end - length : end] for each in inputs]
            outputs[index], after[index] = prompt(sequence, states[index])
    return torch.cat([outputs[index] for index in range(len(lengths))]), after


def each_chunk(inputs: Inputs, state: Tensor, num_rows: int, advance: Advance) -> tuple[Tensor, Tensor]:
    """Outputs [rows, …] of one sequence and the state behind it: `advance` gets so many rows at a time."""
    outputs: list[Tensor] = []
    for start in range(0, len(inputs[0]), num_rows):
        output, state = advance([each[start : start + num_rows] for each in inputs], state)
        outputs.append(output)
    return torch.cat(outputs), state


def last_rows(rows: Tensor, before: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The row before each of the rows [rows, …], and the last of each sequence; `before` [sequences, …] are
    the last ones of earlier steps."""
    ends = torch.tensor(list(accumulate(lengths)), device=rows.device)
    shifted = rows.roll(1, 0)
    shifted[ends - torch.tensor(lengths, device=rows.device)] = before.to(rows.dtype)
    return shifted, rows[ends - 1].to(before.dtype)
