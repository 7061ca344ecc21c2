"""Weights in oneDNN's own layouts, and which of these our loop reads.

oneDNN chooses a layout as it likes, by processor, type and shape, and says nothing of it but where it lies.
So what it chose is compared with what our loop (`cpu/linear.c`) knows. Read `linear.py` next.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ..host_memory import use_large_pages
from ..native import native_for
from .fused_input import MOST_ROWS

TILES: Final = (64, 32)
"""Outputs that lie together in the layouts that our loop reads: without AMX, and with it."""
_DEPTH: Final = 32
"""Where there is AMX, inputs are filled up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Packed bfloat16 at `address`: [out / width, depth / 2, width, 2]; outputs and inputs filled up with
    anything."""

    address: int
    width: int
    depth: int

    def take(self, rows: int) -> bool:
        """Whether our own loop knows so many."""
        return 0 < rows <= MOST_ROWS or (rows > 0 and self.width == TILES[0])


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN can hold this weight in its own layout."""
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):  # not a public operator
        return False
    if weight.dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype is torch.float32


def product_dtype(weight: Tensor) -> torch.dtype:
    """What convolutions and batched products of torch are computed in: float32 instead of bfloat16 where the
    processor does not multiply that. Torch's loops for it are five to fifty times as slow there."""
    is_slow = weight.device.type == "cpu" and weight.dtype is torch.bfloat16 and not can_pack(weight)
    return torch.float32 if is_slow else weight.dtype


def packed_by_onednn(weight: Tensor) -> Tensor:
    """A weight [out, in] that it can hold, in its layout."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    if (memory := memory_of(packed)) is not None:
        use_large_pages(*memory)
    return packed


def find_tiles(packed: Tensor, weight: Tensor) -> Tiles | None:
    """Which of the layouts that we read `packed` has, if any.

    Compared are the first tile, the last, and one that is surely not all zeros.
    """
    memory, size = memory_of(packed), weight.shape[1]
    if native_for(weight) is None or memory is None or weight.dtype is not torch.bfloat16:
        return None
    if not weight.numel() or size % 2:
        return None
    address, num_bytes = memory
    for width in TILES:
        for depth in {size, -(-size // _DEPTH) * _DEPTH}:
            tiles = Tiles(address, width, depth)
            if num_bytes == _num_tiles(weight, tiles) * width * depth * 2 and _holds(tiles, weight):
                return tiles
    return None


def memory_of(packed: Tensor) -> tuple[int, int] | None:
    """Where it lies, and how many bytes; None where torch does not say."""
    operators = torch.ops.mkldnn
    if not hasattr(operators, "data_ptr") or not hasattr(operators, "_nbytes"):
        return None
    return int(operators.data_ptr(packed)), int(operators._nbytes(packed))


def _num_tiles(weight: Tensor, tiles: Tiles) -> int:
    return -(-weight.shape[0] // tiles.width)


def _holds(tiles: Tiles, weight: Tensor) -> bool:
    size, width = weight.shape[1], tiles.width
    most = int(torch.linalg.vector_norm(weight, ord=torch.inf, dim=1).argmax())
    for number in {0, most // width, _num_tiles(weight, tiles) - 1}:
        rows = weight[number * width : (number + 1) * width]
        expected = rows.view(-1, size // 2, 2).transpose(0, 1)
        found = tile_memory(tiles, number)[: size // 2, : rows.shape[0]]
        if not torch.equal(found, expected):
            return False
    return True


def tile_memory(tiles: Tiles, number: int) -> Tensor:
    """One tile as it lies there: [depth / 2, width, 2]. It must not outlive the weight."""
    num_bytes = tiles.width * tiles.depth * 2
    memory = (ctypes.c_char * num_bytes).from_address(tiles.address + number * num_bytes)
    return torch.frombuffer(memory, dtype=torch.bfloat16).view(tiles.depth // 2, tiles.width, 2)
