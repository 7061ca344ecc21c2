"""Shares the processors of a machine, and its GPUs, among processes that run the same models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...engine.control_groups import num_processors, processors_by_core


def shared_cores(num_processes: int) -> list[tuple[int, ...]]:
    """The processors of each process: as many whole cores each as there are, next to each other.

    Empty tuples, which mean all processors, where there are fewer cores than processes, or the system pins
    none.
    """
    cores = processors_by_core()
    if len(cores) < num_processes or num_processors() < num_processes:
        return [()] * num_processes
    bounds = [len(cores) * index // num_processes for index in range(num_processes + 1)]
    return [
        tuple(sorted(processor for core in cores[start:end] for processor in core))
        for start, end in pairwise(bounds)
    ]


def shared_devices(device: str, num_processes: int) -> list[str]:
    """The device of each process, where `device` may name several: `cuda:0,1` is `cuda:0` and `cuda:1` in
    turn."""
    kind, _, numbers = device.partition(":")
    named: Sequence[str] = [f"{kind}:{number}" for number in numbers.split(",")] if numbers else [device]
    return [named[index % len(named)] for index in range(num_processes)]
