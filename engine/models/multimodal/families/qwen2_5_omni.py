"""Qwen2.5-Omni's thinker: pictures as Qwen2.5-VL, and windows of two seconds of sound, each by itself.

The models that speak, which lie in the same folder, are not read. The sound of a video is not interleaved
with its frames (`use_audio_in_video`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from .....protocols.engine.messages import Features
from ...prompts import AudioWindows
from ..family import AudioEncoding, Checkpoint, EncodeBatch, MediaFamily, Place, one_each
from . import merged_patches
from .audio_windows import EXTRACTORS
from .qwen2_audio import num_tokens


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    image = checkpoint.value("image_token_id", checkpoint.value("image_token_index"))
    checkpoint = replace(checkpoint, config=checkpoint.config | {"image_token_id": image})
    window_frames = 2 * checkpoint.size("audio_config.n_window", 100)
    seconds = float(checkpoint.processor.get("chunk_length", 300))
    return with_audio(
        merged_patches.family_of(checkpoint, width="text_config.hidden_size"),
        checkpoint,
        AudioWindows(
            window_frames,
            num_tokens,
            cut="trimmed",
            max_windows=int(100 * seconds) // window_frames,
            extractors=EXTRACTORS,
        ),
        num_tokens,
    )


def with_audio(
    family: MediaFamily, checkpoint: Checkpoint, windows: AudioWindows, num_rows: Callable[[int], int]
) -> MediaFamily:
    """One that sees, and hears by such windows."""
    token = checkpoint.token("audio_token_id", "audio_token_index")
    place = Place(written=token, text_of=one_each(token), token=token)
    num_mel_bins = checkpoint.size("audio_config.num_mel_bins", 128)

    def rows(features: Features) -> int:
        return num_rows(features.shape[1]) if is_audio(features) else family.num_rows(features)

    return replace(
        family,
        purpose=f"{family.purpose}, audio",
        media=replace(family.media, audio=windows),
        places={**family.places, "audio": place},
        num_rows=rows,
        audio=AudioEncoding(is_audio=is_audio, encode=encode, feature_shape=(num_mel_bins, None)),
    )


def is_audio(features: Features) -> bool:
    """Patches of pictures lie in a grid."""
    return features.grid is None


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Windows of one length, of which no frame is hidden."""
    features = batch.stacked
    num_frames = [features.shape[-1]] * len(features)
    mask = batch.below(num_frames, features.shape[-1]).long()
    rows = model.get_audio_features(features, feature_attention_mask=mask).last_hidden_state
    return list(rows.view(len(features), -1, rows.shape[-1]))
