"""The layers of a FastConformer over checked weights: feed-forward, attention with relative positions,
convolution, feed-forward.

What a layer does with rows is here; which rows attend to which, and what a convolution sees in front of them,
is the encoder's that has the layer (`encoder.py`, `engine/models/parakeet/encoder.py`). Layout follows
transformers' `modeling_parakeet.py` and `modeling_nemotron_asr_streaming.py`; attention is Transformer-XL's
(https://arxiv.org/abs/1901.02860, appendix B).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from transformers import PreTrainedConfig

from ....kernels.linear.fused_input import LayerNorm
from ....kernels.linear.linear import LinearWeight, arrange_linear, linear
from ....kernels.linear.onednn import product_dtype
from ....kernels.linear.weight_codes import GRIDS
from ....protocols.errors import ModelLoadError
from ..dense.config import check_size
from ..layer import take_norm
from ..weights import Shape, TensorReader

_HALF: Final = 0.5
"""What a feed-forward adds of its result. A power of two, so it changes no weight's digits."""
_BASE: Final = 10_000.0
_SUBSAMPLING: Final = {
    "subsampling_factor": 8,
    "subsampling_conv_kernel_size": 3,
    "subsampling_conv_stride": 2,
}
"""What every published encoder has, and what is computed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformerConfig:
    """The numbers of an encoder."""

    num_mel_bins: int
    num_layers: int
    num_heads: int
    hidden_size: int
    ffn_size: int
    kernel_size: int
    """Of the convolution over rows."""
    channels: int
    """Of the subsampling."""
    has_attention_bias: bool
    """Of the feed-forward's products, too."""
    has_conv_bias: bool
    input_scale: float
    is_causal: bool
    """No row depends on frames behind its chunk; layer norm stands for batch norm."""

    @property
    def head_dim(self) -> int:
        """Of a query."""
        return self.hidden_size // self.num_heads

    def mel_bins(self) -> tuple[int, int, int]:
        """Bins that each of the subsampling's three convolutions leaves."""
        sizes, bins = [], self.num_mel_bins
        for _ in range(3):
            bins = bins // 2 + 1 if self.is_causal else (bins + 1) // 2
            sizes.append(bins)
        return sizes[0], sizes[1], sizes[2]

    def tensor_shapes(self) -> dict[str, Shape]:
        """Name and shape of every tensor of the encoder."""
        shapes = dict(self._subsampling_shapes())
        for layer in range(self.num_layers):
            shapes |= {f"encoder.layers.{layer}.{name}": shape for name, shape in self._layer_shapes()}
        return shapes

    def _subsampling_shapes(self) -> Iterator[tuple[str, Shape]]:
        c, d = self.channels, self.hidden_size
        sizes: list[Shape] = [(c, 1, 3, 3), *[(c, 1, 3, 3), (c, c, 1, 1)] * 2]
        for name, shape in zip(convolution_names(self), sizes, strict=True):
            yield f"{name}.weight", shape
            yield f"{name}.bias", (c,)
        yield "encoder.subsampling.linear.weight", (d, c * self.mel_bins()[-1])
        yield "encoder.subsampling.linear.bias", (d,)

    def _layer_shapes(self) -> Iterator[tuple[str, Shape]]:
        d, ffn = self.hidden_size, self.ffn_size
        products: dict[str, Shape] = {}
        for number in (1, 2):
            products |= {f"feed_forward{number}.linear1": (ffn, d), f"feed_forward{number}.linear2": (d, ffn)}
        products |= {f"self_attn.{part}_proj": (d, d) for part in "qkvo"}
        convolutions: dict[str, Shape] = {
            "conv.pointwise_conv1": (2 * d, d, 1),
            "conv.depthwise_conv": (d, 1, self.kernel_size),
            "conv.pointwise_conv2": (d, d, 1),
        }
        for named, has_bias in ((products, self.has_attention_bias), (convolutions, self.has_conv_bias)):
            for name, shape in named.items():
                yield f"{name}.weight", shape
                if has_bias:
                    yield f"{name}.bias", shape[:1]
        yield "self_attn.relative_k_proj.weight", (d, d)
        for part in "uv":
            yield f"self_attn.bias_{part}", (self.num_heads, self.head_dim)
        for norm in ("feed_forward1", "self_att", "conv", "feed_forward2", "out"):
            yield f"norm_{norm}.weight", (d,)
            yield f"norm_{norm}.bias", (d,)
        statistics = () if self.is_causal else ("running_mean", "running_var")
        for part in ("weight", "bias", *statistics):
            yield f"conv.norm.{part}", (d,)


def convolution_names(config: ConformerConfig) -> tuple[str, ...]:
    """The subsampling's: the first, then depthwise and pointwise in turn."""
    if config.is_causal:
        layers = [f"layers.{i}.{kind}wise_conv" for i in (0, 1) for kind in ("depth", "point")]
        return tuple(f"encoder.subsampling.{name}" for name in ("conv_in", *layers))
    return tuple(f"encoder.subsampling.layers.{i}" for i in (0, 2, 3, 5, 6))  # activations are between


def conformer_config(config: PreTrainedConfig, path: Path, *, is_causal: bool) -> ConformerConfig:
    """Check the encoder's part of a config. Raises ModelLoadError naming the field."""
    for field, value in _SUBSAMPLING.items():
        if getattr(config, field) != value:
            raise ModelLoadError(
                f"{path}: encoder_config: {field} is {getattr(config, field)}; allowed: {value}"
            )
    if config.hidden_act != "silu":
        raise ModelLoadError(f"{path}: encoder_config: hidden_act {config.hidden_act!r} is not silu")
    hidden_size = check_size(config, "hidden_size", path, minimum=2)
    made = ConformerConfig(
        num_mel_bins=check_size(config, "num_mel_bins", path),
        num_layers=check_size(config, "num_hidden_layers", path),
        num_heads=check_size(config, "num_attention_heads", path),
        hidden_size=hidden_size,
        ffn_size=check_size(config, "intermediate_size", path),
        kernel_size=check_size(config, "conv_kernel_size", path),
        channels=check_size(config, "subsampling_conv_channels", path),
        has_attention_bias=bool(config.attention_bias),
        has_conv_bias=bool(config.convolution_bias),
        input_scale=hidden_size**0.5 if config.scale_input else 1.0,
        is_causal=is_causal,
    )
    if hidden_size % made.num_heads or hidden_size % 2:
        raise ModelLoadError(
            f"{path}: encoder_config: hidden_size {hidden_size} is not even, or not a multiple of "
            f"num_attention_heads {made.num_heads}"
        )
    if made.kernel_size % 2 == 0 and not is_causal:
        raise ModelLoadError(f"{path}: encoder_config: conv_kernel_size {made.kernel_size} is not odd")
    return made


class FeedForward(NamedTuple):
    """x + half of down(silu(up(norm(x)))); the half is in the weights."""

    norm: LayerNorm
    up: LinearWeight
    down: LinearWeight

    def __call__(self, x: Tensor) -> Tensor:
        """Rows [n, hidden] → the same."""
        hidden = F.silu(linear(x, self.up, before=self.norm), inplace=True)
        return linear(hidden, self.down, residual=x)


class Attention(NamedTuple):
    """Attention of rows to windows of rows, by content and by distance."""

    norm: LayerNorm
    qkv: LinearWeight
    out: LinearWeight
    content_bias: Tensor
    """[heads, dim]"""
    position_bias: Tensor
    """[heads, dim]"""
    distances: Tensor
    """[heads, dim, distances] in the dtype of products: the projected sinusoid of each, the largest distance
    first."""
    most: int
    """The largest distance of a row to one before it."""

    def projected(self, x: Tensor) -> Tensor:
        """[n, 3, hidden] of rows [n, hidden]: queries, keys, values."""
        return linear(x, self.qkv, before=self.norm).view(x.shape[0], 3, -1)

    def finished(self, mixed: Tensor, x: Tensor) -> Tensor:
        """The rows behind attention, which gave `mixed` [n, hidden] of the rows x."""
        return linear(mixed, self.out, residual=x)

    def attend(self, query: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Queries [units, rows, hidden] over keys and values `memory` [units, context, 2, hidden], whose last
        `rows` are those of the queries themselves → [units, rows, hidden]. What is False in `mask` [units,
        context] is not attended to."""
        units, rows, hidden = query.shape
        context, (heads, dim) = memory.shape[1], self.content_bias.shape
        split = query.view(units, rows, heads, dim)
        bias = self._by_distance(split + self.position_bias, context)
        if mask is not None:
            bias = bias.masked_fill(~mask[:, None, None], -torch.inf)
        key, value = memory.view(units, context, 2, heads, dim).permute(2, 0, 3, 1, 4)
        content = (split + self.content_bias).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(content, key, value, attn_mask=bias)
        return mixed.transpose(1, 2).reshape(units, rows, hidden)

    def _by_distance(self, query: Tensor, context: int) -> Tensor:
        """[units, heads, rows, context] of queries [units, rows, heads, dim]: their products with distances,
        scaled as attention is."""
        units, rows, heads, dim = query.shape
        first = self.most - (context - 1)  # the first row's key, the one furthest back of the last row
        num = context + rows - 1
        table = self.distances[:, :, first : first + num]
        flat = query.permute(2, 0, 1, 3).reshape(heads, units * rows, dim)
        scale: float = dim**-0.5
        products = torch.bmm(flat.to(table.dtype), table).mul_(scale).to(query.dtype)
        # Row i meets its first key at the distance of column rows - 1 - i, and each key at the next column.
        strides = (rows * num, units * rows * num, num - 1, 1)
        return products.as_strided((units, heads, rows, context), strides, rows - 1)


class Convolution(NamedTuple):
    """x + out(silu(norm(depthwise(glu(gates(norm(x)))))))."""

    norm: LayerNorm
    gates: LinearWeight
    taps: Tensor
    """float32 [kernel, hidden]"""
    bias: Tensor | None
    """float32 [hidden]"""
    inner_norm: LayerNorm | None
    """None where it is in taps and bias."""
    out: LinearWeight

    def gated(self, x: Tensor) -> Tensor:
        """What of rows [n, hidden] is convolved: [n, hidden]."""
        return F.glu(linear(x, self.gates, before=self.norm), dim=1)

    def convolved(self, rows: Tensor) -> Tensor:
        """Rows [items, n + kernel - 1, hidden] → [items, n, hidden], summed in float32."""
        taps = self.taps
        num = rows.shape[1] - taps.shape[0] + 1
        rows = rows.float()
        total = rows[:, :num] * taps[0]
        for index in range(1, taps.shape[0]):
            total.addcmul_(rows[:, index : index + num], taps[index])
        return total if self.bias is None else total.add_(self.bias)

    def projected(self, convolved: Tensor, x: Tensor) -> Tensor:
        """The rows behind it, of what `convolved` gave as [n, hidden] and the rows in front of it."""
        rows = convolved.to(x.dtype)
        if self.inner_norm is not None:
            rows = self.inner_norm(rows)
        return linear(F.silu(rows), self.out, residual=x)


class ConformerLayer(NamedTuple):
    """One layer."""

    first: FeedForward
    attention: Attention
    convolution: Convolution
    last: FeedForward
    norm: LayerNorm

    def finished(self, x: Tensor) -> Tensor:
        """The rows behind the layer, of those behind its convolution."""
        return self.norm(self.last(x))


def take_conformer_layer(
    tensors: TensorReader, config: ConformerConfig, index: int, sinusoids: Tensor, most: int
) -> ConformerLayer:
    """`sinusoids` is `relative_sinusoids(most, …)`."""
    name = f"encoder.layers.{index}"
    return ConformerLayer(
        first=_take_feed_forward(tensors, f"{name}.feed_forward1", f"{name}.norm_feed_forward1"),
        attention=_take_attention(tensors, config, name, sinusoids, most),
        convolution=_take_convolution(tensors, config, name),
        last=_take_feed_forward(tensors, f"{name}.feed_forward2", f"{name}.norm_feed_forward2"),
        norm=take_norm(tensors, f"{name}.norm_out"),
    )


def relative_sinusoids(most: int, least: int, hidden_size: int) -> Tensor:
    """float32 [most - least + 1, hidden]: sine and cosine in turn of distances `most` down to `least`."""
    exponents = torch.arange(0, hidden_size, 2, dtype=torch.float) / hidden_size
    angles = torch.arange(most, least - 1, -1)[:, None].float() * (1.0 / _BASE**exponents)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def take_product(tensors: TensorReader, name: str, scale: float = 1.0) -> LinearWeight:
    """The product of `name.weight` [out, in] or [out, in, 1], and of `name.bias` if there is one."""
    weight = tensors.take(f"{name}.weight").flatten(1)
    bias = tensors.take(f"{name}.bias") if f"{name}.bias" in tensors else None
    if scale != 1.0:
        weight, bias = weight * scale, None if bias is None else bias * scale
    return arrange_linear(weight, bias, GRIDS[tensors.quantization])


def _take_feed_forward(tensors: TensorReader, name: str, norm: str) -> FeedForward:
    return FeedForward(
        norm=take_norm(tensors, norm),
        up=take_product(tensors, f"{name}.linear1"),
        down=take_product(tensors, f"{name}.linear2", _HALF),
    )


def _take_attention(
    tensors: TensorReader, config: ConformerConfig, layer: str, sinusoids: Tensor, most: int
) -> Attention:
    name = f"{layer}.self_attn"
    projection = tensors.take(f"{name}.relative_k_proj.weight")
    distances = F.linear(sinusoids.to(device=projection.device, dtype=projection.dtype), projection)
    distances = distances.to(product_dtype(projection))
    parts = [f"{name}.{part}_proj" for part in "qkv"]
    bias = tensors.take_all(*(f"{part}.bias" for part in parts)) if config.has_attention_bias else None
    return Attention(
        norm=take_norm(tensors, f"{layer}.norm_self_att"),
        qkv=tensors.take_linear(*(f"{part}.weight" for part in parts), bias=bias),
        out=take_product(tensors, f"{name}.o_proj"),
        content_bias=tensors.take(f"{name}.bias_u"),
        position_bias=tensors.take(f"{name}.bias_v"),
        distances=distances.view(-1, config.num_heads, config.head_dim).permute(1, 2, 0).contiguous(),
        most=most,
    )


def _take_convolution(tensors: TensorReader, config: ConformerConfig, layer: str) -> Convolution:
    name = f"{layer}.conv"
    taps = tensors.take(f"{name}.depthwise_conv.weight").float().squeeze(1).t()
    bias = tensors.take(f"{name}.depthwise_conv.bias").float() if config.has_conv_bias else None
    inner_norm: LayerNorm | None = None
    if config.is_causal:
        inner_norm = take_norm(tensors, f"{name}.norm")
    else:
        taps, bias = _with_batch_norm(tensors, f"{name}.norm", taps, bias)
    return Convolution(
        norm=take_norm(tensors, f"{layer}.norm_conv"),
        gates=take_product(tensors, f"{name}.pointwise_conv1"),
        taps=taps.contiguous(),
        bias=bias,
        inner_norm=inner_norm,
        out=take_product(tensors, f"{name}.pointwise_conv2"),
    )


def _with_batch_norm(
    tensors: TensorReader, name: str, taps: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Taps and bias of the convolution with the batch norm behind it."""
    parts: Any = (
        tensors.take(f"{name}.{part}").float() for part in ("weight", "bias", "running_mean", "running_var")
    )
    weight, shift, mean, variance = parts
    scale = weight * torch.rsqrt(variance + 1e-5)
    return taps * scale, shift + ((0.0 if bias is None else bias) - mean) * scale
