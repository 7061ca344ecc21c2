"""Weights in fewer bits as the libraries of their formats write them, and the numbers these say they are.

Importing it takes seconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (
    QuantizationConfig,
    QuantizationStatus,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file
from torch import Tensor, nn


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(256, 384), nn.Linear(384, 256, bias=False)


def compressed_tensors(folder: Path, scheme: str) -> dict[str, Tensor]:
    """Two layers in one of its named schemes, rounded to nearest."""
    model = Layers()
    groups = {"group_0": preset_name_to_scheme(scheme, ["Linear"])}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups))
    for layer in (model.up, model.down):
        _set_scales(layer)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    tensors = {name: each.contiguous() for name, each in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    compressor.update_config(folder)
    compressor.decompress_model(model)
    numbers = model.state_dict()
    return {name: numbers[name].float() for name in ("up.weight", "up.bias", "down.weight")}


def _set_scales(layer: Any) -> None:  # noqa: ANN401 (the library adds attributes)
    weight, form = layer.weight.detach(), layer.quantization_scheme.weights
    high, wide = form.block_structure or (1, form.group_size or weight.shape[1])
    if form.strategy == "tensor":
        high, wide = weight.shape
    blocks = weight.unflatten(0, (-1, high)).unflatten(2, (-1, wide))
    whole = None
    if form.strategy == "tensor_group":
        whole = generate_gparam(weight.min(), weight.max())
        layer.weight_global_scale.data.copy_(whole)
    scale, zero = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), form, global_scale=whole)
    layer.weight_scale.data.copy_(scale.view_as(layer.weight_scale))
    if hasattr(layer, "weight_zero_point"):
        layer.weight_zero_point.data.copy_(zero.view_as(layer.weight_zero_point))
    layer.quantization_status = QuantizationStatus.FROZEN


def bitsandbytes(folder: Path, block: int, *, nested: bool) -> dict[str, Tensor]:
    """A layer in nf4, whose blocks' largest numbers are codes, too, if they are `nested`."""
    weight = Layers().up.weight.detach()
    codes, state = quantize_4bit(weight, blocksize=block, quant_type="nf4", compress_statistics=nested)
    parts = {f"up.weight.{name}": each for name, each in state.as_dict(packed=True).items()}
    save_file({"up.weight": codes, **parts}, folder / "model.safetensors")
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return {"up.weight": dequantize_4bit(codes, state)}
