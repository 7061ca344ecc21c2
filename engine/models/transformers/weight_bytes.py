"""Bytes that the weights of a `transformers` model take once they are loaded, by its checkpoint's headers.

Follows what `model.py` makes of each layer: codes, tiles of 16 bits where the checkpoint stores 16, experts
arranged one by one. Not counted are a few vectors: tables of positions, second copies of norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from ....kernels.linear.quantized_linear import num_packed_bytes
from ....kernels.linear.weight_bytes import arranged_bytes, is_tiled, tiled_bytes
from ....kernels.linear.weight_codes import GRIDS, Grid
from ..source import CheckedTensors, Opening
from ..weights import stored_types
from .experts import is_experts, product_shapes
from .reading import StoredExperts, experts_of
from .skeleton import base_name, decoder_name, encoders_inside

_NARROW: Final = ({"F16"}, {"BF16"})
"""Types of all numbers of a weight that is held in 16 bits."""


def planned_bytes(skeleton: PreTrainedModel, opening: Opening, tensors: CheckedTensors | None) -> int:
    """Of all weights on the device; `tensors` of a checkpoint in fewer bits."""
    return sum(_Plan(skeleton, opening, tensors).parts())


class _Plan:
    """What the layers of one model become."""

    def __init__(self, skeleton: PreTrainedModel, opening: Opening, tensors: CheckedTensors | None) -> None:
        self._skeleton, self._opening = skeleton, opening
        self._headers = None if tensors is None else tensors.headers
        self._types = stored_types(opening.folder) if self._headers is None else self._headers.types()
        self._grid = GRIDS[opening.quantization]
        self._is_on_cpu = opening.device.type == "cpu"
        coded = () if self._headers is None else experts_of(skeleton, self._types)
        self._coded = {each.module: each for each in coded if self._are_codes(each)}

    def parts(self) -> Iterator[int]:
        """Bytes of one weight after another."""
        skeleton = self._skeleton
        base, decoder = (skeleton.get_submodule(name(skeleton)) for name in (base_name, decoder_name))
        in_base, in_decoder = ({id(each) for each in part.modules()} for part in (base, decoder))
        inside = encoders_inside(decoder)
        if inside is not None:
            in_decoder -= {id(each) for each in decoder.get_submodule(inside).modules()}
        kept = {id(each) for each in base.parameters()}
        counted: set[int] = set()
        for name, module in skeleton.named_modules():
            if self._is_on_cpu and is_experts(module) and id(module) in in_decoder:
                yield self._experts(name, module)
                continue
            for key, parameter in module.named_parameters(recurse=False):
                weight_name = f"{name}.{key}"
                if type(module) is nn.Linear and key == "weight":
                    is_kept = id(module) not in in_decoder and id(parameter) in kept
                    may_change = id(module) in in_decoder or id(module) not in in_base
                    grid = self._grid if id(module) in in_decoder else None
                    made = self._linear(weight_name, parameter, grid, is_kept=is_kept) if may_change else None
                    if made is not None:
                        yield made
                        continue
                if id(parameter) not in counted:
                    counted.add(id(parameter))
                    yield parameter.numel() * self._opening.dtype.itemsize

    def _linear(self, name: str, weight: nn.Parameter, grid: Grid | None, *, is_kept: bool) -> int | None:
        """Of what stands for a linear layer's weight; None if that stays. One that `is_kept` by an embedding
        becomes tiles only if they are of 16 bits."""
        out, size = weight.shape
        if self._headers is not None and self._headers.are_codes(name):
            grid = self._headers.packed(name).grid
        if grid is not None:
            return num_packed_bytes(out, size, grid)
        dtype = self._opening.dtype
        is_narrow = size % 2 == 0 and self._is_narrow(name, weight)
        if dtype is not torch.float32 or not is_tiled(size, dtype, self._opening.device):
            return None
        return None if is_kept and not is_narrow else tiled_bytes(out, size, dtype, is_narrow=is_narrow)

    def _experts(self, name: str, module: nn.Module) -> int:
        """Of a layer's experts, each arranged by itself."""
        opening = self._opening
        shapes = product_shapes(module)
        own = dict(module.named_parameters(recurse=False))
        others = sum(each.numel() * opening.dtype.itemsize for key, each in own.items() if key not in shapes)
        if name in self._coded:
            return others + sum(map(self._joined_codes, self._coded[name].names))
        return others + sum(
            num
            * arranged_bytes(
                *(out, size, opening.dtype, opening.device, self._grid),
                is_narrow=self._is_narrow(f"{name}.{key}", own[key]),
            )
            for key, (num, out, size) in shapes.items()
        )

    def _joined_codes(self, names: tuple[str, ...]) -> int:
        """Of weights for the same inputs, which are one if their codes are alike."""
        headers = self._headers
        assert headers is not None, "that is where the codes are"
        packed = [headers.packed(name) for name in names]
        first = packed[0].grid
        assert first is not None, "they are codes"
        if all(each.grid == first and not each.may_be_reordered for each in packed):
            return num_packed_bytes(sum(each.shape[0] for each in packed), packed[0].shape[1], first)
        grids = ((each.shape, each.grid) for each in packed)
        return sum(num_packed_bytes(shape[0], shape[1], grid) for shape, grid in grids if grid is not None)

    def _are_codes(self, experts: StoredExperts) -> bool:
        assert self._headers is not None, "that is where the codes are"
        return all(self._headers.are_codes(name) for names in experts.names for name in names)

    def _is_narrow(self, name: str, weight: nn.Parameter) -> bool:
        """Whether what a checkpoint stores for it is all of one type of 16 bits. What has no name
        that is known is as all the others are."""
        if name in self._types:
            return {self._types[name]} in _NARROW
        try:
            parts = revert_weight_conversion(self._skeleton, {name: weight})
        except ValueError:  # it is made of several
            parts = {}
        found = {self._types[part] for part in parts if part in self._types}
        return (found or set(self._types.values())) in _NARROW
