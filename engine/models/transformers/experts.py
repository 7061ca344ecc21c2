"""In place of the experts of a `transformers` model: its weights, each expert's arranged for our products.

`transformers` keeps the weights of a layer's experts in one tensor of three dimensions, and multiplies
numbers only. Ours multiply as linear layers do: by our loops, and in fewer bits where that was asked for or
published. On a GPU its own are left. Routers are the
model's. `kernels/linear/grouped_experts.py` groups the rows, `engine/models/transformers/model.py` is next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from ....kernels.linear.few_experts import ClampedGate, FewExperts, Gate, few_experts, gated
from ....kernels.linear.grouped_experts import grouped_experts
from ....kernels.linear.linear import LinearWeight, arrange_linear, linear
from ....kernels.linear.quantized_linear import BitsWeight
from ....kernels.linear.weight_bytes import held_bytes
from ....kernels.linear.weight_codes import GRIDS, Grid, Quantization

_UP: Final = ("gate_up_proj", "up_proj")
"""The tensor of an expert's first product, with a gate or without."""
_DOWN: Final = "down_proj"
_LLAMA_4: Final = "Llama4TextExperts"
_LONGCAT: Final = "LongcatFlashExperts"
_WIDTH: Final = 64
_FAR: Final = 8.0
"""By which gates are seen for what they are: numbers beyond any limit are among them."""


class ArrangedExperts(nn.Module):
    """Stands for a layer's experts, whose weights became those of products."""

    def __init__(
        self,
        original: Any,  # noqa: ANN401 (of any family)
        up: Sequence[LinearWeight],
        down: Sequence[LinearWeight],
    ) -> None:
        """Of the first and the last products of each expert, whose weights `original` loses."""
        super().__init__()
        self._original = (original,)  # in a tuple, so that it has no weights here
        dtype = next(original.parameters(recurse=False)).dtype
        for name, _ in list(original.named_parameters(recurse=False)):
            original.register_parameter(name, None)
        self._up, self._down = up, down
        is_longcat = type(original).__name__ == _LONGCAT
        self._num_experts: int = original.total_experts if is_longcat else original.num_experts
        self.nbytes = sum(map(held_bytes, (*up, *down)))
        """Of the weights."""
        self.few = self._written(dtype)
        """For few rows, if C knows all there is to them."""

    def _written(self, dtype: torch.dtype) -> FewExperts | None:
        (original,) = self._original
        if getattr(original, "has_post_expert_norm", False) or type(original).__name__ in (
            _LLAMA_4,
            _LONGCAT,
        ):
            return None
        alpha, limit = (getattr(original, name, None) for name in ("alpha", "limit"))
        gates: list[Gate] = [None]
        if isinstance(alpha, int | float) and isinstance(limit, int | float):
            gates.append(ClampedGate(float(alpha), float(limit)))
        rows = _FAR * torch.randn(4, _WIDTH, generator=torch.Generator().manual_seed(0), dtype=dtype)
        expected = self._activate(rows)
        found = [gate for gate in gates if _is_alike(gated(rows, gate), expected)]
        return few_experts(self._up, self._down, found[0], dtype) if found else None

    @property
    def is_coded(self) -> bool:
        """Whether products are of codes."""
        return isinstance(self._down[0], BitsWeight)

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """[rows, size], and of each row its experts and their weights → [rows, size]."""
        if self.few is not None and self.few.take(hidden_states.shape[0]):
            return self.few.run(hidden_states, top_k_index, top_k_weights)
        return grouped_experts(hidden_states, top_k_index, top_k_weights, self._expert, self._num_experts)

    def _expert(self, number: int, x: Tensor) -> Tensor:
        (original,) = self._original
        if number >= len(self._down):
            return x  # of LongCat's some give what they get
        result = linear(self._activate(linear(x, self._up[number])), self._down[number])
        return (
            original.post_expert_norm(result) if getattr(original, "has_post_expert_norm", False) else result
        )

    def _activate(self, x: Tensor) -> Tensor:
        (original,) = self._original
        if type(original).__name__ in (_LLAMA_4, _LONGCAT):
            gate, up = x.chunk(2, -1)
            return cast(Tensor, original.act_fn(gate) * up)
        return cast(Tensor, original._apply_gate(x) if original.has_gate else original.act_fn(x))


class Llama4Mixture(nn.Module):
    """Stands for Llama 4's mixture, which gives all rows to all experts, most of them as zeros. The router's
    weights are those of inputs."""

    def __init__(self, original: Any, quantization: Quantization) -> None:  # noqa: ANN401
        super().__init__()
        self.router, self.shared_expert, self.experts = (
            original.router,
            original.shared_expert,
            arranged(original.experts, quantization),
        )
        self._top_k, self._num_experts = original.top_k, original.num_experts

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """[..., size] → [rows, size] and the router's logits."""
        rows = hidden_states.reshape(-1, hidden_states.shape[-1])
        scores, logits = self.router(rows)
        weights, chosen = scores.topk(self._top_k, -1)
        mixed = grouped_experts(
            rows, chosen, weights, self.experts._expert, self._num_experts, weighs_inputs=True
        )
        return self.shared_expert(rows) + mixed, logits


def arranged(module: nn.Module, quantization: Quantization) -> ArrangedExperts:
    """In place of a layer's experts, rounded to codes if that was asked for."""
    grid = GRIDS[quantization]
    up, down = (_weights(module, name, grid) for name in (up_name(module), _DOWN))
    return ArrangedExperts(module, up, down)


def is_experts(module: nn.Module) -> bool:
    """Whether a module is the experts of a layer, in a form that is known here."""
    is_known = hasattr(module, "_apply_gate") or type(module).__name__ in (_LLAMA_4, _LONGCAT)
    names = dict(module.named_parameters(recurse=False))
    return is_known and _DOWN in names and any(name in names for name in _UP)


def give_no_values(decoder: nn.Module) -> None:
    """Have experts of a model without weights give rows without values: no choice of experts is known."""
    for module in decoder.modules():
        if is_experts(module) and type(module).__name__ != _LLAMA_4:
            module.forward = _empty_like


def arrange_experts(decoder: nn.Module, quantization: Quantization) -> None:
    """Replace those of a decoder on a CPU, rounded to codes if that was asked for."""
    for name, module in list(decoder.named_modules()):
        if type(module).__name__ == "Llama4TextMoe":
            decoder.set_submodule(name, Llama4Mixture(module, quantization))
        elif is_experts(module) and type(module).__name__ != _LLAMA_4:
            decoder.set_submodule(name, arranged(module, quantization))


def product_shapes(module: nn.Module) -> dict[str, tuple[int, int, int]]:
    """Of the parameters of an expert's products: experts that multiply, outputs, inputs."""
    shapes: dict[str, tuple[int, int, int]] = {}
    for name in (up_name(module), _DOWN):
        num, out, size = module.get_parameter(name).shape
        if _is_transposed(module):
            out, size = size, out
        shapes[name] = (min(num, int(getattr(module, "num_routed_experts", num))), out, size)
    return shapes


def _is_transposed(module: nn.Module) -> bool:
    """Whether their weights are [experts, in, out]."""
    return bool(getattr(module, "is_transposed", type(module).__name__ == _LLAMA_4))


def up_name(module: nn.Module) -> str:
    """The parameter of an expert's first product."""
    names = dict(module.named_parameters(recurse=False))
    return next(name for name in _UP if name in names)


def _weights(module: nn.Module, name: str, grid: Grid | None) -> list[LinearWeight]:
    """Of one product, of each expert."""
    weights = module.get_parameter(name).detach()
    bias: Tensor | None = getattr(module, f"{name}_bias", None)
    if _is_transposed(module):
        weights = weights.transpose(1, 2)
    num, _, _ = product_shapes(module)[name]
    return [
        arrange_linear(
            weights[each].contiguous(), None if bias is None else bias[each].detach().clone(), grid
        )
        for each in range(num)
    ]


def _empty_like(hidden_states: Tensor, *_: object, **__: object) -> Tensor:
    return torch.empty_like(hidden_states)


def _is_alike(ours: Tensor, theirs: object) -> bool:
    return isinstance(theirs, Tensor) and theirs.shape == ours.shape and torch.allclose(ours, theirs, 1e-5)
