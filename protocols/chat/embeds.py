"""Encodings that clients made themselves: `image_embeds` and `audio_embeds`, by the names vLLM has for them.

Raw numbers, one row for each token of the prompt, little-endian: their bytes in base64, with their type and
shape beside; never a pickle. What a model's rows look like is `engine/models/prompts.py`'s, whether the
numbers are finite `media/embeds.py`'s.
"""

from __future__ import annotations

from typing import Final, get_args

from msgspec import Raw, Struct

from ..engine.messages import FLOAT_BYTES, FloatType
from ..errors import wrong
from ..shared.data_uri import read_base64
from ..shared.json_body import refuse

_MAX_SIDE: Final = 2**31 - 1


class Embeds(Struct, frozen=True):
    """What the bytes of a part are: `shape` is rows and numbers in each.

    `grid` of an image are its patches by time (1), height and width, before those that make one token are
    merged, as processors give it. Without rows it is what was sent before under the part's name."""

    dtype: FloatType = "float32"
    shape: tuple[int, int] = (0, 0)
    grid: tuple[int, int, int] | None = None


class ImageEmbeds(Struct, frozen=True, forbid_unknown_fields=True):
    """The field `image_embeds` of a part."""

    data: Raw
    """Base64."""
    dtype: str
    shape: list[int]
    image_grid_thw: list[int]


class AudioEmbeds(Struct, frozen=True, forbid_unknown_fields=True):
    """The field `audio_embeds` of a part."""

    data: Raw
    """Base64."""
    dtype: str
    shape: list[int]


def read_embeds(body: ImageEmbeds | AudioEmbeds, param: str) -> tuple[bytes, Embeds]:
    """The bytes of the field at `param` and what they are. Raises BadRequestError naming what is wrong."""
    dtype = next((known for known in get_args(FloatType) if known == body.dtype), None)
    if dtype is None:
        raise refuse(f"{param}.dtype", body.dtype, ", ".join(get_args(FloatType)))
    rows, width = _numbers(body.shape, 2, f"{param}.shape", "rows and numbers in each, [rows, width]")
    grid = None
    if isinstance(body, ImageEmbeds):
        where = f"{param}.image_grid_thw"
        time, high, wide = _numbers(
            body.image_grid_thw, 3, where, "patches of one picture, [1, height, width]"
        )
        if time != 1:
            raise refuse(where, body.image_grid_thw, "patches of one picture, [1, height, width]")
        grid = (time, high, wide)
    data = read_base64(body.data, f"{param}.data")
    if len(data) != rows * width * FLOAT_BYTES[dtype]:
        raise wrong(
            f"{param}.data",
            f"has {len(data):,} bytes; {rows} x {width} numbers of {dtype} have "
            f"{rows * width * FLOAT_BYTES[dtype]:,}",
        )
    return data, Embeds(dtype, (rows, width), grid)


def _numbers(value: list[int], count: int, param: str, allowed: str) -> list[int]:
    if len(value) != count or not all(1 <= each <= _MAX_SIDE for each in value):
        raise refuse(param, value, allowed)
    return value
