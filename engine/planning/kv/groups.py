"""Which layers share a block table, and what a block of all groups takes: from layers to a cache's layout.

Blocks of all groups come from one pool and are of one size, so that no memory waits for a kind of layer that
nobody needs at the time (`docs/decisions/0023-cache-groups.md`). Layers of one spec are split into groups
of as many as the rarest paged spec has; the last group of a spec may have fewer, and its blocks are part
empty then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import Final, NamedTuple

from .specs import CrossAttention, FullAttention, LayerSpec, NoCache, PagedSpec, SharedWith, State

HOLE: Final = -1
"""The entry of a block table whose block slid out of the window. A kernel reads no entry before the first
position its rows need; a runner that meets this one refuses the step."""


@dataclass(frozen=True, slots=True)
class PagedGroup:
    """Layers that share a block table."""

    spec: PagedSpec
    layers: tuple[int, ...] = ()
    looks_ahead: bool = False
    """Whether what it holds of a token depends on the next one, too, as in layers of a draft model that
    computes with the model's hidden states: its block then has the name of the one after it."""

    def max_blocks(self, num_tokens: int, block_size: int, max_tokens_per_step: int) -> int:
        """The most blocks a sequence of so many tokens ever holds, fed at most so many in a step."""
        num_blocks = -(-num_tokens // block_size)
        if self.spec.reach is None:
            return num_blocks
        return min(num_blocks, (self.spec.reach + max_tokens_per_step) // block_size + 2)

    def serves(self, table: Sequence[int], num_tokens: int, block_size: int) -> bool:
        """Whether a table has what a row behind `num_tokens` tokens needs. Holes are at its front only."""
        first, end = self.spec.first_needed(num_tokens) // block_size, -(-num_tokens // block_size)
        return end <= len(table) and (first >= end or table[first] != HOLE)


ONE_GROUP: Final = (PagedGroup(FullAttention()),)
"""All layers attend to all tokens."""


class Place(NamedTuple):
    """Where a layer's cache lies: under the table of a group, as one of the layers of each block."""

    group: int
    part: int


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """How the caches of a model's layers lie in the pool of blocks and the pool of state slots."""

    groups: tuple[PagedGroup, ...]
    token_bytes: int
    """Of one token in one block: the same in each group."""
    state_bytes: int
    """Of one state slot: the states of all layers."""
    places: tuple[Place | None, ...] = ()
    """Of each layer, that of the layer it shares with included; None: its cache is in no block."""

    def num_blocks(self, num_tokens: int, block_size: int, max_tokens_per_step: int) -> int:
        """The most blocks a sequence of so many tokens ever holds, fed at most so many in a step."""
        return sum(each.max_blocks(num_tokens, block_size, max_tokens_per_step) for each in self.groups)

    def num_bytes(self, num_tokens: int, block_size: int, max_tokens_per_step: int) -> int:
        """What one sequence of that length holds at most, its state included."""
        num_blocks = self.num_blocks(num_tokens, block_size, max_tokens_per_step)
        return num_blocks * block_size * self.token_bytes + self.state_bytes


def layout_of(
    layers: Sequence[LayerSpec], draft_layers: Sequence[LayerSpec] = (), *, looks_ahead: bool = False
) -> CacheLayout:
    """The layout of a model whose layers keep these, in their order, and those of its draft model after them.

    `looks_ahead`: the draft model needs the model's hidden states. Raises ValueError if a layer shares what
    is not there.
    """
    num_layers, layers = len(layers), (*layers, *draft_layers)
    kinds: dict[PagedSpec, list[int]] = {}
    state_bytes = 0
    for index, spec in enumerate(layers):
        match spec:
            case State(num_bytes):
                state_bytes += num_bytes
            case SharedWith(layer):
                _check_shared(layers, index, layer)
            case CrossAttention() | NoCache():
                pass
            case _:
                kinds.setdefault(spec, []).append(index)
    if not kinds:
        # blocks of no bytes, by which prefixes are named
        return CacheLayout(ONE_GROUP, 0, state_bytes, (None,) * len(layers))
    # A block is whole layers of each spec.
    unit = lcm(*(spec.token_bytes for spec in kinds))
    rarest = min(len(members) * spec.token_bytes for spec, members in kinds.items())
    token_bytes = -(-rarest // unit) * unit if unit else 0
    groups: list[PagedGroup] = []
    for spec, members in kinds.items():
        size = token_bytes // spec.token_bytes if spec.token_bytes else len(members)
        groups += (
            PagedGroup(spec, part, looks_ahead and part[-1] >= num_layers) for part in _parts(members, size)
        )
    # A full group first: its table is a request's `blocks`, which most of the planning looks at.
    groups.sort(key=lambda group: group.spec.reach is not None)
    return CacheLayout(tuple(groups), token_bytes, state_bytes, _places(layers, groups))


def _places(layers: Sequence[LayerSpec], groups: Sequence[PagedGroup]) -> tuple[Place | None, ...]:
    found = {
        layer: Place(number, index)
        for number, group in enumerate(groups)
        for index, layer in enumerate(group.layers)
    }
    return tuple(
        found.get(spec.layer if isinstance(spec, SharedWith) else layer) for layer, spec in enumerate(layers)
    )


def _check_shared(layers: Sequence[LayerSpec], index: int, layer: int) -> None:
    is_earlier = 0 <= layer < index
    if not is_earlier or isinstance(layers[layer], SharedWith | NoCache):
        raise ValueError(
            f"layer {index} shares the cache of layer {layer}; it must be an earlier layer with its own cache"
        )


def _parts(members: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    return (tuple(members[start : start + size]) for start in range(0, len(members), size))
