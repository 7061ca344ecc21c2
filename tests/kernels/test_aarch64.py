"""The C sources built for aarch64 by a cross compiler agree with the references, called in an emulator.

Only where both are installed: they are no part of the package, nor of what its tests need elsewhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
import torch
from sensorium.kernels.argmax import argmax, argmax_reference
from sensorium.kernels.attention.attention_inputs import HeadNorms, attention_inputs
from sensorium.kernels.attention.dense_attention import CANDIDATES
from sensorium.kernels.attention.kv_cache import write_kv, write_kv_reference
from sensorium.kernels.attention.kv_quantization import CODED, stored_size
from sensorium.kernels.attention.paged_attention import (
    PagedSequence,
    paged_attention,
    paged_attention_reference,
    paged_batch,
)
from sensorium.kernels.layer_norm import layer_norm, layer_norm_reference
from sensorium.kernels.linear.float32_tiles import CODES_OF_KINDS, linear_tiled, tile_linear
from sensorium.kernels.linear.linear import DenseWeight, _linear_c, linear_reference
from sensorium.kernels.linear.onednn import Tiles
from sensorium.kernels.linear.quantized_linear import (
    linear_bits,
    linear_bits_reference,
    quantize_linear,
)
from sensorium.kernels.linear.weight_codes import Grid
from sensorium.kernels.rms_norm import rms_norm, rms_norm_reference
from sensorium.kernels.rotary import apply_rotary, apply_rotary_reference, rotary_table
from support.attention import attend_reference
from support.emulated import COMPILER, EMULATOR, PACKAGES, Emulated
from torch import Tensor

pytestmark = pytest.mark.skipif(
    shutil.which(COMPILER) is None or shutil.which(EMULATOR) is None,
    reason=f"needs a cross compiler and an emulator: {PACKAGES}",
)
DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    return Emulated(tmp_path_factory.mktemp("aarch64"))


@pytest.fixture
def emulated(built: Emulated) -> Iterator[Emulated]:
    before = built.num_calls
    with built.instead():
        yield built
    assert built.num_calls > before, "the wrapper did not take the C way"


def near(got: Tensor, want: Tensor) -> None:
    tolerance = 1e-5 if got.dtype is torch.float32 else 2**-6
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def tiled(weight: Tensor, width: int, depth: int) -> Tensor:
    """As oneDNN lays out a weight: [out / width, depth / 2, width, 2]."""
    padding = (0, depth - weight.shape[1], 0, -weight.shape[0] % width)
    filled = torch.nn.functional.pad(weight, padding)
    return filled.view(-1, width, depth // 2, 2).transpose(1, 2).contiguous()


@pytest.mark.parametrize(
    ("rows", "out", "size", "width"), [(1, 64, 96, 64), (7, 100, 40, 64), (3, 70, 72, 32)]
)
@pytest.mark.usefixtures("emulated")
def test_linear(rows: int, out: int, size: int, width: int) -> None:
    x, weight = torch.randn(rows, size).bfloat16(), (torch.randn(out, size) / size**0.5).bfloat16()
    bias, residual = torch.randn(out).bfloat16(), torch.randn(rows, out).bfloat16()
    depth = size if width == 64 else -(-size // 32) * 32
    memory = tiled(weight, width, depth)
    tiles = Tiles(memory.data_ptr(), width, depth)
    got = _linear_c(x, DenseWeight(weight, bias, packed=True, tiles=tiles), residual)
    want = linear_reference(x.float(), weight.float(), bias.float()) + residual.float()
    near(got, want.bfloat16())


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7, 70])
@pytest.mark.usefixtures("emulated")
def test_linear_in_tiles_of_our_own(stored: torch.dtype, rows: int) -> None:
    x, weight = torch.randn(rows, 40), (torch.randn(100, 40) / 6).to(stored).float()
    weight[3, 5], weight[70, 39] = 2.0**-24, -0.0  # of float16 the smallest
    bias = torch.randn(100)
    made = tile_linear(weight, bias)
    assert made is not None
    assert CODES_OF_KINDS[made.kind] == {torch.float32: 0, torch.bfloat16: 2, torch.float16: 3}[stored]
    near(linear_tiled(x, made, activation="gelu"), linear_reference(x, weight, bias, activation="gelu"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("grid", [Grid(8, 128), Grid(4, 32), Grid(8, 0)])
@pytest.mark.usefixtures("emulated")
def test_linear_bits_to_the_last_bit(dtype: torch.dtype, grid: Grid) -> None:
    weight = quantize_linear(torch.randn(70, 160), torch.randn(70).to(dtype), grid)
    x, residual = torch.randn(5, 160).to(dtype), torch.randn(5, 70).to(dtype)
    x[1, 3] = torch.nan
    got, want = linear_bits(x, weight, residual=residual), linear_bits_reference(x, weight, residual=residual)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.usefixtures("emulated")
def test_paged_attention(dtype: torch.dtype, window: int | None, coded: bool) -> None:
    cache = torch.randn(9, 2, 2, 16, 32).to(dtype)
    if coded:
        key, value = torch.randn(2, 9 * 16, 2, 32).to(dtype)
        cache = torch.zeros(9, 2, 2, 16, stored_size(32, CODED), dtype=CODED)
        write_kv_reference(cache, torch.arange(9 * 16), key, value)
    batch = paged_batch(
        [PagedSequence((3, 0, 5), 30, 4), PagedSequence((1,), 0, 9), PagedSequence((8, 7), 20, 1)],
        16,
        torch.device("cpu"),
    )
    query = torch.randn(14, 6, 32).to(dtype)
    got = paged_attention(query, cache, batch, window=window)
    want = paged_attention_reference(query, cache, batch, window=window)
    if coded and dtype is torch.float32:  # queries and softmax have 16 bits
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    else:
        near(got, want)


@pytest.mark.parametrize(("rows", "dim"), [(1, 16), (9, 40), (150, 64)])
@pytest.mark.usefixtures("emulated")
def test_attention_of_encoders(rows: int, dim: int) -> None:
    query, key, value = torch.randn(2, rows, 3, 2, dim).bfloat16().permute(2, 0, 3, 1, 4)
    want = attend_reference(query.double(), key.double(), value.double())
    near(CANDIDATES["c"](query, key, value), want.bfloat16())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("emulated")
def test_what_lies_between_the_products(dtype: torch.dtype) -> None:
    x, norm = torch.randn(3, 8, 32).to(dtype), torch.rand(32).to(dtype)
    near(rms_norm(x, norm, 1e-6), rms_norm_reference(x, norm, 1e-6))
    scale = torch.stack((norm, norm))
    near(layer_norm(x[0], scale, 1e-6), layer_norm_reference(x[0], scale, 1e-6))
    table = rotary_table(torch.tensor([0, 3, 700]), 0.5 ** torch.arange(16))
    near(apply_rotary(x, table), apply_rotary_reference(x, table))
    logits = torch.randn(3, 333).to(dtype)
    assert torch.equal(argmax(logits), argmax_reference(logits))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.usefixtures("emulated")
def test_attention_inputs(dtype: torch.dtype, normed: bool) -> None:
    qkv, norm = torch.randn(3, 8, 32).to(dtype), torch.rand(32).to(dtype)
    norms = HeadNorms(norm, norm, 1e-6) if normed else None
    table = rotary_table(torch.tensor([0, 3, 700]), 0.5 ** torch.arange(16))
    got, want = torch.zeros(2, 4, 2, 2, 3, 32, dtype=dtype)
    slots = torch.tensor([4, 0, 11])
    query = attention_inputs(qkv, norms, table, got, slots)
    parts = qkv.tensor_split((4, 6), 1)
    turned = [
        apply_rotary_reference(rms_norm_reference(part, norm, 1e-6) if normed else part, table)
        for part in parts[:2]
    ]
    write_kv_reference(want, slots, turned[1], parts[2])
    near(query, turned[0])
    near(got, want)
    with pytest.raises(IndexError, match="slot 12 lies outside"):
        attention_inputs(qkv, norms, table, got, torch.tensor([1, 12, 2]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("emulated")
def test_codes_of_keys_and_values_are_written(dtype: torch.dtype) -> None:
    got, want = torch.zeros(2, 4, 2, 2, 16, stored_size(32, CODED), dtype=CODED)
    qkv, slots = torch.randn(3, 8, 32).to(dtype), torch.tensor([4, 0, 33])
    qkv[1, 5, 3], qkv[2, 7, 1] = torch.nan, torch.inf
    key, value = qkv[:, 4:6], qkv[:, 6:]
    write_kv(got, slots, key, value)
    write_kv_reference(want, slots, key, value)
    assert torch.equal(got, want)
    table = rotary_table(torch.zeros(3), 0.5 ** torch.arange(16))  # turns nothing
    attention_inputs(qkv, None, table, got.zero_(), slots)
    assert torch.equal(got, want)


@pytest.mark.usefixtures("emulated")
def test_keys_and_values_are_written() -> None:
    got, want = torch.zeros(2, 4, 2, 2, 3, 32)
    key, value = torch.randn(2, 3, 2, 32)
    slots = torch.tensor([4, 0, 11])
    write_kv(got, slots, key, value)
    write_kv_reference(want, slots, key, value)
    assert torch.equal(got, want)
