"""An encoding that a client made itself → an item that an engine takes in place of an encoder's input.

Its numbers must be finite and small enough to compute with: what is not would be in every answer. Known by
the hash of its bytes, type, shape and grid, as any other item. Read next: `protocols/chat/embeds.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ..protocols.chat.embeds import Embeds
from ..protocols.engine.messages import EncoderItem, Features
from ..protocols.errors import MediaError
from .hashing import content_hash

_AT_A_TIME: Final = 1 << 18
"""Numbers checked together: other threads get between."""
MAX_NUMBER: Final = 65_504
"""The largest of float16. No encoder's rows come near; a model that reads larger ones overflows."""
_BFLOAT16_SIZE, _BFLOAT16_MOST = 0x7FFF, 0x477F
"""Bits without the sign, and those of the largest number up to `MAX_NUMBER`; infinity and NaN lie above."""


def embeds_item(data: bytes, embeds: Embeds) -> EncoderItem:
    """The item of checked bytes. Takes some milliseconds for each megabyte.

    Raises MediaError if a number is not finite, or beyond `MAX_NUMBER`."""
    if not all(_are_good(data, embeds, first) for first in range(0, _size(embeds), _AT_A_TIME)):
        raise MediaError(
            f"its numbers are not all finite and between -{MAX_NUMBER:,} and {MAX_NUMBER:,}",
            code="not_finite",
        )
    label = f"embeds {embeds.dtype} {embeds.shape} {embeds.grid}"
    return EncoderItem(
        content_hash=content_hash(np.frombuffer(data, np.uint8), label),
        features=Features(embeds.shape, data, embeds.grid, embeds.dtype),
        num_tokens=embeds.shape[0],
    )


def _size(embeds: Embeds) -> int:
    rows, width = embeds.shape
    return rows * width


def _are_good(data: bytes, embeds: Embeds, first: int) -> bool:
    count = min(_AT_A_TIME, _size(embeds) - first)
    if embeds.dtype == "bfloat16":
        bits = np.frombuffer(data, "<u2", count, 2 * first)
        return bool(((bits & _BFLOAT16_SIZE) <= _BFLOAT16_MOST).all())
    kind = np.dtype("<f4" if embeds.dtype == "float32" else "<f2")
    return bool((np.abs(np.frombuffer(data, kind, count, kind.itemsize * first)) <= MAX_NUMBER).all())
