"""The proof that a mixer of ragged rows is its recurrence: all rows at once, in any pieces, in any company.

A test gives the mixer, the recurrence of one row in plain words, and shapes; `check_recurrence` compares them
in float64 from random states.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

LENGTHS: Final = (1, 64, 2, 65, 1, 200, 128, 7)
"""Rows of sequences: below, at and beyond the ends of chunks."""
_CLOSE: Final = 1e-11

Mix = Callable[[Sequence[Tensor], Tensor, Sequence[int]], tuple[Tensor, Tensor]]
"""Inputs [rows, …], states [sequences, …] and rows of each sequence → outputs and new states."""
Advance = Callable[[Sequence[Tensor], Tensor], tuple[Tensor, Tensor]]
"""One row's inputs and the state of its sequence → its output and the new state."""
MakeInputs = Callable[[int, torch.Generator], list[Tensor]]
"""Random inputs of so many rows."""


def check_recurrence(
    mix: Mix, advance: Advance, make_inputs: MakeInputs, state_shape: Sequence[int], *, seed: int
) -> None:
    """Each row's output and each state behind it, for all rows at once, in pieces, and alone."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [make_inputs(length, generator) for length in LENGTHS]
    states = torch.randn((len(LENGTHS), *state_shape), generator=generator, dtype=torch.float64)
    expected = [_by_rows(advance, each, state) for each, state in zip(inputs, states, strict=True)]
    before = states.clone()
    outputs, after = mix([torch.cat(each) for each in zip(*inputs, strict=True)], states, LENGTHS)
    assert torch.equal(states, before), "a mixer changes no state that it is given"
    _compare(torch.split(outputs, list(LENGTHS)), after, expected)
    _compare(*_in_pieces(mix, inputs, states, random.Random(seed)), expected)
    for each, state, (output, end) in zip(inputs, states, expected, strict=True):
        alone, state_alone = mix(each, state[None], (len(each[0]),))
        torch.testing.assert_close(alone, output, rtol=_CLOSE, atol=_CLOSE)
        torch.testing.assert_close(state_alone[0], end, rtol=_CLOSE, atol=_CLOSE)


def _by_rows(advance: Advance, inputs: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    outputs: list[Tensor] = []
    for row in range(len(inputs[0])):
        output, state = advance([each[row] for each in inputs], state)
        outputs.append(output)
    return torch.stack(outputs), state


def _in_pieces(
    mix: Mix, inputs: Sequence[Sequence[Tensor]], states: Tensor, rng: random.Random
) -> tuple[list[Tensor], Tensor]:
    """Steps of some rows of some sequences, whose order changes, as a scheduler feeds them."""
    states, fed = states.clone(), [0] * len(inputs)
    outputs: list[list[Tensor]] = [[] for _ in inputs]
    while live := [i for i, each in enumerate(inputs) if fed[i] < len(each[0])]:
        members = rng.sample(live, rng.randint(1, len(live)))
        counts = [min(rng.choice((1, 1, 3, 64, 100)), len(inputs[i][0]) - fed[i]) for i in members]
        rows = [
            torch.cat([inputs[i][kind][fed[i] : fed[i] + n] for i, n in zip(members, counts, strict=True)])
            for kind in range(len(inputs[0]))
        ]
        output, states[members] = mix(rows, states[members], counts)
        for i, part in zip(members, torch.split(output, counts), strict=True):
            outputs[i].append(part)
            fed[i] += len(part)
    return [torch.cat(each) for each in outputs], states


def _compare(outputs: Sequence[Tensor], states: Tensor, expected: Sequence[tuple[Tensor, Tensor]]) -> None:
    for output, state, (wanted, end) in zip(outputs, states, expected, strict=True):
        torch.testing.assert_close(output, wanted, rtol=_CLOSE, atol=_CLOSE)
        torch.testing.assert_close(state, end, rtol=_CLOSE, atol=_CLOSE)
