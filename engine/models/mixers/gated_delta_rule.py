"""The gated delta rule (arXiv:2412.06464): a state maps keys to values, and each row corrects it.

    S = exp(g) · S,    S = S + k ⊗ beta · (v - Sᵀ k),    y = Sᵀ q

Within a chunk the corrections of rows depend on each other by a triangular system, which is solved at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from .decays import decays_between
from .sequences import Inputs, each_chunk, each_sequence

_CHUNK: Final = 64
"""Rows of a triangular system."""


def gated_delta_rule(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    g: Tensor,
    beta: Tensor,
    states: Tensor,
    *,
    lengths: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Outputs [rows, heads, value size] and new states.

    `queries` and `keys` are [rows, key heads, key size], each key head for as many heads; `values` [rows,
    heads, value size]; `g` (a logarithm of a decay, at most 0) and `beta` [rows, heads]; `states` [sequences,
    heads, key size, value size]. Queries and keys are taken as they are: whoever wants them normed and scaled
    does it before. Computed in the states' dtype, and in their memory where each sequence has one row: they
    are not to be used again. `lengths` are the rows of each sequence.
    """
    heads, key_heads = values.shape[1], keys.shape[1]
    assert heads % key_heads == 0, "heads share key heads evenly"

    def of_heads(each: Tensor) -> Tensor:
        return each.repeat_interleave(heads // key_heads, -2, output_size=heads)

    def step(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys, values, g, beta = inputs
        queries, keys, decays = of_heads(queries), of_heads(keys), g.exp()[..., None]
        # The state is large, so it is read once for both products and changed in place: Sᵀq of the new one
        # is that of the old one, and what the row's own correction adds.
        recalled, answered = (torch.stack((keys, queries), -2) @ state).unbind(-2)
        corrections = beta[..., None] * (values - decays * recalled)
        output = decays * answered + (queries * keys).sum(-1, keepdim=True) * corrections
        state.mul_(decays[..., None]).addcmul_(keys[..., None], corrections[..., None, :])
        return output, state

    def prompt(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        return each_chunk(inputs, state, _CHUNK, chunk)

    def chunk(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys = (of_heads(each).transpose(0, 1) for each in inputs[:2])  # [heads, rows, size]
        values, g, beta = (each.transpose(0, 1) for each in inputs[2:])
        decays = g.cumsum(1)[..., None]  # from the front, logarithmic: [heads, rows, 1]
        between, beta = decays_between(decays), beta[..., None]
        system = beta * (keys @ keys.mT) * between  # its diagonal is taken to be 1
        wanted = beta * (values - decays.exp() * (keys @ state))
        corrections = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        output = decays.exp() * (queries @ state) + ((queries @ keys.mT) * between) @ corrections
        last = decays[:, -1:]
        state = state * last.exp() + ((last - decays).exp() * keys).mT @ corrections
        return output.transpose(0, 1), state

    inputs = [each.to(states.dtype) for each in (queries, keys, values, g, beta)]
    return each_sequence(lengths, inputs, states, step=step, prompt=prompt)
