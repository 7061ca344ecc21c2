"""The best token of each row of logits; torch's own argmax runs on one element at a time on CPUs."""

from __future__ import annotations

import torch
from torch import Tensor

from .native import CODES, native_for
from .triton_jit import has_triton


def argmax(x: Tensor) -> Tensor:
    """x [rows, size] → int64 [rows]: the first largest element, or the first that is not a number."""
    if has_triton(x) and x.shape[1] and x.itemsize <= 4:
        from .triton_sampling import argmax as on_gpu

        return on_gpu(x)
    native = native_for(x)
    if native is None or not x.shape[1]:
        return argmax_reference(x)
    x = x.contiguous()
    rows, size = x.shape
    out = torch.empty(rows, dtype=torch.int64)
    native.argmax(CODES[x.dtype], x.data_ptr(), rows, size, out.data_ptr(), torch.get_num_threads())
    return out


def argmax_reference(x: Tensor) -> Tensor:
    """The same in plain torch."""
    return x.argmax(-1)
