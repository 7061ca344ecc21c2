"""A FastConformer over whole windows: every row attends to all rows of its window.

Windows of any lengths share a batch; what is behind a window's end is hidden from attention and zeros for the
convolutions. The layers are those of `engine/models/nemotron_asr/conformer.py`, with the batch norm of their
convolutions in its weights. Layout follows transformers' `modeling_parakeet.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ..nemotron_asr.conformer import (
    ConformerConfig,
    ConformerLayer,
    relative_sinusoids,
    take_conformer_layer,
)
from ..nemotron_asr.subsampling import Subsampling
from ..weights import TensorReader


class WindowEncoder:
    """The encoder of one checkpoint."""

    def __init__(self, config: ConformerConfig, most_rows: int, tensors: TensorReader) -> None:
        self.config = config
        self._subsampling = Subsampling(config, tensors)
        most = most_rows - 1
        sinusoids = relative_sinusoids(most, -most, config.hidden_size)
        self._layers = [
            take_conformer_layer(tensors, config, index, sinusoids, most)
            for index in range(config.num_layers)
        ]

    def encode(self, windows: Sequence[Tensor]) -> tuple[Tensor, tuple[int, ...]]:
        """Rows [rows, hidden] of windows [mel bins, frames], one window after the other, and how many each
        has."""
        subsampled = self._subsampling(windows, [False] * len(windows), None)
        x, lengths = subsampled.rows, subsampled.num_rows
        longest = max(lengths)
        places: Tensor | None = None
        mask: Tensor | None = None
        if min(lengths) < longest:
            ends = torch.tensor(lengths, device=x.device)
            mask = torch.arange(longest, device=x.device) < ends[:, None]
            places = mask.flatten().nonzero().flatten()
        for layer in self._layers:
            x = self._run(layer, x, len(windows), longest, places, mask)
        return x, tuple(lengths)

    def _run(
        self,
        layer: ConformerLayer,
        x: Tensor,
        num: int,
        longest: int,
        places: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        x = layer.first(x)
        qkv = _spread(layer.attention.projected(x).flatten(1), num, longest, places)
        size = x.shape[1]
        memory = qkv[..., size:].unflatten(2, (2, size))
        mixed = layer.attention.attend(qkv[..., :size], memory, mask).flatten(0, 1)
        x = layer.attention.finished(_gathered(mixed, places), x)
        convolution, sides = layer.convolution, self.config.kernel_size // 2
        gated = _spread(convolution.gated(x), num, longest, places)
        convolved = convolution.convolved(F.pad(gated, (0, 0, sides, sides)))
        x = convolution.projected(_gathered(convolved.flatten(0, 1), places), x)
        return layer.finished(x)


def _spread(rows: Tensor, num: int, longest: int, places: Tensor | None) -> Tensor:
    """Rows of all windows → [windows, longest, size], with zeros behind the shorter ones."""
    if places is None:
        return rows.view(num, longest, -1)
    spread = rows.new_zeros((num * longest, rows.shape[1]))
    return spread.index_copy_(0, places, rows).view(num, longest, -1)


def _gathered(spread: Tensor, places: Tensor | None) -> Tensor:
    """The other way, of [windows * longest, size]."""
    return spread if places is None else spread.index_select(0, places)
