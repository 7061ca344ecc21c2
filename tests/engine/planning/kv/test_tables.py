"""What is found is the longest prefix that every group of layers and the states can serve."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from sensorium.engine.planning.kv.blocks import BlockPool
from sensorium.engine.planning.kv.groups import HOLE, PagedGroup
from sensorium.engine.planning.kv.names import BlockHash, name_in
from sensorium.engine.planning.kv.specs import ChunkedLocal, FullAttention, SlidingWindow
from sensorium.engine.planning.kv.states import StateSlots
from sensorium.engine.planning.kv.tables import GroupTables
from sensorium.engine.planning.limits import SchedulerConfig

SIZE = 4
SPECS = [FullAttention(), SlidingWindow(1), SlidingWindow(6), SlidingWindow(11), ChunkedLocal(8)]
NAMES = [BlockHash(bytes((index,)) * 32) for index in range(8)]


class KnownSnapshots(StateSlots):
    """States behind some numbers of blocks."""

    def __init__(self, known: Sequence[int]) -> None:
        self._known = known

    def longest(self, names: Sequence[BlockHash], num_blocks: int) -> int:
        """See `StateSlots`."""
        return max((each for each in self._known if each <= min(num_blocks, len(names))), default=0)


@given(
    specs=st.lists(st.sampled_from(SPECS), min_size=1, max_size=3),
    gone=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 7)), max_size=8),
    snapshots=st.none() | st.sets(st.integers(1, 8)),
)
def test_the_longest_prefix_that_all_can_serve(
    specs: list[FullAttention | SlidingWindow | ChunkedLocal],
    gone: set[tuple[int, int]],
    snapshots: set[int] | None,
) -> None:
    groups = tuple(PagedGroup(spec) for spec in specs)
    pool = BlockPool(8 * len(groups), SIZE)
    tables = GroupTables(SchedulerConfig(num_blocks=8 * len(groups), block_size=SIZE, groups=groups), pool)
    blocks = {}
    for number in range(len(groups)):
        taken = pool.allocate(8)
        assert taken is not None
        for index, block in enumerate(taken):
            if (number, index) not in gone:
                pool.register(block, name_in(number, NAMES[index]))
                blocks[number, index] = block

    def can_serve(num_blocks: int) -> bool:
        if snapshots is not None and num_blocks not in {0, *snapshots}:
            return False
        return all(
            (number, index) in blocks
            for number, spec in enumerate(specs)
            for index in range(num_blocks)
            if index == num_blocks - 1 or index >= spec.first_needed(num_blocks * SIZE) // SIZE
        )

    longest = max(number for number in range(9) if can_serve(number))
    found, given_tables = tables.find(NAMES, None if snapshots is None else KnownSnapshots([*snapshots]))
    assert found == longest
    for number, (spec, table) in enumerate(zip(specs, given_tables, strict=True)):
        first = min(spec.first_needed(longest * SIZE) // SIZE, longest)
        assert table == (
            *(HOLE for _ in range(first)),
            *(blocks[number, index] for index in range(first, longest)),
        )
