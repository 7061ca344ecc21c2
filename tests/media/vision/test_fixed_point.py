"""Pictures are resized as torch resizes bytes, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.vision.fixed_point import BICUBIC, BILINEAR, LANCZOS, resize
from support.vision_files import picture
from torch.nn.functional import interpolate

_SIDES = st.integers(2, 70)
"""One line alone has two memory formats, and torch takes the wrong one."""

_MODES = {"bilinear": BILINEAR, "bicubic": BICUBIC, "lanczos": LANCZOS}


def reference(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], *size: int, mode: str) -> torch.Tensor:
    """By torch."""
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None].contiguous()
    return interpolate(planes, size, mode=mode, antialias=True)[0].permute(1, 2, 0)


@pytest.mark.parametrize("mode", list(_MODES))
@given(height=_SIDES, width=_SIDES, tall=_SIDES, wide=_SIDES)
def test_any_size_becomes_any_other_as_in_torch(
    mode: str, height: int, width: int, tall: int, wide: int
) -> None:
    pixels = picture(height, width, height + 70 * width)
    found = resize(pixels, tall, wide, _MODES[mode])
    np.testing.assert_array_equal(found, reference(pixels, tall, wide, mode=mode))


@pytest.mark.parametrize("mode", list(_MODES))
def test_sums_too_large_for_a_float_are_exact(mode: str) -> None:
    pixels = np.full((1500, 3, 3), 255, np.uint8)
    pixels[::2] = 254
    found = resize(pixels, 2, 3, _MODES[mode])
    np.testing.assert_array_equal(found, reference(pixels, 2, 3, mode=mode))
