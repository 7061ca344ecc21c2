"""Memory nobody has written to is not there yet; what moves into large pages stays what and where it was."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from sensorium.kernels import host_memory
from sensorium.kernels.host_memory import LARGE_PAGE, Ahead, lazy_zeros, recycled, use_large_pages
from sensorium.kernels.linear.float32_tiles import TiledWeight
from sensorium.kernels.linear.linear import DenseWeight, linear, pack_linear
from sensorium.kernels.linear.onednn import memory_of
from sensorium.kernels.linear.quantized_linear import quantize_linear
from sensorium.kernels.linear.weight_codes import Grid
from torch import Tensor

CPU = torch.device("cpu")
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/smaps").exists(), reason="what memory is there is read from /proc"
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zeros_can_be_written(dtype: torch.dtype) -> None:
    zeros = lazy_zeros((3, 5), dtype, CPU)
    assert (zeros.shape, zeros.dtype) == ((3, 5), dtype)
    assert not zeros.any()
    zeros[1] = 2
    assert zeros.sum() == 10


@needs_proc
def test_a_gibibyte_of_zeros_is_not_resident() -> None:
    before = resident_bytes()
    zeros = lazy_zeros((1 << 28,), torch.float32, CPU)
    zeros[-1] = 1
    assert zeros[0] == 0
    assert resident_bytes() - before < 1 << 26


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(2000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("20 s were not enough")


@needs_proc
def test_pages_are_there_before_they_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_MAX_AHEAD", 1 << 26)
    before = resident_bytes()
    cache = lazy_zeros((2, 64, 2, 1, 16, 1 << 15), torch.float32, CPU)  # 4 MiB a block and layer
    cache[:, 0] = 7
    ahead = Ahead(cache)
    with ahead.waiting([]):
        held = resident_bytes()
        threading.Event().wait(0.1)
        assert resident_bytes() - held <= LARGE_PAGE  # what was under way
    wait_until(lambda: resident_bytes() - before > 60 << 20)
    assert resident_bytes() - before < 80 << 20

    def is_step_ahead() -> bool:
        with ahead.waiting([40, 30]):
            return resident_bytes() - before > 120 << 20

    wait_until(is_step_ahead)
    assert resident_bytes() - before < 144 << 20
    assert (cache[:, 0] == 7).all()


def test_memory_is_used_again_once_nobody_reads_it() -> None:
    size = 7 * LARGE_PAGE  # of its own, so that no other test has left such
    first = recycled((size,), torch.uint8, CPU)
    address, part = first.data_ptr(), first[5:6]
    del first
    other = recycled((size,), torch.uint8, CPU)
    assert other.data_ptr() != address  # a view still reads it
    del part
    again = recycled((size // 4 - 100, 2), torch.bfloat16, CPU)  # a little less does, too
    assert (again.data_ptr(), again.shape) == (address, (size // 4 - 100, 2))
    assert recycled((LARGE_PAGE,), torch.uint8, CPU).data_ptr() != address


@needs_proc
def test_what_is_kept_to_be_used_again_has_a_bound() -> None:
    before = resident_bytes()
    for _ in range(3):
        held = [recycled((1 << 26,), torch.uint8, CPU).zero_() for _ in range(4)]
        del held
    assert resident_bytes() - before < (1 << 27) + (1 << 26)


def test_threads_that_take_and_give_back_never_share() -> None:
    def work(number: int) -> bool:
        mine = [recycled((1 << 20,), torch.uint8, CPU).fill_(number) for _ in range(3)]
        return all(bool((each == number).all()) for each in mine)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(200)))


@pytest.mark.parametrize("num_bytes", [1, 5000, 3 * LARGE_PAGE + 1])
def test_what_is_moved_stays_what_and_where_it_was(num_bytes: int) -> None:
    around = [torch.randint(0, 256, (num_bytes,), dtype=torch.uint8) for _ in range(3)]
    before, addresses = [each.clone() for each in around], [each.data_ptr() for each in around]
    use_large_pages(addresses[1], num_bytes)
    assert all(map(torch.equal, around, before))
    assert [each.data_ptr() for each in around] == addresses
    around[1].zero_()
    assert not around[1].any()
    assert torch.equal(around[2], before[2])


@needs_proc
@pytest.mark.parametrize("bits", [8, 16])
def test_weights_lie_in_large_pages_where_linux_has_any(bits: int) -> None:
    probe = torch.ones(4 * LARGE_PAGE, dtype=torch.uint8)
    use_large_pages(probe.data_ptr(), probe.nbytes)
    if not large_bytes(probe):
        pytest.skip("this machine gives none now")
    weight = torch.randn(4096, 2048)
    if bits == 8:
        packed = quantize_linear(weight, None, Grid(8, 128))
        assert large_bytes(packed.packed) >= LARGE_PAGE
    else:
        made = pack_linear(weight.bfloat16())
        memory = _where(made)
        if memory is None:
            pytest.skip("it is left to torch here")
        assert large_bytes_at(*memory) >= LARGE_PAGE
        assert linear(torch.ones(1, 2048).bfloat16(), made).isfinite().all()


def _where(made: DenseWeight | TiledWeight) -> tuple[int, int] | None:
    if isinstance(made, TiledWeight):
        return made.memory.data_ptr(), made.memory.nbytes
    return memory_of(made.weight) if made.packed else None


def large_bytes(tensor: Tensor) -> int:
    """Of the mappings it lies in."""
    return large_bytes_at(tensor.data_ptr(), tensor.nbytes)


def large_bytes_at(first: int, num_bytes: int) -> int:
    """Of the mappings such memory lies in."""
    total, inside, last = 0, False, first + num_bytes
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if (found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            inside = int(found[1], 16) < last and first < int(found[2], 16)
        elif inside and line.startswith("AnonHugePages:"):
            total += int(line.split()[1]) * 1024
    return total


def resident_bytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
