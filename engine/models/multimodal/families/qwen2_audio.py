"""Qwen2-Audio: a recording is one window, of which two frames after a convolution are a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..family import Checkpoint, EncodeBatch, MediaFamily
from .audio_windows import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Longer recordings are refused, where the reference hears their beginning."""
    window_s = checkpoint.size("audio_config.max_source_positions", 1500) / 50
    return family_of(checkpoint, num_tokens=num_tokens, encode=encode, max_seconds=window_s)


def _convolved(num_frames: int) -> int:
    return (num_frames - 1) // 2 + 1


def num_tokens(num_frames: int) -> int:
    """Rows of so many frames."""
    return (_convolved(num_frames) - 2) // 2 + 1


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Windows with what is no audio hidden, as the model itself, which has no function of its own for it,
    does."""
    features, lengths = batch.stacked, batch.num_frames
    num_places = (features.shape[-1] - 2) // 2 + 1
    is_hidden = ~batch.below(list(map(_convolved, lengths)), num_places)
    mask = features.new_zeros(is_hidden.shape).masked_fill(is_hidden, float("-inf"))
    mask = mask[:, None, None].expand(-1, 1, num_places, -1)
    encoded = model.audio_tower(features, attention_mask=mask).last_hidden_state
    rows = model.multi_modal_projector(encoded)
    return [each[: num_tokens(length)] for each, length in zip(rows, lengths, strict=True)]
