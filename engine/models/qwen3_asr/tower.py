"""Qwen3-ASR's audio tower over checked weights: windows of log-mel frames → rows of the prompt's embeddings.

A window is one encoder item. Its frames are cut into chunks of a second, each convolved alone and given the
same sinusoids; attention spans the window. Chunks are computed whole whatever they hold: rows behind a
window's end are hidden from attention and cut off last, so windows of any lengths share one batch. Layout
follows transformers' `modeling_qwen3_asr.py`. `engine/models/qwen3_asr/windows.py` counts what comes out
here; knows no requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from ....kernels.attention import attend
from ....kernels.linear import Activation, LinearWeight, linear
from ..layer_norm import LayerNorm, take_biased, take_norm
from ..weights import Shape, TensorReader
from .windows import num_audio_tokens, num_conv_tokens

_CHUNKS_AT_ONCE: Final = 32
"""Chunks convolved together: bounds the activations (400 MB in float32 at the published sizes)."""
_MAX_TIMESCALE: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class AudioTowerConfig:
    """The numbers of a tower; sizes in mel frames where the name ends in `_frames`."""

    num_mel_bins: int
    num_layers: int
    num_heads: int
    hidden_size: int
    ffn_size: int
    conv_channels: int
    output_size: int
    chunk_frames: int
    window_frames: int
    activation: Activation

    @property
    def chunk_tokens(self) -> int:
        """Rows of a whole chunk."""
        return num_conv_tokens(self.chunk_frames)

    def num_tokens(self, num_frames: int) -> int:
        """Rows of a window of `num_frames`."""
        return num_audio_tokens(num_frames, self.chunk_frames // 2)

    def tensor_shapes(self) -> dict[str, Shape]:
        """Name (without `model.`) and shape of every tensor of tower and projector."""
        d, ffn, channels = self.hidden_size, self.ffn_size, self.conv_channels
        sizes: dict[str, Shape] = {}
        for index, inputs in enumerate((1, channels, channels), start=1):
            sizes[f"audio_tower.conv2d{index}"] = (channels, inputs, 3, 3)
        for layer in range(self.num_layers):
            name = f"audio_tower.layers.{layer}"
            sizes |= {f"{name}.self_attn.{part}_proj": (d, d) for part in ("q", "k", "v", "out")}
            sizes |= {f"{name}.self_attn_layer_norm": (d,), f"{name}.final_layer_norm": (d,)}
            sizes |= {f"{name}.fc1": (ffn, d), f"{name}.fc2": (d, ffn)}
        sizes["audio_tower.ln_post"] = (d,)
        sizes["multi_modal_projector.linear_1"] = (d, d)
        sizes["multi_modal_projector.linear_2"] = (self.output_size, d)
        shapes = {f"{name}.weight": shape for name, shape in sizes.items()}
        shapes |= {f"{name}.bias": shape[:1] for name, shape in sizes.items()}
        shapes["audio_tower.conv_out.weight"] = (d, channels * num_conv_tokens(self.num_mel_bins))
        return shapes


@dataclass(frozen=True, slots=True)
class _Layer:
    """One encoder layer; `qkv` is one projection to queries, keys and values."""

    attention_norm: LayerNorm
    qkv: LinearWeight
    out: LinearWeight
    ffn_norm: LayerNorm
    up: LinearWeight
    down: LinearWeight


@dataclass(frozen=True, slots=True)
class _Group:
    """Windows of equally many chunks, whose rows follow each other in the batch. `mask` [windows, 1, 1, rows]
    is true where a row is real; None if all are."""

    first_row: int
    num_windows: int
    num_rows: int
    mask: Tensor | None


class AudioTower:
    """Encoder and projector of one checkpoint."""

    def __init__(self, config: AudioTowerConfig, tensors: TensorReader) -> None:
        """Takes the tensors of `config.tensor_shapes()`."""
        self.config = config
        self.device, self.dtype = tensors.device, tensors.dtype
        self._convolutions = [_convolution(tensors, f"audio_tower.conv2d{i}") for i in (1, 2, 3)]
        self._conv_out = tensors.take_linear("audio_tower.conv_out.weight")
        positions = _sinusoids(config.chunk_tokens, config.hidden_size)
        self._positions = positions.to(device=self.device, dtype=self.dtype)
        self._layers = [_layer(tensors, f"audio_tower.layers.{i}") for i in range(config.num_layers)]
        self._norm = take_norm(tensors, "audio_tower.ln_post")
        self._project = [take_biased(tensors, f"multi_modal_projector.linear_{i}") for i in (1, 2)]

    def encode(self, windows: Sequence[Tensor]) -> list[Tensor]:
        """Windows [mels, frames], of any lengths up to a whole one → [rows, output size] of each."""
        if not windows:
            return []
        chunks = [-(-window.shape[1] // self.config.chunk_frames) for window in windows]
        # Sorted, windows of equally many chunks lie together.
        order = sorted(range(len(windows)), key=chunks.__getitem__)
        x = self._convolve([self._chunks(windows[i]) for i in order])
        groups = self._groups([chunks[i] for i in order], [windows[i].shape[1] for i in order])
        for layer in self._layers:
            x = self._run(layer, x, groups)
        hidden = linear(self._norm(x), self._project[0], activation=self.config.activation)
        rows = linear(hidden, self._project[1])
        encoded: dict[int, Tensor] = {}
        first = 0
        for index in order:
            num_tokens = self.config.num_tokens(windows[index].shape[1])
            # A copy: a slice would keep the whole batch in memory.
            encoded[index] = rows[first : first + num_tokens].clone()
            first += chunks[index] * self.config.chunk_tokens
        return [encoded[index] for index in range(len(windows))]

    def _chunks(self, window: Tensor) -> Tensor:
        """[mels, frames] → [chunks, 1, mels, chunk frames]; behind the end features are 0."""
        size = self.config.chunk_frames
        padded = F.pad(window.to(device=self.device, dtype=self.dtype), (0, -window.shape[1] % size))
        return padded.view(padded.shape[0], -1, size).transpose(0, 1)[:, None]

    def _convolve(self, windows: Sequence[Tensor]) -> Tensor:
        """[chunks, 1, mels, frames] of each window → rows [chunks · tokens, hidden], positions added."""
        out: list[Tensor] = []
        chunks = torch.cat(list(windows))
        for first in range(0, len(chunks), _CHUNKS_AT_ONCE):
            x = chunks[first : first + _CHUNKS_AT_ONCE]
            for weight, bias in self._convolutions:
                x = F.gelu(F.conv2d(x, weight, bias, stride=2, padding=1))
            flat = x.permute(0, 3, 1, 2).reshape(x.shape[0] * x.shape[3], -1)
            out.append(linear(flat, self._conv_out).view(x.shape[0], x.shape[3], -1) + self._positions)
        return torch.cat(out).flatten(0, 1)

    def _groups(self, chunks: Sequence[int], frames: Sequence[int]) -> list[_Group]:
        groups: list[_Group] = []
        first_row = 0
        for number in sorted(set(chunks)):
            num_rows = number * self.config.chunk_tokens
            real = [self.config.num_tokens(f) for c, f in zip(chunks, frames, strict=True) if c == number]
            mask = None
            if min(real) < num_rows:
                mask = (
                    torch.arange(num_rows, device=self.device)
                    < torch.tensor(real, device=self.device)[:, None]
                )
                mask = mask[:, None, None]
            groups.append(_Group(first_row, len(real), num_rows, mask))
            first_row += len(real) * num_rows
        return groups

    def _run(self, layer: _Layer, x: Tensor, groups: Sequence[_Group]) -> Tensor:
        heads = self.config.num_heads
        qkv = linear(layer.attention_norm(x), layer.qkv)
        mixed: list[Tensor] = []
        for group in groups:
            rows = qkv.narrow(0, group.first_row, group.num_windows * group.num_rows)
            split = rows.view(group.num_windows, group.num_rows, 3, heads, -1).permute(2, 0, 3, 1, 4)
            seen = attend(split[0], split[1], split[2], group.mask)
            mixed.append(seen.transpose(1, 2).reshape(rows.shape[0], -1))
        x = linear(torch.cat(mixed), layer.out, residual=x)
        hidden = linear(layer.ffn_norm(x), layer.up, activation=self.config.activation)
        x = linear(hidden, layer.down, residual=x)
        if x.dtype is torch.float16:
            limit = torch.finfo(torch.float16).max - 1000
            x = x.clamp(-limit, limit)
        return x


def _sinusoids(length: int, channels: int) -> Tensor:
    """[length, channels]: sines, then cosines, of wavelengths from 2π to 10 000 · 2π."""
    step = math.log(_MAX_TIMESCALE) / (channels // 2 - 1)
    angles = torch.arange(length)[:, None] * torch.exp(-step * torch.arange(channels // 2).float())
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _convolution(tensors: TensorReader, name: str) -> tuple[Tensor, Tensor]:
    # Channels last is the faster layout on every device.
    weight = tensors.take(f"{name}.weight").contiguous(memory_format=torch.channels_last)
    return weight, tensors.take(f"{name}.bias")


def _layer(tensors: TensorReader, name: str) -> _Layer:
    weights, biases = (
        [f"{name}.self_attn.{part}_proj.{kind}" for part in "qkv"] for kind in ("weight", "bias")
    )
    return _Layer(
        attention_norm=take_norm(tensors, f"{name}.self_attn_layer_norm"),
        qkv=tensors.take_linear(*weights, bias=tensors.take_all(*biases)),
        out=take_biased(tensors, f"{name}.self_attn.out_proj"),
        ffn_norm=take_norm(tensors, f"{name}.final_layer_norm"),
        up=take_biased(tensors, f"{name}.fc1"),
        down=take_biased(tensors, f"{name}.fc2"),
    )
