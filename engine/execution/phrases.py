"""The bonuses of phrases as tensors: what is added to a row of logits where a sequence stands in their tree.

`engine/execution/logits.py` adds it.
"""

from __future__ import annotations

from typing import Final

import torch

from ..text.phrases import PhraseTree, Places
from .bias import Bias

_MAX_KEPT: Final = 256
"""Most rows stand at a root."""


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
