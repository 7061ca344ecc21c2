"""Whisper as a speech model: what `engine/models/whisper/source.py` names as its speech side."""

from __future__ import annotations

from ...engine.models.info import ModelInfo
from ...engine.models.whisper.text import WhisperText
from ...media.features import FeatureConfig
from ...media.voice_activity import VoiceActivityModel
from ..engine.engine import Engine
from .transcriber import Transcriber
from .windows import WindowDecoder


def open_family(
    engine: Engine, info: ModelInfo, text: WhisperText, activity: VoiceActivityModel | None
) -> Transcriber:
    """What transcribes with `engine`. Raises ModelLoadError for a feature extractor that is not known."""
    return Transcriber(WindowDecoder(engine, text, FeatureConfig.from_folder(info.folder)), activity)
