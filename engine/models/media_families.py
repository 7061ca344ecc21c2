"""The families of models that see or hear, by what a config calls them: a line and a file for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class MediaEntry(NamedTuple):
    """What a config calls a family, and its file."""

    architecture: str
    model_type: str
    """For a config that names no architecture."""
    module: str
    """Its file in `engine/models/multimodal/families/`."""


ENTRIES: Final[tuple[MediaEntry, ...]] = (
    MediaEntry("AudioFlamingo3ForConditionalGeneration", "audioflamingo3", ".audioflamingo3"),
    MediaEntry("AyaVisionForConditionalGeneration", "aya_vision", ".aya_vision"),
    MediaEntry("DeepseekVLForConditionalGeneration", "deepseek_vl", ".deepseek_vl"),
    MediaEntry("Gemma3ForConditionalGeneration", "gemma3", ".gemma3"),
    MediaEntry("Glm4vForConditionalGeneration", "glm4v", ".glm4v"),
    MediaEntry("GlmOcrForConditionalGeneration", "glm_ocr", ".glm4v"),
    MediaEntry("GlmAsrForConditionalGeneration", "glmasr", ".glmasr"),
    MediaEntry("Idefics3ForConditionalGeneration", "idefics3", ".idefics3"),
    MediaEntry("InternVLForConditionalGeneration", "internvl", ".internvl"),
    MediaEntry("LlavaForConditionalGeneration", "llava", ".llava"),
    MediaEntry("LlavaNextForConditionalGeneration", "llava_next", ".llava_next"),
    MediaEntry("LlavaOnevisionForConditionalGeneration", "llava_onevision", ".llava_onevision"),
    MediaEntry("Mistral3ForConditionalGeneration", "mistral3", ".mistral3"),
    MediaEntry("Qwen2AudioForConditionalGeneration", "qwen2_audio", ".qwen2_audio"),
    MediaEntry("Qwen2VLForConditionalGeneration", "qwen2_vl", ".merged_patches"),
    MediaEntry("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", ".merged_patches"),
    MediaEntry("Qwen3_5ForConditionalGeneration", "qwen3_5", ".qwen3_5"),
    MediaEntry("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", ".qwen3_5"),
    MediaEntry("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe", ".qwen3_vl_moe"),
    MediaEntry("SmolVLMForConditionalGeneration", "smolvlm", ".idefics3"),
    MediaEntry("VipLlavaForConditionalGeneration", "vipllava", ".llava"),
    MediaEntry("VoxtralForConditionalGeneration", "voxtral", ".voxtral"),
)


def entry_of(config: Mapping[str, Any]) -> MediaEntry | None:
    """The family of a config; None: none of these."""
    named, model_type = config.get("architectures"), config.get("model_type")
    architecture = named[0] if isinstance(named, list) and named else None
    for entry in ENTRIES:
        if architecture == entry.architecture or (architecture is None and model_type == entry.model_type):
            return entry
    return None
