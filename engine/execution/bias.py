"""What is added to rows of logits: to tokens, and to those that go on with a phrase.

`engine/execution/token_rules.py` makes it, `engine/execution/logits.py` adds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ...kernels.transfer import to_device
from ..text.keyword_boosting import PhraseTree, Places

_MAX_KEPT: Final = 256
"""Most rows stand at a root."""


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


class PhraseBiases:
    """Of one tree. Equal phrases share it, and so one operation per step and place."""

    def __init__(self, tree: PhraseTree, *, vocab_size: int, device: torch.device) -> None:
        """Ids outside the vocabulary are ignored."""
        self.tree = tree
        self._vocab_size = vocab_size
        self._device = device
        self._biases: dict[Places, Bias | None] = {}

    def of(self, places: Places) -> Bias | None:
        """What makes the next tokens of phrases likelier; None if there are none."""
        if places not in self._biases:
            if len(self._biases) >= _MAX_KEPT:
                self._biases.clear()
            self._biases[places] = self._made(places)
        return self._biases[places]

    def _made(self, places: Places) -> Bias | None:
        bonuses = {
            token_id: bonus
            for token_id, bonus in self.tree.bonuses(places).items()
            if 0 <= token_id < self._vocab_size
        }
        if not bonuses:
            return None
        ids = torch.tensor(list(bonuses), dtype=torch.int64, device=self._device)
        return Bias(torch.tensor(list(bonuses.values()), dtype=torch.float32, device=self._device), ids)
