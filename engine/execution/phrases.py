"""The bonuses of phrases as tensors: what is added to a row of logits where a sequence stands in their tree.

`engine/execution/logits.py` adds it.
"""

from __future__ import annotations

import torch

from ..text.phrases import FIRST, WITHIN, PhraseTree, Places
from .bias import Bias


class PhraseBiases:
    """Of one tree. Equal phrases share it, and so one operation per step and node."""

    def __init__(self, tree: PhraseTree, *, vocab_size: int, device: torch.device) -> None:
        """Ids outside the vocabulary are ignored."""
        self.tree = tree
        self._vocab_size = vocab_size
        self._device = device
        self._biases: dict[int, Bias] = {}

    def of(self, places: Places) -> list[Bias]:
        """What makes the next tokens of phrases likelier."""
        return [self._bias(node) for node in places if self.tree.next_of(node)]

    def _bias(self, node: int) -> Bias:
        bias = self._biases.get(node)
        if bias is None:
            phrases = self.tree.phrases
            bonus = phrases.begin if node in (FIRST, WITHIN) else phrases.go_on
            known = [token_id for token_id in self.tree.next_of(node) if 0 <= token_id < self._vocab_size]
            ids = torch.tensor(known, dtype=torch.int64, device=self._device)
            bias = self._biases[node] = Bias(torch.full((len(ids),), bonus, device=self._device), ids)
        return bias
