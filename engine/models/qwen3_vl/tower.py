"""Qwen3-VL's vision tower over checked weights: patches of pictures → rows of the prompt's embeddings.

One item is an image or one temporal patch of a video; attention spans an item and nothing else, so items
of any sizes share one batch, and only attention runs apart for each number of patches. Besides the rows, some
layers give rows for the decoder's first layers (deepstack). Layout: transformers' `modeling_qwen3_vl.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....kernels.activation import Activation
from ....kernels.attention.dense_attention import attend_items, attention_choice
from ....kernels.layers import LayerParts
from ....kernels.linear.fused_input import LayerNorm
from ....kernels.linear.linear import LinearWeight, linear, pack_linear
from ....kernels.rotary import RotaryTable, apply_rotary
from ..dense.model import EmbeddedRows
from ..layer import attended, fed_forward, projected, take_biased, take_norm
from ..weights import Shape, TensorReader

_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionTowerConfig:
    """The numbers of a tower. `deepstack_layers` gives rows behind these layers, in this order of levels."""

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    patch_values: int
    """Numbers in a patch: channels · frames · side²."""
    merge_size: int
    output_size: int
    num_positions: int
    """Learned position embeddings, a square of them."""
    deepstack_layers: tuple[int, ...]
    rotary_theta: float
    activation: Activation
    """Of the feed-forward."""

    @property
    def num_levels(self) -> int:
        """Vectors kept for each row: its embedding and the deepstack's."""
        return 1 + len(self.deepstack_layers)

    def num_rows(self, grid: tuple[int, int, int]) -> int:
        """Prompt tokens of an item."""
        return grid[0] * grid[1] * grid[2] // self.merge_size**2

    def activation_bytes(self, num_patches: int, itemsize: int) -> int:
        """About the most memory that encoding so many patches takes, beside the result."""
        values = 8 * self.hidden_size + self.intermediate_size + self.patch_values
        wide = 4 * self.hidden_size + self.patch_values
        return num_patches * (values * itemsize + wide * 4)

    def tensor_shapes(self) -> dict[str, Shape]:
        """Name behind the tower's prefix, and shape of every tensor; the patch embedding is a convolution."""
        d, ffn, merged = self.hidden_size, self.intermediate_size, self.hidden_size * self.merge_size**2
        sizes: dict[str, Shape] = {}
        for layer in range(self.depth):
            name = f"blocks.{layer}"
            sizes |= {f"{name}.norm1": (d,), f"{name}.norm2": (d,)}
            sizes |= {f"{name}.attn.qkv": (3 * d, d), f"{name}.attn.proj": (d, d)}
            sizes |= {f"{name}.mlp.linear_fc1": (ffn, d), f"{name}.mlp.linear_fc2": (d, ffn)}
        for name in ("merger", *(f"deepstack_merger_list.{i}" for i in range(self.num_levels - 1))):
            sizes[f"{name}.norm"] = (d,) if name == "merger" else (merged,)
            sizes |= {
                f"{name}.linear_fc1": (merged, merged),
                f"{name}.linear_fc2": (self.output_size, merged),
            }
        shapes = {f"{name}.weight": shape for name, shape in sizes.items()}
        shapes |= {f"{name}.bias": shape[:1] for name, shape in sizes.items()}
        shapes["pos_embed.weight"] = (self.num_positions, d)
        shapes["patch_embed.proj.bias"] = (d,)
        return shapes


@dataclass(frozen=True, slots=True)
class _Merger:
    """Joins the `merge_size`² patches of a token; `norm` sees one patch or, with its size, all of them."""

    norm: LayerNorm
    up: LinearWeight
    down: LinearWeight

    def __call__(self, x: Tensor, num_joined: int) -> Tensor:
        size = x.shape[1] * num_joined
        x = self.norm(x.view(-1, self.norm.scale.shape[1])).view(-1, size)
        return linear(linear(x, self.up, activation="gelu"), self.down)


class VisionTower:
    """The weights of one tower, taken from `tensors` under `prefix`."""

    def __init__(self, config: VisionTowerConfig, tensors: TensorReader, *, prefix: str) -> None:
        self.config = config
        self.device, self.dtype = tensors.device, tensors.dtype
        self._attention_choice = attention_choice(
            config.num_heads, config.hidden_size // config.num_heads, None, self.dtype, self.device
        )
        kernel = tensors.take(f"{prefix}patch_embed.proj.weight").flatten(1)
        self._embed = pack_linear(kernel, tensors.take(f"{prefix}patch_embed.proj.bias"))
        self._positions = tensors.take(f"{prefix}pos_embed.weight")
        self._layers = [_layer(tensors, f"{prefix}blocks.{i}") for i in range(config.depth)]
        self._merger = _merger(tensors, f"{prefix}merger")
        self._mergers = {
            layer: _merger(tensors, f"{prefix}deepstack_merger_list.{level}")
            for level, layer in enumerate(config.deepstack_layers)
        }
        half = config.hidden_size // config.num_heads // 2
        exponents = torch.arange(0, half, 2, dtype=torch.float) / half
        self._frequencies = (1.0 / config.rotary_theta**exponents).to(self.device)

    def encode(self, patches: Sequence[Tensor], grids: Sequence[tuple[int, int, int]]) -> list[EmbeddedRows]:
        """Patches [height · width, patch values] in merge order, grids (1, height, width) → rows of each."""
        if not patches:
            return []
        # Sorted, items of equally many patches lie together.
        order = sorted(range(len(patches)), key=lambda i: patches[i].shape[0])
        x = torch.cat([patches[i].to(device=self.device, dtype=self.dtype) for i in order])
        rows, columns, heights, widths = self._coordinates([grids[i] for i in order])
        x = linear(x, self._embed) + self._interpolated(rows, columns, heights, widths).to(self.dtype)
        table = self._table(rows, columns)
        lengths = [patches[i].shape[0] for i in order]
        levels = self._run(x, table, lengths)
        joined = self.config.merge_size**2
        counts = [length // joined for length in lengths]
        split = [torch.split(level, counts) for level in levels]
        outputs: list[EmbeddedRows | None] = [None] * len(patches)
        for place, index in enumerate(order):
            # Copies: a slice would keep the whole batch in memory.
            own = [level[place].clone() for level in split]
            outputs[index] = EmbeddedRows(own[0], tuple(own[1:]))
        return [output for output in outputs if output is not None]

    def _run(self, x: Tensor, table: RotaryTable, lengths: Sequence[int]) -> list[Tensor]:
        """Rows of all items: the merger's, then each deepstack level's."""
        joined = self.config.merge_size**2
        deepstack: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers):
            qkv = projected(layer, x, self.config.num_heads)
            query, key = (apply_rotary(qkv[:, part].float(), table).to(x.dtype) for part in (0, 1))
            x = attended(layer, x, attend_items((query, key, qkv[:, 2]), lengths, self._attention_choice))
            x = fed_forward(layer, x, self.config.activation)
            if index in self._mergers:
                deepstack[index] = self._mergers[index](x, joined)
        return [self._merger(x, joined), *(deepstack[i] for i in self.config.deepstack_layers)]

    def _coordinates(self, grids: Sequence[tuple[int, int, int]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of every patch: its row, its column, its picture's height and width, int64 [patches]."""
        parts: list[Tensor] = []
        merge = self.config.merge_size
        for _, height, width in grids:
            order = torch.arange(height * width, device=self.device).view(
                height // merge, merge, width // merge, merge
            )
            raster = order.transpose(1, 2).flatten()
            size = torch.tensor([[height], [width]], device=self.device).expand(2, height * width)
            parts.append(torch.cat([raster[None] // width, raster[None] % width, size]))
        rows, columns, heights, widths = torch.cat(parts, 1)
        return rows, columns, heights, widths

    def _table(self, rows: Tensor, columns: Tensor) -> RotaryTable:
        angles = torch.cat([each[:, None].float() * self._frequencies for each in (rows, columns)], 1)
        return RotaryTable(angles.cos(), angles.sin())

    def _interpolated(self, rows: Tensor, columns: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
        """Learned positions stretched over each picture, corners on corners, float32 [patches, hidden]."""
        side = math.isqrt(self.config.num_positions)
        top, bottom, down = _taps(rows, heights, side)
        left, right, across = _taps(columns, widths, side)
        corners = (
            (top, left, (1 - down) * (1 - across)),
            (top, right, (1 - down) * across),
            (bottom, left, down * (1 - across)),
            (bottom, right, down * across),
        )
        out = torch.zeros((len(rows), self.config.hidden_size), device=self.device)
        for y, x, weight in corners:
            out += self._positions[y * side + x] * weight[:, None]
        return out


def _taps(index: Tensor, size: Tensor, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """The two of `side` points that surround place `index` of `size`, and how far towards the second."""
    place = index.float() * (side - 1) / (size - 1).clamp(min=1)
    floor = place.floor()
    first = floor.long()
    return first, (first + 1).clamp(max=side - 1), place - floor


def _norm(tensors: TensorReader, name: str) -> LayerNorm:
    return take_norm(tensors, name, _NORM_EPS)


def _layer(tensors: TensorReader, name: str) -> LayerParts:
    return LayerParts(
        norm=_norm(tensors, f"{name}.norm1"),
        qkv=take_biased(tensors, f"{name}.attn.qkv"),
        out=take_biased(tensors, f"{name}.attn.proj"),
        last_norm=_norm(tensors, f"{name}.norm2"),
        up=take_biased(tensors, f"{name}.mlp.linear_fc1"),
        down=take_biased(tensors, f"{name}.mlp.linear_fc2"),
    )


def _merger(tensors: TensorReader, name: str) -> _Merger:
    return _Merger(
        _norm(tensors, f"{name}.norm"),
        take_biased(tensors, f"{name}.linear_fc1"),
        take_biased(tensors, f"{name}.linear_fc2"),
    )
