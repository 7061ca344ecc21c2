"""Granite 4 Vision: pictures as LLaVA-NeXT has them; encodings of several of the tower's layers are added in
front of several of the decoder's, and nothing is in place of embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from ...family import Checkpoint, EncodeBatch, MediaFamily
from ..llava_next import family_of

_SPATIAL_LAYERS = (12, 15, 18, 21)
"""Of the decoder, where a config does not say."""


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    rate, pairs = checkpoint.value("downsample_rate"), checkpoint.value("deepstack_layer_map", [])
    spatial = checkpoint.value("spatial_target_layers", _SPATIAL_LAYERS)
    try:
        layers = [int(decoder) for _, decoder in pairs] + [int(each) for each in spatial]
        family = family_of(checkpoint, most=None, rate=Fraction(rate))
    except (TypeError, ValueError, ZeroDivisionError):
        found = [rate, pairs, spatial]
        field = "downsample_rate, deepstack_layer_map and spatial_target_layers"
        raise checkpoint.fault(field, found, "a fraction, pairs of layers, and layers") from None
    return replace(
        family,
        encode=encode,
        row_width=(1 + len(layers)) * family.row_width,
        level_inputs=partial(_at_layers, layers),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Pictures of one size."""
    config = model.config
    output = model.get_image_features(
        batch.stacked,
        image_sizes=batch.grids[:, 1:],
        vision_feature_layer=config.vision_feature_layer,
        vision_feature_select_strategy=config.vision_feature_select_strategy,
    )
    for levels in zip(*(features for _, features in output.deepstack_features), strict=True):
        yield levels[0].new_zeros(levels[0].shape), *levels


def _at_layers(layers: Sequence[int], is_media: Any, levels: Sequence[Any]) -> Mapping[str, Any]:  # noqa: ANN401
    """Of two levels at one layer the model takes the later."""
    return {
        "vision_mask": is_media[..., None],
        "deepstack_features": dict(zip(layers, levels, strict=True)),
    }
