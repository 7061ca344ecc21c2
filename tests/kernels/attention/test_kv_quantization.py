"""Keys and values of 8 bits: what is kept of them, and attention over it, whichever way it is computed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sensorium.kernels.attention import attention_inputs as inputs_module
from sensorium.kernels.attention import cross_attention as cross_module
from sensorium.kernels.attention import kv_cache
from sensorium.kernels.attention import paged_attention as paged_module
from sensorium.kernels.attention.attention_inputs import HeadNorms, attention_inputs
from sensorium.kernels.attention.cross_attention import CrossSpan, cross_attention
from sensorium.kernels.attention.kv_cache import gather_kv, write_kv
from sensorium.kernels.attention.kv_quantization import (
    CODED,
    decode,
    encode,
    stored_size,
    write_codes,
)
from sensorium.kernels.attention.paged_attention import (
    PagedSequence,
    paged_attention,
    paged_batch,
)
from sensorium.kernels.rotary import rotary_table
from support.attention import cross_attention_reference
from support.paged_case import (
    TOLERANCE,
    WORST,
    check_attention,
    coded,
    coded_cache,
    distance,
    make_case,
)
from torch import Tensor

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def nothing(_: Tensor) -> None:
    return None


@pytest.fixture(params=["c", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        for module in (kv_cache, paged_module, cross_module, inputs_module):
            monkeypatch.setattr(module, "native_for", nothing)
    return str(request.param)


@given(
    x=st.lists(st.floats(width=32, allow_infinity=False, allow_nan=False), min_size=16, max_size=16),
    dtype=st.sampled_from(DTYPES),
)
def test_a_number_is_half_a_step_from_its_code(x: list[float], dtype: torch.dtype) -> None:
    vector = torch.tensor([x]).to(dtype)
    vector = torch.where(vector.isfinite(), vector, 0.0)  # bfloat16 may round to infinity
    codes, scale = encode(vector)
    most, step = vector.abs().double().max(), scale.double()
    assert most <= step * 127 * (1 + 1e-6) + 1e-44
    assert step <= most / 127 * (1 + 2**-7) + 1e-40
    assert codes.abs().max() <= 127
    error = (codes.double() * step[:, None] - vector.double()).abs().max()
    assert error <= step * 0.501 + 1e-44


def test_twice_the_tokens_but_for_a_scale() -> None:
    assert 2 * 64 / stored_size(64, CODED) > 1.9
    assert 2 * 128 / stored_size(128, CODED) > 1.9
    assert stored_size(64, torch.bfloat16) == 64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("dim", "block_size"), [(16, 16), (48, 32), (128, 16), (24, 16)])
def test_what_is_written_is_read_and_the_same_both_ways(
    dtype: torch.dtype, dim: int, block_size: int
) -> None:
    got, want = coded_cache(5, 2, block_size, dim), coded_cache(5, 2, block_size, dim)
    projection = torch.randn(6, 7, dim).to(dtype)
    projection[0, 1, 3], projection[1, 4, 0], projection[2, 2] = torch.nan, torch.inf, 0.0
    key, value = projection[:, 1:3], projection[:, 4:6]
    slots = torch.tensor([10, 11, 0, 1, 2, 5 * block_size - 1])
    write_kv(got, slots, key, value)
    write_codes(want, slots, key, value)
    assert torch.equal(got, want)
    keys, values = gather_kv(got, torch.tensor([0, 3]), 12)
    for row, slot in enumerate(slots[:5].tolist()):
        for read, written in ((keys[:, slot], key[row]), (values[:, slot], value[row])):
            codes, scale = encode(written)
            torch.testing.assert_close(read, codes * scale[:, None].float(), equal_nan=True)
    assert keys[0, 10].isnan().all()
    assert values[0, 11].isnan().all()
    assert not keys[1, 0].any()


@pytest.mark.parametrize("slot", [-1, 32])
def test_a_slot_outside_writes_nothing(slot: int) -> None:
    cache = torch.zeros(2, 2, 1, 16, stored_size(16, CODED), dtype=CODED)
    with pytest.raises(IndexError, match="outside"):
        write_kv(cache, torch.tensor([0, slot]), torch.ones(2, 1, 16), torch.ones(2, 1, 16))
    assert not cache.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("rows", [3, 70])
def test_from_projection_to_codes_in_one(dtype: torch.dtype, normed: bool, rows: int) -> None:
    qkv, norm = torch.randn(rows, 10, 64).to(dtype), torch.rand(64).to(dtype)
    norms = HeadNorms(norm, norm, 1e-6) if normed else None
    table = rotary_table(torch.arange(rows), 0.5 ** torch.arange(32))
    caches, slots = coded_cache(2 * 5, 3, 16, 64).view(2, 5, 2, 3, 16, -1), torch.randperm(80)[:rows]
    got = attention_inputs(qkv, norms, table, caches[0], slots)
    want = inputs_module._one_after_the_other(qkv, norms, table, caches[1], slots)
    if dtype is torch.bfloat16:  # float32 differs by the order of a norm's sums
        assert torch.equal(got, want)
        assert torch.equal(caches[0], caches[1])
    keys, values = (
        decode(caches[0]).view(5, 2, 3, 16, 64).permute(1, 0, 3, 2, 4).reshape(2, 80, 3, 64)[:, slots]
    )
    numbers = torch.zeros(5, 2, 3, 16, 64, dtype=dtype)
    attention_inputs(qkv, norms, table, numbers, slots)
    plain = numbers.permute(1, 0, 3, 2, 4).reshape(2, 80, 3, 64)[:, slots]
    assert distance(keys, plain[0]) < 0.01
    assert distance(values, plain[1]) < 0.01


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.usefixtures("way")
def test_long_contexts_prompts_and_decode_steps(dtype: torch.dtype, window: int | None) -> None:
    case = make_case(
        [(0, 300), (400, 130), (500, 1)], dtype=dtype, kv_heads=2, group=2, dim=32, block_size=16
    )
    check_attention(case, "codes", window=window)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 9])
def test_a_row_does_not_depend_on_its_neighbours_nor_on_which_blocks_it_has(
    dtype: torch.dtype, rows: int
) -> None:
    case = coded(
        make_case([(90, rows), (3, 1), (40, 6)], dtype=dtype, kv_heads=2, group=2, dim=64, block_size=16)
    )
    together = paged_attention(case.query, case.cache, case.batch)
    table = case.batch.block_tables[0, : -(-(90 + rows) // 16)].tolist()
    moved = case.cache[table]  # blocks copied elsewhere, as bytes
    alone = paged_batch([PagedSequence(range(len(table)), 90, rows)], 16, CPU)
    assert torch.equal(paged_attention(case.query[:rows], moved, alone), together[:rows])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.usefixtures("way")
def test_what_is_no_number_is_seen_by_whom_it_concerns(dtype: torch.dtype, rows: int, kind: int) -> None:
    case = make_case([(40, rows), (40, rows)], dtype=dtype, kv_heads=1, group=2, dim=32, block_size=16)
    blocks = case.batch.block_tables
    hurt = coded(case)
    flat = torch.randn(2, 1, 1, 32).to(dtype)
    flat[kind] = torch.inf
    write_kv(hurt.cache, blocks[0, 1:2].long() * 16 + 3, flat[0], flat[1])
    got = paged_attention(hurt.query, hurt.cache, hurt.batch)
    assert not got[:rows].isfinite().any(-1).any()
    assert got[rows:].isfinite().all()
    query = case.query.clone()
    query[0] = torch.nan
    got = paged_attention(query, coded(case).cache, case.batch)
    assert got[0].isnan().all()
    assert got[1:].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("positions", [1, 30, 201])
@pytest.mark.parametrize("lengths", [(1,), (1, 1, 1), (4, 1, 7)])
@pytest.mark.usefixtures("way")
def test_cross_attention_over_codes(dtype: torch.dtype, positions: int, lengths: tuple[int, ...]) -> None:
    spans, numbers, start = [], [], 0
    for length in lengths:
        key, value = torch.randn(2, positions, 3, 64).to(dtype)
        memory = coded_cache(1, 3, -(-positions // 16) * 16, 64)
        write_kv(memory, torch.arange(positions), key, value)
        spans.append(CrossSpan(start, start + length, memory[0], positions))
        both = torch.stack((key, value)).transpose(1, 2)
        numbers.append(CrossSpan(start, start + length, both))
        start += length
    query = torch.randn(start, 3, 64).to(dtype)
    got = cross_attention(query, spans)
    want = cross_attention_reference(query.double(), spans)
    torch.testing.assert_close(
        got.double(), want, rtol=TOLERANCE["codes", dtype], atol=TOLERANCE["codes", dtype]
    )
    assert distance(got, cross_attention_reference(query.double(), numbers)) < WORST
