"""Gemma 4: patches of any grid, of which squares become a row. In some checkpoints rows of a picture see each
other both ways, in layers with a window only. A video is its frames, each behind its time. Checkpoints with
an audio tower take recordings of up to half a minute, of which each is encoded as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

from ......protocols.engine.messages import Features, MediaItems, MediaKind
from ....prompts import AudioClips, MediaRules
from ...family import AudioEncoding, Checkpoint, EncodeBatch, MediaFamily, Padding, Place

_PLACEHOLDERS: Final = ("image_token_id", "video_token_id", "audio_token_id")
_VIDEO: Final = "<|video|>"
_MAX_SECONDS: Final = 30.0
"""Of one recording: the processor cuts off what is behind."""


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

    def film_of(media: MediaItems) -> str:
        return " ".join(f"{_minutes(each)} {start}{_VIDEO}{end}" for each in media.starts_s)

    def num_rows(features: Features) -> int:
        return math.prod(features.grid or ()) // pooled**2

    places: dict[MediaKind, Place] = {"image": Place(written=token, text_of=text_of, token=token)}
    if checkpoint.has_control(_VIDEO):
        places["video"] = Place(written=_VIDEO, text_of=film_of, token=_VIDEO)
    family = MediaFamily(
        purpose="chat · text, images" + (", video" if "video" in places else ""),
        media=MediaRules(pixels=".rules.pooled_patches", pixel_kinds=frozenset(places), is_live=False),
        places=places,
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
    return family if checkpoint.value("audio_config") is None else _with_audio(family, checkpoint)


def _with_audio(family: MediaFamily, checkpoint: Checkpoint) -> MediaFamily:
    """One that sees, and hears recordings."""
    token = checkpoint.token("audio_token_id")
    start = checkpoint.token("boa_token_id")
    end = checkpoint.token("eoa_token_id", "eoa_token_index")
    channels = checkpoint.value("audio_config.subsampling_conv_channels", [128, 32])

    def text_of(media: MediaItems) -> str:
        return f"{start}{token}{end}" * len(media.items)

    def num_rows(features: Features) -> int:
        return num_audio_rows(features.shape[0]) if _is_audio(features) else family.num_rows(features)

    return replace(
        family,
        purpose=f"{family.purpose}, audio",
        media=replace(
            family.media, audio=AudioClips(".rules.universal_speech", num_audio_rows, _MAX_SECONDS)
        ),
        places={**family.places, "audio": Place(written=token, text_of=text_of, token=token)},
        num_rows=num_rows,
        # As many mel bins as its first convolution has channels.
        audio=AudioEncoding(is_audio=_is_audio, encode=_hear, feature_shape=(None, channels[0])),
    )


def num_audio_rows(num_frames: int) -> int:
    """Of a recording: two convolutions take every other frame."""
    return -(-num_frames // 4)


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"


def _is_audio(features: Features) -> bool:
    """Patches of pictures lie in a grid."""
    return features.grid is None


def _hear(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Recordings of one length, of which no frame is hidden."""
    features = batch.stacked
    num_items, num_frames, _ = features.shape
    is_frame = batch.below([num_frames] * num_items, num_frames)
    return list(model.get_audio_features(features, is_frame).pooler_output)


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
