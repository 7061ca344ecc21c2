"""Triton's norm, rotary embedding and gated silu equal their references, from views and with odd sizes.

Run by `test_interpreter.py`. The interpreter cuts bfloat16 off where GPUs and torch round.
"""

from __future__ import annotations

import pytest
import torch
from sensorium.kernels import rms_norm as rms_norm_module
from sensorium.kernels.attention.attention_inputs import HeadNorms
from sensorium.kernels.attention.kv_cache import write_kv_reference
from sensorium.kernels.gpu.attention_inputs import attention_inputs
from sensorium.kernels.gpu.rms_norm import rms_norm
from sensorium.kernels.gpu.rotary import apply_rotary
from sensorium.kernels.gpu.silu_mul import silu_mul
from sensorium.kernels.rms_norm import rms_norm_reference
from sensorium.kernels.rotary import apply_rotary_reference, interleaved_axes, rotary_table
from sensorium.kernels.silu_mul import silu_mul_reference
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# A unit in the last place, three of the interpreter's bfloat16.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 3 * 2**-7}


def near(got: Tensor, want: Tensor) -> None:
    assert got.dtype is want.dtype
    assert got.is_contiguous()
    tolerance = TOLERANCE[want.dtype]
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=2 * tolerance)


def part_of_projection(rows: int, heads: int, dim: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(rows * heads + dim)
    return (torch.randn(rows, heads + 3, dim, generator=generator) * 3).to(dtype)[:, 1 : 1 + heads]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "heads", "dim"), [(1, 1, 2), (5, 3, 24), (4, 8, 128), (0, 2, 16)])
def test_rms_norm(dtype: torch.dtype, rows: int, heads: int, dim: int) -> None:
    x = part_of_projection(rows, heads, dim, dtype)
    weight = torch.rand(dim, generator=torch.Generator().manual_seed(dim)).to(dtype)
    for each in (x, x[:, 0], x.transpose(0, 1), x.transpose(1, 2).contiguous().transpose(1, 2)):
        near(rms_norm(each, weight, 1e-6), rms_norm_reference(each, weight, 1e-6))


def test_rms_norm_of_many_heads_and_a_long_row() -> None:
    for shape in ((2, 70, 128), (3, 5000)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        near(rms_norm(x, torch.ones(shape[-1]), 1e-6), rms_norm_reference(x, torch.ones(shape[-1]), 1e-6))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "heads", "half"), [(1, 1, 1), (5, 3, 12), (3, 40, 64), (0, 2, 8)])
def test_rotary(dtype: torch.dtype, rows: int, heads: int, half: int) -> None:
    x = part_of_projection(rows, heads, 2 * half, dtype)
    table = rotary_table(torch.arange(rows) * 7, 0.5 ** torch.arange(half))
    got, want = apply_rotary(x, table), apply_rotary_reference(x, table)
    near(got, want)
    if dtype is not torch.bfloat16:
        assert torch.equal(got, want), "two products and a sum, rounded at the same places"


def test_rotary_of_three_axes() -> None:
    positions = torch.tensor([[0, 4, 9], [1, 4, 30], [2, 4, 700]])
    table = rotary_table(positions, 0.7 ** torch.arange(12), axes=interleaved_axes((6, 3, 3)))
    x = part_of_projection(3, 4, 24, torch.float32)
    assert torch.equal(apply_rotary(x, table), apply_rotary_reference(x, table))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 1), (5, 25), (2, 1500), (0, 4)])
def test_silu_mul(dtype: torch.dtype, rows: int, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    x = (torch.randn(rows, 2 * size + 3, generator=generator) * 10).to(dtype)
    for each in (x[:, 1 : 1 + 2 * size], x.t().contiguous().t()[:, : 2 * size]):
        near(silu_mul(each), silu_mul_reference(each))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "half"), [(1, 1, 1), (6, 2, 12), (32, 8, 64)])
@pytest.mark.parametrize("normed", [True, False])
def test_attention_inputs(dtype: torch.dtype, heads: int, kv_heads: int, half: int, normed: bool) -> None:
    """The four operations in one, from a view; a row whose slot is none gets a query and is not stored."""
    generator = torch.Generator().manual_seed(heads)
    qkv = part_of_projection(4, heads + 2 * kv_heads, 2 * half, dtype)
    norms = torch.rand(2, 2 * half, generator=generator).to(dtype)
    table = rotary_table(torch.tensor([0, 3, 70, 9]), 0.5 ** torch.arange(half))
    got = torch.randn(3, 2, kv_heads, 5, 2 * half, generator=generator).to(dtype)
    want, slots = got.clone(), torch.tensor([4, 0, 13, 15])
    query = attention_inputs(qkv, HeadNorms(norms[0], norms[1], 1e-6) if normed else None, table, got, slots)
    parts = qkv.tensor_split((heads, heads + kv_heads), 1)
    turned = [
        apply_rotary_reference(rms_norm_reference(part, norm, 1e-6) if normed else part, table)
        for part, norm in zip(parts, norms, strict=False)
    ]
    near(query, turned[0])
    write_kv_reference(want, slots[:3], turned[1][:3], parts[2][:3])
    near(got, want)
    assert torch.equal(got[:, 1], want[:, 1]), "values are stored as they are"


def test_not_a_number_stays_in_its_row() -> None:
    x = torch.ones(3, 32)
    x[1, 5] = float("nan")
    for got in (rms_norm(x, torch.ones(32), 1e-6), silu_mul(x)):
        assert torch.isfinite(got[[0, 2]]).all()
        assert got[1].isnan().any()


def test_wrappers_choose_triton_where_it_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs: list[Tensor] = []

    def yes(x: Tensor) -> bool:
        inputs.append(x)
        return True

    monkeypatch.setattr(rms_norm_module, "has_triton", yes)
    x = torch.randn(2, 8, dtype=torch.float16)  # no CPU kernel knows this type
    weight = torch.ones(8, dtype=torch.float16)
    assert torch.equal(rms_norm_module.rms_norm(x, weight, 1e-6), rms_norm(x, weight, 1e-6))
    assert inputs
