"""The block pool under random histories of taking, registering, finding, sharing and freeing."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sensorium.engine.planning.kv.blocks import Block, BlockPool
from sensorium.engine.planning.kv.names import BlockHash

NUM_BLOCKS = 7


def name(number: int) -> BlockHash:
    return BlockHash(str(number).encode())


class PoolMachine(RuleBasedStateMachine):
    """The pool against a plain account of who holds what and what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS, block_size=4)
        self.holdings: list[tuple[Block, ...]] = []
        self.names: dict[Block, BlockHash] = {}
        self.released: list[Block] = []  # free blocks, longest free first

    @rule(count=st.integers(0, NUM_BLOCKS + 1))
    def allocate(self, count: int) -> None:
        free = self.released
        blocks = self.pool.allocate(count)
        if blocks is None:
            assert count > NUM_BLOCKS - len(self.held())
            return
        assert len(set(blocks)) == len(blocks) == count
        assert not self.held() & set(blocks)
        kept = [block for block in free if block in self.names]
        num_kept_taken = sum(block in self.names for block in blocks)
        assert num_kept_taken == max(0, count - (NUM_BLOCKS - len(self.held()) - len(kept))), (
            "blank ones first"
        )
        assert [block for block in blocks if block in self.names] == kept[:num_kept_taken], (
            "longest free first"
        )
        for block in blocks:
            self.names.pop(block, None)
        self.released = [block for block in free if block not in blocks]
        self.holdings.append(blocks)

    @precondition(lambda self: any(self.holdings))
    @rule(data=st.data(), number=st.integers(0, 5))
    def register(self, data: st.DataObject, number: int) -> None:
        block = data.draw(st.sampled_from(sorted(self.held())))
        self.pool.register(block, name(number))
        if block not in self.names and name(number) not in self.names.values():
            self.names[block] = name(number)

    @precondition(lambda self: any(self.holdings))
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.held())))
        if Counter(block for holding in self.holdings for block in holding)[block] == 1:
            self.pool.unregister(block)
            self.names.pop(block, None)
        else:
            with pytest.raises(AssertionError, match="holders"):
                self.pool.unregister(block)

    @rule(numbers=st.lists(st.integers(0, 5), unique=True))
    def find_and_share(self, numbers: list[int]) -> None:
        found = self.pool.find(map(name, numbers))
        by_name = {block_hash: block for block, block_hash in self.names.items()}
        known = [by_name.get(name(number)) for number in numbers]
        assert list(found) == (known[: known.index(None)] if None in known else known)
        self.pool.share(found)
        self.released = [block for block in self.released if block not in found]
        self.holdings.append(found)

    @precondition(lambda self: self.holdings)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        blocks = self.holdings.pop(data.draw(st.integers(0, len(self.holdings) - 1)))
        self.pool.free(blocks)
        self.released += [block for block in reversed(blocks) if block not in self.held()]

    def held(self) -> set[Block]:
        return {block for holding in self.holdings for block in holding}

    @invariant()
    def free_and_used_is_total(self) -> None:
        self.pool.check()
        used = Counter(block for holding in self.holdings for block in holding)
        assert self.pool.num_free + len(used) == self.pool.num_total
        assert all(self.pool.num_holders(block) == used[block] for block in range(NUM_BLOCKS))
        assert {block for block in range(NUM_BLOCKS) if self.pool.is_findable(block)} == set(self.names)
        assert self.pool.num_kept == len(set(self.names) - set(used))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_block_cannot_be_freed_twice() -> None:
    pool = BlockPool(2, block_size=4)
    blocks = pool.allocate(1)
    assert blocks is not None
    pool.free(blocks)
    with pytest.raises(ValueError, match="freed more often"):
        pool.free(blocks)
    with pytest.raises(ValueError, match="cannot be shared"):
        pool.share(blocks)
    pool.check()


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_blocks_for_tokens(tokens: int, blocks: int) -> None:
    assert BlockPool(2, block_size=4).num_blocks_for(tokens) == blocks


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0)])
def test_an_empty_pool_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="allowed: at least 1"):
        BlockPool(num_blocks, block_size)
