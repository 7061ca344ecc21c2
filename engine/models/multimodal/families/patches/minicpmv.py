"""MiniCPM-V 4.6 and MiniCPM-OCR: a picture is numbered, the whole of it and perhaps rows of slices, each
between its marks; sixteen or four patches become a row."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from ......protocols.engine.messages import Features, MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place

_PATCHES: Final = {"4x": 4, "16x": 16}
"""Of a row."""
_MODES: Final = {"minicpm_ocr": "4x"}
"""Of types whose processor does not say; of others it is the other."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Videos are not taken yet."""
    token = checkpoint.token("image_token_id")
    marks = [checkpoint.known(f"<{end}{name}>") for name in ("image", "slice") for end in ("", "/")]
    mode = checkpoint.processor.get("downsample_mode", _MODES.get(checkpoint.value("model_type"), "16x"))
    merged = _PATCHES.get(mode, 0)
    if not merged:
        raise checkpoint.fault("downsample_mode", mode, " or ".join(_PATCHES))
    in_front = None
    if checkpoint.processor.get("use_image_id", True):
        in_front = partial(_numbered, checkpoint.known("<image_id>"), checkpoint.known("</image_id>"))
    patch = checkpoint.size("vision_config.patch_size", 14)

    def num_rows(features: Features) -> int:
        _, lines, columns = _grid_of(features)
        return lines * columns // merged

    def text_of(media: MediaItems) -> str:
        text, last = f"{marks[0]}{token}{marks[1]}", 1
        for item in media.items[1:]:
            row = _grid_of(item.features)[0]
            text += "\n" if row != last else ""
            text += f"{marks[2]}{token}{marks[3]}"
            last = row
        return text

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.documents.slices", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token, in_front=in_front)},
        num_rows=num_rows,
        encode=partial(encode, mode),
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(3, patch, None),
        batches_any_grid=True,
    )


def _numbered(start: str, end: str, number: int) -> str:
    return f"{start}{number}{end}"


def _grid_of(features: Features) -> tuple[int, int, int]:
    assert features.grid is not None, "that is how the rule makes them"
    return features.grid


def encode(mode: str, model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of equally many patches, side by side."""
    pixels = batch.stacked.movedim(0, 2).flatten(2)[None]
    return list(
        model.get_image_features(pixels, target_sizes=batch.grids[:, 1:], downsample_mode=mode).pooler_output
    )
