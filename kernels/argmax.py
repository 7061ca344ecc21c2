"""The best token of each row of logits; torch's own argmax runs on one element at a time on CPUs."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .gpu.jit import has_triton
from .native import CODES, native_for


class Best(NamedTuple):
    """Of each row: the first largest element, or the first that is not a number, as int64 [rows]; its value
    [rows]; and the logarithm of the sum of all exponentials [rows], if it was asked for."""

    token_ids: Tensor
    values: Tensor
    log_sums: Tensor | None


def best_of(x: Tensor, *, with_log_sums: bool = False) -> Best:
    """Of float32 x [rows, size]."""
    native = native_for(x)
    if native is None or not x.shape[1] or not x.is_contiguous():
        return best_reference(x, with_log_sums=with_log_sums)
    rows, size = x.shape
    found = Best(
        torch.empty(rows, dtype=torch.int64),
        torch.empty(rows),
        torch.empty(rows) if with_log_sums else None,
    )
    native.best(
        CODES[x.dtype],
        x.data_ptr(),
        rows,
        size,
        found.token_ids.data_ptr(),
        found.values.data_ptr(),
        None if found.log_sums is None else found.log_sums.data_ptr(),
        torch.get_num_threads(),
    )
    return found


def best_reference(x: Tensor, *, with_log_sums: bool = False) -> Best:
    """The same in torch, but for the best itself."""
    best = argmax(x)
    values = x.gather(1, best[:, None])[:, 0]
    return Best(best, values, x.logsumexp(-1) if with_log_sums else None)


def argmax(x: Tensor) -> Tensor:
    """x [rows, size] → int64 [rows]: the first largest element, or the first that is not a number."""
    if has_triton(x) and x.shape[1] and x.itemsize <= 4:
        from .gpu.sampling import argmax as on_gpu

        return on_gpu(x)
    native = native_for(x)
    if native is None or not x.shape[1]:
        return argmax_reference(x)
    x = x.contiguous()
    rows, size = x.shape
    out = torch.empty(rows, dtype=torch.int64)
    threads = torch.get_num_threads()
    native.best(CODES[x.dtype], x.data_ptr(), rows, size, out.data_ptr(), None, None, threads)
    return out


def argmax_reference(x: Tensor) -> Tensor:
    """The same in plain torch."""
    return x.argmax(-1)
