"""Memory that nobody has written to is not there yet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from sensorium.kernels.transfer import lazy_zeros

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zeros_can_be_written(dtype: torch.dtype) -> None:
    zeros = lazy_zeros((3, 5), dtype, CPU)
    assert (zeros.shape, zeros.dtype) == ((3, 5), dtype)
    assert not zeros.any()
    zeros[1] = 2
    assert zeros.sum() == 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_a_gibibyte_of_zeros_is_not_resident() -> None:
    before = resident_bytes()
    zeros = lazy_zeros((1 << 28,), torch.float32, CPU)
    zeros[-1] = 1
    assert zeros[0] == 0
    assert resident_bytes() - before < 1 << 26


def resident_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
