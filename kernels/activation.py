"""What follows a product: GELU or ReLU.

On CPUs our own pass, with the numbers of a product that activates its own results (`cpu/activation.h`), so
that it does not matter which of both ran. Else torch's. Read `kernels/linear/linear.py` next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal, get_args

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from .native import CODES, native_for

Activation = Literal["none", "gelu", "gelu_tanh", "relu"]

FUNCTIONS: Final[dict[Activation, Callable[[Tensor], Tensor]]] = {
    "none": lambda x: x,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}
"""Their plain meaning."""

_CODES: Final[dict[Activation, int]] = {name: code for code, name in enumerate(get_args(Activation))}


def code_of(activation: Activation) -> int:
    """What the C side calls it; 0 is none."""
    return _CODES[activation]


def activated(x: Tensor, activation: Activation) -> Tensor:
    """Of each element of x, in its type."""
    native = None if activation == "none" else native_for(x)
    if native is None or not x.is_contiguous():
        return FUNCTIONS[activation](x)
    y = torch.empty_like(x)
    native.activate(
        *(CODES[x.dtype], code_of(activation), x.data_ptr(), y.data_ptr()),
        *(x.numel(), torch.get_num_threads()),
    )
    return y
