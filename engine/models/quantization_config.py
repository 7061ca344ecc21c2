"""What the config of a checkpoint says whose weights were published in fewer bits.

Only what its tensors do not tell, and whether they can be read at all: anything that is not read exactly is
refused by the field's name. Which tensors stand for a weight is `packed_weights.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...protocols.errors import ModelLoadError

METHODS: Final = ("awq", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "mxfp4")
FIELDS: Final = ("quantization_config", "compression_config")
"""Of a config; the first is read if both are there."""
_FORMATS: Final = (
    *("int-quantized", "naive-quantized", "pack-quantized", "float-quantized"),
    *("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"),
)
_BLOCK: Final = 128
"""Outputs and inputs that share a scale of an FP8 checkpoint that does not say."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a `quantization_config` says that tensors do not."""

    method: str
    zero_offset: int = 0
    """GPTQ stores zero points less this."""
    block: tuple[int, int] | None = None
    """Outputs and inputs that share a scale, if scales are of blocks."""
    is_reordered: bool = False
    """Whether inputs may lie in an order of each weight's own."""


def read_published(config: Mapping[str, Any], path: Path) -> Published | None:
    """The checked `quantization_config`, None if there is none. Raises ModelLoadError naming the field."""
    raw = next((config[field] for field in FIELDS if config.get(field)), None)
    if raw is None:
        return None

    def refuse(field: str, why: str) -> ModelLoadError:
        shown = field if field.isprintable() else ascii(field)
        return ModelLoadError(f"{path}: quantization_config.{shown} {why}")

    if not isinstance(raw, dict):
        raise ModelLoadError(f"{path}: quantization_config is not an object")
    method = raw.get("quant_method")
    if method not in METHODS:
        raise refuse("quant_method", f"{method!r} is not one of {', '.join(METHODS)}")
    match method:
        case "gptq":
            return _gptq(raw, refuse)
        case "awq":
            _check_awq(raw, refuse)
        case "bitsandbytes":
            _check_bitsandbytes(raw, refuse)
        case "fp8":
            sizes = raw.get("weight_block_size", [_BLOCK, _BLOCK])
            return Published(method, block=_block(sizes, "weight_block_size", refuse))
        case "compressed-tensors":
            return Published(method, block=_check_groups(raw, refuse))
    return Published(method)


_Refuse = Callable[[str, str], ModelLoadError]


def _gptq(raw: Mapping[str, Any], refuse: _Refuse) -> Published:
    _check_bits(raw, (4, 8), refuse)
    known = raw.get("checkpoint_format", "gptq")
    if known not in ("gptq", "gptq_v2"):
        raise refuse("checkpoint_format", f"{known!r} is not gptq or gptq_v2")
    return Published("gptq", zero_offset=int(known == "gptq"), is_reordered=bool(raw.get("desc_act")))


def _check_awq(raw: Mapping[str, Any], refuse: _Refuse) -> None:
    _check_bits(raw, (4,), refuse)
    version = raw.get("version", raw.get("format", "gemm"))
    if not isinstance(version, str) or version.lower() != "gemm":
        raise refuse("version", f"{version!r} is not gemm")


def _check_bitsandbytes(raw: Mapping[str, Any], refuse: _Refuse) -> None:
    if not raw.get("load_in_4bit"):
        raise refuse("load_in_4bit", "is not set, and its 8 bits are not read")
    kind = raw.get("bnb_4bit_quant_type", "fp4")
    if kind != "nf4":
        raise refuse("bnb_4bit_quant_type", f"{kind!r} is not nf4")


def _check_bits(raw: Mapping[str, Any], allowed: Sequence[int], refuse: _Refuse) -> None:
    bits = raw.get("bits", raw.get("w_bit"))
    if bits not in allowed:
        raise refuse("bits", f"{bits!r} is not {' or '.join(map(str, allowed))}")


def _block(value: object, field: str, refuse: _Refuse) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and n > 0 for n in value):
        raise refuse(field, f"{value!r} are not two sizes")
    return value[0], value[1]


def _check_groups(raw: Mapping[str, Any], refuse: _Refuse) -> tuple[int, int] | None:
    if raw.get("transform_config"):
        raise refuse("transform_config", "asks for rotations, which are not computed")
    sparsity = raw.get("sparsity_config") or {}
    if not isinstance(sparsity, dict) or str(sparsity.get("format", "")).startswith("sparse"):
        raise refuse("sparsity_config", "asks for sparse tensors, which are not read")
    groups = raw.get("config_groups")
    if not isinstance(groups, dict) or not all(isinstance(each, dict) for each in groups.values()):
        raise refuse("config_groups", "is not an object of objects")
    block = None
    for name, each in groups.items():
        form = each.get("format") or raw.get("format")
        if form not in _FORMATS:
            raise refuse("format", f"{form!r} is not one of {', '.join(_FORMATS)}")
        weights = each.get("weights")
        if not isinstance(weights, dict):
            raise refuse(f"config_groups.{name}.weights", "is missing")
        bits, kind = weights.get("num_bits"), weights.get("type", "int")
        if (kind, bits) not in (("int", 4), ("int", 8), ("float", 8), ("float", 4)):
            raise refuse(f"config_groups.{name}.weights", f"of type {kind!r} and {bits!r} bits are not read")
        if weights.get("strategy") == "block":
            block = _block(
                weights.get("block_structure"), f"config_groups.{name}.weights.block_structure", refuse
            )
    return block
