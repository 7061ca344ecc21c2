"""The pool of KV blocks: which of the device's fixed-size blocks are free, who shares them, what is in them.

Pure bookkeeping: blocks are integers, the tensors behind them belong to the runner. A block whose content is
complete and known is *findable* by the hash of that content (`engine/planning/kv/names.py`), also after
its last holder let go of it, until it is taken for something else. Read `engine/planning/kv/space.py` next
for who takes blocks and when they come back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from .names import BlockHash

Block = int  # an index into the runner's KV tensors


class BlockPool:
    """Counts the holders of each block; a block without holders is free.

    Invariants: a block is free exactly if its count is 0, and then in exactly one of two places: among the
    blank blocks, or, if it is findable, among those in order of their release. A hash names one block.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; allowed: at least 1")
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}; allowed: at least 1")
        self.block_size = block_size
        self._counts = [0] * num_blocks
        # Last in, first out: the block freed last is the likeliest to be in the device's caches.
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._kept: OrderedDict[Block, None] = OrderedDict()  # free and findable; longest free first
        self._hashes: list[BlockHash | None] = [None] * num_blocks
        self._by_hash: dict[BlockHash, Block] = {}

    @property
    def num_total(self) -> int:
        """Blocks in the pool."""
        return len(self._counts)

    @property
    def num_free(self) -> int:
        """Blocks nobody holds, findable ones included."""
        return len(self._blank) + len(self._kept)

    @property
    def num_kept(self) -> int:
        """Blocks nobody holds that can still be found."""
        return len(self._kept)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` positions need."""
        return -(-num_tokens // self.block_size)

    def num_holders(self, block: Block) -> int:
        """How often `block` is held."""
        return self._counts[block]

    def is_findable(self, block: Block) -> bool:
        """Whether `block` is registered: nobody may write to it."""
        return self._hashes[block] is not None

    def allocate(self, count: int) -> tuple[Block, ...] | None:
        """Take `count` free blocks, each held once; None (and nothing taken) if there are too few.

        Blank ones first, then what was free longest; that is no longer findable.
        """
        if count == 1 and self._blank:  # what decoding asks for
            block = self._blank.pop()
            self._counts[block] = 1
            return (block,)
        if count > self.num_free:
            return None
        num_blank = min(count, len(self._blank))
        taken = [self._blank.pop() for _ in range(num_blank)]
        for _ in range(count - num_blank):
            block, _ = self._kept.popitem(last=False)
            self._forget(block)
            taken.append(block)
        for block in taken:
            self._counts[block] = 1
        return tuple(taken)

    def find(self, hashes: Iterable[BlockHash]) -> tuple[Block, ...]:
        """The blocks of the longest findable run from the front of `hashes`; `share` those to keep."""
        found: list[Block] = []
        for block_hash in hashes:
            block = self._by_hash.get(block_hash)
            if block is None:
                break
            found.append(block)
        return tuple(found)

    def get(self, block_hash: BlockHash) -> Block | None:
        """The block with this content, if there is one."""
        return self._by_hash.get(block_hash)

    def share(self, blocks: Iterable[Block]) -> None:
        """Hold findable or held blocks once more each; free ones are free no longer."""
        for block in blocks:
            if self._counts[block] == 0:
                if block not in self._kept:
                    raise ValueError(f"block {block} is free and cannot be shared")
                del self._kept[block]
            self._counts[block] += 1

    def free(self, blocks: Sequence[Block]) -> None:
        """Let go of a sequence's blocks, once each; its tail is reused before its head."""
        for block in reversed(blocks):
            if self._counts[block] == 0:
                raise ValueError(f"block {block} is freed more often than it was taken")
            self._counts[block] -= 1
            if self._counts[block] == 0:
                if self._hashes[block] is None:
                    self._blank.append(block)
                else:
                    self._kept[block] = None

    def register(self, block: Block, block_hash: BlockHash) -> None:
        """Make a held block findable: it is full, and the step that filled it came back without error.

        If another block has this content already, that one stays the one to be found.
        """
        assert self._counts[block] > 0, f"block {block} is free"
        if block_hash not in self._by_hash and self._hashes[block] is None:
            self._by_hash[block_hash] = block
            self._hashes[block] = block_hash

    def unregister(self, block: Block) -> None:
        """Let the only holder of a block write to it: it can no longer be found."""
        assert self._counts[block] == 1, f"block {block} has {self._counts[block]} holders"
        if self._hashes[block] is not None:
            self._forget(block)

    def check(self) -> None:
        """Assert the invariants."""
        free = [*self._blank, *self._kept]
        assert len(set(free)) == len(free), "a block is free twice"
        assert all(count >= 0 for count in self._counts)
        assert set(free) == {block for block, count in enumerate(self._counts) if count == 0}
        assert all(self._hashes[block] is None for block in self._blank)
        assert all(self._hashes[block] is not None for block in self._kept)
        registered = {block: block_hash for block, block_hash in enumerate(self._hashes) if block_hash}
        assert registered == {block: block_hash for block_hash, block in self._by_hash.items()}

    def _forget(self, block: Block) -> None:
        block_hash = self._hashes[block]
        assert block_hash is not None
        del self._by_hash[block_hash]
        self._hashes[block] = None
