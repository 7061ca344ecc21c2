"""A cache-aware FastConformer: chunks of many streams, of any age and look-ahead, in one ragged pass.

A stream's rows are in chunks of look-ahead + 1. A row attends to its chunk and to whole chunks before it, so
a unit of attention is a chunk with the rows in front of it, and all units of one look-ahead are alike: the
distances between their rows are the same however old their streams are, and the products of distances are
computed once, at load. What a later chunk needs lies in the stream's slot: keys and values of its last
`left_context` rows (a ring: row p is at p modulo its length), the last rows in front of each convolution, and
the subsampling's tails. `encode` only reads slots; `commit` writes them. Read `chunks.py` for the arithmetic
of chunks, `conformer.py` for the layers, `transducer.py` for what becomes of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import torch
from torch import Tensor

from ..weights import TensorReader
from .chunks import chunk_rows, left_rows
from .conformer import ConformerConfig, ConformerLayer, relative_sinusoids, take_conformer_layer
from .subsampling import Subsampling


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """The next frames of one stream: whole chunks, or what its end leaves."""

    frames: Tensor
    """[mel bins, frames], without padding; at least one."""
    lookahead: int
    num_rows_before: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class EncoderUpdate:
    """What `commit` writes."""

    order: list[int]
    """The chunks in the order of the tensors below."""
    num_rows: list[int]
    """In that order."""
    memory: Tensor
    """[layers, rows, 2 * hidden]: keys and values."""
    convolved: Tensor
    """[layers, chunks, kernel - 1, hidden]"""
    tails: tuple[Tensor, ...]
    """As the subsampling gives them."""


@dataclass(frozen=True, slots=True)
class _Units:
    """Chunks of one look-ahead, laid out for attention."""

    first_row: int
    num_rows: int
    num_units: int
    rows: Tensor | None
    """int64 [units * rows of a chunk]: rows of the pass, where the last chunk of a stream is not whole."""
    places: Tensor | None
    """int64: where each row of the pass is among those of the units, then."""
    before: Tensor
    """int64 [units * left]: places in the ring of all slots."""
    fresh: tuple[Tensor, Tensor] | None
    """Which of `before` are rows of this pass instead, and which rows."""
    mask: Tensor | None
    """[units, left + rows of a chunk]: what there is."""


class StreamingEncoder:
    """The encoder of one checkpoint, and the states of its streams."""

    def __init__(
        self, config: ConformerConfig, left_context: int, lookaheads: Sequence[int], tensors: TensorReader
    ) -> None:
        self.config = config
        self.left_context = left_context
        self.device, self.dtype = tensors.device, tensors.dtype
        self._subsampling = Subsampling(config, tensors)
        longest = chunk_rows(max(lookaheads))
        most = left_context + longest - 1
        sinusoids = relative_sinusoids(most, 1 - longest, config.hidden_size)
        self._layers: list[ConformerLayer] = [
            take_conformer_layer(tensors, config, index, sinusoids, most)
            for index in range(config.num_layers)
        ]
        self._memory = self._behind = torch.empty(0)
        self._tails: list[Tensor] = []

    def state_shapes(self) -> list[tuple[int, ...]]:
        """Of the tensors of a slot."""
        c = self.config
        ring = (c.num_layers, self.left_context, 2 * c.hidden_size)
        behind = (c.num_layers, c.kernel_size - 1, c.hidden_size)
        return [ring, behind, *self._subsampling.tail_shapes()]

    def make_states(self, num_slots: int) -> list[Tensor]:
        """Zeros for so many slots, the first dimension of each tensor."""
        ring, behind, *tails = self.state_shapes()
        # A layer's slots lie together, so that one look-up of rows serves all streams.
        self._memory = self._zeros(ring[0], num_slots, *ring[1:])
        self._behind = self._zeros(behind[0], num_slots, *behind[1:])
        self._tails = [self._zeros(num_slots, *shape) for shape in tails]
        return [self._memory.transpose(0, 1), self._behind.transpose(0, 1), *self._tails]

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def encode(
        self, chunks: Sequence[StreamChunk], slots: Tensor
    ) -> tuple[Tensor, tuple[int, ...], EncoderUpdate]:
        """The rows [rows, hidden] of the chunks in their order, how many each has, and the states behind."""
        order = sorted(range(len(chunks)), key=lambda index: _likeness(chunks[index]))
        chunks = [chunks[index] for index in order]
        place = torch.tensor(order, device=self.device)
        slots = slots.index_select(0, place)
        subsampled = self._subsampling(
            [chunk.frames for chunk in chunks],
            [chunk.is_first for chunk in chunks],
            [tail.index_select(0, slots) for tail in self._tails],
        )
        x, lengths = subsampled.rows, subsampled.num_rows
        units = list(self._units(chunks, lengths, slots.tolist()))
        alike = [(length, len(list(each))) for length, each in groupby(lengths)]
        size, behind = 2 * self.config.hidden_size, self._behind
        memory = x.new_empty((len(self._layers), len(x), size))
        convolved = x.new_empty((len(self._layers), len(chunks), *behind.shape[2:]))
        for index, layer in enumerate(self._layers):
            x = layer.first(x)
            qkv = layer.attention.projected(x)
            memory[index] = qkv[:, 1:].flatten(1)
            mixed = [self._attended(layer, index, qkv, memory[index], each) for each in units]
            x = layer.attention.finished(torch.cat(mixed) if len(mixed) > 1 else mixed[0], x)
            past = behind[index].index_select(0, slots)
            x = self._convolved(layer, x, past, alike, convolved[index])
            x = layer.finished(x)
        update = EncoderUpdate(order, lengths, memory, convolved, subsampled.tails)
        return (*_in_order(x, order, lengths), update)

    def commit(self, chunks: Sequence[StreamChunk], slots: Tensor, update: EncoderUpdate) -> None:
        """Make the states in `slots` those behind the chunks that gave `update`."""
        slots = slots.index_select(0, torch.tensor(update.order, device=self.device))
        size = self.left_context
        sources: list[int] = []
        targets: list[int] = []
        first_row = 0
        for index, slot, num in zip(update.order, slots.tolist(), update.num_rows, strict=True):
            for row in range(max(0, num - size), num):
                sources.append(first_row + row)
                targets.append(slot * size + (chunks[index].num_rows_before + row) % size)
            first_row += num
        memory = update.memory
        if len(sources) < memory.shape[1]:
            memory = memory.index_select(1, torch.tensor(sources, device=self.device))
        into = torch.tensor(targets, device=self.device)
        self._memory.flatten(1, 2).index_copy_(1, into, memory)
        self._behind.index_copy_(1, slots, update.convolved)
        for tail, new in zip(self._tails, update.tails, strict=True):
            tail.index_copy_(0, slots, new)

    def _units(
        self, chunks: Sequence[StreamChunk], lengths: Sequence[int], slots: Sequence[int]
    ) -> Iterator[_Units]:
        """Of each look-ahead, whose chunks are neighbours."""
        starts = list(accumulate(lengths, initial=0))
        indices = range(len(chunks))
        for lookahead, alike in groupby(indices, key=lambda index: chunks[index].lookahead):
            group = list(alike)
            size, left = chunk_rows(lookahead), left_rows(self.left_context, lookahead)
            rows: list[int] = []
            places: list[int] = []
            before: list[int] = []
            fresh: list[tuple[int, int]] = []
            mask: list[list[bool]] = []
            for index in group:
                for first in range(0, lengths[index], size):
                    valid = min(size, lengths[index] - first)
                    start = starts[index] + first
                    places += range(len(rows), len(rows) + valid)
                    rows += [start + min(row, valid - 1) for row in range(size)]
                    age = chunks[index].num_rows_before + first
                    fresh += [
                        (len(before) + left - back, start - back) for back in range(min(first, left), 0, -1)
                    ]
                    ring = slots[index] * self.left_context
                    before += [
                        ring + (age - back) % self.left_context if back <= age else ring
                        for back in range(left, 0, -1)
                    ]
                    mask.append([back <= age for back in range(left, 0, -1)])
                    mask[-1] += [row < valid for row in range(size)]
            is_whole = len(places) == len(rows)
            last = group[-1]
            yield _Units(
                first_row=starts[group[0]],
                num_rows=starts[last] + lengths[last] - starts[group[0]],
                num_units=len(mask),
                rows=None if is_whole else self._indices(rows),
                places=None if is_whole else self._indices(places),
                before=self._indices(before),
                fresh=(self._indices([to for to, _ in fresh]), self._indices([row for _, row in fresh]))
                if fresh
                else None,
                mask=None if all(map(all, mask)) else torch.tensor(mask, device=self.device),
            )

    def _indices(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self.device)

    def _attended(
        self, layer: ConformerLayer, index: int, qkv: Tensor, fresh: Tensor, units: _Units
    ) -> Tensor:
        """What the rows of the units attend to: [rows, hidden]. `fresh` is [rows of the pass, 2 * hidden]."""
        own = slice(units.first_row, units.first_row + units.num_rows)
        query, added = qkv[:, 0], fresh
        if units.rows is None:
            query, added = query[own], added[own]
        else:
            query, added = query.index_select(0, units.rows), added.index_select(0, units.rows)
        before = self._memory[index].flatten(0, 1).index_select(0, units.before)
        if units.fresh is not None:
            before.index_copy_(0, units.fresh[0], fresh.index_select(0, units.fresh[1]))
        num = units.num_units
        parts = [part.view(num, len(part) // num, part.shape[1]) for part in (before, added)]
        memory = torch.cat(parts, 1).unflatten(2, (2, -1))
        mixed = layer.attention.attend(query.reshape(num, -1, query.shape[1]), memory, units.mask).flatten(
            0, 1
        )
        return mixed if units.places is None else mixed.index_select(0, units.places)

    def _convolved(
        self,
        layer: ConformerLayer,
        x: Tensor,
        past: Tensor,
        alike: Sequence[tuple[int, int]],
        behind: Tensor,
    ) -> Tensor:
        """The rows behind the convolution, which sees `past` [chunks, kernel - 1, hidden] in front of each;
        `behind` becomes what the next chunk sees. `alike` are lengths and how many neighbours have them."""
        convolution, num_past = layer.convolution, past.shape[1]
        gated = convolution.gated(x)
        out: list[Tensor] = []
        first_row = first_chunk = 0
        for length, num in alike:
            own = gated[first_row : first_row + length * num].view(num, length, -1)
            end = first_chunk + num
            rows = torch.cat([past[first_chunk:end], own], 1)
            behind[first_chunk:end] = rows[:, length : length + num_past]
            out.append(convolution.convolved(rows).flatten(0, 1))
            first_row, first_chunk = first_row + length * num, end
        return convolution.projected(torch.cat(out) if len(out) > 1 else out[0], x)


def _likeness(chunk: StreamChunk) -> tuple[int, int, bool]:
    """Chunks that are alike are computed together."""
    return chunk.lookahead, chunk.frames.shape[1], chunk.is_first


def _in_order(x: Tensor, order: Sequence[int], lengths: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """Rows and lengths of chunks as they were before they were brought in `order`."""
    back = sorted(range(len(order)), key=order.__getitem__)
    if list(order) != sorted(order):
        parts = torch.split(x, list(lengths))
        x = torch.cat([parts[index] for index in back])
    return x, tuple(lengths[index] for index in back)
