"""Paged attention equals its reference for any ragged batch, shape and way of computing it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.kernels.attention import kv_cache
from sensorium.kernels.attention import paged_attention as module
from sensorium.kernels.attention.paged_attention import (
    PagedSequence,
    paged_attention,
    paged_batch,
)
from sensorium.kernels.native import Native
from support.paged_case import Kept, check_attention, make_case

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]
KEPT: list[Kept] = ["numbers", "codes"]
DIMS = {"numbers": [2, 16, 24, 32, 40, 64, 80, 128], "codes": [16, 24, 32, 48, 64, 80, 128]}
BLOCK_SIZES = {"numbers": [1, 4, 7, 16, 32], "codes": [16, 32]}
spans = st.lists(
    st.tuples(st.integers(0, 90), st.one_of(st.just(1), st.integers(1, 70))), min_size=1, max_size=5
)


@pytest.mark.parametrize("kept", KEPT)
@settings(max_examples=120, deadline=None)
@given(
    data=st.data(),
    spans=spans,
    dtype=st.sampled_from(DTYPES),
    kv_heads=st.sampled_from([1, 2, 3]),
    group=st.sampled_from([1, 2, 3, 4, 8]),
    seen=st.sampled_from([{}, {"window": 1}, {"window": 5}, {"window": 64}, {"chunk": 1}, {"chunk": 24}]),
    sinks=st.sampled_from([None, 0.0, 4.0]),
)
def test_equals_reference(
    kept: Kept,
    data: st.DataObject,
    spans: list[tuple[int, int]],
    dtype: torch.dtype,
    kv_heads: int,
    group: int,
    seen: dict[str, int],
    sinks: float | None,
) -> None:
    """`sinks` are about so large, if there are any."""
    dim, block_size = data.draw(st.sampled_from(DIMS[kept])), data.draw(st.sampled_from(BLOCK_SIZES[kept]))
    case = make_case(spans, dtype=dtype, kv_heads=kv_heads, group=group, dim=dim, block_size=block_size)
    scores = None if sinks is None else torch.arange(kv_heads * group) % 3 - 1.0 + sinks
    check_attention(case, kept, sinks=scores, **seen)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seen", [{}, {"window": 100}, {"chunk": 100}], ids=str)
def test_long_prompts_and_chunks_behind_a_long_context(
    dtype: torch.dtype, seen: dict[str, int], kept: Kept
) -> None:
    case = make_case([(0, 300), (400, 130)], dtype=dtype, kv_heads=2, group=2, dim=32, block_size=16)
    check_attention(case, kept, **seen)


@pytest.mark.parametrize("size", [-100.0, 100.0])
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sinks_far_from_all_scores(dtype: torch.dtype, rows: int, size: float) -> None:
    """One that is far below takes nothing, one that is far above all."""
    case = make_case([(70, rows)], dtype=dtype, kv_heads=2, group=2, dim=32, block_size=16)
    got = paged_attention(case.query, case.cache, case.batch, sinks=torch.full((4,), size))
    plain = paged_attention(case.query, case.cache, case.batch)
    torch.testing.assert_close(got, plain if size < 0 else torch.zeros_like(plain))


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_sequences_share_items_of_several_heads(dtype: torch.dtype, kept: Kept) -> None:
    spans = [(position, 1) for position in range(40)]
    check_attention(make_case(spans, dtype=dtype, kv_heads=4, group=2, dim=64, block_size=16), kept)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", DTYPES)
def test_softcap_bends_scores(dtype: torch.dtype, kept: Kept) -> None:
    case = make_case([(20, 1), (0, 9)], dtype=dtype, kv_heads=2, group=2, dim=32, block_size=16)
    case.cache.nan_to_num_()  # the plain way reads whole blocks
    check_attention(case, kept, softcap=0.5)
    plain = paged_attention(case.query, case.cache, case.batch)
    assert not torch.allclose(plain, paged_attention(case.query, case.cache, case.batch, softcap=0.5))


def test_large_scores_stay_finite() -> None:
    case = make_case([(70, 1), (0, 70)], dtype=torch.float32, kv_heads=1, group=2, dim=32, block_size=16)
    check_attention(case._replace(query=case.query * 1000))


@pytest.mark.parametrize("window", [None, 20, 100])
def test_scores_exceed_all_before_by_far(window: int | None) -> None:
    spans = [(70, 1), (0, 70), (250, 150), (33, 6)]
    case = make_case(spans, dtype=torch.bfloat16, kv_heads=1, group=2, dim=32, block_size=16)
    check_attention(case._replace(query=case.query * 1000), window=window)


def test_scale_is_taken() -> None:
    case = make_case([(30, 1)], dtype=torch.float32, kv_heads=1, group=2, dim=32, block_size=16)
    want = paged_attention(case.query * 2, case.cache, case.batch)
    got = paged_attention(case.query, case.cache, case.batch, scale=2 * 32**-0.5)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_queries_may_be_part_of_a_projection(dtype: torch.dtype) -> None:
    case = make_case([(5, 3)], dtype=dtype, kv_heads=2, group=1, dim=32, block_size=16)
    wide = torch.randn(3, 6, 32).to(dtype)
    wide[:, :2] = case.query
    assert torch.equal(
        paged_attention(wide[:, :2], case.cache, case.batch),
        paged_attention(case.query, case.cache, case.batch),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_does_not_depend_on_its_neighbours(dtype: torch.dtype) -> None:
    spans = [(90, 1), (3, 1), (40, 6)]
    case = make_case(spans, dtype=dtype, kv_heads=2, group=2, dim=64, block_size=16)
    together = paged_attention(case.query, case.cache, case.batch)
    table = case.batch.block_tables[0].tolist()
    alone = paged_batch([PagedSequence(table, 90, 1)], 16, CPU)
    assert torch.equal(paged_attention(case.query[:1], case.cache, alone)[0], together[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_the_c_kernels(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: torch.Tensor) -> Native | None:
        return None

    monkeypatch.setattr(module, "native_for", nothing)
    monkeypatch.setattr(kv_cache, "native_for", nothing)
    case = make_case([(20, 1), (0, 9)], dtype=dtype, kv_heads=2, group=2, dim=24, block_size=4)
    case.cache.nan_to_num_()
    check_attention(case, window=6)


def test_a_step_without_sequences() -> None:
    batch = paged_batch([], 16, CPU)
    assert batch.block_tables.shape == (0, 0)
    cache = torch.zeros(1, 2, 1, 16, 8)
    assert paged_attention(torch.zeros(0, 2, 8), cache, batch).shape == (0, 2, 8)


@given(
    sequences=st.lists(
        st.tuples(st.permutations(range(12)), st.integers(0, 25), st.integers(1, 11)), max_size=4
    ),
    block_size=st.sampled_from([3, 4, 16]),
)
def test_a_batch_says_where_rows_lie(sequences: list[tuple[list[int], int, int]], block_size: int) -> None:
    steps = [PagedSequence(tuple(table), start, rows) for table, start, rows in sequences]
    batch = paged_batch(steps, block_size, CPU)
    slots = [
        table[p // block_size] * block_size + p % block_size
        for table, start, rows in steps
        for p in range(start, start + rows)
    ]
    assert batch.write_slots.tolist() == slots
    assert batch.write_slots.dtype is torch.int64
    assert batch.context_lengths.tolist() == [start + rows for _, start, rows in steps]
    assert batch.query_starts.diff().tolist() == [rows for _, _, rows in steps]
    for row, (table, start, rows) in zip(batch.block_tables.tolist(), steps, strict=True):
        used = -(-(start + rows) // block_size)
        assert row[:used] == list(table[:used])
        assert not any(row[used:])
