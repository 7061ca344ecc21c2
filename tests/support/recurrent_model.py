"""The toy model with a state beside its attention layer, a decayed sum of all rows, in each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sensorium.engine.models.base import StepBatch
from support.toy_model import DIM, ToyModel
from torch import Tensor

DECAY = 0.75


@dataclass
class ToyRecurrentModel(ToyModel):
    """Its state is in a tensor of slots."""

    def make_states(self, num_slots: int) -> Sequence[Tensor]:
        """One tensor, which holds rubbish until it is cleared."""
        self.states = torch.full((num_slots, DIM), 1e6)
        return (self.states,)

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """The toy model's hidden states, and the state behind each row."""
        hidden = super().forward(batch, cache)
        assert batch.rows.state_slots is not None
        row = 0
        for slot, num_rows in zip(batch.rows.state_slots.tolist(), batch.paged.num_queries, strict=True):
            for _ in range(num_rows):
                self.states[slot] = DECAY * self.states[slot] + self.embedding[batch.token_ids[row]]
                hidden[row] += self.states[slot]
                row += 1
        return hidden

    def dense_logits(
        self, token_ids: Sequence[int], media: Tensor | None = None, media_start: int = 0
    ) -> Tensor:
        """Of a whole sequence at once."""
        logits = super().dense_logits(token_ids, media, media_start)
        state = torch.zeros(DIM)
        for row, token in enumerate(token_ids):
            state = DECAY * state + self.embedding[token]
            logits[row] += state @ self.head.t()
        return logits
