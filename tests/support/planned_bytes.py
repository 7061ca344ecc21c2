"""What a model run by `transformers` holds, counted at the tensors that lie in memory."""

from __future__ import annotations

from typing import Any

from sensorium.engine.models.transformers.experts import ArrangedExperts
from sensorium.engine.models.transformers.rounded import Rounded, Tiled


def held_bytes(model: Any) -> int:  # noqa: ANN401 (of `transformers`)
    """Bytes of all weights of a loaded model, each memory once, and none twice for being of two modules."""
    held: dict[int, int] = {}
    for part in (model._base, model._model):
        for module in part.modules():
            for each in module.parameters(recurse=False):
                held[each.data_ptr()] = each.nbytes
            match module:
                case Rounded():
                    tensors = [module.codes.packed, module.codes.bias]
                case Tiled():
                    tensors = [module.tiles.memory, module.tiles.bias]
                case ArrangedExperts():
                    weights = (*module._up, *module._down)
                    tensors = [tensor for weight in weights for tensor in _tensors(weight)]
                case _:
                    tensors = []
            held |= {each.data_ptr(): each.nbytes for each in tensors if each is not None}
    return sum(held.values())


def _tensors(weight: Any) -> list[Any]:  # noqa: ANN401 (of any kind)
    if hasattr(weight, "parts"):
        return [tensor for part in weight.parts for tensor in _tensors(part)]
    numbers = next(getattr(weight, name) for name in ("packed", "memory") if hasattr(weight, name))
    return [weight.weight if isinstance(numbers, bool) else numbers, weight.bias]
