"""How a family nobody knew sees: a picture is one token, its mean colour; videos are as Qwen-VL's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sensorium.media.hashing import encoder_item
from sensorium.media.vision.config import Background, read_vision_config
from sensorium.media.vision.images import PixelArray, read_image
from sensorium.media.vision.merged_patches import MergedPatches
from sensorium.protocols.chat.processor_options import ProcessorOptions
from sensorium.protocols.engine.messages import MediaItems

_BYTES = 12


class MeanColours(MergedPatches):
    """A `PixelRule`."""

    __slots__ = ()

    def bounded(self, max_pixels: int | None) -> MeanColours:
        return MeanColours(self.config.bounded(max_pixels))

    def on(self, background: Background) -> MeanColours:
        return MeanColours(self.config.on(background))

    def with_options(self, options: ProcessorOptions) -> MeanColours:
        return self

    def low_detail(self) -> MeanColours:
        return self

    def measure_image(self, data: bytes) -> int:
        return _BYTES

    def image_bytes(self, height: int, width: int) -> int:
        return _BYTES

    def prepare_image(self, data: bytes) -> MediaItems:
        return self.prepare_picture(read_image(data, background=self.config.image.background))

    def prepare_picture(self, picture: PixelArray) -> MediaItems:
        mean = picture.mean((0, 1), dtype=np.float32)[None]
        return MediaItems("image", (encoder_item(mean, modality="image", grid=(1, 2, 2), num_tokens=1),))


def open_rule(folder: Path) -> MeanColours:
    return MeanColours(read_vision_config(folder))
