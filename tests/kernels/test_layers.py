"""All layers in one call are the layers one by one, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from sensorium.kernels import layers as module
from sensorium.kernels.attention.attention_inputs import HeadNorms, attention_inputs
from sensorium.kernels.attention.cross_attention import CrossSpan, cross_attention
from sensorium.kernels.attention.kv_cache import write_kv
from sensorium.kernels.attention.kv_quantization import CODED, stored_size
from sensorium.kernels.attention.paged_attention import (
    PagedBatch,
    PagedSequence,
    paged_attention,
    paged_batch,
    with_tables,
)
from sensorium.kernels.layers import CrossParts, Heads, LayerParts, Layers, Norm, written_down
from sensorium.kernels.linear.fused_input import MOST_ROWS, LayerNorm, RmsNorm
from sensorium.kernels.linear.linear import (
    DenseWeight,
    LinearWeight,
    PartedWeight,
    arrange_linear,
    linear,
)
from sensorium.kernels.linear.quantized_linear import BitsWeight
from sensorium.kernels.linear.weight_codes import Grid
from sensorium.kernels.native import library
from sensorium.kernels.rotary import RotaryTable, rotary_table
from torch import Tensor

SIZE, MIDDLE, LAYERS, BLOCK, DIM = 64, 96, 2, 16, 32
CPU = torch.device("cpu")
LISTENING, GROUPED = Heads(2, 2, DIM), Heads(4, 2, DIM)
GRIDS = (Grid(8, 0), Grid(8, 32), Grid(4, 64))
STEPS = {
    "one": [PagedSequence([2, 0], 20, 1)],
    "several": [PagedSequence([2, 0], 20, 1), PagedSequence([1], 0, 1), PagedSequence([3, 4, 5], 40, 1)],
    "drafts": [PagedSequence([2, 0], 20, 6), PagedSequence([1], 3, 1), PagedSequence([3, 4, 5], 33, 9)],
}


BF16 = torch.bfloat16


def weight(
    out: int, size: int, *, biased: bool, grid: Grid | None = None, dtype: torch.dtype = BF16
) -> LinearWeight:
    bias = torch.randn(out).to(dtype) if biased else None
    return arrange_linear((torch.randn(out, size) / size**0.5).to(dtype), bias, grid)


def listening(grid: Grid | None = None, *, dtype: torch.dtype = BF16) -> list[LayerParts]:
    """As Whisper's."""

    def norm() -> LayerNorm:
        return LayerNorm(torch.rand(2, SIZE).to(dtype))

    def product(out: int, size: int) -> LinearWeight:
        return weight(out, size, biased=True, grid=grid, dtype=dtype)

    width = LISTENING.num * DIM
    return [
        LayerParts(
            norm=norm(),
            qkv=product(3 * width, SIZE),
            out=product(SIZE, width),
            last_norm=norm(),
            up=product(MIDDLE, SIZE),
            down=product(SIZE, MIDDLE),
            cross=CrossParts(norm(), product(width, SIZE), product(SIZE, width)),
        )
        for _ in range(LAYERS)
    ]


def grouped(
    grid: Grid | None = None, *, head_norms: bool = True, dtype: torch.dtype = BF16
) -> list[LayerParts]:
    """As Qwen3's; the second layer has a window."""

    def norm(size: int = SIZE) -> RmsNorm:
        return RmsNorm(torch.rand(size).to(dtype), 1e-6)

    def product(out: int, size: int, *, biased: bool = False) -> LinearWeight:
        return weight(out, size, biased=biased, grid=grid, dtype=dtype)

    width = GROUPED.num * DIM
    return [
        LayerParts(
            norm=norm(),
            qkv=product((GROUPED.num + 2 * GROUPED.num_kv) * DIM, SIZE, biased=True),
            out=product(SIZE, width),
            last_norm=norm(),
            up=product(2 * MIDDLE, SIZE),
            down=product(SIZE, MIDDLE),
            head_norms=HeadNorms(norm(DIM).weight, norm(DIM).weight, 1e-5) if head_norms else None,
            window=7 if number else None,
        )
        for number in range(LAYERS)
    ]


@dataclass
class Step:
    x: Tensor
    cache: Tensor
    batch: PagedBatch
    table: RotaryTable
    spans: list[CrossSpan]

    def copy(self) -> Step:
        return Step(self.x.clone(), self.cache.clone(), self.batch, self.table, self.spans)


def make_step(
    sequences: Sequence[PagedSequence], heads: Heads, *, coded: bool, dtype: torch.dtype = BF16
) -> Step:
    batch = paged_batch(sequences, BLOCK, CPU)
    rows = batch.write_slots.shape[0]
    cache = torch.randn(LAYERS, 6, 2, heads.num_kv, BLOCK, DIM).to(dtype)
    spans, start = [], 0
    for sequence, positions in zip(sequences, (30, 48, 1), strict=False):
        memory = torch.randn(LAYERS, 2, heads.num, positions, DIM).to(dtype)
        end = start + sequence.num_rows
        spans.append(CrossSpan(start, end, coded_memory(memory) if coded else memory, positions))
        start = end
    if coded:
        cache = torch.stack([coded_cache(each) for each in cache])
    positions_of = torch.cat([torch.arange(each.start, each.start + each.num_rows) for each in sequences])
    table = rotary_table(positions_of, 0.5 ** torch.arange(DIM // 2))
    return Step(torch.randn(rows, SIZE).to(dtype), cache, batch, table, spans)


def coded_cache(cache: Tensor) -> Tensor:
    blocks, _, heads, size, dim = cache.shape
    made = torch.zeros(blocks, 2, heads, size, stored_size(dim, CODED), dtype=CODED)
    key, value = cache.permute(1, 0, 3, 2, 4).flatten(1, 2)
    write_kv(made, torch.arange(blocks * size), key, value)
    return made


def coded_memory(memory: Tensor) -> Tensor:
    padding = -memory.shape[3] % BLOCK
    return torch.cat(
        [coded_cache(each[None]) for each in torch.nn.functional.pad(memory, (0, 0, 0, padding))]
    )


def one_by_one(parts: Sequence[LayerParts], heads: Heads, step: Step) -> Tensor:
    x, batch = step.x, step.batch
    for number, (layer, cache) in enumerate(zip(parts, step.cache, strict=True)):
        qkv = linear(x, layer.qkv, before=layer.norm).view(len(x), -1, DIM)
        if layer.cross is None:
            query = attention_inputs(qkv, layer.head_norms, step.table, cache, batch.write_slots)
        else:
            query, key, value = torch.split(qkv, [heads.num, heads.num_kv, heads.num_kv], 1)
            write_kv(cache, batch.write_slots, key, value)
        mixed = paged_attention(query, cache, batch, window=layer.window).flatten(1)
        x = linear(mixed, layer.out, residual=x)
        if layer.cross is None:
            middle = linear(x, layer.up, before=layer.last_norm)
            x = linear(middle, layer.down, before="silu_mul", residual=x)
            continue
        query = linear(x, layer.cross.query, before=layer.cross.norm).view(len(x), heads.num, DIM)
        crossed = cross_attention(query, [span.of_layer(number) for span in step.spans])
        x = linear(crossed.flatten(1), layer.cross.out, residual=x)
        middle = linear(x, layer.up, before=layer.last_norm, activation="gelu")
        x = linear(middle, layer.down, residual=x)
    return x


def made(parts: Sequence[LayerParts], heads: Heads) -> Layers:
    layers = (
        written_down(parts, heads, "gelu")
        if parts[0].cross
        else written_down(parts, heads, "silu_mul", turned=True)
    )
    if layers is None:
        pytest.skip("there is no C compiler, or no product of bfloat16")
    for choice in layers.choices:
        choice.chosen = ("c",) * len(choice.rows)
    return layers


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("grid", [None, *GRIDS], ids=str)
@pytest.mark.parametrize("kind", ["listening", "grouped", "no head norms"])
def test_they_are_the_layers_one_by_one(
    kind: str, grid: Grid | None, name: str, coded: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(7)
    heads = LISTENING if kind == "listening" else GROUPED
    parts = (
        listening(grid, dtype=dtype)
        if kind == "listening"
        else grouped(grid, head_norms=kind == "grouped", dtype=dtype)
    )
    compare(parts, heads, STEPS[name], coded=coded, dtype=dtype)


@pytest.mark.parametrize("make", [listening, grouped])
def test_layers_of_several_kinds_of_weights(make: Callable[[Grid | None], list[LayerParts]]) -> None:
    """As published folders have them."""
    torch.manual_seed(5)
    dense, eights, fours = (make(grid) for grid in (None, *GRIDS[1:]))
    parts = [
        dense[0]._replace(out=eights[0].out, up=fours[0].up),
        fours[1]._replace(qkv=dense[1].qkv, cross=eights[1].cross, down=eights[1].down),
    ]
    compare(parts, LISTENING if make is listening else GROUPED, STEPS["drafts"], coded=False)


def compare(
    parts: list[LayerParts],
    heads: Heads,
    sequences: list[PagedSequence],
    *,
    coded: bool,
    dtype: torch.dtype = BF16,
) -> None:
    layers = made(parts, heads)
    step = make_step(sequences, heads, coded=coded, dtype=dtype)
    spans = step.spans if heads is LISTENING else []
    other = step.copy()
    want = one_by_one(parts, heads, other)
    assert layers.take(len(step.x), step.cache, spans)
    layers.run(step.x, step.cache, [step.batch], table=None if spans else step.table, spans=spans)
    assert torch.equal(step.x, want)
    assert torch.equal(step.cache, other.cache)


@pytest.mark.parametrize("name", STEPS)
def test_layers_of_two_groups_are_those_of_one_each_under_its_own_table(name: str) -> None:
    """The second layer's keys and values lie in other blocks of the first one's plane; those in front of its
    window are nowhere."""
    torch.manual_seed(11)
    parts, sequences = grouped(dtype=torch.float32), STEPS[name]
    layers = written_down(parts, GROUPED, "silu_mul", turned=True, places=[(0, 0), (1, 0)])
    if layers is None:
        pytest.skip("there is no C compiler")
    step = make_step(sequences, GROUPED, coded=False, dtype=torch.float32)
    other = step.copy()
    want = one_by_one(parts, GROUPED, other)
    first_needed = [max(each.start - 6, 0) // BLOCK for each in sequences]
    more = [
        each._replace(block_table=[-1] * first + [entry + 6 for entry in each.block_table[first:]])
        for each, first in zip(sequences, first_needed, strict=True)
    ]
    cache = step.cache.flatten(0, 1)[None].contiguous()
    layers.run(step.x, cache, [step.batch, with_tables(step.batch, more)], table=step.table)
    assert torch.equal(step.x, want)
    assert torch.equal(cache[0], other.cache.flatten(0, 1))
    more[-1].block_table[-1] = 99
    with pytest.raises(IndexError, match="outside a cache of 12 blocks"):
        layers.run(step.x, cache, [step.batch, with_tables(step.batch, more)], table=step.table)


def test_what_it_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = listening()
    layers = made(parts, LISTENING)
    step = make_step(STEPS["one"], LISTENING, coded=False)
    assert layers.take(MOST_ROWS, step.cache, step.spans)
    assert not layers.take(MOST_ROWS + 1, step.cache)
    assert not layers.take(0, step.cache)
    assert not layers.take(1, step.cache.float())
    assert not layers.take(1, step.cache.transpose(1, 2))
    for choice in layers.choices[:1]:  # none where our loop is the only way
        choice.chosen = ("onednn",) * len(choice.rows)
        assert not layers.take(1, step.cache), "another way is faster here"
        choice.chosen = ("c",) * len(choice.rows)
    assert written_down([], LISTENING, "gelu") is None
    wide: Norm = LayerNorm(torch.rand(2, SIZE))
    assert written_down([parts[0]._replace(norm=wide)], LISTENING, "gelu") is None, "two types"
    double: Norm = LayerNorm(torch.rand(2, SIZE).double())
    every = parts[0]._replace(norm=double, last_norm=double, cross=None)
    assert written_down([every], LISTENING, "gelu") is None
    assert written_down(parts, Heads(2, 2, 33), "gelu") is None
    assert written_down(parts, Heads(2, 2, 16), "silu_mul", turned=True) is None
    monkeypatch.setattr(module, "library", lambda: None)
    assert written_down(parts, LISTENING, "gelu") is None


@pytest.mark.parametrize("grid", GRIDS[1:], ids=str)
def test_fewer_bits_it_does_not_know_are_refused(grid: Grid) -> None:
    parts = grouped(grid)
    made(parts, GROUPED)
    known = parts[0].up
    assert isinstance(known, BitsWeight)
    second = DenseWeight(torch.randn(8, SIZE).bfloat16(), None, packed=False)
    unknown: list[LinearWeight] = [
        replace(known, order=torch.arange(SIZE).flip(0)),
        replace(known, bias=torch.randn(2 * MIDDLE)),
        weight(2 * MIDDLE, SIZE, biased=False, grid=Grid(grid.bits, 8)),
        PartedWeight((known, second)),
    ]
    for each in unknown:
        changed = [parts[0]._replace(up=each), *parts[1:]]
        assert written_down(changed, GROUPED, "silu_mul", turned=True) is None


def test_a_slot_outside_the_cache_is_an_error() -> None:
    layers = made(listening(), LISTENING)
    step = make_step(STEPS["several"], LISTENING, coded=False)
    step.batch.write_slots[1] = 6 * BLOCK
    with pytest.raises(IndexError, match="96"):
        layers.run(step.x, step.cache, [step.batch], spans=step.spans)


@pytest.mark.skipif(library() is None, reason="there is no C compiler")
def test_a_row_does_not_depend_on_others() -> None:
    torch.manual_seed(3)
    parts = listening()
    layers = made(parts, LISTENING)
    sequences = STEPS["several"]
    together = make_step(sequences, LISTENING, coded=False)
    alone = together.copy()
    layers.run(together.x, together.cache, [together.batch], spans=together.spans)
    for row, sequence in enumerate(sequences):
        own = alone.copy()
        x, span = own.x[row : row + 1].clone(), alone.spans[row]._replace(start=0, end=1)
        layers.run(x, own.cache, [paged_batch([sequence], BLOCK, CPU)], spans=[span])
        assert torch.equal(x, together.x[row : row + 1])
