"""The features of audio that is all there."""

from __future__ import annotations

from sensorium.media.audio.features import FeatureConfig, FloatArray, IncrementalLogMel


def log_mel(config: FeatureConfig, samples: FloatArray) -> FloatArray:
    """Features [num_mel_bins, window_frames] of samples [n], n at most the window."""
    stream = IncrementalLogMel(config)
    stream.append(samples)
    return stream.features()
