"""What one layer of a model keeps of a sequence: a closed union of small values.

Paged kinds keep something of each token, in the blocks of a table (`engine/planning/kv/groups.py` joins
layers that share one). A state is of one size however long the sequence is, and lies in a slot
(`engine/planning/kv/states.py`). The sizes are in bytes, of one layer.
"""

from __future__ import annotations

import msgspec


class FullAttention(msgspec.Struct, frozen=True):
    """Keys and values of all tokens."""

    token_bytes: int = 0

    @property
    def reach(self) -> int | None:
        """How many tokens before it a row may need: all."""
        return None

    def first_needed(self, start: int) -> int:  # noqa: ARG002 (as of the others)
        """The first position that rows from `start` on attend to."""
        return 0


class Latent(FullAttention, frozen=True):
    """One compressed vector of each token in place of keys and values (MLA)."""


class SlidingWindow(msgspec.Struct, frozen=True):
    """Keys and values of the newest `window` tokens, the row's own included."""

    window: int
    token_bytes: int = 0

    @property
    def reach(self) -> int | None:
        """How many tokens before it a row may need."""
        return self.window - 1

    def first_needed(self, start: int) -> int:
        """The first position that rows from `start` on attend to."""
        return max(start - self.window + 1, 0)


class ChunkedLocal(msgspec.Struct, frozen=True):
    """Keys and values of the row's own chunk of `chunk` tokens; chunks do not overlap."""

    chunk: int
    token_bytes: int = 0

    @property
    def reach(self) -> int | None:
        """How many tokens before it a row may need."""
        return self.chunk - 1

    def first_needed(self, start: int) -> int:
        """The first position that rows from `start` on attend to."""
        return start - start % self.chunk


class CrossAttention(msgspec.Struct, frozen=True):
    """Keys and values of an encoding: they are the encoder cache's (`engine/planning/encoder/`)."""


class State(msgspec.Struct, frozen=True):
    """A recurrent state, the tail of a convolution, or both: `num_bytes` in all."""

    num_bytes: int


class SharedWith(msgspec.Struct, frozen=True):
    """What the earlier layer of that index keeps; this one reads it."""

    layer: int


class NoCache(msgspec.Struct, frozen=True):
    """Nothing: the layer mixes no tokens, or all of a prompt is run as a whole."""


PagedSpec = FullAttention | Latent | SlidingWindow | ChunkedLocal
LayerSpec = PagedSpec | CrossAttention | State | SharedWith | NoCache
