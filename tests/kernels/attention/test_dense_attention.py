"""Dense and cross attention equal their row-by-row references."""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels.attention import cross_attention as cross_attention_module
from sensorium.kernels.attention import dense_attention as attention_module
from sensorium.kernels.attention.cross_attention import (
    CrossSpan,
    cross_attention,
    cross_scores,
)
from sensorium.kernels.attention.dense_attention import attend, attend_items, attention_choice
from support.attention import attend_reference, cross_attention_reference

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
HEADS, DIM = 2, 16


def assert_near(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 5, 300])
@pytest.mark.parametrize("has_vectors", [False, True])
@pytest.mark.parametrize("has_matrices", [False, True])
def test_attend_equals_reference(
    dtype: torch.dtype, rows: int, has_vectors: bool, has_matrices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default, on processors with instructions for products of bfloat16 and without."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_vectors)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_matrices)
    query, key, value = (torch.randn(2, HEADS, n, DIM).to(dtype) for n in (rows, 40, 40))
    want = attend_reference(query.double(), key.double(), value.double())
    assert_near(attend(query, key, value), want)


@pytest.mark.parametrize(("dim", "name"), [(32, "c"), (128, "c"), (72, "fused")])
def test_beside_matrices_ours_is_for_heads_of_whole_tiles(
    dim: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(attention_module, "_has_c", lambda _: True)
    choice = attention_choice(3, dim, 128, torch.bfloat16, torch.device("cpu"))
    assert choice is not None
    assert choice.default(128) == name
    monkeypatch.setattr(attention_module, "_has_c", lambda _: False)
    assert choice.default(128) == "fused", "without a compiler"


def test_attend_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: torch.Tensor) -> None:
        return None

    monkeypatch.setattr(attention_module, "native_for", nothing)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    query, key, value = torch.randn(3, 1, HEADS, 40, DIM).bfloat16()
    want = attend_reference(query.double(), key.double(), value.double())
    assert_near(attend(query, key, value), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [(5,), (3, 3, 3), (1, 70, 70, 2), (130, 130)])
def test_items_attend_to_themselves(dtype: torch.dtype, lengths: tuple[int, ...]) -> None:
    query, key, value = torch.randn(sum(lengths), 3, HEADS, DIM).to(dtype).unbind(1)
    got = attend_items((query, key, value), lengths)
    assert got.shape == query.shape
    split = (torch.split(each.transpose(0, 1), list(lengths), 1) for each in (query, key, value))
    for item, (q, k, v) in zip(torch.split(got, list(lengths)), zip(*split, strict=True), strict=True):
        assert_near(item.transpose(0, 1), attend_reference(q.double(), k.double(), v.double()))


@pytest.mark.parametrize("name", attention_module.CANDIDATES)
def test_company_changes_no_bit(name: str) -> None:
    choice = attention_choice(HEADS, DIM, 150, torch.bfloat16, torch.device("cpu"))
    assert choice is not None
    if name not in choice.candidates:
        pytest.skip("there is no C compiler")
    before, choice.chosen = choice.chosen, (name,) * len(choice.rows)
    lengths = [150, 150, 7, 150]
    joined = torch.randn(sum(lengths), 3, HEADS, DIM).bfloat16()
    together = attend_items(joined.unbind(1), lengths, choice)
    for own, got in zip(torch.split(joined, lengths), torch.split(together, lengths), strict=True):
        assert torch.equal(attend_items(own.unbind(1), [len(own)], choice), got)
    choice.chosen = before


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", [(1,), (5,), (1, 1, 1), (4, 1, 7), (130,)])
@pytest.mark.parametrize("positions", [1, 30, 201])
@pytest.mark.parametrize("dim", [16, 64])
@pytest.mark.parametrize("native", [True, False])
def test_cross_attention_equals_reference(
    dtype: torch.dtype,
    lengths: tuple[int, ...],
    positions: int,
    dim: int,
    native: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(_: torch.Tensor) -> None:
        return None

    if not native:
        monkeypatch.setattr(cross_attention_module, "native_for", nothing)
    spans: list[CrossSpan] = []
    start = 0
    for length in lengths:
        memory = torch.randn(2, HEADS, positions, dim).to(dtype)
        spans.append(CrossSpan(start, start + length, memory))
        start += length
    query = torch.randn(start, HEADS, dim).to(dtype)
    wide = [CrossSpan(s.start, s.end, s.memory.double()) for s in spans]
    assert_near(cross_attention(query, spans), cross_attention_reference(query.double(), wide))


def test_cross_scores_are_what_the_softmax_sees() -> None:
    query, key = torch.randn(3, HEADS, DIM), torch.randn(HEADS, 10, DIM)
    want = torch.einsum("rhd,hpd->hrp", query, key) / DIM**0.5
    torch.testing.assert_close(cross_scores(query, key), want)
