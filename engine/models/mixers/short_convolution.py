"""A causal convolution over the last few rows of each channel, whose state is the rows before.

Mamba (arXiv:2312.00752), gated delta nets and LFM2 put it in front of, or in place of, their recurrence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .sequences import Inputs, each_sequence


def short_convolution(
    rows: Tensor, tails: Tensor, taps: Tensor, bias: Tensor | None, lengths: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """rows [rows, channels], taps [width, channels] → outputs [rows, channels] and new tails.

    The taps of the oldest row come first. `tails` [sequences, width - 1, channels] are the rows before, the
    newest last; zeros in front of a sequence. Computed in their dtype. `lengths` are the rows of each
    sequence.
    """
    taps = taps.to(tails.dtype)
    offset = 0 if bias is None else bias.to(tails.dtype)

    def step(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        window = torch.cat((state, inputs[0][:, None]), 1)
        return (window * taps).sum(1) + offset, window[:, 1:]

    def prompt(inputs: Inputs, state: Tensor) -> tuple[Tensor, Tensor]:
        known = torch.cat((state, inputs[0]))
        num_rows = len(inputs[0])
        output = known[:num_rows] * taps[0] + offset
        for tap in range(1, len(taps)):
            output = torch.addcmul(output, known[tap : tap + num_rows], taps[tap])
        return output, known[num_rows:]

    return each_sequence(lengths, (rows.to(tails.dtype),), tails, step=step, prompt=prompt)
