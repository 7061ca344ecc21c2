"""Norms, rotary embedding, gated silu and argmax equal their references, from views too."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.kernels.argmax import argmax, argmax_reference, best_of, best_reference
from sensorium.kernels.layer_norm import layer_norm, layer_norm_reference
from sensorium.kernels.rms_norm import rms_norm, rms_norm_reference
from sensorium.kernels.rotary import apply_rotary, apply_rotary_reference, rotary_table
from sensorium.kernels.silu_mul import silu_mul

DTYPES = [torch.float32, torch.bfloat16]
# One unit in the last place of bfloat16 is at most 2^-7 of the value.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-7}

shapes = given(
    dtype=st.sampled_from(DTYPES),
    rows=st.integers(0, 40),
    heads=st.integers(1, 5),
    half=st.sampled_from([1, 8, 12, 20, 64, 100]),
    seed=st.integers(0, 99),
)


def near(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    assert got.dtype is dtype
    torch.testing.assert_close(got.float(), want.float(), rtol=2 * TOLERANCE[dtype], atol=TOLERANCE[dtype])


def part_of_projection(rows: int, heads: int, dim: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    wide = torch.randn(rows, heads + 3, dim, generator=torch.Generator().manual_seed(seed)) * 3
    return wide.to(dtype)[:, 1 : 1 + heads]


@settings(deadline=None)
@shapes
def test_rms_norm(dtype: torch.dtype, rows: int, heads: int, half: int, seed: int) -> None:
    x = part_of_projection(rows, heads, 2 * half, dtype, seed)
    weight = torch.rand(2 * half, generator=torch.Generator().manual_seed(seed)).to(dtype)
    near(rms_norm(x, weight, 1e-6), rms_norm_reference(x, weight, 1e-6), dtype)
    near(rms_norm(x[:, 0], weight, 1e-6), rms_norm_reference(x[:, 0], weight, 1e-6), dtype)


@settings(deadline=None)
@shapes
def test_layer_norm(dtype: torch.dtype, rows: int, heads: int, half: int, seed: int) -> None:
    x = part_of_projection(rows, heads, 2 * half, dtype, seed)[:, 0] + 5
    scale = torch.rand(2, 2 * half, generator=torch.Generator().manual_seed(seed)).to(dtype)
    want = layer_norm_reference(x.double(), scale.double(), 1e-5)
    torch.testing.assert_close(
        layer_norm(x, scale, 1e-5).double(),
        want,
        rtol=8 * TOLERANCE[dtype],
        atol=8 * TOLERANCE[torch.float32],
    )


@settings(deadline=None)
@shapes
def test_rotary(dtype: torch.dtype, rows: int, heads: int, half: int, seed: int) -> None:
    x = part_of_projection(rows, heads, 2 * half, dtype, seed)
    table = rotary_table(torch.arange(rows) * 7, 0.5 ** torch.arange(half))
    got, want = apply_rotary(x, table), apply_rotary_reference(x, table)
    assert torch.equal(got, want)  # two products and a sum, rounded at the same places


@settings(deadline=None)
@shapes
def test_silu_mul(dtype: torch.dtype, rows: int, heads: int, half: int, seed: int) -> None:
    x = torch.randn(rows, 2 * half * heads, generator=torch.Generator().manual_seed(seed)).to(dtype) * 10
    gate, up = x.double().chunk(2, -1)
    near(silu_mul(x), gate / (1 + (-gate).exp()) * up, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_not_a_number_stays_in_its_row(dtype: torch.dtype) -> None:
    x = torch.ones(3, 32, dtype=dtype)
    x[1, 5] = float("nan")
    scale = torch.ones(2, 32, dtype=dtype)
    for got in (rms_norm(x, scale[0], 1e-6), layer_norm(x, scale, 1e-6), silu_mul(x)):
        assert torch.isfinite(got[[0, 2]]).all()
        assert got[1].isnan().any()


@settings(deadline=None)
@given(
    values=st.lists(
        st.lists(
            st.sampled_from([-1.5, 0.0, 2.0, float("inf"), float("-inf"), float("nan")]),
            min_size=19,
            max_size=19,
        ),
        max_size=4,
    ),
    dtype=st.sampled_from([*DTYPES, torch.float64]),
)
def test_argmax_takes_the_first_of_equals(values: list[list[float]], dtype: torch.dtype) -> None:
    x = torch.tensor(values, dtype=dtype).view(len(values), 19)
    assert torch.equal(argmax(x), argmax_reference(x))


def test_argmax_of_a_large_vocabulary() -> None:
    x = torch.randn(3, 151_936)
    assert torch.equal(argmax(x), argmax_reference(x))
    assert torch.equal(argmax(x[:, ::2]), argmax_reference(x[:, ::2]))


@settings(deadline=None)
@given(rows=st.integers(0, 9), size=st.sampled_from([1, 15, 64, 1000, 51_865]), seed=st.integers(0, 9))
def test_best_of(rows: int, size: int, seed: int) -> None:
    x = 8 * torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    x[:, 1::3] = -torch.inf
    got, want = best_of(x, with_log_sums=True), best_reference(x.double(), with_log_sums=True)
    assert torch.equal(got.token_ids, want.token_ids)
    assert torch.equal(got.values.double(), want.values)
    assert got.log_sums is not None
    assert want.log_sums is not None
    torch.testing.assert_close(got.log_sums.double(), want.log_sums, rtol=1e-6, atol=1e-6)
    assert best_of(x).log_sums is None
    for row in range(rows):
        alone = best_of(x[row : row + 1], with_log_sums=True).log_sums
        assert torch.equal(alone, got.log_sums[row : row + 1]) if alone is not None else False


def test_best_of_what_is_not_finite() -> None:
    x = torch.zeros(4, 70)
    x[0], x[1, 3], x[2, 9] = -torch.inf, torch.inf, torch.nan
    values, log_sums = best_of(x, with_log_sums=True)[1:]
    assert log_sums is not None
    for each in (values, log_sums):
        assert each[:2].tolist() == [-torch.inf, torch.inf]
        assert each[2].isnan()
        assert each[3].isfinite()
