"""Which tensors of a published checkpoint stand for a weight in fewer bits, and whether they fit together.

Knows names, shapes and types in files' headers: a weight `p.weight` of a model may be stored as several
tensors (`p.qweight`, `p.scales`, …). What the config says of them is `quantization_config.py`'s, how numbers
lie in them `kernels/linear/unpack.py`'s; `weights.py` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from ...kernels.linear.quantized_linear import num_packed_bytes
from ...kernels.linear.unpack import (
    GROUP,
    Unpacked,
    unpack_awq,
    unpack_float4,
    unpack_float8,
    unpack_gptq,
    unpack_integers,
    unpack_mxfp4_experts,
    unpack_nf4,
)
from ...kernels.linear.weight_codes import Grid, NumBits
from ...protocols.errors import ModelLoadError
from .quantization_config import Published

Shape = tuple[int, ...]
Kind = Literal["gptq", "awq", "integers", "float8", "float4", "nf4", "mxfp4 experts"]

IGNORED: Final = (".k_scale", ".v_scale", ".kv_scale", ".q_scale", ".output_scale")
"""Scales of caches in fewer bits than ours: keys and values are kept as they are computed."""


_FLOATS: Final = ("F32", "F16", "BF16")


class Stored(NamedTuple):
    """Where a tensor lies."""

    path: Path
    key: str
    shape: Shape
    dtype: str


class _Parts(NamedTuple):
    """Suffixes of a kind's tensors."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


_PARTS: Final[dict[Kind, _Parts]] = {
    "gptq": _Parts(("qweight", "qzeros", "scales"), ("g_idx",)),
    "awq": _Parts(("qweight", "qzeros", "scales")),
    "integers": _Parts(
        ("weight_scale",),
        ("weight", "weight_packed", "weight_shape", "weight_zero_point", "weight_g_idx", "input_scale"),
    ),
    "float8": _Parts(
        ("weight",), ("weight_scale", "weight_scale_inv", "input_scale", "activation_scale", "input_scale_ub")
    ),
    "float4": _Parts(("weight_packed", "weight_scale"), ("weight_global_scale", "input_global_scale")),
    "nf4": _Parts(
        ("weight", "weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__nf4"),
        ("weight.nested_absmax", "weight.nested_quant_map"),
    ),
    "mxfp4 experts": _Parts(("_blocks", "_scales")),
}


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight [out, in], or of all experts of a layer [experts, in, out], and the tensors that stand for it
    by their suffixes."""

    name: str
    shape: Shape
    kind: Kind
    parts: Mapping[str, Stored]
    published: Published
    spare_bias: Stored | None = None
    """A bias the model does not have, which must be zero."""

    @property
    def grid(self) -> Grid | None:
        """Of its codes; None if it becomes numbers."""
        size = self.shape[1]
        match self.kind:
            case "gptq" | "awq":
                bits = 32 * self.parts["qzeros"].shape[1] // self.shape[0]
                groups = self.parts["scales"].shape[0]
            case "integers":
                packed = self.parts.get("weight_packed")
                bits = 8 if packed is None else _bits_of(packed.shape, size)
                scale = self.parts["weight_scale"].shape
                groups = scale[1] if len(scale) == 2 else 1
            case _:
                return None
        group = -(-size // groups)
        is_long = group > GROUP and (groups == 1 or group % GROUP == 0)
        return Grid(4 if bits == 4 else 8, GROUP if is_long else group)

    @property
    def may_be_reordered(self) -> bool:
        """Whether its inputs may lie in an order of their own, which only its numbers tell."""
        return "weight_g_idx" in self.parts or ("g_idx" in self.parts and self.published.is_reordered)

    @property
    def number_type(self) -> str:
        """What its numbers fit into, as safetensors calls it: scales of powers of two leave them short."""
        scale = self.parts.get("weight_scale")
        is_short = self.kind == "mxfp4 experts" or (
            self.kind == "float4" and scale is not None and scale.dtype == "U8"
        )
        return "BF16" if is_short else "F32"

    def saved_bytes(self, dtype: torch.dtype) -> int:
        """Bytes that its codes take less than its numbers."""
        out, size = self.shape
        return (
            0 if self.grid is None else out * size * dtype.itemsize - num_packed_bytes(out, size, self.grid)
        )

    def fault(self) -> str | None:
        """What is wrong with its tensors' types and shapes, if anything is."""
        for suffix, each in self.parts.items():
            types = _types(self, suffix)
            if types is not None and each.dtype not in types:
                return f"{each.key} is {each.dtype}, expected {' or '.join(types)}"
        found = {suffix: each.shape for suffix, each in self.parts.items()}
        for suffix, wanted in _wanted(self, found).items():
            if suffix in found and found[suffix] not in wanted:
                expected = " or ".join(str(list(each)) for each in wanted)
                return f"{self.parts[suffix].key} is {list(found[suffix])}, expected {expected}"
        return None

    def unpack(self, read: Callable[[Stored], Tensor]) -> Unpacked | Tensor:
        """Its codes, or its numbers in float32. Raises ModelLoadError naming the tensor at fault."""
        parts = {suffix: read(stored) for suffix, stored in self.parts.items()}
        if self.spare_bias is not None and bool(read(self.spare_bias).any()):
            raise ModelLoadError(f"{self.spare_bias.path}: {self.spare_bias.key} is a bias the model has not")
        try:
            return _unpack(self, parts)
        except (ValueError, LookupError, TypeError, ArithmeticError, RuntimeError) as error:
            where, why = next(iter(self.parts.values())), str(error).partition("\n")[0]
            raise ModelLoadError(f"{where.path}: {where.key}: {why}") from error


def find_packed(
    expected: Mapping[str, Shape], found: dict[str, Stored], published: Published
) -> dict[str, PackedWeight]:
    """Which of the expected weights are stored in parts; the parts are taken out of `found`."""
    packed: dict[str, PackedWeight] = {}
    for name, shape in expected.items():
        if f"{name}_blocks" in found and published.method == "mxfp4":
            suffixes = [each for each in _PARTS["mxfp4 experts"].needed if name + each in found]
            parts = {each: found.pop(name + each) for each in suffixes}
            packed[name] = PackedWeight(name, shape, "mxfp4 experts", parts, published)
            continue
        base = name.removesuffix(".weight")
        kind = _kind(base, found, published) if len(shape) == 2 and base != name else None
        if kind is None:
            continue
        suffixes = [each for part in _PARTS[kind] for each in part]
        parts = {each: found.pop(f"{base}.{each}") for each in suffixes if f"{base}.{each}" in found}
        bias = None if f"{base}.bias" in expected else found.pop(f"{base}.bias", None)
        packed[name] = PackedWeight(name, shape, kind, parts, published, bias)
    return packed


def faults_of(packed: Mapping[str, PackedWeight]) -> tuple[list[str], list[str]]:
    """Names of parts that are missing, and what is misshapen."""
    missing = [
        (each.name if suffix.startswith("_") else each.name.removesuffix("weight")) + suffix
        for each in packed.values()
        for suffix in _PARTS[each.kind].needed
        if suffix not in each.parts
    ]
    missing += [
        f"{each.name}_scale"
        for each in packed.values()
        if each.kind == "float8" and not {"weight_scale", "weight_scale_inv"} & set(each.parts)
    ]
    if missing:
        return missing, []
    return [], [fault for each in packed.values() if (fault := each.fault()) is not None]


def _kind(base: str, found: Mapping[str, Stored], published: Published) -> Kind | None:
    if f"{base}.qweight" in found:
        return "awq" if published.method == "awq" else "gptq"
    if (stored := found.get(f"{base}.weight_packed")) is not None:
        return "integers" if stored.dtype == "I32" else "float4"
    if (stored := found.get(f"{base}.weight")) is None:
        return None
    kinds: dict[str, Kind] = {"I8": "integers", "F8_E4M3": "float8"}
    if published.method == "bitsandbytes":
        kinds = {"U8": "nf4"}
    return kinds.get(stored.dtype)


def _types(weight: PackedWeight, suffix: str) -> tuple[str, ...] | None:
    """Types that a part may have; None: what it is was told by its type."""
    match suffix:
        case "_blocks" | "_scales":
            return ("U8",)
        case "qweight" | "qzeros":
            return ("I32",)
        case "g_idx" | "weight_g_idx":
            return ("I32", "I64")
        case "scales" | "weight_global_scale":
            return _FLOATS
        case "weight_zero_point":
            return ("I32",) if "weight_packed" in weight.parts else ("I8",)
        case "weight_packed" | "weight.quant_state.bitsandbytes__nf4":
            return ("I32",) if weight.kind == "integers" else ("U8",)
        case "weight.absmax":
            return ("U8",) if "weight.nested_absmax" in weight.parts else _FLOATS
        case "weight.quant_map" | "weight.nested_absmax" | "weight.nested_quant_map":
            return _FLOATS
        case "weight_scale" | "weight_scale_inv":
            return ("U8", "F8_E4M3") if weight.kind == "float4" else (*_FLOATS, "F8_E8M0")
        case _:
            return None


def _wanted(weight: PackedWeight, found: Mapping[str, Shape]) -> dict[str, tuple[Shape, ...]]:
    """Suffix → the shapes it may have."""
    if weight.kind == "mxfp4 experts":
        num, size, out = weight.shape
        return {"_blocks": ((num, out, size // 32, 16),), "_scales": ((num, out, size // 32),)}
    out, size = weight.shape
    match weight.kind:
        case "gptq":
            bits = 8 if found["qweight"] == (size // 4, out) else 4
            groups = found["scales"][0] if found["scales"] else 1
            return {
                "qweight": ((size * bits // 32, out),),
                "qzeros": ((groups, out * bits // 32),),
                "scales": ((_groups(size, groups), out),),
                "g_idx": ((size,),),
            }
        case "awq":
            groups = found["scales"][0] if found["scales"] else 1
            return {
                "qweight": ((size, out // 8),),
                "qzeros": ((groups, out // 8),),
                "scales": ((_groups(size, groups), out),),
            }
        case "integers":
            scale = found["weight_scale"]
            groups = scale[1] if len(scale) == 2 else 1
            bits = _bits_of(found.get("weight_packed", ()), size)
            one_each: tuple[Shape, ...] = ((out, _groups(size, groups)), (out,), (1,), ())
            packed_zero = ((-(-out * bits // 32), groups),)
            return {
                "weight": ((out, size),),
                "weight_packed": ((out, -(-size * bits // 32)),),
                "weight_scale": one_each,
                "weight_zero_point": packed_zero if "weight_packed" in found else one_each,
                "weight_g_idx": ((size,),),
            }
        case "float8":
            scales: tuple[Shape, ...] = ((out, 1), (out,), (1,), ())
            if weight.published.block is not None:
                high, wide = weight.published.block
                scales = ((-(-out // high), -(-size // wide)), *scales)
            return {"weight": ((out, size),), "weight_scale": scales, "weight_scale_inv": scales}
        case "float4":
            groups = _groups(size, found["weight_scale"][1] if len(found["weight_scale"]) == 2 else 1)
            return {
                "weight_packed": ((out, size // 2),),
                "weight_scale": ((out, groups),),
                "weight_global_scale": ((1,), ()),
            }
        case "nf4":
            return {
                "weight": ((out * size // 2, 1),),
                "weight.quant_map": ((16,),),
                "weight.nested_quant_map": ((256,),),
            }


def _bits_of(packed: Shape, size: int) -> NumBits:
    """Of whole numbers stored a byte each, or packed into words."""
    return 4 if len(packed) == 2 and packed[1] == -(-size // 8) < size else 8


def _groups(size: int, found: int) -> int:
    """The number of groups nearest to what was found that divides `size` evenly into whole words."""
    if found == 1 or (0 < found < size and not size % found and not size // found % 4):
        return found
    return 1


def _unpack(weight: PackedWeight, parts: Mapping[str, Tensor]) -> Unpacked | Tensor:
    published, get = weight.published, parts.get
    match weight.kind:
        case "gptq":
            words = parts["qweight"], parts["qzeros"], parts["scales"]
            return unpack_gptq(*words, get("g_idx"), offset=published.zero_offset)
        case "awq":
            return unpack_awq(parts["qweight"], parts["qzeros"], parts["scales"])
        case "integers":
            values = parts["weight_packed" if "weight_packed" in parts else "weight"]
            zero, g_idx = get("weight_zero_point"), get("weight_g_idx")
            bits = _bits_of(tuple(values.shape), weight.shape[1])
            return unpack_integers(
                values, parts["weight_scale"], zero, g_idx, size=weight.shape[1], bits=bits
            )
        case "float8":
            scale = parts["weight_scale_inv" if "weight_scale_inv" in parts else "weight_scale"]
            return unpack_float8(parts["weight"], scale, published.block)
        case "float4":
            return unpack_float4(parts["weight_packed"], parts["weight_scale"], get("weight_global_scale"))
        case "nf4":
            return _unpack_nf4(weight.shape, parts)
        case "mxfp4 experts":
            return unpack_mxfp4_experts(parts["_blocks"], parts["_scales"])


def _unpack_nf4(shape: Shape, parts: Mapping[str, Tensor]) -> Tensor:
    state = json.loads(bytes(parts["weight.quant_state.bitsandbytes__nf4"].tolist()))
    if tuple(state["shape"]) != shape:
        raise ValueError(f"its quant_state is of shape {state['shape']}, expected {list(shape)}")
    largest, num = parts["weight.absmax"], shape[0] * shape[1]
    block = _block_of(state, "blocksize", num, largest)
    if "weight.nested_absmax" in parts:  # the blocks' largest are codes themselves
        nested = parts["weight.nested_absmax"].float()
        factors = nested.repeat_interleave(_block_of(state, "nested_blocksize", largest.numel(), nested))
        numbers = parts["weight.nested_quant_map"].float()[largest.int()]
        largest = numbers * factors[: numbers.shape[0]] + float(state["nested_offset"])
    table = parts["weight.quant_map"]
    return unpack_nf4(parts["weight"], largest, table, block=block, shape=shape)


def _block_of(state: Mapping[str, object], field: str, num: int, scales: Tensor) -> int:
    """How many of `num` numbers share one of `scales`."""
    block = state[field]
    if type(block) is not int or block < 1:
        raise ValueError(f"{field} {block!r} of its quant_state is not a size")
    if scales.shape != (-(-num // block),):
        raise ValueError(f"{list(scales.shape)} scales of blocks of {block} do not fit {num} numbers")
    return min(block, num)
