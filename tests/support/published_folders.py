"""Checkpoints as published in fewer bits, made of a plain folder, with a twin of the numbers they stand for.

Each packing is written here as its format has it, number by number, and rounds a weight by itself: nothing is
shared with what reads them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Parts = dict[str, Tensor]
Packing = Callable[[Tensor, torch.Generator], tuple[Parts, Tensor]]
"""A weight float32 [out, in] → its tensors by suffix, and what they stand for."""

AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
FLOAT4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
NF4 = torch.tensor(
    (
        *(-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0),
        *(0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0),
    )
)


def words(values: Tensor, bits: int) -> Tensor:
    """Whole numbers [rows, many] → int32 [rows, words], the first in the lowest bits."""
    each = 32 // bits
    filled = torch.nn.functional.pad(values.long(), (0, -values.shape[1] % each))
    shifts = torch.arange(each) * bits
    whole = (filled.view(values.shape[0], -1, each) << shifts).sum(2)
    return torch.where(whole >= 2**31, whole - 2**32, whole).to(torch.int32)


def rounded(
    weight: Tensor, groups_of_inputs: Tensor, bits: int, *, symmetric: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes [out, in], scales float16 and zeros [out, groups], and what they stand for."""
    num = int(groups_of_inputs.max()) + 1
    scales = torch.zeros(weight.shape[0], num, dtype=torch.float16)
    zeros = torch.zeros(weight.shape[0], num, dtype=torch.int64)
    for group in range(num):
        part = weight[:, groups_of_inputs == group]
        low, high = part.amin(1).clamp_max(0), part.amax(1).clamp_min(0)
        if symmetric:
            low, high = -torch.maximum(-low, high), torch.maximum(-low, high)
        scales[:, group] = ((high - low) / (2**bits - 1)).half()
        middle = torch.full_like(low, 2.0 ** (bits - 1))
        zeros[:, group] = (middle if symmetric else (-low / scales[:, group].float()).round()).long()
    spread = scales.float()[:, groups_of_inputs]
    codes = ((weight / spread).round().long() + zeros[:, groups_of_inputs]).clamp(0, 2**bits - 1)
    return codes, scales, zeros, (codes - zeros[:, groups_of_inputs]) * spread


def in_order(size: int, group: int) -> Tensor:
    """Each input's group."""
    return torch.arange(size) // group


def gptq(
    group: int | None = 32, bits: int = 4, *, offset: int = 1, symmetric: bool = True, shuffled: str = ""
) -> Packing:
    """`shuffled`: "alike" for all weights of so many inputs, or "each" by itself."""

    def pack(weight: Tensor, generator: torch.Generator) -> tuple[Parts, Tensor]:
        size = weight.shape[1]
        g_idx = in_order(size, group or size)
        if shuffled:
            source = generator if shuffled == "each" else torch.Generator().manual_seed(size)
            g_idx = g_idx[torch.randperm(size, generator=source)]
        codes, scales, zeros, stands_for = rounded(weight, g_idx, bits, symmetric=symmetric)
        if offset:
            zeros = zeros.clamp_min(1)
            stands_for = (codes - zeros[:, g_idx]) * scales.float()[:, g_idx]
        parts = {
            "qweight": words(codes, bits).t(),
            "qzeros": words(zeros.t() - offset, bits),
            "scales": scales.t(),
            "g_idx": g_idx.to(torch.int32),
            "bias": torch.zeros(weight.shape[0], dtype=torch.float16),
        }
        return parts, stands_for

    return pack


def awq(weight: Tensor, _: torch.Generator) -> tuple[Parts, Tensor]:
    codes, scales, zeros, stands_for = rounded(weight, in_order(weight.shape[1], 32), 4, symmetric=False)

    def interleaved(values: Tensor) -> Tensor:
        return words(values.view(values.shape[0], -1, 8)[:, :, list(AWQ_COLUMNS)].flatten(1), 4)

    parts = {"qweight": interleaved(codes.t()), "qzeros": interleaved(zeros.t()), "scales": scales.t()}
    return parts, stands_for


def packed(bits: int = 4, group: int = 32, *, symmetric: bool = True, shuffled: bool = False) -> Packing:
    def pack(weight: Tensor, generator: torch.Generator) -> tuple[Parts, Tensor]:
        g_idx = in_order(weight.shape[1], group)
        if shuffled:
            g_idx = g_idx[torch.randperm(weight.shape[1], generator=generator)]
        codes, scales, zeros, stands_for = rounded(weight, g_idx, bits, symmetric=symmetric)
        parts = {
            "weight_packed": words(codes, bits),
            "weight_scale": scales,
            "weight_shape": torch.tensor(weight.shape),
        }
        if not symmetric:
            parts["weight_zero_point"] = words(zeros.t(), bits).t()
        if shuffled:
            parts["weight_g_idx"] = g_idx.to(torch.int32)
        return parts, stands_for

    return pack


def int8(*, symmetric: bool = True, whole: bool = False) -> Packing:
    """A scale an output, or one for all (`whole`)."""

    def pack(weight: Tensor, _: torch.Generator) -> tuple[Parts, Tensor]:
        if whole:
            scale = (weight.abs().max() / 127).reshape(1)
            codes = (weight / scale).round()
            return {"weight": codes.to(torch.int8), "weight_scale": scale}, codes * scale
        one = torch.zeros(weight.shape[1], dtype=torch.int64)
        codes, scales, zeros, stands_for = rounded(weight, one, 8, symmetric=symmetric)
        parts = {"weight": (codes - 128).to(torch.int8), "weight_scale": scales}
        if not symmetric:
            parts["weight_zero_point"] = (zeros - 128).to(torch.int8)
        return parts, stands_for

    return pack


def float8(suffix: str, block: tuple[int, int] | None) -> Packing:
    """A scale a block of outputs and inputs, 0 being all of them; None: one number."""

    def pack(weight: Tensor, _: torch.Generator) -> tuple[Parts, Tensor]:
        out, size = weight.shape
        high, wide = (out, size) if block is None else (block[0] or out, block[1] or size)
        scale = torch.zeros(-(-out // high), -(-size // wide))
        codes = torch.zeros(weight.shape, dtype=torch.float8_e4m3fn)
        stands_for = torch.zeros(weight.shape)
        for i in range(scale.shape[0]):
            for j in range(scale.shape[1]):
                where = slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide)
                scale[i, j] = weight[where].abs().max() / 448
                codes[where] = (weight[where] / scale[i, j]).to(torch.float8_e4m3fn)
                stands_for[where] = codes[where].float() * scale[i, j]
        return {"weight": codes, suffix: scale.reshape(()) if block is None else scale}, stands_for

    return pack


def float4(*, exponents: bool) -> Packing:
    """MXFP4: 32 numbers share an exponent; NVFP4: 16 a scale of 8 bits, and all one more."""

    def pack(weight: Tensor, _: torch.Generator) -> tuple[Parts, Tensor]:
        group = 32 if exponents else 16
        grouped = weight.view(weight.shape[0], -1, group)
        whole = torch.tensor([448 * 6 / float(weight.abs().max())])
        largest = grouped.abs().amax(2) / 6
        if exponents:
            scale = (largest.log2().ceil() + 127).to(torch.uint8)
            factors = torch.exp2(scale.float() - 127)
        else:
            scale = (largest * whole).to(torch.float8_e4m3fn)
            factors = scale.float() / whole
        levels = torch.cat((FLOAT4, -FLOAT4))
        codes = (grouped / factors[:, :, None])[..., None].sub(levels).abs().argmin(-1)
        stands_for = (levels[codes] * factors[:, :, None]).view(weight.shape)
        flat = codes.view(weight.shape[0], -1)
        both = (flat[:, 0::2] | flat[:, 1::2] << 4).to(torch.uint8)
        parts = {"weight_packed": both, "weight_scale": scale}
        return parts if exponents else parts | {"weight_global_scale": whole}, stands_for

    return pack


def nf4(*, nested: bool) -> Packing:
    """`nested`: the largest numbers of blocks are codes, too."""

    def pack(weight: Tensor, _: torch.Generator) -> tuple[Parts, Tensor]:
        blocks = weight.view(-1, 64)
        largest = blocks.abs().amax(1)
        state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "shape": list(weight.shape)}
        parts: Parts = {"weight.quant_map": NF4.clone()}
        if nested:
            table, mean = torch.linspace(-1, 1, 256), float(largest.mean())
            wide = torch.nn.functional.pad(largest - mean, (0, -largest.shape[0] % 256)).view(-1, 256)
            most = wide.abs().amax(1)
            codes = (wide / most[:, None])[..., None].sub(table).abs().argmin(-1)
            largest = ((table[codes] * most[:, None]).flatten()[: largest.shape[0]]) + mean
            parts["weight.absmax"] = codes.flatten()[: largest.shape[0]].to(torch.uint8)
            parts |= {"weight.nested_absmax": most, "weight.nested_quant_map": table}
            state |= {"nested_blocksize": 256, "nested_offset": mean}
        else:
            parts["weight.absmax"] = largest
        places = (blocks / largest[:, None])[..., None].sub(NF4).abs().argmin(-1)
        stands_for = (NF4[places] * largest[:, None]).view(weight.shape)
        flat = places.flatten()
        parts["weight"] = (flat[0::2] << 4 | flat[1::2]).to(torch.uint8)[:, None]
        text = json.dumps(state).encode()
        parts["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(text), dtype=torch.uint8)
        return parts, stands_for

    return pack


def tensors_config(format_name: str, **weights: Any) -> dict[str, Any]:  # noqa: ANN401 (fields)
    """compressed-tensors' config."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": format_name,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}
PACKINGS: dict[str, tuple[dict[str, Any], Packing]] = {
    "gptq": (_GPTQ, gptq()),
    "gptq asymmetric, act order": (_GPTQ | {"desc_act": True}, gptq(symmetric=False, shuffled="alike")),
    "gptq, an order each": (_GPTQ | {"desc_act": True}, gptq(shuffled="each")),
    "gptq v2, 8 bits, no groups": (
        _GPTQ | {"bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2"},
        gptq(None, 8, offset=0),
    ),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}, awq),
    "packed": (tensors_config("pack-quantized", num_bits=4), packed()),
    "packed asymmetric": (tensors_config("pack-quantized", num_bits=4), packed(symmetric=False)),
    "packed, ordered": (tensors_config("pack-quantized", num_bits=4), packed(shuffled=True)),
    "packed, 8 bits": (tensors_config("pack-quantized", num_bits=8), packed(8, 64, symmetric=False)),
    "int8": (tensors_config("int-quantized", num_bits=8), int8()),
    "int8 asymmetric": (tensors_config("int-quantized", num_bits=8), int8(symmetric=False)),
    "int8, one scale": (tensors_config("int-quantized", num_bits=8), int8(whole=True)),
    "float8 by output": (
        tensors_config("float-quantized", num_bits=8, type="float"),
        float8("weight_scale", (1, 0)),
    ),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, float8("weight_scale", (1, 0))),
    "fp8 whole": ({"quant_method": "fp8", "activation_scheme": "static"}, float8("weight_scale", None)),
    "fp8 blocks": (
        {"quant_method": "fp8", "weight_block_size": [48, 32]},
        float8("weight_scale_inv", (48, 32)),
    ),
    "nvfp4": (
        tensors_config("nvfp4-pack-quantized", num_bits=4, type="float"),
        float4(exponents=False),
    ),
    "mxfp4": (tensors_config("mxfp4-pack-quantized", num_bits=4, type="float"), float4(exponents=True)),
    "nf4": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        nf4(nested=False),
    ),
    "nf4 nested": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        nf4(nested=True),
    ),
}


def publish(plain: Path, to: Path, name: str) -> tuple[Path, Path]:
    """The plain folder packed by one of `PACKINGS`, and the folder of what that stands for."""
    config, pack = PACKINGS[name]
    folder, twin = to / "packed", to / "twin"
    shutil.copytree(plain, folder)
    shutil.copytree(plain, twin)
    generator = torch.Generator().manual_seed(0)
    stored: Parts = {}
    numbers: Parts = {}
    tensors = load_file(plain / "model.safetensors")
    for key, tensor in tensors.items():
        if tensor.ndim != 2 or not any(part in key for part in ("_proj.", ".fc1.", ".fc2.")):
            stored[key] = numbers[key] = tensor
            continue
        base = key.removesuffix(".weight")
        parts, numbers[key] = pack(tensor.float(), generator)
        if f"{base}.bias" in tensors:
            parts.pop("bias", None)
        stored |= {f"{base}.{suffix}": each.contiguous() for suffix, each in parts.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(numbers, twin / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": config}))
    return folder, twin
