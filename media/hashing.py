"""Content hashes: equal hash, equal encoder output. Always computed here, never taken from a client.

The digest covers dtype and shape as well as bytes, each framed by its length, so that arrays which merely
share their bytes (a transpose, a reshape) do not collide.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ..protocols.engine.messages import ContentHash, EncoderItem, Features

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


def to_features(
    array: npt.NDArray[np.float32], grid: tuple[int, int, int] | None = None, num_before: int = 0
) -> Features:
    """The array as plain data, C order, for a message between actors."""
    data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    return Features(shape=array.shape, data=data, grid=grid, num_before=num_before)


def beginning_of(item: EncoderItem, num_frames: int) -> EncoderItem:
    """The first `num_frames` of an item's features [bins, frames] as an item; itself if that is all.

    Addressed by the whole item's hash and the number, so that nothing is hashed again.
    """
    if num_frames >= item.features.shape[1]:
        return item
    whole = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
    name = f"{item.content_hash} {num_frames}".encode()
    return EncoderItem(
        content_hash=ContentHash(hashlib.blake2b(name, digest_size=_DIGEST_BYTES).hexdigest()),
        features=to_features(whole[:, :num_frames]),
    )


def encoder_item(
    array: npt.NDArray[np.float32],
    *,
    modality: Modality = "audio",
    grid: tuple[int, int, int] | None = None,
    num_tokens: int = 0,
    num_before: int = 0,
) -> EncoderItem:
    """One unit of encoder work: features and their hash, which covers all that is said of them, too."""
    label = "" if modality == "audio" and grid is None else f"{modality} {grid}"
    if num_before:
        label = f"{label} behind {num_before}"
    return EncoderItem(
        content_hash=content_hash(array, label),
        features=to_features(array, grid, num_before),
        num_tokens=num_tokens,
    )
