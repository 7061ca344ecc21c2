"""What is gathered is what was written, however much was announced, and is not moved on the way."""

from __future__ import annotations

import os
import sys

import pytest
from sensorium.actors.runtime.byte_gatherer import gathered, gathering

PIECE = os.urandom(64 * 1024)


@pytest.mark.parametrize("announced", ["", "0", "70000", "36000000", "9" * 30, "two"])
@pytest.mark.parametrize("num_pieces", [0, 1, 17, 600])
def test_pieces_make_the_whole(announced: str, num_pieces: int) -> None:
    whole = gathering(announced)
    for _ in range(num_pieces):
        whole.write(PIECE)
    assert gathered(whole) == num_pieces * PIECE


@pytest.mark.parametrize("announced", ["", "33000000"])
def test_what_is_large_is_written_in_place(announced: str) -> None:
    whole = gathering(announced)
    size = sys.getsizeof(whole)
    for _ in range(0, 33_000_000, len(PIECE)):
        whole.write(PIECE)
        assert sys.getsizeof(whole) == size
