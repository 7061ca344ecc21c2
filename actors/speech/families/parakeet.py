"""Parakeet CTC as a speech model of overlapping windows: how long these are, and their features.

Torch-free. What is made of windows is `actors/speech/windowed/`; the model is in `engine/models/parakeet/`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....engine.models.parakeet.info import ParakeetInfo
from ....engine.models.parakeet.side import TransducerText
from ....media.audio.nemo_features import NemoFeatureConfig, NemoLogMel, normalised
from ....media.transcript.range_answer import Samples
from ....protocols.shared.audio_format import INTERNAL_RATE
from ...inference.client import EngineClient
from ...runtime.compute_pool import give_way
from ..windowed.family import Frames, WindowedFamily

OVERLAP_ROWS: Final = 50
"""Four seconds that two windows have in common: either is relied on where it has two seconds of context."""
_PIECE: Final = 10 * INTERNAL_RATE
"""Samples whose features are computed before others may go first: 30 ms of work."""


def open_family(engine: EngineClient, info: ParakeetInfo, text: TransducerText) -> WindowedFamily:
    """The speech side of a checkpoint. Raises ModelLoadError naming the file at fault."""
    config = NemoFeatureConfig.from_folder(info.folder, info.extractors, num_mel_bins=info.num_mel_bins)
    return WindowedFamily(
        engine=engine,
        text=text,
        languages=("en",),
        row_samples=info.input_frames_per_row * config.hop_length,
        window_rows=info.whole_input_rows,
        overlap_rows=OVERLAP_ROWS,
        features=lambda samples: _features(samples, config),
    )


def _features(samples: Samples, config: NemoFeatureConfig) -> Frames:
    """Each band is normalised by itself over the window, as the model has learned it for utterances."""
    if len(samples) < config.hop_length:
        return np.empty((config.num_mel_bins, 0), np.float32)
    source = NemoLogMel(config)
    found = []
    for start in range(0, len(samples), _PIECE):
        found.append(source.append(samples[start : start + _PIECE]))
        give_way()
    return normalised(np.concatenate((*found, source.finish()), axis=1))
