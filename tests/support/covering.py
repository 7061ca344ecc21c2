"""Few random examples in place of many: enough that any two values that stood together still do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def covering_seeds(draw: Callable[[random.Random], DataclassInstance], number: int) -> list[int]:
    """Of the seeds below `number`, some whose examples have every two fields' values together that any has.

    Each time the seed that brings most is taken; nested examples count as their fields.
    """
    pairs = [
        set(combinations(sorted(_values(asdict(draw(random.Random(seed))))), 2)) for seed in range(number)
    ]
    missing, chosen = set[object]().union(*pairs), list[int]()
    while missing:
        chosen.append(max(range(number), key=lambda seed: len(pairs[seed] & missing)))
        missing -= pairs[chosen[-1]]
    return sorted(chosen)


def _values(fields: dict[str, object], under: str = "") -> list[str]:
    found: list[str] = []
    for name, value in fields.items():
        found += (
            _values(value, f"{under}{name}.") if isinstance(value, dict) else [f"{under}{name}={value!r}"]
        )
    return found
