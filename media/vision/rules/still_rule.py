"""What the rules of models that look at images alone share: a `PixelRule` around what becomes of one picture.

Numbers come from the JSON files of the folder. Read next: `media/vision/rules/squares.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np
from PIL import Image

from ....protocols.chat.processor_options import FIELD, MediaOptions, OptionValue, ProcessorOptions
from ....protocols.engine.messages import EncoderItem, MediaItems
from ....protocols.shared.json_body import unsupported
from ..config import CLIP_MEAN, CLIP_STD, NUM_FILTERS, WHITE, Background, ProcessorFields, Rgb
from ..images import FloatArray, PixelArray, check_ratio, picture_size, read_image
from ..live_frames import PreparedFrame
from ..processor_options import allowed_keys
from ..video_container import VideoLimits

BILINEAR: Final = 2
BICUBIC: Final = 3
LANCZOS: Final = 1
_NO_VIDEOS: Final = "kinds are checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """From bytes to what a tower takes, and Pillow's filter for what is resized in front of that."""

    mean: Rgb
    std: Rgb
    factor: float
    resample: int
    do_rescale: bool
    do_normalize: bool

    @classmethod
    def read(
        cls,
        fields: ProcessorFields,
        mean: Rgb = CLIP_MEAN,
        std: Rgb = CLIP_STD,
        resample: int = BICUBIC,
        factor: float = 1 / 255,
    ) -> Self:
        """Of an image processor, whose class has these defaults. Raises ModelLoadError naming the field."""
        found = fields.integer("resample", resample, 0)
        if found >= NUM_FILTERS:
            raise fields.fault("resample", f"one of Pillow's filters, 0 to {NUM_FILTERS - 1}")
        deviation = fields.rgb("image_std", std)
        if not all(deviation):
            raise fields.fault("image_std", "not zero")
        return cls(
            mean=fields.rgb("image_mean", mean),
            std=deviation,
            factor=fields.number("rescale_factor", factor),
            resample=found,
            do_rescale=fields.flag("do_rescale", default=True),
            do_normalize=fields.flag("do_normalize", default=True),
        )

    def resize(self, picture: PixelArray, height: int, width: int) -> PixelArray:
        """uint8 [h, w, 3] → [height, width, 3]."""
        if picture.shape[:2] == (height, width):
            return picture
        image = Image.fromarray(picture)
        return np.array(image.resize((width, height), Image.Resampling(self.resample)))

    def of(self, picture: PixelArray) -> FloatArray:
        """uint8 [h, w, 3] → float32 [3, h, w], rounded where the references round."""
        values = np.arange(256, dtype=np.float64)
        tables = np.tile((values * self.factor if self.do_rescale else values).astype(np.float32), (3, 1))
        if self.do_normalize:
            mean, std = (np.array(each, np.float32)[:, None] for each in (self.mean, self.std))
            tables = (tables - mean) / std
        return np.stack([tables[channel][picture[:, :, channel]] for channel in range(3)])


def image_fields(folder: Path) -> ProcessorFields:
    """The image processor's of a folder."""
    return ProcessorFields(folder, "image_processor", ("preprocessor_config.json",))


def refuse_options(options: MediaOptions, keys: Sequence[str], allowed: Collection[str] = ()) -> None:
    """Raise BadRequestError naming the first key that is given and not `allowed` for this kind of media;
    `keys` are those of the model."""
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if value is not None and name not in allowed:
            param = value.param if isinstance(value, OptionValue) else f"{FIELD}.{name}"
            raise unsupported(param, f"does not apply to this model; {allowed_keys(keys)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StillRule:
    """A `PixelRule` of images; what differs is what becomes of one picture."""

    values: Values
    background: Background = WHITE

    def num_values(self, height: int, width: int) -> int:
        """Floats of the features of a picture of this size."""
        raise NotImplementedError

    def make_items(self, picture: PixelArray) -> tuple[EncoderItem, ...]:
        """What becomes of uint8 [height, width, 3]."""
        raise NotImplementedError

    @property
    def max_item_pixels(self) -> int:
        """See `PixelRule`."""
        raise NotImplementedError

    @property
    def video_fps(self) -> float | None:
        """See `PixelRule`: there are no videos."""
        return None

    @property
    def option_keys(self) -> Sequence[str]:
        """See `PixelRule`."""
        return ()

    def bounded(self, max_pixels: int | None) -> Self:  # noqa: ARG002
        """See `PixelRule`: what is looked at has a size of the model's own."""
        return self

    def on(self, background: Background) -> Self:
        """See `PixelRule`."""
        return replace(self, background=background)

    def with_options(self, options: ProcessorOptions) -> Self:
        """See `PixelRule`: nothing can be asked for."""
        refuse_options(options.image, self.option_keys)
        refuse_options(options.video, self.option_keys)
        return self

    def low_detail(self) -> Self:
        """See `PixelRule`."""
        return self

    def measure_image(self, data: bytes) -> int:
        """See `PixelRule`."""
        return self.image_bytes(*picture_size(data))

    def image_bytes(self, height: int, width: int) -> int:
        """See `PixelRule`."""
        return 4 * max(self.num_values(height, width), self.num_values(width, height))

    def prepare_image(self, data: bytes) -> MediaItems:
        """See `PixelRule`."""
        return self.prepare_picture(read_image(data, None, self.background))

    def prepare_picture(self, picture: PixelArray) -> MediaItems:
        """See `PixelRule`."""
        check_ratio(picture.shape[0], picture.shape[1], "image")
        return MediaItems("image", self.make_items(picture))

    def measure_video(self, data: bytes, *, limits: VideoLimits) -> int:  # noqa: ARG002
        """See `PixelRule`."""
        raise AssertionError(_NO_VIDEOS)

    def video_bytes(self, num_frames: int, height: int, width: int) -> int:  # noqa: ARG002
        """See `PixelRule`."""
        raise AssertionError(_NO_VIDEOS)

    def prepare_video(self, data: bytes, *, limits: VideoLimits) -> MediaItems:  # noqa: ARG002
        """See `PixelRule`."""
        raise AssertionError(_NO_VIDEOS)

    def prepare_frames(self, frames: Sequence[PixelArray], times_s: Sequence[float]) -> MediaItems:  # noqa: ARG002
        """See `PixelRule`."""
        raise AssertionError(_NO_VIDEOS)

    def open_frame(self, data: bytes, *, num_frames: int) -> PreparedFrame:  # noqa: ARG002
        """See `PixelRule`."""
        raise AssertionError(_NO_VIDEOS)

    def pair_bytes(self, height: int, width: int) -> int:  # noqa: ARG002
        """See `PixelRule`."""
        raise AssertionError(_NO_VIDEOS)

    def pair(self, frames: Sequence[PixelArray]) -> EncoderItem:  # noqa: ARG002
        """See `PixelRule`."""
        raise AssertionError(_NO_VIDEOS)
