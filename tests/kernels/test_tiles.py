"""What is built on registers of tiles (AMX), with those written out in plain C: so it runs anywhere.

Where a processor has no products of bfloat16 either (`make test-avx2`), the kernels are the ordinary ones.
"""

from __future__ import annotations

import shutil
from typing import Literal

import pytest
import torch
from sensorium.kernels import native
from sensorium.kernels.activation import Activation
from sensorium.kernels.attention.dense_attention import CANDIDATES as WAYS_TO_ATTEND
from sensorium.kernels.attention.paged_attention import (
    PagedSequence,
    paged_attention,
    paged_attention_reference,
    paged_batch,
)
from sensorium.kernels.linear.fused_input import Before, LayerNorm, RmsNorm, native_input
from sensorium.kernels.linear.linear import DenseWeight, linear_reference
from sensorium.kernels.linear.linear import _choice_for as choice_for
from sensorium.kernels.linear.linear import _linear_c as linear_c
from sensorium.kernels.linear.onednn import Tiles
from sensorium.kernels.linear.quantized_linear import linear_bits, quantize_linear
from sensorium.kernels.linear.weight_codes import GRIDS
from support.attention import attend_reference
from support.paged_case import make_case
from torch import Tensor

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None, reason="there is no C compiler: install one, and this runs"
)
WIDTH = 32


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> native.Native:
    """Compiled once for all processes of this user, as the ordinary ones are; in a third of the time."""
    folder = tmp_path_factory.mktemp("written_out")
    compiler = folder / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("cc")} -DWRITTEN_OUT "$@" -O1\n')
    compiler.chmod(0o755)
    kept = (native.user_cache() or folder) / "written_out"
    kept.mkdir(exist_ok=True)
    return native.Native(native.build(kept, str(compiler)))


@pytest.fixture(autouse=True)
def written_out(built: native.Native, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: built)


def assert_near(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 5)],
        [(0, 16), (3, 17), (60, 8)],
        [(0, 64)],
        [(0, 200), (130, 33), (47, 1)],
        [(1, 63), (64, 65), (127, 129)],
    ],
)
@pytest.mark.parametrize(("group", "dim"), [(2, 32), (3, 64), (1, 128), (2, 80)])
@pytest.mark.parametrize("block_size", [16, 7])
@pytest.mark.parametrize("window", [None, 20])
def test_prompts(
    spans: list[tuple[int, int]], group: int, dim: int, block_size: int, window: int | None
) -> None:
    """Positions that nobody owns are no numbers, and lie in the same tiles."""
    case = make_case(spans, dtype=torch.bfloat16, kv_heads=2, group=group, dim=dim, block_size=block_size)
    got = paged_attention(case.query, case.cache, case.batch, window=window)
    clean = case.cache.double().nan_to_num()
    assert_near(got, paged_attention_reference(case.query.double(), clean, case.batch, window=window))


@pytest.mark.parametrize("window", [None, 20, 100])
def test_scores_exceed_all_before_by_far(window: int | None) -> None:
    case = make_case(
        [(0, 70), (250, 150), (33, 6)], dtype=torch.bfloat16, kv_heads=1, group=2, dim=32, block_size=16
    )
    query = case.query * 1000
    got = paged_attention(query, case.cache, case.batch, window=window)
    clean = case.cache.double().nan_to_num()
    assert_near(got, paged_attention_reference(query.double(), clean, case.batch, window=window))


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    case = make_case([(90, 30), (40, 70)], dtype=torch.bfloat16, kv_heads=2, group=2, dim=64, block_size=16)
    together = paged_attention(case.query, case.cache, case.batch)
    table = case.batch.block_tables[0].tolist()
    some = paged_batch([PagedSequence(table, 110, 10)], 16, torch.device("cpu"))
    assert torch.equal(paged_attention(case.query[20:30], case.cache, some), together[20:30])


@pytest.mark.parametrize("rows", [9, 64, 65, 300])
@pytest.mark.parametrize("context", [1, 31, 32, 33, 257, 300])
@pytest.mark.parametrize("dim", [32, 64, 72])
def test_items_of_encoders(rows: int, context: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(rows * context)
    query, key, value = (
        torch.randn(2, n, 3, dim, generator=generator).bfloat16().transpose(1, 2)
        for n in (rows, context, context)
    )
    got = WAYS_TO_ATTEND["c"](query, key, value)
    assert_near(got, attend_reference(query.double(), key.double(), value.double()))
    assert torch.equal(got[1], WAYS_TO_ATTEND["c"](query[1:], key[1:], value[1:])[0]), "alone"


def packed(weight: Tensor) -> tuple[Tensor, Tiles]:
    """As oneDNN packs it where there are tiles: [out / 32, in / 2, 32, 2]."""
    out, size = weight.shape
    full = torch.zeros(-(-out // WIDTH) * WIDTH, size, dtype=weight.dtype)
    full[:out] = weight
    laid = full.view(-1, WIDTH, size // 2, 2).transpose(1, 2).contiguous()
    return laid, Tiles(laid.data_ptr(), WIDTH, size)


@pytest.mark.parametrize("rows", [4, 15, 16, 17, 33, 48, 64])
@pytest.mark.parametrize(("out", "size"), [(64, 32), (32, 96), (200, 64), (96, 544), (130, 50)])
@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_few_rows_are_summed_as_each_alone(rows: int, out: int, size: int, activation: Activation) -> None:
    """A row alone is summed by vectors, in the order of tiles."""
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(out, size, generator=generator).bfloat16()
    bias = torch.randn(out, generator=generator).bfloat16()
    laid, tiles = packed(weight)
    made = DenseWeight(weight, bias, packed=True, tiles=tiles)
    x = torch.randn(rows, size, generator=generator).bfloat16()
    residual = torch.randn(rows, out, generator=generator).bfloat16() if activation == "none" else None

    def product(part: slice) -> Tensor:
        more = None if residual is None else residual[part]
        return linear_c(x[part], made, more, activation=activation)

    got = product(slice(None))
    assert torch.equal(got, torch.cat([product(slice(i, i + 1)) for i in range(rows)]))
    want = linear_reference(
        x.double(),
        weight.double(),
        bias.double(),
        activation=activation,
        residual=None if residual is None else residual.double(),
    )
    torch.testing.assert_close(got.double(), want, rtol=2e-2, atol=0.2)
    assert laid.data_ptr() == tiles.address


@pytest.mark.parametrize(
    ("size", "has_tiles", "most"), [(96, True, 64), (80, True, 8), (96, False, 8)], ids=str
)
def test_few_rows_are_ours_where_we_have_the_tiles_too(
    built: native.Native, monkeypatch: pytest.MonkeyPatch, size: int, has_tiles: bool, most: int
) -> None:
    """oneDNN takes longer for sixteen rows than for one; by vectors we take still longer."""
    monkeypatch.setattr(built, "has_tiles", lambda: int(has_tiles))
    weight = torch.randn(32, size).bfloat16()
    laid, tiles = packed(weight)
    choice = choice_for(weight, tiles)
    assert choice.rows == (1, 4, 8, 16, 32, 64)
    assert choice.defaults == tuple("c" if rows <= most else "onednn" for rows in choice.rows)
    assert laid.data_ptr() == tiles.address


def rows_before(before: str, rows: int, size: int) -> tuple[Before, Tensor]:
    """What is done before, and to which rows."""
    ways: dict[str, Before] = {
        "rms": RmsNorm(torch.rand(size).bfloat16(), 1e-6),
        "layer": LayerNorm(torch.rand(2, size).bfloat16(), 1e-6),
        "silu_mul": "silu_mul",
    }
    return ways[before], torch.randn(rows, size * (2 if before == "silu_mul" else 1)).bfloat16()


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize("before", ["rms", "layer", "silu_mul"])
def test_rows_are_prepared_before_they_are_bytes(before: str, bits: Literal["int8", "int4"]) -> None:
    """A row alone is multiplied by vectors."""
    rows, size, out = 20, 288, 128
    grid = GRIDS[bits]
    assert grid is not None
    made = quantize_linear(torch.randn(out, size), None, grid)
    way, x = rows_before(before, rows, size)
    together = linear_bits(x, made, before=way)
    assert torch.equal(
        together, torch.cat([linear_bits(x[i : i + 1], made, before=way) for i in range(rows)])
    )


@pytest.mark.parametrize("before", ["rms", "layer", "silu_mul"])
def test_rows_are_prepared_first(before: str) -> None:
    rows, size, out = 20, 64, 128
    weight = torch.randn(out, size).bfloat16()
    laid, tiles = packed(weight)
    made = DenseWeight(weight, None, packed=True, tiles=tiles)
    way, x = rows_before(before, rows, size)

    def product(part: Tensor) -> Tensor:
        along = native_input(part, way, size)
        assert along is not None
        return linear_c(part, made, None, along)

    assert torch.equal(product(x), torch.cat([product(x[i : i + 1]) for i in range(rows)]))
    assert laid.data_ptr() == tiles.address
