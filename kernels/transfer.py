"""From host to device without waiting for it, and large memory without touching it."""

from __future__ import annotations

import math
import mmap

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A host tensor on `device`. Copies to a GPU go from pinned memory in the order of its stream: the host
    does not wait for what was asked of it before."""
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, which on a CPU take memory only where they have been written to."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    pages = mmap.mmap(-1, max(1, math.prod(shape) * dtype.itemsize))
    return torch.frombuffer(pages, dtype=dtype, count=math.prod(shape)).view(shape)
