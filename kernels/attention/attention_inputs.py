"""From one projection to what attention reads: norms of query and key heads where a model has them, their
rotary embedding, and the keys and values in the cache.

One pass does it all, where there is one; elsewhere the four operations it is made of follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..gpu.jit import has_triton
from ..native import CODES, native_for
from ..rms_norm import rms_norm
from ..rotary import RotaryTable, apply_rotary
from .kv_cache import check_written, takes_codes, write_kv
from .kv_quantization import CODED, head_size


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Weights [dim] of the RMS norms of every query head and every key head."""

    query: Tensor
    key: Tensor
    eps: float


def attention_inputs(
    qkv: Tensor,
    norms: HeadNorms | None,
    table: RotaryTable,
    cache: Tensor,
    slots: Tensor,
) -> Tensor:
    """qkv [rows, heads + 2 · kv_heads, dim], cache and slots as `write_kv` takes them → queries [rows, heads,
    dim]; keys and values are in the cache then. Raises IndexError as `write_kv` does."""
    coded = cache.dtype is CODED
    if has_triton(qkv) and not coded:
        from ..gpu.attention_inputs import attention_inputs as on_gpu

        return on_gpu(qkv, norms, table, cache, slots)
    native = native_for(qkv)
    rows, vectors, dim = qkv.shape
    _, _, kv_heads, block_size, _ = cache.shape
    heads = vectors - 2 * kv_heads
    weights = () if norms is None else (norms.query, norms.key)
    dtypes = {each.dtype for each in (qkv, *weights)} | ({cache.dtype} if not coded else set())
    whole = (*weights, table.cos, table.sin, cache, slots)
    if coded and not takes_codes(native, cache):
        return _one_after_the_other(qkv, norms, table, cache, slots)
    if native is None or dim % 32 or len(dtypes) > 1 or qkv.stride()[1:] != (dim, 1):
        return _one_after_the_other(qkv, norms, table, cache, slots)
    assert all(each.is_contiguous() for each in whole), "norms, tables, cache and slots lie in one piece"
    assert table.cos.shape == table.sin.shape == (rows, dim // 2)
    assert {table.cos.dtype, table.sin.dtype} == {torch.float32}
    assert (slots.shape, head_size(cache)) == ((rows,), dim)
    assert all(each.shape == (dim,) for each in weights)
    query = torch.empty((rows, heads, dim), dtype=qkv.dtype)
    bad = native.attention_inputs(
        CODES[qkv.dtype],
        coded,
        qkv.data_ptr(),
        qkv.stride(0),
        rows,
        heads,
        kv_heads,
        dim // 2,
        None if norms is None else norms.query.data_ptr(),
        None if norms is None else norms.key.data_ptr(),
        0.0 if norms is None else norms.eps,
        table.cos.data_ptr(),
        table.sin.data_ptr(),
        cache.data_ptr(),
        cache.shape[0],
        block_size,
        slots.data_ptr(),
        query.data_ptr(),
        torch.get_num_threads(),
    )
    check_written(bad, slots, cache)
    return query


def _one_after_the_other(
    qkv: Tensor, norms: HeadNorms | None, table: RotaryTable, cache: Tensor, slots: Tensor
) -> Tensor:
    kv_heads = cache.shape[2]
    heads = qkv.shape[1] - 2 * kv_heads
    query, key, value = qkv.tensor_split((heads, heads + kv_heads), 1)
    if norms is not None:
        query, key = rms_norm(query, norms.query, norms.eps), rms_norm(key, norms.key, norms.eps)
    write_kv(cache, slots, apply_rotary(key, table), value)
    return apply_rotary(query, table)
