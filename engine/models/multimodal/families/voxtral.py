"""Voxtral: a recording is whole windows, filled up with silence, of which each has the same number of
rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..family import Checkpoint, EncodeBatch, MediaFamily
from .audio_windows import family_of


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    audio = "audio_config."
    places = checkpoint.size(f"{audio}max_source_positions", 1500)
    width, joined = (checkpoint.size(f"{audio}{name}") for name in ("hidden_size", "intermediate_size"))
    rows = places * width // joined
    return family_of(checkpoint, num_tokens=lambda _: rows, encode=encode, cut="padded")


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Windows, each with the same number of rows."""
    rows = model.get_audio_features(batch.stacked).pooler_output
    return list(rows.view(len(batch.stacked), -1, rows.shape[-1]))
