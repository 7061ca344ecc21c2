"""Audio Flamingo 3: a recording is windows, of which two frames after a convolution are a row."""

from __future__ import annotations

from ..family import Checkpoint, MediaFamily, TranscriptionRule
from .audio_windows import family_of, masked
from .qwen2_audio import num_tokens


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    seconds = checkpoint.processor.get("max_audio_len", 600)
    return family_of(
        checkpoint,
        num_tokens=num_tokens,
        encode=masked(num_tokens),
        max_seconds=float(seconds),
        transcription=TranscriptionRule(
            languages=("en",),
            instruction=checkpoint.processor.get(
                "default_transcription_prompt", "Transcribe the input speech."
            ),
            is_instruction_first=True,
        ),
    )
