"""What a KV block's content is called: a hash over everything its keys and values depend on.

That is the block's tokens, the media behind its placeholders, and all that precedes it (by the hash of the
block before it; before the first one is the root: the model, and what holds for the whole sequence).
Equal names, equal content up to rounding. Pure; read `engine/planning/kv/blocks.py` next for where names lead
to blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import NewType

import msgspec

from ....protocols.engine.messages import AnyRequest

BlockHash = NewType("BlockHash", bytes)
_DIGEST_BYTES = 32


@cache
def _block_packer(block_size: int) -> Callable[..., bytes]:
    """Packs exactly that many token ids."""
    return Struct(f"<{block_size}q").pack


def name_in(group: int, block_hash: BlockHash) -> BlockHash:
    """What a group of layers calls its block of this content; each has its own."""
    return BlockHash(block_hash + bytes((group,))) if group else block_hash


class BlockHasher:
    """Names of the full blocks of one growing sequence, computed once each."""

    __slots__ = ("_block_size", "_next_span", "_pack", "_spans", "hashes", "root")

    def __init__(
        self, request: AnyRequest, block_size: int, fingerprint: str = "", *, by_whole_prompt: bool = False
    ) -> None:
        """`fingerprint` names what computes the blocks: checkpoint, dtype, adapter. `by_whole_prompt`: each
        block depends on all of the prompt, also on what follows it."""
        self._block_size = block_size
        self._pack = _block_packer(block_size)
        self._spans = request.media
        self._next_span = 0  # the first that ends behind the named blocks
        encoder = request.encoder_hash, request.encoder_span
        root: tuple[object, ...] = (
            ("model", fingerprint),
            ("encoder", encoder),
            ("salt", request.cache_salt),
        )
        if by_whole_prompt:
            root += (("prompt", request.prompt_token_ids, request.media),)
        # As it is written: a text from Python may have halves of characters, which nothing else takes.
        self.root = BlockHash(blake2b(repr(root).encode(), digest_size=_DIGEST_BYTES).digest())
        self.hashes: list[BlockHash] = []

    def extend(self, tokens: Sequence[int], num_blocks: int) -> list[BlockHash]:
        """Names of the first `num_blocks` blocks of `tokens` at least; the list stays this object's."""
        hashes = self.hashes
        first, size = len(hashes), self._block_size
        if num_blocks <= first:
            return hashes
        parent = hashes[-1] if hashes else self.root
        for index in range(first, num_blocks):
            named = parent + self._pack(*tokens[index * size : (index + 1) * size])
            if self._next_span < len(self._spans):
                named += self._media(index * size, (index + 1) * size)
            parent = BlockHash(blake2b(named, digest_size=_DIGEST_BYTES).digest())
            hashes.append(parent)
        return hashes

    def _media(self, start: int, end: int) -> bytes:
        """Each item that touches the block, where it begins relative to it, and where in it it ends."""
        touching: list[tuple[str, str, int, int, tuple[int, int, int] | None, int | None]] = []
        for span in self._spans[self._next_span :]:
            if span.start >= end:
                break
            span_end = span.start + span.num_tokens
            here = min(span_end, end) - start
            touching.append(
                ("media", span.content_hash, span.start - start, here, span.grid, span.since_start)
            )
            if span_end <= end:
                self._next_span += 1
        return msgspec.msgpack.encode(touching) if touching else b""
