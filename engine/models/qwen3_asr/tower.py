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

from ....kernels.activation import Activation
from ....kernels.attention.dense_attention import attend_items, attention_choice
from ....kernels.linear.linear import linear
from ..layer import attended, fed_forward, in_range, projected, take_biased, take_layer, take_norm
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


class AudioTower:
    """Encoder and projector of one checkpoint."""

    def __init__(self, config: AudioTowerConfig, tensors: TensorReader) -> None:
        """Takes the tensors of `config.tensor_shapes()`."""
        self.config = config
        self.device, self.dtype = tensors.device, tensors.dtype
        self._attention_choice = attention_choice(
            config.num_heads,
            config.hidden_size // config.num_heads,
            config.num_tokens(config.window_frames),
            self.dtype,
            self.device,
        )
        self._convolutions = [_convolution(tensors, f"audio_tower.conv2d{i}") for i in (1, 2, 3)]
        self._conv_out = tensors.take_linear("audio_tower.conv_out.weight")
        positions = _sinusoids(config.chunk_tokens, config.hidden_size)
        self._positions = positions.to(device=self.device, dtype=self.dtype)
        self._layers = [take_layer(tensors, f"audio_tower.layers.{i}") for i in range(config.num_layers)]
        self._norm = take_norm(tensors, "audio_tower.ln_post")
        self._project = [take_biased(tensors, f"multi_modal_projector.linear_{i}") for i in (1, 2)]

    def encode(self, windows: Sequence[Tensor]) -> list[Tensor]:
        """Windows [mels, frames], of any lengths up to a whole one → [rows, output size] of each."""
        if not windows:
            return []
        # Sorted, windows of equally many rows lie together.
        order = sorted(range(len(windows)), key=lambda index: windows[index].shape[1])
        x = self._convolve([windows[index] for index in order])
        lengths = [self.config.num_tokens(windows[index].shape[1]) for index in order]
        for layer in self._layers:
            qkv = projected(layer, x, self.config.num_heads)
            x = attended(layer, x, attend_items(qkv.unbind(1), lengths, self._attention_choice))
            x = in_range(fed_forward(layer, x, self.config.activation))
        hidden = linear(x, self._project[0], activation=self.config.activation, before=self._norm)
        rows = torch.split(linear(hidden, self._project[1]), lengths)
        # Copies: a slice would keep the whole batch in memory.
        encoded = {index: own.clone() for index, own in zip(order, rows, strict=True)}
        return [encoded[index] for index in range(len(windows))]

    def _chunks(self, window: Tensor) -> Tensor:
        """[mels, frames] → [chunks, 1, mels, chunk frames]; behind the end features are 0."""
        size = self.config.chunk_frames
        padded = F.pad(window.to(device=self.device, dtype=self.dtype), (0, -window.shape[1] % size))
        return padded.view(padded.shape[0], -1, size).transpose(0, 1)[:, None]

    def _convolve(self, windows: Sequence[Tensor]) -> Tensor:
        """[mels, frames] of each window → rows [tokens, hidden] of all, positions added."""
        out: list[Tensor] = []
        split = [self._chunks(window) for window in windows]
        chunks = torch.cat(split)
        for first in range(0, len(chunks), _CHUNKS_AT_ONCE):
            x = chunks[first : first + _CHUNKS_AT_ONCE]
            for weight, bias in self._convolutions:
                x = F.gelu(F.conv2d(x, weight, bias, stride=2, padding=1))
            flat = x.permute(0, 3, 1, 2).reshape(x.shape[0] * x.shape[3], -1)
            out.append(linear(flat, self._conv_out).view(x.shape[0], x.shape[3], -1) + self._positions)
        whole = torch.split(torch.cat(out), [len(each) for each in split])
        # What a last chunk has behind the end of its window is no row.
        real = [self.config.num_tokens(window.shape[1]) for window in windows]
        return torch.cat([rows.flatten(0, 1)[:num] for rows, num in zip(whole, real, strict=True)])


def _sinusoids(length: int, channels: int) -> Tensor:
    """[length, channels]: sines, then cosines, of wavelengths from 2π to 10 000 · 2π."""
    step = math.log(_MAX_TIMESCALE) / (channels // 2 - 1)
    angles = torch.arange(length)[:, None] * torch.exp(-step * torch.arange(channels // 2).float())
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def _convolution(tensors: TensorReader, name: str) -> tuple[Tensor, Tensor]:
    # Channels last is the faster layout on every device.
    weight = tensors.take(f"{name}.weight").contiguous(memory_format=torch.channels_last)
    return weight, tensors.take(f"{name}.bias")
