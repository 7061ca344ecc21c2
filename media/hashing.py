"""Content hashes: equal hash, equal encoder output. Always computed here, never taken from a client.

The digest covers dtype and shape as well as bytes, each framed by its length, so that arrays which merely
share their bytes (a transpose, a reshape) do not collide.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ..protocols.messages import ContentHash, EncoderItem, Features

_DIGEST_BYTES: Final = 16

Modality = Literal["audio", "image", "video"]


def content_hash(array: npt.NDArray[Any], label: str = "") -> ContentHash:
    """Blake2b-128 of an array, as 32 hexadecimal digits; independent of memory layout.

    Equal arrays with different labels have different hashes.
    """
    array = np.ascontiguousarray(array)
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    shape = ",".join(map(str, array.shape)).encode()
    for part in (array.dtype.str.encode(), shape):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    digest.update(array.nbytes.to_bytes(8, "little"))
    digest.update(array.data if array.size else b"")
    digest.update(label.encode())
    return ContentHash(digest.hexdigest())


def to_features(array: npt.NDArray[np.float32], grid: tuple[int, int, int] | None = None) -> Features:
    """The array as plain data, C order, for a message between actors."""
    return Features(shape=array.shape, data=np.ascontiguousarray(array, dtype="<f4").tobytes(), grid=grid)


def encoder_item(
    array: npt.NDArray[np.float32],
    *,
    modality: Modality = "audio",
    grid: tuple[int, int, int] | None = None,
    num_tokens: int = 0,
) -> EncoderItem:
    """One unit of encoder work: features and their hash, which covers modality and grid too."""
    label = "" if modality == "audio" else f"{modality} {grid}"
    return EncoderItem(
        content_hash=content_hash(array, label), features=to_features(array, grid), num_tokens=num_tokens
    )
