"""What a machine can do at most, and how kernels that take turns compare with it; for `bench_kernels.py`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

Contender = Callable[[int], object]
"""Takes the number of the round, to choose cold data."""


@dataclass(frozen=True)
class Ceilings:
    """Bytes and operations a second."""

    read: float
    product: float


def times_of(contenders: dict[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Sorted seconds of each contender, A B A B."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run(number)
            if number:
                times[name].append(time.perf_counter() - begin)
    return {name: sorted(values) for name, values in times.items()}


def measure_ceilings(dtype: torch.dtype, rounds: int) -> Ceilings:
    """The fastest of a few rounds: a ceiling is what was once reached."""
    large = torch.zeros(1 << 28, dtype=torch.int32)
    square = torch.randn(2048, 2048).to(dtype)
    times = times_of(
        {"read": lambda _: large.sum(dtype=torch.int32), "product": lambda _: square @ square}, rounds
    )
    return Ceilings(read=large.nbytes / times["read"][0], product=2 * 2048**3 / times["product"][0])


def report(
    title: str,
    contenders: dict[str, Contender],
    num_bytes: float,
    operations: float,
    at: Ceilings,
    rounds: int,
) -> None:
    """One line per contender; the first is ours."""
    floor = max(num_bytes / at.read, operations / at.product)
    times = times_of(contenders, rounds)
    ours = statistics.median(next(iter(times.values())))
    for name, values in times.items():
        median, low, high = (
            statistics.median(values),
            values[len(values) // 10],
            values[-1 - len(values) // 10],
        )
        print(
            f"{title:<26} {name:<9} {median * 1e3:9.3f} ms ({low * 1e3:8.3f} – {high * 1e3:8.3f})"
            f" {num_bytes / median / 1e9:6.1f} GB/s {operations / median / 1e9:7.1f} GFLOP/s"
            f"  share {floor / values[0]:5.0%}  {median / ours:6.2f} × ours",
            flush=True,
        )
