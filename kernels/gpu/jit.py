"""What the Triton kernels share: when they are used, and `triton.jit` with a type.

Triton is imported by nobody but `triton_*.py`, and those only once a tensor lies on a GPU: this file is
imported by every wrapper and must stay free of it. Kernels annotate tensors as `tl.tensor`, since the
compiler looks every name up; what they annotate as `int` has 32 bits. Every launch says whether products and
sums may be fused (`enable_fp_fusion`): not where torch rounds in between.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

from torch import Tensor

logger = logging.getLogger(__name__)


class Kernel(Protocol):
    """A compiled function: `kernel[grid](…)` launches it, `kernel(…)` calls it from another one."""

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """What launches it with so many programs along each axis; takes `num_warps` and other options."""

    def __call__(self, *arguments: object) -> Any:  # noqa: ANN401 (of Triton's own types)
        """Inside another kernel."""


def jit(function: Callable[..., object]) -> Kernel:
    """`triton.jit`."""
    return cast(Kernel, importlib.import_module("triton").jit(function))


def jit_varying(*names: str) -> Callable[[Callable[..., object]], Kernel]:
    """`triton.jit` of a kernel some of whose numbers change from step to step: by itself Triton would compile
    once more for each that happens to be 1 or a multiple of 16."""

    def decorate(function: Callable[..., object]) -> Kernel:
        return cast(Kernel, importlib.import_module("triton").jit(function, do_not_specialize=names))

    return decorate


def has_triton(x: Tensor) -> bool:
    """Whether a tensor's device is computed on by Triton's kernels."""
    return x.is_cuda and is_installed()


@functools.cache
def is_installed() -> bool:
    """Whether there is Triton; the log says so once if not."""
    found = importlib.util.find_spec("triton") is not None
    if not found:
        logger.warning("triton is not installed, torch's operations are used instead: slower")
    return found


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()
