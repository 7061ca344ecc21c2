"""What is written is read back, from where it belongs, both ways."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.attention.kv_cache import gather_kv, write_kv, write_kv_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dim", [3, 24, 128])
def test_gives_back_what_was_written(dtype: torch.dtype, dim: int) -> None:
    cache, expected = torch.zeros(2, 5, 2, 2, 4, dim, dtype=dtype)
    projection = torch.randn(6, 7, dim).to(dtype)
    key, value = projection[:, 1:3], projection[:, 4:6]
    slots = torch.tensor([10, 11, 0, 1, 2, 19])
    write_kv(cache, slots, key, value)
    write_kv_reference(expected, slots, key, value)
    assert torch.equal(cache, expected)
    got_key, got_value = gather_kv(cache, torch.tensor([0, 3]), 3)
    assert torch.equal(got_key, key[2:5].transpose(0, 1))
    assert torch.equal(got_value, value[2:5].transpose(0, 1))


@pytest.mark.parametrize("slot", [-1, 8])
def test_a_slot_outside_writes_nothing(slot: int) -> None:
    cache = torch.zeros(2, 2, 1, 4, 16)
    with pytest.raises(IndexError, match="outside"):
        write_kv(cache, torch.tensor([0, slot]), torch.ones(2, 1, 16), torch.ones(2, 1, 16))
    assert not cache.any()
