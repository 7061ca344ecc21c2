"""Gemma 4: patches of any grid, of which squares become a row. In some checkpoints rows of a picture see each
other both ways, in layers with a window only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, cast

from ......protocols.engine.messages import Features, MediaItems
from ....prompts import IMAGES, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Padding, Place

_PLACEHOLDERS: Final = ("image_token_id", "video_token_id", "audio_token_id")


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    if checkpoint.value("vision_config") is None:
        raise checkpoint.fault("vision_config", None, "an object: the tower that sees")
    token = checkpoint.token("image_token_id")
    start, end = checkpoint.token("boi_token_id"), checkpoint.token("eoi_token_id")
    pooled = checkpoint.size("vision_config.pooling_kernel_size", 3)
    ids = [checkpoint.value(path) for path in _PLACEHOLDERS]

    def text_of(media: MediaItems) -> str:
        return f"{start}{token}{end}" * len(media.items)

    def num_rows(features: Features) -> int:
        return math.prod(features.grid or ()) // pooled**2

    return MediaFamily(
        purpose="chat · text, images",
        media=MediaRules(pixels=".rules.pooled_patches", pixel_kinds=IMAGES),
        places={"image": Place(written=token, text_of=text_of, token=token)},
        num_rows=num_rows,
        encode=_encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(None, 3 * checkpoint.size("vision_config.patch_size", 16) ** 2),
        merge_size=pooled,
        sees_whole_items=checkpoint.value("text_config.use_bidirectional_attention") == "vision",
        sees_whole_in_windows=True,
        padding=Padding(
            token_ids=tuple(each for each in ids if type(each) is int),
            pad_id=checkpoint.value("text_config.pad_token_id", 0),
        ),
        layer_inputs=_layer_inputs,
    )


def _encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one grid."""
    _, tall, wide = batch.grid or (1, 1, 1)
    places = batch.ids([axis for y in range(tall) for x in range(wide) for axis in (x, y)])
    pixels = batch.stacked
    places = places.view(1, -1, 2).expand(pixels.shape[0], -1, -1)
    return cast(Iterable[Any], model.get_image_features(pixels, places).pooler_output)


def _layer_inputs(decoder: Any, token_ids: Any) -> dict[str, Any]:  # noqa: ANN401
    """What each layer is given of a token, where they are given any."""
    if not decoder.config.hidden_size_per_layer_input:
        return {}
    return {"per_layer_inputs": decoder.get_per_layer_inputs(token_ids, None)}
