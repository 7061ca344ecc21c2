"""How a model's pictures and videos become encoder items: `PixelRule`, which its family names.

Files are opened in processes that import no engine, so a rule is a module here, or anywhere else that imports
no engine, and a family gives its name (`MediaRules.pixels`). Read next: `media/vision/merged_patches.py`, the
rule of Qwen-VL models; `actors/text/media_opening.py`, which asks one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from ...protocols.chat.processor_options import ProcessorOptions
from ...protocols.engine.messages import EncoderItem, MediaItems
from .config import Background
from .images import PixelArray
from .live_frames import PreparedFrame
from .video_container import VideoLimits


class PixelRule(Protocol):
    """One model's rule. Immutable. Its `repr` says all that features depend on, since they are kept by it;
    its methods are pickled, since those that take a file's bytes run in decode processes.

    Those raise MediaError or TooLargeError. Pictures are uint8 [height, width, 3]. What is measured is bytes
    of features.
    """

    @property
    def max_item_pixels(self) -> int:
        """Pixels of the largest picture that is encoded at once."""

    @property
    def video_fps(self) -> float | None:
        """Frames looked at per second of a video; None where their number does not depend on its length."""

    @property
    def option_keys(self) -> Sequence[str]:
        """The keys of `mm_processor_kwargs` that it takes."""

    def bounded(self, max_pixels: int | None) -> PixelRule:
        """With an operator's bound on the area of an image, and of a frame."""

    def on(self, background: Background) -> PixelRule:
        """With transparent pictures on `background`."""

    def with_options(self, options: ProcessorOptions) -> PixelRule:
        """As a request wants it. Raises BadRequestError naming the key that asks for too much."""

    def low_detail(self) -> PixelRule:
        """For an image of which few pixels will do."""

    def measure_image(self, data: bytes) -> int:
        """Of an image file, by its headers."""

    def image_bytes(self, height: int, width: int) -> int:
        """Of a picture."""

    def prepare_image(self, data: bytes) -> MediaItems:
        """An image file's items."""

    def prepare_picture(self, picture: PixelArray) -> MediaItems:
        """A picture's items."""

    def measure_video(self, data: bytes, *, limits: VideoLimits) -> int:
        """Of a video file, by packets and headers."""

    def video_bytes(self, num_frames: int, height: int, width: int) -> int:
        """Of chosen frames."""

    def prepare_video(self, data: bytes, *, limits: VideoLimits) -> MediaItems:
        """A video file's items, with their times."""

    def prepare_frames(self, frames: Sequence[PixelArray], times_s: Sequence[float]) -> MediaItems:
        """The items of chosen frames, with their times."""

    def open_frame(self, data: bytes, *, num_frames: int) -> PreparedFrame:
        """A frame of live video, of `num_frames` at most, in the size in which it is encoded."""

    def pair_bytes(self, height: int, width: int) -> int:
        """Of the one item of live frames of this size."""

    def pair(self, frames: Sequence[PixelArray]) -> EncoderItem:
        """The one item of live frames that follow each other."""


class _RuleModule(Protocol):
    def open_rule(self, folder: Path) -> PixelRule: ...


def open_rule(module: str, folder: Path) -> PixelRule:
    """The rule of a `module`, a name in this package (".merged_patches") or an absolute one, for the
    checkpoint in `folder`. Raises ModelLoadError naming the file and the field at fault."""
    return cast(_RuleModule, import_module(module, __package__)).open_rule(folder)
