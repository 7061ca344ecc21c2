"""Qwen3-ASR as a speech model: what `engine/models/qwen3_asr/model.py` names as its speech side."""

from __future__ import annotations

from ...engine.models.info import ModelInfo
from ...engine.models.qwen3_asr.text import Qwen3AsrText
from ...media.features import FeatureConfig
from ...media.voice_activity import VoiceActivityModel
from ..engine.engine import Engine
from .asr import AsrTranscriber
from .segments import SegmentDecoder


def open_family(
    engine: Engine, info: ModelInfo, text: Qwen3AsrText, activity: VoiceActivityModel | None
) -> AsrTranscriber:
    """What transcribes with `engine`. Raises ModelLoadError for a feature extractor that is not known."""
    features = FeatureConfig.from_folder(info.folder)
    return AsrTranscriber(SegmentDecoder(engine, text, features, max_context=info.max_context), activity)
