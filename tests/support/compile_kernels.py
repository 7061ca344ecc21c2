"""Compile what the Triton wrappers launch, for GPUs this machine need not have; prints the kernels' names.

    python tests/support/compile_kernels.py

Each wrapper is called on CPU tensors with a recorder in the place of its kernels, which compiles for the
arguments it is given.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from itertools import chain, cycle
from typing import Any

import torch
import triton
from sensorium.kernels.attention.attention_inputs import HeadNorms
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch
from sensorium.kernels.gpu import attention_inputs as triton_attention_inputs
from sensorium.kernels.gpu import kv_cache as triton_kv_cache
from sensorium.kernels.gpu import paged_attention as triton_paged_attention
from sensorium.kernels.gpu import rms_norm as triton_rms_norm
from sensorium.kernels.gpu import rotary as triton_rotary
from sensorium.kernels.gpu import sampling as triton_sampling
from sensorium.kernels.gpu import silu_mul as triton_silu_mul
from sensorium.kernels.rotary import rotary_table
from sensorium.kernels.sampling import Filters
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ARCHITECTURES = (80, 90)
SHARED_BYTES = 99 * 1024
"""What the smallest of today's GPUs give one program."""
MODULES = (
    triton_attention_inputs,
    triton_kv_cache,
    triton_paged_attention,
    triton_rms_norm,
    triton_rotary,
    triton_sampling,
    triton_silu_mul,
)
TYPES = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
CPU = torch.device("cpu")


class Recorder:
    """Stands for a kernel."""

    def __init__(self, kernel: Any) -> None:  # noqa: ANN401 (Triton has no types)
        self._kernel = kernel
        self._next = chain([ARCHITECTURES], cycle((each,) for each in ARCHITECTURES))

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        assert all(1 <= size < 2**31 for size in grid)
        return self.compile

    def compile(self, *arguments: object, **options: object) -> None:
        """For every architecture at first, then for one at a time; raises what the compiler raises."""
        assert "enable_fp_fusion" in options, "its default is about to change, and Triton warns of it"
        signature, constants, attributes = {}, {}, {}
        for place, (parameter, value) in enumerate(zip(self._kernel.params, arguments, strict=True)):
            name, aligned = parameter.name, isinstance(value, torch.Tensor)
            if parameter.is_constexpr:
                signature[name], constants[name] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[name] = TYPES[value.dtype]
            else:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
                aligned = isinstance(value, int) and value % 16 == 0
            if aligned:
                attributes[(place,)] = [["tt.divisibility", 16]]
        for architecture in next(self._next):
            source = ASTSource(self._kernel, signature, constants, attributes)
            target = GPUTarget("cuda", architecture, 32)
            compiled = triton.compile(source, target=target, options=options)
            assert compiled.metadata.shared <= SHARED_BYTES, (self._kernel.fn.__name__, compiled.metadata)
            assert len(compiled.asm["cubin"]) > 0
        print(self._kernel.fn.__name__)


CALLED = ("_sequence_of", "_below", "_pattern", "_distance", "_choose")
"""Kernels that are called by others, and never launched."""


def record() -> Iterator[str]:
    """Put a recorder in the place of every kernel that is launched (others are called from those)."""
    jitted = type(triton_silu_mul._silu_mul)
    for module in MODULES:
        source = importlib.import_module(module.__name__)
        for name, value in list(vars(source).items()):
            if isinstance(value, jitted) and name not in CALLED:
                setattr(source, name, Recorder(value))
                yield name


def attend(dtype: torch.dtype, group: int, dim: int, spans: list[tuple[int, int]], **options: Any) -> None:  # noqa: ANN401
    """One ragged step of `spans` (start, rows)."""
    blocks = [-(-(start + rows) // 16) for start, rows in spans]
    sequences = [PagedSequence(range(n), *span) for span, n in zip(spans, blocks, strict=True)]
    query = torch.zeros(sum(rows for _, rows in spans), 8 * group, dim, dtype=dtype)
    cache = torch.zeros(max(blocks), 2, 8, 16, dim, dtype=dtype)
    triton_paged_attention.paged_attention(query, cache, paged_batch(sequences, 16, CPU), **options)


def main() -> None:
    """Every kernel, in the shapes that differ in how they are compiled."""
    assert list(record())
    bf16 = torch.bfloat16
    attend(bf16, 2, 128, [(4000, 1)] * 3, splits=4)
    attend(bf16, 2, 128, [(0, 300), (70, 1)], splits=1)
    attend(bf16, 4, 256, [(0, 300)], splits=1, window=100)
    attend(torch.float32, 5, 80, [(0, 40), (7, 6)], splits=1, softcap=30.0)
    x = torch.zeros(3, 24, 128, dtype=bf16)
    triton_rms_norm.rms_norm(x[:, :16], torch.ones(128, dtype=bf16), 1e-6)
    triton_rms_norm.rms_norm(torch.zeros(3, 4096, dtype=bf16), torch.ones(4096, dtype=bf16), 1e-6)
    triton_rotary.apply_rotary(x[:, :16], rotary_table(torch.arange(3), torch.ones(64)))
    cache = torch.zeros(4, 2, 8, 16, 128, dtype=bf16)
    triton_kv_cache.write_kv(cache, torch.arange(3), x[:, :8], x[:, 8:16])
    norm, table = torch.ones(128, dtype=bf16), rotary_table(torch.arange(3), torch.ones(64))
    for norms in (HeadNorms(norm, norm, 1e-6), None):
        triton_attention_inputs.attention_inputs(x, norms, table, cache, torch.arange(3))
    triton_silu_mul.silu_mul(torch.zeros(3, 6144, dtype=bf16))
    logits = torch.zeros(2, 151_936)
    triton_sampling.argmax(logits)
    triton_sampling.draw(logits, Filters([1.0] * 2, [20] * 2, [0.9] * 2, [0.1] * 2), [0.5] * 2)


if __name__ == "__main__":
    main()
