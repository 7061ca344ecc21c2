"""From host to device without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor on `device`. Copies to a GPU go from pinned memory in the order of its stream: the host
    does not wait for what was asked of it before."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
