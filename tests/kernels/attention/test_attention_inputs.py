"""From projection to cache in one call: what norms, rotary embedding and writing give one after the other."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.attention.attention_inputs import HeadNorms, attention_inputs
from sensorium.kernels.attention.kv_cache import write_kv_reference
from sensorium.kernels.rms_norm import rms_norm_reference
from sensorium.kernels.rotary import apply_rotary_reference, rotary_table


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "kv_heads", "half"), [(1, 1, 4), (6, 2, 12), (16, 8, 64)])
@pytest.mark.parametrize("normed", [True, False])
def test_equals_its_parts(dtype: torch.dtype, heads: int, kv_heads: int, half: int, normed: bool) -> None:
    generator = torch.Generator().manual_seed(heads)
    qkv = torch.randn(5, heads + 2 * kv_heads, 2 * half, generator=generator).to(dtype)
    norms = torch.rand(2, 2 * half, generator=generator).to(dtype)
    table = rotary_table(torch.tensor([0, 3, 700, 9, 1]), 0.5 ** torch.arange(half))
    got = torch.randn(4, 2, kv_heads, 3, 2 * half, generator=generator).to(dtype)
    want, slots = got.clone(), torch.tensor([4, 0, 11, 2, 7])
    query = attention_inputs(qkv, HeadNorms(norms[0], norms[1], 1e-6) if normed else None, table, got, slots)
    parts = qkv.tensor_split((heads, heads + kv_heads), 1)
    turned = [
        apply_rotary_reference(rms_norm_reference(part, norm, 1e-6) if normed else part, table)
        for part, norm in zip(parts, norms, strict=False)
    ]
    write_kv_reference(want, slots, turned[1], parts[2])
    tolerance = 2e-6 if dtype is torch.float32 else 2**-6
    torch.testing.assert_close(query, turned[0], rtol=tolerance, atol=2 * tolerance)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=2 * tolerance)
    assert torch.equal(got[:, 1], want[:, 1])


@pytest.mark.parametrize("slot", [-1, 12])
def test_a_slot_outside_the_cache_is_an_error_and_nothing_is_written(slot: int) -> None:
    cache, norm = torch.zeros(4, 2, 2, 3, 32), torch.ones(32)
    table = rotary_table(torch.tensor([0, 1]), 0.5 ** torch.arange(16))
    with pytest.raises(IndexError, match=f"slot {slot} lies outside a cache of 4 blocks"):
        attention_inputs(
            torch.ones(2, 6, 32), HeadNorms(norm, norm, 1e-6), table, cache, torch.tensor([1, slot])
        )
    assert not cache.any()
