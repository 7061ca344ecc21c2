"""Weights as the libraries of their formats write them: read as the numbers those libraries say they are.

The formats number by number, and what is refused: `test_quantization_config.py`. The libraries are imported
by who runs these, and not by everybody who lists them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sensorium.engine.models.quantization_config import read_published
from sensorium.engine.models.weights import read_tensors
from torch import Tensor

CODES = ("W8A8", "W8A16", "W4A16", "W4A16_ASYM")
NUMBERS = ("FP8", "FP8_DYNAMIC", "FP8_BLOCK", "NVFP4A16", "MXFP4A16")
EXACT = 2e-7
"""Rounding of a product in float32."""


def check_read(folder: Path, numbers: dict[str, Tensor], *, are_codes: bool, rtol: float = EXACT) -> None:
    config = json.loads((folder / "config.json").read_text())
    shapes = {name: tuple(each.shape) for name, each in numbers.items()}
    cpu, published = torch.device("cpu"), read_published(config, folder)
    reader = read_tensors(folder, shapes, cpu, torch.float32, published=published)
    for name, want in numbers.items():
        assert reader.are_codes(name) == (are_codes and want.ndim == 2)
        torch.testing.assert_close(reader.take(name), want, rtol=rtol, atol=0)
    reader.finish()


@pytest.mark.parametrize("scheme", CODES + NUMBERS)
def test_compressed_tensors(tmp_path: Path, scheme: str) -> None:
    from support.library_folders import compressed_tensors

    numbers = compressed_tensors(tmp_path, scheme)
    rtol = 2**-8 if scheme == "NVFP4A16" else EXACT  # that the library gives in bfloat16
    check_read(tmp_path, numbers, are_codes=scheme in CODES, rtol=rtol)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("block", [64, 128])
def test_bitsandbytes(tmp_path: Path, block: int, *, nested: bool) -> None:
    from support.library_folders import bitsandbytes

    check_read(tmp_path, bitsandbytes(tmp_path, block, nested=nested), are_codes=False)
