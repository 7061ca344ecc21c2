"""Granite Speech: a recording is encoded as a whole, and each block of its frames becomes a few rows.

Where an adapter lies in the folder the reference applies it to prompts with audio and to no others, which is
not done here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ......protocols.engine.messages import Features
from ......protocols.errors import ModelLoadError
from ....prompts import AudioClips, MediaRules
from ...family import Checkpoint, EncodeBatch, MediaFamily, Place, TranscriptionRule, one_each

_MAX_SECONDS: Final = 600.0
"""Of one recording: what encoding it takes grows with it."""
_LANGUAGES: Final = ("en", "fr", "de", "es", "pt", "ja")
_INSTRUCTION: Final = "can you transcribe the speech into a written format?"
_ADAPTER: Final = "adapter_config.json"


def open_family(checkpoint: Checkpoint) -> MediaFamily:
    """See `family.py`. Raises ModelLoadError for a checkpoint with an adapter inside."""
    if (checkpoint.folder / _ADAPTER).is_file():
        raise ModelLoadError(
            f"{checkpoint.folder} has an adapter for prompts with audio ({_ADAPTER}), which is not applied "
            "here; allowed: checkpoints without one; merge it into the weights (`merge_and_unload` of peft), "
            "and remove the file"
        )
    token = checkpoint.token("audio_token_index", "audio_token_id")
    window = checkpoint.size("window_size", 15)
    rows_of_window = window // checkpoint.size("downsample_rate", 5)

    def num_tokens(num_frames: int) -> int:
        return -(-num_frames // window) * rows_of_window

    def num_rows(features: Features) -> int:
        return num_tokens(features.shape[0])

    return MediaFamily(
        purpose="chat · text, audio",
        media=MediaRules(audio=AudioClips(".rules.granite_speech", num_tokens, _MAX_SECONDS)),
        places={"audio": Place(written=token, text_of=one_each(token), token=token)},
        num_rows=num_rows,
        encode=encode,
        row_width=checkpoint.size("text_config.hidden_size"),
        transcription=TranscriptionRule(languages=_LANGUAGES, instruction=_INSTRUCTION),
        feature_shape=(None, checkpoint.size("encoder_config.input_dim", 160)),
    )


def encode(model: Any, batch: EncodeBatch) -> Iterable[Any]:  # noqa: ANN401 (of transformers)
    """Recordings of one length: others would be heard with silence behind them."""
    return list(model.get_audio_features(batch.stacked).pooler_output)
