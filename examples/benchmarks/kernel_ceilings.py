"""What a machine can do at most, and how contenders that take turns compare with it; for `bench_kernels.py`,
`bench_engine.py` and `bench_steps.py`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

Clock = Callable[[], float]
Contender = Callable[[int], object]
"""Takes the number of the round, to choose cold data."""


def every_round(work: Callable[[], object]) -> Contender:
    """One that does the same in all rounds."""
    return lambda _: work()


@dataclass(frozen=True)
class Ceilings:
    """Bytes and operations a second."""

    read: float
    product: float


def times_of(
    contenders: dict[str, Contender], rounds: int, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each contender, A B A B; a round before the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, run in contenders.items():
            begin = clock()
            run(number)
            if number:
                times[name].append(clock() - begin)
    return times


def spread(values: list[float]) -> tuple[float, float, float]:
    """The median, and where 10 % are below and above."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]


def read_rate(rounds: int) -> float:
    """Bytes a second that all threads read."""
    large = torch.zeros(1 << 28, dtype=torch.int32)
    return large.nbytes / min(times_of({"read": lambda _: large.sum(dtype=torch.int32)}, rounds)["read"])


def measure_ceilings(dtype: torch.dtype, rounds: int) -> Ceilings:
    """The fastest of a few rounds: a ceiling is what was once reached."""
    square = torch.randn(2048, 2048).to(dtype)
    product_s = min(times_of({"product": lambda _: square @ square}, rounds)["product"])
    return Ceilings(read=read_rate(rounds), product=2 * 2048**3 / product_s)


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
        median, low, high = spread(values)
        print(
            f"{title:<26} {name:<9} {median * 1e3:9.3f} ms ({low * 1e3:8.3f} – {high * 1e3:8.3f})"
            f" {num_bytes / median / 1e9:6.1f} GB/s {operations / median / 1e9:7.1f} GFLOP/s"
            f"  share {floor / min(values):5.0%}  {median / ours:6.2f} × ours",
            flush=True,
        )
