"""How much of one row's share of a state is left at a later row."""

from __future__ import annotations

import torch
from torch import Tensor


def decays_between(decays: Tensor) -> Tensor:
    """Logarithmic decays from the front [heads, rows, 1] → what is left at each row (second dimension) of
    each row up to it (third); 0 for later ones. Of differences, so that nothing overflows."""
    num_rows = decays.shape[1]
    later = torch.ones(num_rows, num_rows, dtype=torch.bool, device=decays.device).triu(1)
    return (decays - decays.mT).masked_fill(later, float("-inf")).exp()
