"""A mixture of experts: each row through the few that a router chose for it, its results weighed and added.

Rows are sorted by expert once, so each expert's weights are read once a step, and those of experts that
no row chose are not. Knows no routers; what an expert computes is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Expert = Callable[[int, Tensor], Tensor]
"""The number of an expert and rows [n, size] → [n, out]."""


def grouped_experts(
    x: Tensor,
    chosen: Tensor,
    weights: Tensor,
    expert: Expert,
    num_experts: int,
    *,
    weighs_inputs: bool = False,
) -> Tensor:
    """x [rows, size]; `chosen` int64 and `weights` [rows, choices] → [rows, size] of x's type.

    Each result is multiplied by its weight, or each input if `weighs_inputs`. What has no weight of an
    expert below `num_experts` adds nothing.
    """
    rows, choices = chosen.shape
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=num_experts)[:num_experts].tolist()
    inputs = x[order // choices]
    if weighs_inputs:
        inputs = inputs * weights.flatten()[order, None]
    results = x.new_zeros(rows * choices, x.shape[1])
    first = 0
    for number, count in enumerate(counts):
        if count:
            some = slice(first, first + count)
            results[order[some]] = expert(number, inputs[some]).to(x.dtype)
            first += count
    grouped = results.view(rows, choices, -1)
    if weighs_inputs:
        return grouped.sum(1)
    return (grouped * weights[..., None]).sum(1).to(x.dtype)
