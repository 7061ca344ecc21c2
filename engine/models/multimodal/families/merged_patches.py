"""Families whose pictures are patches of any grid, of which squares become one row: Qwen2-VL and its kin.

Rows lie on three axes of positions, as those of Qwen3-VL do. A video is an item for each pair of frames: a
tower attends to one pair at a time. Families differ in where these items lie in a prompt: in one place, with
the time as an axis (`rows_in_time`), or each behind its time as text (`behind_times`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from .....protocols.engine.messages import Features, MediaItems, MediaKind
from ...prompts import MediaRules
from ...qwen3_vl.positions import rotary_positions
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place, one_each

_ROUNDING: Final = 1e-3
"""Of positions: live frames have times in whole milliseconds."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`; Qwen2-VL, Qwen2.5-VL."""
    per_second = None
    if checkpoint.value("model_type") == "qwen2_5_vl":
        per_second = float(checkpoint.size("vision_config.tokens_per_second", 4))
    return family_of(
        checkpoint,
        width="text_config.hidden_size",
        pixels=".rules.frame_patches",
        video=rows_in_time(checkpoint, per_second),
    )


def rows_in_time(checkpoint: Checkpoint, per_second: float | None) -> Place | None:
    """Of a video all of whose rows follow each other: so many positions in time a second, or one for each
    item. None where the checkpoint has no token for videos."""
    if checkpoint.value("video_token_id") is None:
        return None
    token = checkpoint.token("video_token_id")

    def later(starts_s: Sequence[float]) -> Sequence[int]:
        if per_second is None:
            return range(len(starts_s))
        return [int((start_s - starts_s[0]) * per_second + _ROUNDING) for start_s in starts_s]

    return Place(written=token, text_of=one_each(token), token=token, later=later)


def behind_times(checkpoint: Checkpoint) -> Place | None:
    """Of a video each of whose items stands behind its time, between marks of its own: as of Qwen3-VL. None
    where the checkpoint has no token for videos."""
    if checkpoint.value("video_token_id") is None:
        return None
    token = checkpoint.token("video_token_id")
    start, end = checkpoint.token("vision_start_token_id"), checkpoint.token("vision_end_token_id")

    def text_of(media: MediaItems) -> str:
        return "".join(f"<{time_s:.1f} seconds>{start}{token}{end}" for time_s in media.times_s)

    return Place(written=token, text_of=text_of, token=token)


def family_of(
    checkpoint: Checkpoint,
    *,
    width: str,
    pixels: str = ".merged_patches",
    num_levels: int = 1,
    video: Place | None = None,
) -> MediaFamily:
    """One with such a rule of pixels; `width` is where the config has that of its decoder, `video` where
    videos lie in a prompt (None: they are not taken)."""
    token = checkpoint.token("image_token_id", "image_token_index")
    vision = "vision_config."
    merge = checkpoint.size(f"{vision}spatial_merge_size", 2)
    patch = checkpoint.size(f"{vision}patch_size", 14)
    channels = checkpoint.size(f"{vision}in_channels", checkpoint.size(f"{vision}in_chans", 3))
    depth = checkpoint.size(f"{vision}temporal_patch_size", 2)
    places: dict[MediaKind, Place] = {"image": Place(written=token, text_of=one_each(token), token=token)}
    if video is not None:
        places["video"] = video
    return MediaFamily(
        purpose="chat · text, images" + (", video" if "video" in places else ""),
        media=MediaRules(pixels=pixels, pixel_kinds=frozenset(places)),
        places=places,
        num_rows=partial(_num_rows, merge),
        encode=encode,
        row_width=num_levels * checkpoint.size(width),
        feature_shape=(None, channels * depth * patch**2),
        positions=rotary_positions,
        rotary_axes=3,
        merge_size=merge,
        batches_any_grid=True,
    )


def _num_rows(merge: int, features: Features) -> int:
    return features.shape[0] // merge**2


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures one behind the other, by their grids."""
    output = model.get_image_features(batch.joined, image_grid_thw=batch.grids)
    levels = getattr(output, "deepstack_features", None)
    return list(zip(output.pooler_output, *levels, strict=True)) if levels else list(output.pooler_output)
