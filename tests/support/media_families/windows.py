"""Families that hear windows of features."""

from __future__ import annotations

from typing import Any

from support.media_family import Family, windows

_WINDOW_S = 2
_WHISPER = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "chunk_length": _WINDOW_S,
    "feature_size": 16,
}
_EARS: dict[str, Any] = {
    "num_mel_bins": 16,
    "max_source_positions": 50 * _WINDOW_S,
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
}
_HEARD: dict[str, Any] = {
    "num_mel_bins": 16,
    "max_source_positions": 50 * _WINDOW_S,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
AUDIO_FAMILIES = (
    Family(
        "audioflamingo3",
        "<sound>",
        ("<sound>",),
        {"audio_config": {"model_type": "audioflamingo3_encoder", **_EARS}, "audio_token_id": "<sound>"},
        _WHISPER,
        {"model_type": "qwen2"},
        windows("input_features_mask"),
    ),
    Family(
        "glmasr",
        "<|begin_of_audio|><|pad|><|end_of_audio|>",
        ("<|begin_of_audio|>", "<|pad|>", "<|end_of_audio|>"),
        {"audio_config": {"model_type": "glmasr_encoder", **_HEARD}, "audio_token_id": "<|pad|>"},
        _WHISPER,
        inputs=windows("input_features_mask"),
    ),
    Family(
        "qwen2_audio",
        "Audio 1: <|audio_bos|><|AUDIO|><|audio_eos|>\n",
        ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"),
        {"audio_config": {"model_type": "qwen2_audio_encoder", **_EARS}, "audio_token_id": "<|AUDIO|>"},
        _WHISPER,
        {"model_type": "qwen2"},
        windows("feature_attention_mask"),
    ),
    Family(
        "voxtral",
        "[BEGIN_AUDIO][AUDIO]",
        ("[BEGIN_AUDIO]", "[AUDIO]"),
        {"audio_config": {"model_type": "voxtral_encoder", **_HEARD}, "audio_token_id": "[AUDIO]"},
        _WHISPER,
        inputs=windows(None),
    ),
)
