"""What families share whose audio is windows of Whisper's features, each encoded by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from .....protocols.engine.messages import Features
from ...prompts import AudioCut, AudioWindows, MediaRules
from ..family import Checkpoint, EncodeBatch, MediaFamily, Place, TranscriptionRule, one_each

EXTRACTORS: Final = {"WhisperFeatureExtractor": 128}


def family_of(
    checkpoint: Checkpoint,
    *,
    num_tokens: Callable[[int], int],
    encode: Callable[[Any, EncodeBatch], Iterable[Any]],
    cut: AudioCut = "apart",
    max_seconds: float | None = None,
    transcription: TranscriptionRule | None = None,
) -> MediaFamily:
    """One whose windows of so many frames have `num_tokens` rows."""
    token = checkpoint.token("audio_token_id", "audio_token_index")
    num_mel_bins = checkpoint.size("audio_config.num_mel_bins", 128)
    frames = 2 * checkpoint.size("audio_config.max_source_positions", 1500)
    return MediaFamily(
        purpose="chat · text, audio",
        media=MediaRules(
            audio=AudioWindows(
                frames,
                num_tokens,
                cut=cut,
                max_windows=None if max_seconds is None else max(1, int(100 * max_seconds) // frames),
                extractors=EXTRACTORS,
            )
        ),
        places={"audio": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=lambda features: num_tokens(num_frames(features)),
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        feature_shape=(num_mel_bins, frames),
        batches_any_grid=True,
        transcription=transcription,
    )


def num_frames(features: Features) -> int:
    """Frames of a window that are audio."""
    return features.shape[1] if features.grid is None else features.grid[2]


def masked(num_tokens: Callable[[int], int]) -> Callable[[Any, EncodeBatch], Iterable[Any]]:
    """A `MediaFamily.encode` of models that take a mask of frames."""

    def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
        mask = batch.below(batch.num_frames, batch.stacked.shape[-1]).long()
        output = model.get_audio_features(batch.stacked, input_features_mask=mask)
        return list(output.pooler_output.split(list(map(num_tokens, batch.num_frames))))

    return encode
