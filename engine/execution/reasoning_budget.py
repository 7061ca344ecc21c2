"""How long an answer may still think: where it stands in its budget, and the token that ends thoughts there.

Pure. `engine/execution/sequence.py` follows the tokens of an answer, `engine/execution/logits.py` ends the
thoughts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...protocols.engine.messages import ReasoningBudget


class ReasoningState(NamedTuple):
    """Where one answer stands."""

    budget: ReasoningBudget
    num_left: int
    """Tokens that may still be thought."""
    is_thinking: bool
    num_begun: int = 0
    """Tokens of `ReasoningBudget.start` that the answer ends in, outside of thoughts."""

    def follow(self, token_ids: Iterable[int]) -> ReasoningState:
        """Where it stands behind these."""
        budget, num_left, is_thinking, num_begun = self
        for token_id in token_ids:
            if is_thinking and token_id not in budget.ends:
                num_left -= 1
                continue
            is_thinking = False  # what ends thoughts may begin others
            if token_id != budget.start[num_begun]:
                num_begun = 0
            num_begun += token_id == budget.start[num_begun]
            if num_begun == len(budget.start):
                is_thinking, num_begun = True, 0
        return ReasoningState(budget, num_left, is_thinking, num_begun)

    @property
    def must_end(self) -> bool:
        """Whether the first of `ReasoningBudget.ends` comes next."""
        return self.is_thinking and self.num_left <= 0


def beginning(budget: ReasoningBudget) -> ReasoningState:
    """Of an answer that has not begun."""
    return ReasoningState(budget, budget.num_tokens, budget.is_open)
