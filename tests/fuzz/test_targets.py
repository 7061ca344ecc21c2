"""The seeds keep every law, and what the fuzzer found once stays mended."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.targets import TARGETS

SEEDS = Path(__file__).parent / "seeds"


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_was_found(name: str) -> None:
    files = sorted((SEEDS / name).iterdir())
    assert files
    for file in files:
        data = file.read_bytes()
        TARGETS[name](data)
        TARGETS[name](data[: len(data) // 2])
        TARGETS[name](bytes(byte ^ 0x10 if at % 97 == 5 else byte for at, byte in enumerate(data)))
