"""Voxtral: a recording is whole windows, filled up with silence, of which each has the same number of
rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..family import Checkpoint, EncodeBatch, MediaFamily, TranscriptionRule
from .audio_windows import family_of

_LANGUAGES: Final = ("en", "es", "fr", "pt", "hi", "de", "nl", "it")


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`."""
    audio = "audio_config."
    places = checkpoint.size(f"{audio}max_source_positions", 1500)
    width, joined = (checkpoint.size(f"{audio}{name}") for name in ("hidden_size", "intermediate_size"))
    rows = places * width // joined
    return family_of(
        checkpoint,
        num_tokens=lambda _: rows,
        encode=encode,
        cut="padded",
        transcription=_transcription(checkpoint),
    )


def _transcription(checkpoint: Checkpoint) -> TranscriptionRule | None:
    """As `mistral_common` writes it; None where the tokenizer has no tokens for it."""
    marks = ("[INST]", "[BEGIN_AUDIO]", "[/INST]", "[TRANSCRIBE]")
    if any(checkpoint.text.id_of(each) is None for each in marks):
        return None
    start = "<s>" if checkpoint.text.id_of("<s>") is not None else ""
    opening, begin, closing, transcribe = marks

    def written(recording: str, language: str | None) -> str:
        named = "" if language is None else f"lang:{language}"
        return f"{start}{opening}{begin}{recording}{closing}{named}{transcribe}"

    return TranscriptionRule(languages=_LANGUAGES, written=written)


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Windows, each with the same number of rows."""
    rows = model.get_audio_features(batch.stacked).pooler_output
    return list(rows.view(len(batch.stacked), -1, rows.shape[-1]))
