"""Autobahn's cases, a section at a time; `support/autobahn.py` says what each is, and where we differ."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import trio
from support.autobahn import DIFFERENT, MAX_MESSAGE_BYTES, MIB, NUM_CASES, Case, cases, run_case
from support.wire import Served, connected, serving

pytestmark = pytest.mark.slow

AT_ONCE = 16


def section(number: str) -> int:
    return int(number.split(".")[0])


def is_quick(case: Case) -> bool:
    """Frames have a rate: thousands of them take seconds, and so do thousands of packets."""
    num_bytes = sum(len(data) for data, _ in case.parts)
    return len(case.parts) < 100 and num_bytes <= 5 * MIB and num_bytes / (case.chop or num_bytes) < 1000


def test_every_case_of_the_list_is_there() -> None:
    assert Counter(map(section, cases())) == NUM_CASES
    assert set(DIFFERENT) < set(cases())


def test_the_manual_names_where_we_differ() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
    assert all(f"{number}" in manual for number in DIFFERENT)


@pytest.mark.parametrize("number", NUM_CASES)
async def test_a_section(number: int) -> None:
    found: dict[str, object] = {}
    limit = trio.CapacityLimiter(AT_ONCE)

    async def run(server: Served, name: str, case: Case) -> None:
        async with limit, connected(server.port) as peer:
            frames, code = await run_case(peer, case, within_s=60.0)
        found[name] = (None if case.frames is None else tuple(frames), code)

    # A case of 4 MiB in frames of 64 bytes is 65,536 frames: not quick either.
    mine = {
        name: case
        for name, case in cases().items()
        if section(name) == number and is_quick(case) and not name.startswith(("9.3.", "9.4."))
    }
    mine |= {name: cases()[name] for name in ("9.3.5", "9.4.9") if number == 9}
    async with serving(max_message_bytes=MAX_MESSAGE_BYTES) as server, trio.open_nursery() as nursery:
        for name, case in mine.items():
            nursery.start_soon(run, server, name, case)
    assert found == {name: (case.frames, case.code) for name, case in mine.items()}
    assert len(found) == NUM_CASES[number] or number == 9
