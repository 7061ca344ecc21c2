"""The convolutions in front of a FastConformer: mel frames → one row for eight of them.

Three convolutions of stride 2 over time and mel bins. Each output needs the input at twice its place and the
two in front of it (causal), or one on each side, so what a later chunk needs of an earlier one is a single
frame in front of each convolution: the tail. Chunks of any lengths share a batch; what is behind a chunk's
end is zeros in front of every convolution, as in a batch of transformers with its mask. Activations lie
[items, time, bins, channels]. Knows no layers of attention; `encoder.py` is next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ....kernels.host_memory import recycled
from ....kernels.linear.linear import LinearWeight, arrange_linear, linear
from ....kernels.linear.onednn import product_dtype
from ....kernels.linear.weight_codes import GRIDS
from ..weights import TensorReader
from .conformer import ConformerConfig, convolution_names


@dataclass(frozen=True, slots=True)
class Subsampled:
    """What became of a batch of chunks."""

    rows: Tensor
    """[rows, hidden], one chunk after the other."""
    num_rows: list[int]
    tails: tuple[Tensor, ...]
    """For each convolution [items, bins, channels]: the last frame in front of it."""


class Subsampling:
    """The convolutions and the product behind them."""

    def __init__(self, config: ConformerConfig, tensors: TensorReader) -> None:
        self.config = config
        self._dtype = tensors.dtype
        first, *others = convolution_names(config)
        self._strided = [_take_strided(tensors, name) for name in (first, *others[::2])]
        self._pointwise = [_take_pointwise(tensors, name) for name in others[1::2]]
        bins, channels = config.mel_bins()[-1], config.channels
        weight = tensors.take("encoder.subsampling.linear.weight")
        # Its inputs lie here with the channels of a bin together.
        weight = weight.view(-1, channels, bins).transpose(1, 2).flatten(1)
        bias = tensors.take("encoder.subsampling.linear.bias")
        scale = config.input_scale
        self._out = arrange_linear(weight * scale, bias * scale, GRIDS[tensors.quantization])

    def tail_shapes(self) -> list[tuple[int, int]]:
        """Bins and channels in front of each convolution."""
        first, second, _ = self.config.mel_bins()
        channels = self.config.channels
        return [(self.config.num_mel_bins, 1), (first, channels), (second, channels)]

    def __call__(
        self, chunks: Sequence[Tensor], are_first: Sequence[bool], tails: Sequence[Tensor] | None
    ) -> Subsampled:
        """Chunks [mel bins, frames], none of them empty. Where `are_first` says so, the stream begins with
        the chunk, and two zeros are in front of it; else `tails`, or a zero where there are none."""
        lengths = [chunk.shape[1] for chunk in chunks]
        x = torch.zeros(
            (len(chunks), max(lengths), self.config.num_mel_bins, 1),
            dtype=self._dtype,
            device=chunks[0].device,
        )
        for index, chunk in enumerate(chunks):
            x[index, : lengths[index], :, 0] = chunk.t()
        first = torch.tensor(are_first, device=x.device)
        new_tails: list[Tensor] = []
        for stage, (weight, bias) in enumerate(self._strided):
            last = torch.tensor(lengths, device=x.device) - 1
            new_tails.append(x[torch.arange(len(x), device=x.device), last])
            lengths = [
                length // 2 + 1 if is_first else (length + 1) // 2
                for length, is_first in zip(lengths, are_first, strict=True)
            ]
            tail = None if tails is None else tails[stage]
            padded = self._padded(x.to(weight.dtype), first, are_first, tail, 2 * max(lengths) + 1)
            groups = 1 if stage == 0 else self.config.channels
            y = F.conv2d(padded.permute(0, 3, 1, 2), weight, bias, stride=2, groups=groups)
            x = y.permute(0, 2, 3, 1).to(self._dtype)
            if stage:
                x = linear(x.reshape(-1, x.shape[3]), self._pointwise[stage - 1]).view(x.shape)
            x = _masked(x, lengths).relu_()
        wide = x.flatten(2)
        if min(lengths) == wide.shape[1]:
            rows = wide.flatten(0, 1)
        else:
            rows = torch.cat([each[:length] for each, length in zip(wide, lengths, strict=True)])
        return Subsampled(linear(rows, self._out), lengths, tuple(new_tails))

    def _padded(
        self, x: Tensor, first: Tensor, are_first: Sequence[bool], tail: Tensor | None, length: int
    ) -> Tensor:
        """`length` frames of each item, with what is in front, and zeros around the bins."""
        items, time, bins, channels = x.shape
        low = 2 if self.config.is_causal else 1
        # Large, and as large again at each step: fresh pages would cost more than the convolution.
        padded = recycled((items, length, bins + low + 1, channels), x.dtype, x.device).zero_()
        inner = padded[:, :, low : low + bins]
        num = min(time, length - 1)
        if not any(are_first):
            if tail is not None:
                inner[:, 0] = tail
            inner[:, 1 : 1 + num] = x[:, :num]
            return padded
        begin = min(time, length - 2)
        if all(are_first):
            inner[:, 2 : 2 + begin] = x[:, :begin]
            return padded
        if tail is not None:
            inner[:, 0] = torch.where(first[:, None, None], 0.0, tail)
        later = ~first
        inner[later, 1 : 1 + num] = x[later, :num]
        inner[first, 2 : 2 + begin] = x[first, :begin]
        return padded


def _masked(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Zeros behind each item's length."""
    if min(lengths) == x.shape[1]:
        return x
    ends = torch.tensor(lengths, device=x.device)
    keep = torch.arange(x.shape[1], device=x.device) < ends[:, None]
    return x.mul_(keep[:, :, None, None])


def _take_strided(tensors: TensorReader, name: str) -> tuple[Tensor, Tensor]:
    weight = tensors.take(f"{name}.weight").contiguous(memory_format=torch.channels_last)
    dtype = product_dtype(weight)
    return weight.to(dtype), tensors.take(f"{name}.bias").to(dtype)


def _take_pointwise(tensors: TensorReader, name: str) -> LinearWeight:
    # Stays as it is under quantization: the few sizes of features that no norm has brought together.
    return arrange_linear(tensors.take(f"{name}.weight").flatten(1), tensors.take(f"{name}.bias"), None)
