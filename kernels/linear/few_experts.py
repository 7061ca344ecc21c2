"""A mixture of experts for the few rows of a decode step, in one call.

A step of few rows is many small products: of each chosen expert two, with a gate between them.
`cpu/experts.c` sorts the rows, multiplies and adds up, with the results of `grouped_experts.py`, which runs
all other steps.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..native import CODES, Native, library
from ..silu_mul import LANES, silu_mul_reference
from .fused_input import MOST_ROWS
from .linear import DenseWeight, LinearWeight
from .products import Product, choices_of, knows_product, product_numbers, scratch_bytes
from .quantized_linear import whole_tiles

_GATED, _CLAMPED = 2, 4


@dataclass(frozen=True, slots=True)
class ClampedGate:
    """gate · sigmoid(alpha · gate) · (up + 1), of pairs that lie in turn, gates at most and ups within ± the
    limit: that of gpt-oss."""

    alpha: float
    limit: float


Gate = ClampedGate | None
"""None: silu(gate) · up, of all gates before all ups."""


def gated(x: Tensor, gate: Gate) -> Tensor:
    """x [rows, 2 · size] → [rows, size], in plain torch."""
    if gate is None:
        return silu_mul_reference(x)
    first, up = x[..., ::2], x[..., 1::2]
    first, up = first.clamp(max=gate.limit), up.clamp(-gate.limit, gate.limit)
    return (up + 1) * (first * torch.sigmoid(first * gate.alpha))


class FewExperts:
    """Experts written down. Made by `few_experts`."""

    def __init__(
        self, native: Native, up: Sequence[Product], down: Sequence[Product], gate: Gate, dtype: torch.dtype
    ) -> None:
        self._native, self.dtype = native, dtype
        self.num_experts = len(up)
        self.size = _sizes(up[0])[1]
        self._weights = (*up, *down)  # they hold what the addresses point to
        self._table = array("q", [number for each in self._weights for number in product_numbers(each)])
        self._limits = array("f", (0.0, 0.0) if gate is None else (gate.alpha, gate.limit))
        first = self._table.buffer_info()[0]
        behind = first + len(self._table) // 2 * self._table.itemsize
        code = _GATED if gate is None else _CLAMPED
        self.numbers = array("q", [first, behind, len(up), code, self._limits.buffer_info()[0]])
        """The C struct `Experts` of `cpu/experts.h`; valid while this object lives."""
        self.scratch_bytes = scratch_bytes(self._weights)
        """Bytes of scratch memory for each row."""
        self.choices = choices_of(self._weights)

    def take(self, rows: int) -> bool:
        """Whether `run` gives for so many rows what one product after another would."""
        if not 0 < rows <= MOST_ROWS:
            return False
        return all(choice.at(some) == "c" for choice in self.choices for some in range(1, rows + 1))

    def run(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """x [rows, size] of `dtype`; `chosen` int64 and `weights` [rows, choices] → [rows, size] of `dtype`.

        The experts of a row differ. A number out of range adds nothing."""
        rows, size = x.shape
        assert x.dtype is self.dtype, "as the weights are"
        assert chosen.dtype is torch.int64, "numbers of experts"
        assert chosen.shape == weights.shape, "each choice has a weight"
        x, chosen, weights = x.contiguous(), chosen.contiguous(), weights.to(torch.float32).contiguous()
        scratch = torch.empty(whole_tiles(rows) * self.scratch_bytes, dtype=torch.uint8)
        y = torch.empty_like(x)
        self._native.experts(
            *(CODES[x.dtype], self.numbers.buffer_info()[0], x.data_ptr(), rows, size),
            *(chosen.data_ptr(), weights.data_ptr(), chosen.shape[1], y.data_ptr()),
            *(scratch.data_ptr(), torch.get_num_threads()),
        )
        return y


class Mixture:
    """Experts and what chooses among them, written down: of each row those of the largest softmax of the
    router's scores."""

    def __init__(
        self, few: FewExperts, router: Tensor, bias: Tensor | None, num_choices: int, *, normalized: bool
    ) -> None:
        """`router` [experts, size] and `bias` [experts], contiguous and of the rows' type. The shares of the
        `num_choices` experts of a row are softmax's, or `normalized`: one in sum."""
        assert router.shape == (few.num_experts, few.size), "a score of each expert"
        assert bias is None or bias.shape == router.shape[:1]
        assert all(
            each.is_contiguous() and each.dtype is few.dtype for each in (router, bias) if each is not None
        )
        assert 0 < num_choices <= few.num_experts
        self.few = few
        self._router = router, bias  # they are what the addresses point to
        own = (router.data_ptr(), 0 if bias is None else bias.data_ptr(), num_choices, normalized)
        self._numbers = array("q", (*few.numbers, *own))

    @property
    def address(self) -> int:
        """Of the C struct `Mixture` of `cpu/experts.h`; valid while this object lives."""
        return self._numbers.buffer_info()[0]


def _sizes(weight: Product) -> tuple[int, int]:
    """Outputs and inputs."""
    if isinstance(weight, DenseWeight):
        out, size = weight.weight.shape
        return out, size
    return weight.out, weight.size


def few_experts(
    up: Sequence[LinearWeight], down: Sequence[LinearWeight], gate: Gate, dtype: torch.dtype
) -> FewExperts | None:
    """Experts' first and last products for rows of `dtype`; None without a compiler, or if C has no kernel
    for one of them. `up` are [2 · middle, size] and `down` [size, middle], one each per expert."""
    native = library()
    if native is None or dtype not in CODES:
        return None
    plain = [[each for each in part if knows_product(each, dtype)] for part in (up, down)]
    sizes = [{_sizes(each) for each in part} for part in plain]
    knows_all = [len(each) for each in plain] == [len(up), len(up)] == [len(down), len(up)]
    if not knows_all or [len(each) for each in sizes] != [1, 1]:
        return None
    ((out, size),), ((last, middle),) = sizes
    if out != 2 * middle or last != size or size % LANES:
        return None
    return FewExperts(native, plain[0], plain[1], gate, dtype)
