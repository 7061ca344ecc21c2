"""All layers of a decoder in one call, for the few rows of a decode step.

A layer is six to nine calls of the other files' kernels. Each costs the interpreter some ten microseconds,
several times that where a step has read so much that nothing of the interpreter is in a cache. What a step
calls is the same each time, so it is written down once, and `cpu/layers.c` makes the calls: the same with the
same numbers, in bfloat16 and float32, by weights of any bits. Where a product's way is not our own loop, and
for all else that is not known here (as weights for inputs in another order), a model goes layer by layer.
Read `engine/models/whisper/model.py` next.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .activation import Activation, code_of
from .attention.attention_inputs import HeadNorms
from .attention.cross_attention import CrossSpan
from .attention.kv_cache import check_written, takes_codes
from .attention.kv_quantization import CODED
from .attention.paged_attention import PagedBatch
from .linear.few_experts import Mixture
from .linear.fused_input import MOST_ROWS, LayerNorm, RmsNorm
from .linear.linear import AdaptedWeight, LinearWeight, PlainWeight
from .linear.products import NUMBERS, choices_of, knows_product, product_numbers, scratch_bytes
from .linear.quantized_linear import whole_tiles
from .linear.row_adapters import is_adapting
from .native import CODES, Native, library
from .rotary import RotaryTable
from .silu_mul import LANES

Norm = RmsNorm | LayerNorm


class CrossParts(NamedTuple):
    """The middle of a layer that listens."""

    norm: Norm
    query: LinearWeight
    out: LinearWeight


class LayerParts(NamedTuple):
    """One layer. What is None in one is None in each, but for windows."""

    norm: Norm
    qkv: LinearWeight
    out: LinearWeight
    last_norm: Norm
    up: LinearWeight
    down: LinearWeight
    cross: CrossParts | None = None
    head_norms: HeadNorms | None = None
    window: int | None = None

    @property
    def weights(self) -> tuple[LinearWeight, ...]:
        """In the order in which `cpu/layers.c` has them."""
        cross = () if self.cross is None else (self.cross.query, self.cross.out)
        return (self.qkv, self.out, *cross, self.up, self.down)

    def products(self) -> Iterator[PlainWeight]:
        """The weights as C knows them: without what adapters change."""
        yield from _plain(self.weights)

    def norms(self) -> tuple[Norm, ...]:
        """Of whole rows."""
        return (
            (self.norm, self.last_norm)
            if self.cross is None
            else (self.norm, self.cross.norm, self.last_norm)
        )


class MixtureParts(NamedTuple):
    """One layer whose last products are those of chosen experts. What is None in one is None in each, but for
    windows."""

    norm: RmsNorm
    qkv: LinearWeight
    out: LinearWeight
    last_norm: RmsNorm
    mixture: Mixture
    head_norms: HeadNorms | None = None
    window: int | None = None
    sinks: Tensor | None = None
    """float32 [heads], as `paged_attention` takes them."""
    cross: None = None

    @property
    def weights(self) -> tuple[LinearWeight, ...]:
        """In the order in which `cpu/layers.c` has them."""
        return (self.qkv, self.out)

    def products(self) -> Iterator[PlainWeight]:
        """As those of `LayerParts`."""
        yield from _plain(self.weights)

    def norms(self) -> tuple[Norm, ...]:
        """Of whole rows."""
        return (self.norm, self.last_norm)


AnyParts = LayerParts | MixtureParts


def _plain(weights: Sequence[LinearWeight]) -> Iterator[PlainWeight]:
    """Without what adapters change."""
    for weight in weights:
        yield weight.weight if isinstance(weight, AdaptedWeight) else weight


@dataclass(frozen=True, slots=True)
class Heads:
    """How the queries, keys and values of a row lie."""

    num: int
    num_kv: int
    dim: int


class Layers:
    """Layers written down. Made by `written_down`."""

    def __init__(
        self,
        native: Native,
        parts: Sequence[AnyParts],
        heads: Heads,
        middle: Activation | Literal["silu_mul"],
        places: Sequence[tuple[int, int]],
    ) -> None:
        self._native = native
        self._parts = tuple(parts)  # they hold what the addresses point to
        self._heads = heads
        self._dtype = parts[0].norm[0].dtype
        self._middle = -1 if middle == "silu_mul" else code_of(middle)
        self._num_groups = 1 + max(group for group, _ in places)
        self._num_planes = 1 + max(plane for _, plane in places)
        numbers = (
            number for each in zip(parts, places, strict=True) for number in _numbers(*each, self._dtype)
        )
        self._table = array("q", numbers)
        self._is_adaptable = any(isinstance(each, AdaptedWeight) for part in parts for each in part.weights)
        products = [weight for each in parts for weight in each.products()]
        self._experts = [each.mixture.few for each in parts if isinstance(each, MixtureParts)]
        self._scratch = max([scratch_bytes(products), *(each.scratch_bytes for each in self._experts)])
        self.choices = choices_of(products)

    def take(self, rows: int, cache: Tensor, spans: Sequence[CrossSpan] = ()) -> bool:
        """Whether `run` gives for so many rows, such a cache and such spans what layer by layer would."""
        if self._is_adaptable and is_adapting():  # C knows the plain weights
            return False
        if not 0 < rows <= MOST_ROWS or any(choice.at(rows) != "c" for choice in self.choices):
            return False
        if not all(each.take(rows) for each in self._experts):
            return False
        return cache.is_contiguous() and all(map(self._knows, (cache[0], *(span.memory for span in spans))))

    def _knows(self, blocks: Tensor) -> bool:
        return takes_codes(self._native, blocks) if blocks.dtype is CODED else blocks.dtype is self._dtype

    def run(
        self,
        x: Tensor,
        cache: Tensor,
        groups: Sequence[PagedBatch],
        *,
        table: RotaryTable | None = None,
        spans: Sequence[CrossSpan] = (),
    ) -> None:
        """x [rows, size], contiguous, becomes what is behind the layers. `cache` [planes, …] is as `write_kv`
        takes each of them, `groups` as `paged_attention` takes each. `table` where queries and keys are
        turned. `memory` of `spans` is [layers, 2, heads, n, dim], or codes. Raises IndexError as `write_kv`
        does."""
        rows, heads, layers, batch = x.shape[0], self._heads, len(self._parts), groups[0]
        assert x.is_contiguous(), "it is changed in place"
        assert (x.dtype, cache.shape[0], len(groups)) == (self._dtype, self._num_planes, self._num_groups)
        assert all(each.write_slots.shape[0] == rows for each in groups)
        first = self._parts[0]
        assert (first.cross is None) == (not spans), "either all listen or none"
        memories, starts, lengths = _span_arrays(spans, layers)
        slots = array("q", [each.write_slots.data_ptr() for each in groups])
        tables = array("q", [each.block_tables.data_ptr() for each in groups])
        scratch = torch.empty(whole_tiles(rows) * self._scratch, dtype=torch.uint8)
        step = array(
            "q",
            (
                *(CODES[x.dtype], layers, rows, heads.num, heads.num_kv, heads.dim),
                3 if isinstance(first.norm, LayerNorm) else 1,
                self._middle,
                *((0, 0) if table is None else (table.cos.data_ptr(), table.sin.data_ptr())),
                cache.data_ptr(),
                cache.stride(0) * cache.itemsize,
                cache.dtype is CODED,
                cache.shape[1],
                batch.block_size,
                slots.buffer_info()[0],
                tables.buffer_info()[0],
                batch.query_starts.data_ptr(),
                batch.context_lengths.data_ptr(),
                batch.block_tables.shape[1],
                len(batch.num_queries),
                memories.buffer_info()[0],
                starts.buffer_info()[0],
                lengths.buffer_info()[0],
                len(spans),
                bool(spans) and spans[0].memory.dtype is CODED,
                scratch.data_ptr(),
                torch.get_num_threads(),
            ),
        )
        head_norms = first.head_norms
        bad = self._native.layers(
            self._table.buffer_info()[0],
            step.buffer_info()[0],
            first.norm.eps,
            0.0 if head_norms is None else head_norms.eps,
            heads.dim**-0.5,
            x.data_ptr(),
        )
        if bad >= 0:
            limit = cache.shape[1] * batch.block_size
            outside = [each for each in groups if not 0 <= int(each.write_slots[bad]) < limit]
            check_written(bad, outside[0].write_slots, cache[0])


def written_down(
    parts: Sequence[AnyParts],
    heads: Heads,
    middle: Activation | Literal["silu_mul"],
    *,
    turned: bool = False,
    places: Sequence[tuple[int, int]] | None = None,
) -> Layers | None:
    """The layers, if C kernels know all that is in them; `middle` is between the last two products, and
    queries and keys are `turned` by positions or not. `places` are of each layer the group whose table it
    reads and its index in the cache (None: layers share one table, and lie in their order)."""
    native = library()
    norms = [norm for each in parts for norm in each.norms()]
    head_norms = [norm for each in parts for norm in _of_heads(each)]
    tensors = [norm[0] for norm in norms] + head_norms
    dtype = tensors[0].dtype if tensors else None
    known = all(each.is_cpu and each.is_contiguous() and each.dtype is dtype for each in tensors)
    if native is None or dtype not in CODES or not known or heads.dim % (2 * LANES if turned else 2):
        return None
    if not all(knows_product(weight, dtype) for each in parts for weight in each.products()):
        return None
    mixtures = [each for each in parts if isinstance(each, MixtureParts)]
    if any(each.mixture.few.dtype is not dtype for each in mixtures) or len(mixtures) not in (0, len(parts)):
        return None
    return Layers(native, parts, heads, middle, places or [(0, index) for index in range(len(parts))])


def _numbers(parts: AnyParts, place: tuple[int, int], dtype: torch.dtype) -> Iterator[int]:
    """A layer as C has it."""
    products = [product_numbers(weight) for weight in parts.products() if knows_product(weight, dtype)]
    none = [0] * NUMBERS
    if isinstance(parts, MixtureParts):
        products += [none] * 4
    elif parts.cross is None:
        products[2:2] = [none] * 2
    for each in products:
        yield from each
    yield parts.norm[0].data_ptr()
    yield 0 if parts.cross is None else parts.cross.norm[0].data_ptr()
    yield parts.last_norm[0].data_ptr()
    yield from [norm.data_ptr() for norm in _of_heads(parts)] or (0, 0)
    yield from (parts.window or 0, *place)
    sinks, mixture = (parts.sinks, parts.mixture) if isinstance(parts, MixtureParts) else (None, None)
    yield 0 if sinks is None else sinks.data_ptr()
    yield 0 if mixture is None else mixture.address


def _of_heads(parts: AnyParts) -> tuple[Tensor, ...]:
    return () if parts.head_norms is None else (parts.head_norms.query, parts.head_norms.key)


def _span_arrays(spans: Sequence[CrossSpan], layers: int) -> tuple[array[int], array[int], array[int]]:
    """Where each layer's memory of each span begins, with which row each span begins, how much it hears."""
    for span in spans:
        assert span.memory.is_contiguous(), "an encoding lies in one piece"
        assert span.memory.dtype is spans[0].memory.dtype, "encodings are alike"
        assert span.memory.dtype is CODED or span.num_positions in (None, span.memory.shape[3])
    firsts = [(span.memory.data_ptr(), span.memory.stride(0) * span.memory.itemsize) for span in spans]
    memories = array("q", [first + layer * size for layer in range(layers) for first, size in firsts])
    lengths = [span.memory.shape[3] if span.num_positions is None else span.num_positions for span in spans]
    return memories, array("i", [0, *(span.end for span in spans)]), array("i", lengths)
