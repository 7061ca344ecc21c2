"""Steps of few rows through a mixture's decoder, all layers in one call of C.

Between the products of such a step `transformers` computes for longer than they take. Decoders that are known
here by their classes are what `kernels/layers.py` runs: norms, attention with rotary positions, and experts
behind a router of softmax. The weights are the modules' own, which run all other steps. `model.py` compares
both with what the model gives by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from ....kernels.attention.attention_inputs import HeadNorms
from ....kernels.host_memory import use_large_pages
from ....kernels.layers import Heads, Layers, MixtureParts, written_down
from ....kernels.linear.few_experts import Mixture
from ....kernels.linear.float32_tiles import WIDTH, TiledWeight
from ....kernels.linear.fused_input import RmsNorm
from ....kernels.linear.row_adapters import is_adapting
from ....kernels.rotary import rotary_table
from ...planning.kv.specs import FullAttention, LayerSpec, SlidingWindow
from ..base import KvShape, StepBatch
from .experts import ArrangedExperts
from .norms import FusedRmsNorm
from .rounded import Tiled

_ROUTERS: Final = {"GptOssModel": "router", "MixtralModel": "gate", "Qwen3MoeModel": "gate"}
"""Of decoders whose layers are such, what a mixture calls its router."""
_STEADY: Final = ("default", "linear", "llama3", "yarn")
"""Rotary frequencies that do not depend on the rows of a step."""


class FewRows:
    """A decoder written down for few rows. Made by `few_rows`."""

    def __init__(self, decoder: Any, layers: Layers) -> None:  # noqa: ANN401 (of any family)
        self._decoder, self._layers = decoder, layers

    def take(self, rows: int, cache: Tensor) -> bool:
        """Whether `forward` gives for so many rows and such a cache what the decoder would."""
        return not is_adapting() and self._layers.take(rows, cache)

    def forward(self, batch: StepBatch, cache: Tensor) -> Tensor:
        """The decoder's hidden states [rows, size] of a step."""
        decoder = self._decoder
        x = decoder.embed_tokens(batch.token_ids)
        rotary = decoder.rotary_emb
        table = rotary_table(batch.positions, rotary.inv_freq, scaling=rotary.attention_scaling)
        self._layers.run(x, cache, batch.groups, table=table)
        hidden: Tensor = decoder.norm(x)
        return hidden


def few_rows(decoder: Any, shape: KvShape, dtype: torch.dtype) -> FewRows | None:  # noqa: ANN401
    """A decoder on a CPU as C runs it, if it is known and all of it became our own products and norms. The
    tiles of queries, keys and values are moved together for it."""
    router = _ROUTERS.get(type(decoder).__name__)
    places = [place for place in shape.layout(dtype).places if place is not None]
    whole = len(decoder.layers) == len(places) == shape.num_layers and not shape.heads if router else False
    if router is None or not whole or type(decoder.embed_tokens) is not torch.nn.Embedding:
        return None
    rotary, size = decoder.rotary_emb, shape.head_dim
    if rotary.rope_type not in _STEADY or rotary.inv_freq.shape != (size // 2,):
        return None
    specs = shape.specs or (FullAttention(),) * shape.num_layers
    parts = [_parts(layer, spec, size, router) for layer, spec in zip(decoder.layers, specs, strict=True)]
    known = [each for each in parts if each is not None]
    if len(known) < len(parts):
        return None
    heads = Heads(decoder.layers[0].self_attn.o_proj.tiles.size // size, shape.num_kv_heads, size)
    layers = written_down(known, heads, "silu_mul", turned=True, places=places)
    return None if layers is None else FewRows(decoder, layers)


def _parts(layer: Any, spec: LayerSpec, size: int, router_name: str) -> MixtureParts | None:  # noqa: ANN401
    """Of one layer; None if it is not all that is known here."""
    attention, mlp = layer.self_attn, layer.mlp
    norms = layer.input_layernorm, layer.post_attention_layernorm
    of_heads = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    products = [getattr(attention, f"{name}_proj") for name in ("q", "k", "v", "o")]
    experts, router = getattr(mlp, "experts", None), getattr(mlp, router_name, None)
    if not isinstance(experts, ArrangedExperts) or experts.few is None or router is None:
        return None
    if not all(isinstance(each, Tiled) for each in products):
        return None
    if not all(isinstance(each, FusedRmsNorm) for each in (*norms, *filter(None, of_heads))):
        return None
    if not isinstance(spec, FullAttention | SlidingWindow) or attention.scaling != size**-0.5:
        return None
    qkv = _joined(products[:3])
    if qkv is None:
        return None
    bias: Tensor | None = getattr(router, "bias", None)
    if any(each.dtype is not experts.few.dtype for each in (router.weight, bias) if each is not None):
        return None
    normalized = bool(getattr(router, "norm_topk_prob", True))
    mixture = Mixture(
        experts.few,
        router.weight.detach(),
        None if bias is None else bias.detach(),
        router.top_k,
        normalized=normalized,
    )
    query, key = of_heads
    sinks: Tensor | None = getattr(attention, "sinks", None)
    return MixtureParts(
        norm=RmsNorm(norms[0].scale, norms[0].eps),
        qkv=qkv,
        out=products[3].tiles,
        last_norm=RmsNorm(norms[1].scale, norms[1].eps),
        mixture=mixture,
        head_norms=None if query is None or key is None else HeadNorms(query.scale, key.scale, query.eps),
        window=spec.window if isinstance(spec, SlidingWindow) else None,
        sinks=None if sinks is None else sinks.detach().float().contiguous(),
    )


def _joined(layers: Sequence[Tiled]) -> TiledWeight | None:
    """One weight of several for the same inputs, whose own become parts of it."""
    weights = [each.tiles for each in layers]
    first, biases = weights[0], [each.bias for each in weights if each.bias is not None]
    if {(each.kind, each.size) for each in weights} != {(first.kind, first.size)}:
        return None
    if any(each.out % WIDTH for each in weights) or len(biases) not in (0, len(weights)):
        return None
    memory = torch.cat([each.memory for each in weights])
    use_large_pages(memory.data_ptr(), memory.nbytes)
    bias = torch.cat(biases) if biases else None
    tile = out = 0
    for layer, weight in zip(layers, weights, strict=True):
        tiles, outs = slice(tile, tile + len(weight.memory)), slice(out, out + weight.out)
        layer.tiles = replace(weight, memory=memory[tiles], bias=None if bias is None else bias[outs])
        tile, out = tiles.stop, outs.stop
    return replace(first, memory=memory, bias=bias, out=out)
