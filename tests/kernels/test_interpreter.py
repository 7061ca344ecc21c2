"""The Triton kernels without a GPU: interpreted against their references, and compiled to machine code.

Both happen in processes of their own, so that nothing of it reaches the other tests.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sensorium.kernels import silu_mul as module
from sensorium.kernels.gpu import jit as triton_jit
from sensorium.kernels.silu_mul import silu_mul
from torch import Tensor

TESTS = sorted((Path(__file__).parent / "gpu").glob("test_*.py"))
ROOT = Path(__file__).parents[2]


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


@pytest.mark.slow
def test_kernels_equal_their_references_in_the_interpreter() -> None:
    files = [str(path) for path in TESTS]
    output = run("-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-rA", *files, TRITON_INTERPRET="1")
    for path in TESTS:
        assert re.search(rf"PASSED .*{path.name}", output), f"nothing of {path.name} ran"
    assert "SKIPPED" not in output


@pytest.mark.slow
def test_kernels_compile_for_gpus(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "support" / "compile_kernels.py"
    names = run(str(script), TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0").split()
    source = "".join(path.read_text() for path in (ROOT / "kernels" / "gpu").glob("*.py"))
    launched = set(re.findall(r"(\w+)\[\(", source))
    assert launched
    assert set(names) >= launched, "a kernel was not compiled"


def test_a_cpu_needs_no_triton() -> None:
    """Neither the wrappers nor what they do on CPUs import it."""
    code = """
import sys, torch
from sensorium.kernels.argmax import argmax
from sensorium.kernels.attention.kv_cache import write_kv
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_attention, paged_batch
from sensorium.kernels.rms_norm import rms_norm
from sensorium.kernels.rotary import apply_rotary, rotary_table
from sensorium.kernels.sampling import Filters, draw
from sensorium.kernels.silu_mul import silu_mul
x, cache = torch.ones(1, 2, 16), torch.zeros(1, 2, 2, 4, 16)
batch = paged_batch([PagedSequence([0], 0, 1)], 4, torch.device("cpu"))
write_kv(cache, batch.write_slots, x, x)
paged_attention(apply_rotary(x, rotary_table(torch.zeros(1), torch.ones(8))), cache, batch)
rms_norm(x, torch.ones(16), 1e-6), silu_mul(x[0]), argmax(x[0])
draw(x[0, :1], Filters([1], [0], [1], [0]), [0])
assert not [name for name in sys.modules if name.split(".")[0] == "triton"]
"""
    run("-c", code)


def test_without_triton_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class OnGpu:
        is_cuda = True

    def not_found(name: str) -> None:
        assert name == "triton"

    monkeypatch.setattr(importlib.util, "find_spec", not_found)
    triton_jit.is_installed.cache_clear()
    try:
        assert not triton_jit.has_triton(OnGpu())  # type: ignore[arg-type]
        assert not triton_jit.has_triton(OnGpu())  # type: ignore[arg-type]
    finally:
        triton_jit.is_installed.cache_clear()
    assert len(caplog.records) == 1


def test_without_triton_torch_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(x: Tensor) -> bool:
        return False

    monkeypatch.setattr(module, "has_triton", no)
    x = torch.randn(3, 8)
    assert torch.equal(silu_mul(x), module.silu_mul_reference(x))
