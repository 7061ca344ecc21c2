"""GLM-ASR: a recording is windows, of which four frames after a convolution are a row."""

from __future__ import annotations

from typing import Final

from ..family import Checkpoint, MediaFamily, TranscriptionRule
from .audio_windows import family_of, masked

_LANGUAGES: Final = ("zh", "yue", "en")


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    seconds = checkpoint.processor.get("max_audio_len", 655)
    return family_of(
        checkpoint,
        num_tokens=num_tokens,
        encode=masked(num_tokens),
        max_seconds=float(seconds),
        transcription=TranscriptionRule(
            languages=_LANGUAGES,
            instruction=checkpoint.processor.get(
                "default_transcription_prompt", "Please transcribe this audio into text"
            ),
        ),
    )


def num_tokens(num_frames: int) -> int:
    """Rows of so many frames."""
    return ((num_frames - 1) // 2 + 1 - 4) // 4 + 1
