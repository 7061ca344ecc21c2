"""What others may know of a Parakeet CTC checkpoint. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from ..info import ModelInfo

WINDOW_FRAMES: Final = 3000
"""Mel frames of 10 ms that are encoded at once, at most: attention spans all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParakeetInfo(ModelInfo):
    """What others may know of a loaded model; its folder holds the feature extractor's config."""

    num_mel_bins: int
    window_frames: int = WINDOW_FRAMES
    extractors: ClassVar = {"ParakeetFeatureExtractor": 80}

    def describe(self) -> str:
        """What it can do, for people."""
        return f"transcribe · windows of up to {self.window_frames / 100:g} s"
