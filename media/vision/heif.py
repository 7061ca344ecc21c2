"""HEIC pictures, as iPhones take them, where `pi-heif` is installed (`pip install 'sensorium[heif]'`).

It only decodes. Its wheels hold libheif and libde265, both under the LGPL, and no encoder. What is mirrored
or turned in the file comes upright from it.
"""

from __future__ import annotations

import importlib
from typing import Final

from ...protocols.errors import MediaError

_BRANDS: Final = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
_AVIF_BRANDS: Final = frozenset((b"avif", b"avis"))


def is_heif(data: bytes) -> bool:
    """Whether a picture is in HEIF, and coded as HEVC; AVIF has the same container."""
    if data[4:8] != b"ftyp":
        return False
    head = data[: min(int.from_bytes(data[:4]), 256)]
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, len(head), 4))}
    return head[8:12] in _BRANDS and not brands & _AVIF_BRANDS


def open_heif(data: bytes) -> None:
    """Make the format known to Pillow. Raises MediaError (param `image`) without the package, and for a file
    that is cut off: the library shows grey where tiles are missing."""
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4]) or len(data) - at
        size = int.from_bytes(data[at + 8 : at + 16]) if size == 1 else size
        at += size
        if size < 8 or at > len(data):
            raise MediaError("The HEIC picture is cut off.", param="image")
    try:
        heif = importlib.import_module("pi_heif")
    except ImportError:
        raise MediaError(
            "This server does not open HEIC pictures: install `sensorium[heif]` there, or send a JPEG.",
            param="image",
        ) from None
    heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)
