"""What is added to rows of logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.transfer import to_device


@dataclass(frozen=True, slots=True, eq=False)
class Bias:
    """Added to rows: `values` at `ids`, or without `ids` [vocab] or [rows, vocab] to all tokens."""

    values: Tensor
    ids: Tensor | None

    def add_to(self, logits: Tensor, rows: Sequence[int]) -> None:
        """In place."""
        if rows[-1] - rows[0] + 1 == len(rows):  # they are ascending, and none comes twice
            part = logits[rows[0] : rows[-1] + 1]
            if self.ids is None:
                part += self.values
            else:
                part[:, self.ids] += self.values
            return
        where = to_device(torch.tensor(rows), logits.device)
        if self.ids is None:
            logits[where] += self.values
        else:
            logits[where[:, None], self.ids] += self.values
