"""Products with weights of 8 and 4 bits: every build of the loop gives the reference's numbers to the last
bit, and the reference is the plain product up to the rounding of codes and inputs."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sensorium.kernels import native
from sensorium.kernels.linear import quantized_linear as module
from sensorium.kernels.linear.linear import arrange_linear, linear
from sensorium.kernels.linear.quantized_linear import (
    BitsWeight,
    linear_bits,
    linear_bits_native,
    linear_bits_reference,
    num_packed_bytes,
    pack_codes,
    quantize_linear,
)
from sensorium.kernels.linear.weight_codes import GRIDS, Codes, Grid, quantize
from torch import Tensor

Loop = Callable[..., int]
X86_FLAGS = {
    "AVX-VNNI": ("-mavx2", "-mavxvnni"),
    "AVX2": ("-mavx2",),
    "SSE": (),
    "tiles": ("-DWRITTEN_OUT",),
}
"""What an older processor's compiler may use; the first two run where the processor has them. Registers of
tiles (AMX) are written out in C."""
PROCESSOR_FLAGS = {"AVX-VNNI": "avx_vnni", "AVX2": "avx2", "SSE": "sse2", "tiles": "sse2"}
GRID_LIST = (Grid(8, 0), Grid(8, 128), Grid(8, 32), Grid(4, 128), Grid(4, 32))
SHAPES = ((1, 64, 128), (2, 130, 257), (7, 65, 24), (50, 100, 320), (5, 7, 3), (1, 1, 1))


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loop]:
    """The loop as it is used, and as the compilers of older processors make it."""
    folder = tmp_path_factory.mktemp("builds")
    found: dict[str, Loop] = {}
    if (library := native.library()) is not None:
        found["this processor"] = library.linear_bits
    compiler, source = shutil.which("cc"), native.SOURCES / "linear_bits.c"
    if compiler is None or platform.machine() != "x86_64":
        return found
    cpuinfo = Path("/proc/cpuinfo").read_text().split()
    for name, flags in X86_FLAGS.items():
        if PROCESSOR_FLAGS[name] in cpuinfo:
            target = folder / f"{name}.so"
            common = ("-Og", "-ffp-contract=off", "-fPIC", "-shared", "-w")
            subprocess.run([compiler, *common, *flags, str(source), "-o", str(target), "-lm"], check=True)
            found[name] = native._function(ctypes.CDLL(str(target)), "linear_bits", None)
    return found


def example(
    grid: Grid, rows: int, out: int, size: int, dtype: torch.dtype
) -> tuple[BitsWeight, Tensor, Tensor]:
    """A weight with a bias, rows, the third with an outlier and the fourth zero, and a residual."""
    generator = torch.Generator().manual_seed(rows * out + size)
    weight, bias, x, residual = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((out, size), (out,), (rows, size), (rows, out))
    )
    x[2:3, :1] = 1000.0
    x[3:4] = 0.0
    return quantize_linear(weight, bias, grid), x, residual


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grid", GRID_LIST, ids=str)
def test_every_build_equals_the_reference(loops: dict[str, Loop], grid: Grid, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        weight, x, residual = example(grid, *shape, dtype)
        want = linear_bits_reference(x, weight, residual=residual)
        for name, loop in loops.items():
            assert torch.equal(linear_bits_native(loop, x, weight, residual), want), (name, shape)


@pytest.mark.parametrize(("grid", "size"), [(Grid(8, 128), 512), (Grid(4, 128), 1024)], ids=str)
def test_more_than_a_cache_holds_at_once(loops: dict[str, Loop], grid: Grid, size: int) -> None:
    """Rows and outputs are cut into pieces, which need not come out even."""
    weight, x, residual = example(grid, 49, 1100, size, torch.bfloat16)
    want = linear_bits_reference(x, weight, residual=residual)
    for name, loop in loops.items():
        assert torch.equal(linear_bits_native(loop, x, weight, residual), want), name


@pytest.mark.parametrize("rows", [6, 7, 16, 17, 31, 33, 64, 65, 150])
@pytest.mark.parametrize(
    "grid", [Grid(8, 0), Grid(8, 64), Grid(8, 128), Grid(4, 0), Grid(4, 64), Grid(4, 128)], ids=str
)
def test_rows_by_tiles(loops: dict[str, Loop], grid: Grid, rows: int) -> None:
    """Rows and outputs that fill no register, and a group that the inputs do not fill."""
    for out, size, dtype in ((65, 320, torch.bfloat16), (130, 1100, torch.float32)):
        weight, x, residual = example(grid, rows, out, size, dtype)
        want = linear_bits_reference(x, weight, residual=residual)
        for name, loop in loops.items():
            assert torch.equal(linear_bits_native(loop, x, weight, residual), want), (name, size)


def test_the_smallest_numbers_are_kept(loops: dict[str, Loop]) -> None:
    """Those that some instructions take for zero."""
    generator = torch.Generator().manual_seed(2)
    weight, x = (torch.randn(shape, generator=generator) for shape in ((64, 128), (7, 128)))
    codes = quantize_linear(weight * 1e-13, None, Grid(8, 128))
    want = linear_bits_reference((x * 1e-27).bfloat16(), codes)
    assert ((want != 0) & (want.abs() < torch.finfo(torch.bfloat16).tiny)).any()
    for name, loop in loops.items():
        assert torch.equal(linear_bits_native(loop, (x * 1e-27).bfloat16(), codes, None), want), name


@pytest.mark.parametrize("grid", GRID_LIST, ids=str)
def test_it_is_the_product_up_to_rounding(grid: Grid) -> None:
    """Each code is at most half a step off, and so is each input."""
    generator = torch.Generator().manual_seed(1)
    weight, x = (torch.randn(shape, generator=generator) for shape in ((40, 256), (3, 256)))
    codes = quantize(weight, grid)
    steps = codes.scales.repeat_interleave(codes.group, 1)[:, :256].double()
    group = grid.group or 256
    x_steps = (x.view(3, -1, group).abs().amax(2) / 127).repeat_interleave(group, 1).double()
    got = linear_bits(x, quantize_linear(weight, None, grid)).double()
    x_off, w_off = (
        x_steps / 2,
        steps / 2 * 1.001 + steps * (grid.bits == 4) / 2,
    )  # zero points are rounded, too
    bound = x.double().abs() @ w_off.T + x_off @ (weight.double().abs() + w_off).T
    error = (got - x.double() @ weight.double().T).abs()
    assert (error <= bound).all()
    assert error.max() > 0  # it is rounded


@pytest.mark.parametrize("grid", [Grid(8, 0), Grid(4, 128)], ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_stays_alone(loops: dict[str, Loop], grid: Grid, bad: float) -> None:
    weight, x, residual = example(grid, 8, 70, 200, torch.float32)
    x[5, 150] = bad
    results = [linear_bits_reference(x, weight, residual=residual)]
    results += [linear_bits_native(loop, x, weight, residual) for loop in loops.values()]
    for y in results:
        assert torch.isnan(y[5]).all()
        assert torch.isfinite(y[[0, 1, 2, 3, 4, 6, 7]]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grid", [Grid(8, 128), Grid(4, 128)], ids=str)
def test_a_row_does_not_depend_on_how_many_there_are(grid: Grid, dtype: torch.dtype) -> None:
    weight, x, residual = example(grid, 100, 130, 256, dtype)
    together = linear_bits(x, weight, residual=residual)
    for rows in (1, 2, 5, 6, 7, 48, 49):
        assert torch.equal(linear_bits(x[:rows], weight, residual=residual[:rows]), together[:rows])


def test_rows_that_lie_apart(loops: dict[str, Loop]) -> None:
    weight, x, _ = example(Grid(8, 128), 6, 70, 200, torch.float32)
    strided = torch.zeros(6, 3, 200)
    strided[:, 1] = x
    assert torch.equal(linear_bits(strided[:, 1], weight), linear_bits(x, weight))
    assert torch.equal(linear_bits(x.t().contiguous().t(), weight), linear_bits(x, weight))


def test_no_rows_at_all() -> None:
    weight, x, _ = example(Grid(8, 128), 2, 70, 200, torch.float32)
    assert linear_bits(x[:0], weight).shape == (0, 70)


def test_without_a_compiler_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x, residual = example(Grid(4, 128), 3, 70, 200, torch.bfloat16)
    with_it = linear_bits(x, weight, residual=residual)
    monkeypatch.setattr(module, "native_for", lambda _: None)
    assert torch.equal(linear_bits(x, weight, residual=residual), with_it)


@pytest.mark.parametrize("grid", GRID_LIST, ids=str)
@pytest.mark.parametrize(("out", "size"), [(130, 257), (64, 128), (1, 1)])
def test_packed_codes_are_found_again(grid: Grid, out: int, size: int) -> None:
    weight = torch.randn(out, size, generator=torch.Generator().manual_seed(out))
    packed = quantize_linear(weight, None, grid)
    want = quantize(weight, grid).weight()
    assert torch.equal(packed.rows(torch.arange(out)), want)
    ids = torch.tensor([[out - 1, 0], [out // 2, 0]])
    assert torch.equal(packed.rows(ids), want[ids])
    assert packed.nbytes == num_packed_bytes(out, size, grid)


def test_codes_of_others_keep_their_zero_points() -> None:
    generator = torch.Generator().manual_seed(0)
    values, zeros = (
        torch.randint(0, 16, shape, generator=generator, dtype=torch.uint8) for shape in ((70, 64), (70, 2))
    )
    codes = Codes(4, 32, values, torch.rand(70, 2, generator=generator), zeros)
    x = torch.randint(-127, 128, (3, 64), generator=generator).float()
    x[:, ::32] = 127.0  # whole numbers that need no rounding
    got = linear_bits(x, pack_codes(codes, bias=None))
    torch.testing.assert_close(got, (x.double() @ codes.weight().double().T).float(), rtol=1e-5, atol=1e-2)


def test_activation_follows_the_product() -> None:
    weight, x = torch.randn(20, 64), torch.randn(3, 64)
    arranged = arrange_linear(weight, None, GRIDS["int8"])
    assert isinstance(arranged, BitsWeight)
    assert torch.equal(linear(x, arranged, activation="relu"), linear(x, arranged).relu())


def test_what_does_not_fit_is_refused() -> None:
    weight = quantize_linear(torch.randn(8, 64), None, Grid(8, 0))
    with pytest.raises(RuntimeError, match="64 inputs"):
        linear_bits(torch.zeros(2, 32), weight)
    with pytest.raises(ValueError, match="up to 65536"):
        quantize_linear(torch.zeros(1, 70_000), None, Grid(8, 0))
