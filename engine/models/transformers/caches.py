"""Where the keys and values of a `transformers` model's layers lie.

What each layer keeps is seen on a model without weights; its part of the cache is found in each step. Layers
may have windows or chunks, share the cache of an earlier one, and differ in their heads. Knows what attention
layers are given, no models. `engine/models/transformers/model.py` is next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....kernels.attention.kv_quantization import stored_size
from ....kernels.attention.paged_attention import PagedBatch
from ...planning.kv.specs import ChunkedLocal, LayerSpec, NoCache, SharedWith, SlidingWindow, State
from ..base import KvShape, attention_spec


@dataclass(frozen=True, slots=True)
class SeenLayer:
    """What a layer's attention was given: keys and values [1, heads, rows, dim], and how many positions it
    sees. A `chunk` is that of a layer which sees those of its own chunk. Of one that keeps latents these are
    in place of keys, and the parts of keys that all heads share in place of values."""

    key: Tensor
    value: Tensor
    window: int | None
    chunk: int | None = None
    is_latent: bool = False
    index_size: int = 0
    """Numbers by which the layer chooses what a row attends to, kept behind its latents."""

    def spec(self, context: int) -> LayerSpec:
        """What it keeps in such a context."""
        if self.chunk is not None and self.chunk < context:
            return ChunkedLocal(self.chunk)
        return attention_spec(self.window, context, is_latent=self.is_latent)

    @property
    def heads(self) -> tuple[int, int]:
        """The heads whose vectors it keeps, and their size: of keys and values the larger one."""
        key, value = self.key.shape[3], self.value.shape[3]
        return self.key.shape[1], key + value + self.index_size if self.is_latent else max(key, value)


def kv_shape_of(layers: Sequence[SeenLayer], context: int) -> KvShape:
    """What such layers keep of a token. One that is given the very keys of an earlier one shares its cache.

    Raises ValueError with what no cache is kept for.
    """
    specs = [each.spec(context) for each in layers]
    first_of: dict[int, int] = {}
    for index, layer in enumerate(layers):
        source = first_of.setdefault(id(layer.key), index)
        if source != index:
            if specs[source] != specs[index]:
                raise ValueError(f"layers {source} and {index} share keys and have different windows")
            specs[index] = SharedWith(source)
        if layer.is_latent != layers[0].is_latent:
            raise ValueError("some of its layers keep latents, others keys and values")
    if not layers:
        return KvShape(0, 0, 0)
    heads = tuple(layer.heads for layer in layers)
    num_kv_heads, head_dim = max(heads, key=lambda each: each[0] * each[1])
    differ = len(set(heads)) > 1
    num_vectors = 1 if layers[0].is_latent else 2
    return KvShape(len(layers), num_kv_heads, head_dim, tuple(specs), heads if differ else (), num_vectors)


def with_states(
    shape: KvShape, attending: Sequence[int], states: Mapping[int, int], num_layers: int
) -> KvShape:
    """`shape` is that of the layers `attending` alone, in rising order; `states` are bytes by layer. All
    layers' shape, behind which stand the states of layers that attend as well."""
    if not states:
        return shape
    order = sorted(attending)
    specs: list[LayerSpec] = [NoCache()] * num_layers
    heads = [(shape.num_kv_heads, shape.head_dim)] * num_layers
    for layer, spec, of_layer in zip(order, shape.specs, shape.heads_of_layers, strict=True):
        specs[layer] = SharedWith(order[spec.layer]) if isinstance(spec, SharedWith) else spec
        heads[layer] = of_layer
    for layer, num_bytes in states.items():
        if layer in order:
            specs.append(State(num_bytes))
            heads.append(heads[layer])
        else:
            specs[layer] = State(num_bytes)
    return replace(
        shape, num_layers=len(specs), specs=tuple(specs), heads=tuple(heads) if shape.heads else ()
    )


class CachedLayers:
    """The layers' parts of a cache in one step."""

    def __init__(self, shape: KvShape, groups: Sequence[PagedBatch], cache: Tensor) -> None:
        """`cache` is of `shape.cache_shape`, and `groups` are the step in each group of layers."""
        self._shape = shape
        self._places = shape.layout(cache.dtype).places
        self._groups = groups
        self._cache = cache
        self._moved: dict[tuple[int, int, int], PagedBatch] = {}

    def writes(self, layer: int) -> bool:
        """Whether the layer's keys and values are its own, and not written by the one it shares with."""
        return not isinstance(self._shape.specs[layer], SharedWith)

    def seen(self, layer: int) -> dict[str, int]:
        """Which positions a layer's rows see, as `paged_attention` takes it."""
        spec = self._shape.specs[layer]
        if isinstance(spec, SharedWith):
            return self.seen(spec.layer)
        match spec:
            case SlidingWindow(window):
                return {"window": window}
            case ChunkedLocal(chunk):
                return {"chunk": chunk}
            case _:
                return {}

    def of(self, layer: int) -> tuple[Tensor, PagedBatch]:
        """A layer's cache and step, as `paged_attention` takes them."""
        place = self._places[layer]
        assert place is not None, "each layer attends"
        group = self._groups[place.group]
        if not self._shape.heads:
            return self._cache[place.part], group
        # A block is in one piece: it is as many blocks of this layer's size as fit, of which one is its.
        num_heads, dim = self._shape.heads[layer]
        block_size, token_size = self._cache.shape[4:]
        size = stored_size(dim, self._cache.dtype)
        num_vectors = self._shape.num_vectors
        parts = token_size // (num_vectors * num_heads * size)
        cache = self._cache.view(-1, num_vectors, num_heads, block_size, size)
        key = (place.group, parts, place.part)
        if key not in self._moved:
            self._moved[key] = _moved(group, parts, place.part)
        return cache, self._moved[key]


def _moved(batch: PagedBatch, parts: int, index: int) -> PagedBatch:
    """The step in part `index` of each block. Entries without a block stay as they are."""
    size = batch.block_size
    blocks = torch.div(batch.write_slots, size, rounding_mode="floor") * parts + index
    tables = torch.where(batch.block_tables < 0, batch.block_tables, batch.block_tables * parts + index)
    return replace(batch, block_tables=tables, write_slots=blocks * size + batch.write_slots % size)
